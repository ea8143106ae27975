/* mailbox.c - letters: what other threads send to clients, on the way to the network thread; see exchange.h.
 *
 * If memory is too short for a letter, the exchange ends as if the client had left, because a text with a hole would look whole. */
#include "serve/network.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void mailbox_ring(struct net *n)
{
    uint64_t one = 1;
    ssize_t w;
    do
        w = write(n->bell, &one, sizeof one);
    while (w < 0 && errno == EINTR);
}

void letter_free(struct letter *l)
{
    exchange_release(l->x);
    mem_free(l->text);
    mem_free(l);
}

static void post(struct exchange *x, const struct letter *what)
{
    struct net *n = x->net;
    struct letter *l = mem_alloc(sizeof *l);
    if (!l) {
        atomic_store(&x->gone, true);
        mem_free(what->text);
        return;
    }
    *l = *what;
    l->x = exchange_hold(x);
    pthread_mutex_lock(&n->lock);
    bool first = !n->first;
    *n->last = l;
    n->last = &l->next;
    pthread_mutex_unlock(&n->lock);
    if (first) mailbox_ring(n);
}

struct letter *mailbox_take(struct net *n)
{
    pthread_mutex_lock(&n->lock);
    struct letter *l = n->first;
    n->first = NULL;
    n->last = &n->first;
    pthread_mutex_unlock(&n->lock);
    return l;
}

void exchange_answer(struct exchange *x, int status, const char *type, char *text, size_t n)
{
    post(x, &(struct letter){
                .kind = LETTER_WHOLE, .status = status, .type = type, .text = text, .n = n});
}

void exchange_json(struct exchange *x, int status, json_t *o)
{
    char *text = NULL;
    if (!o || json_text(o, &text) < 0) {
        status = 500;
        text = mem_strdup("{\"error\":{\"message\":\"out of memory\",\"code\":500}}");
    }
    json_decref(o);
    exchange_answer(x, status, "application/json; charset=utf-8", text, text ? strlen(text) : 0);
}

void exchange_begin(struct exchange *x, const char *type, bool comments)
{
    post(x, &(struct letter){.kind = LETTER_BEGIN, .type = type, .comments = comments});
}

void exchange_send(struct exchange *x, const char *text, size_t n)
{
    if (exchange_gone(x)) return;
    char *copy = mem_strndup(text, n);
    if (!copy) atomic_store(&x->gone, true); /* a text with a hole would look whole */
    if (copy) post(x, &(struct letter){.kind = LETTER_PART, .text = copy, .n = n});
}

void exchange_finish(struct exchange *x)
{
    post(x, &(struct letter){.kind = LETTER_FINISH});
}

struct exchange *exchange_hold(struct exchange *x)
{
    atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    return x;
}

void exchange_release(struct exchange *x)
{
    if (!x || atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) != 1) return;
    bodies_give(x->net, &x->reserved);
    mem_free(x->path);
    mem_free(x->query);
    mem_free(x->key);
    mem_free(x->type);
    mem_free(x->origin);
    mem_free(x->body);
    mem_free(x);
}
