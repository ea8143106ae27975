/* desk.c - a queue of requests and the threads that read them; see desk.h.
 *
 * A text of megabytes is tokenized for seconds.  So the first thread takes short requests only, and a short one never
 * waits for a long one. */
#include "serve/desk.h"
#include "base/thread.h"

enum {
    READERS = 2,
    SHORT = 256 << 10 /* bytes */
};

struct paper {
    struct paper *next;
    struct exchange *x;
    const struct route *route;
};

struct desk {
    struct server *server;
    struct reader {
        struct desk *desk;
        pthread_t thread;
        size_t most; /* bytes of a request that it takes */
    } reader[READERS];
    uint32_t n_readers; /* those that were started */
    pthread_mutex_t lock;
    pthread_cond_t bell;
    struct paper *first, **last;
    bool closing;
};

static struct paper **find(struct desk *d, size_t most)
{
    struct paper **at = &d->first;
    while (*at && (*at)->x->n_body > most)
        at = &(*at)->next;
    return at;
}

static struct paper *take(const struct reader *r)
{
    struct desk *d = r->desk;
    struct paper **at, *p;
    pthread_mutex_lock(&d->lock);
    while (!*(at = find(d, r->most)) && !d->closing)
        pthread_cond_wait(&d->bell, &d->lock);
    p = d->closing ? NULL : *at;
    if (p && !(*at = p->next)) d->last = at;
    pthread_mutex_unlock(&d->lock);
    return p;
}

static void *run(void *arg)
{
    const struct reader *r = arg;
    for (struct paper *p; (p = take(r));) {
        if (exchange_gone(p->x))
            route_refuse(p->x, 499, "the client has left");
        else
            route_answer(r->desk->server, p->x, p->route);
        mem_free(p);
    }
    return NULL;
}

void desk_put(struct desk *d, struct exchange *x, const struct route *r)
{
    struct paper *p = mem_alloc(sizeof *p);
    if (!p) {
        route_refuse(x, 503, "out of memory");
        return;
    }
    p->x = x;
    p->route = r;
    pthread_mutex_lock(&d->lock);
    *d->last = p;
    d->last = &p->next;
    pthread_cond_broadcast(&d->bell);
    pthread_mutex_unlock(&d->lock);
}

int desk_open(struct server *s, struct desk **out)
{
    struct desk *d = mem_alloc(sizeof *d);
    if (!d) return ERR_NOMEM;
    d->server = s;
    d->last = &d->first;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->bell, NULL);
    for (uint32_t i = 0; i < READERS; i++) {
        struct reader *r = &d->reader[i];
        *r = (struct reader){.desk = d, .most = i ? SIZE_MAX : SHORT};
        if (thread_start(&r->thread, NULL, run, r) != 0) {
            desk_close(d);
            return ERR(NOMEM, "the threads that read requests cannot be started");
        }
        d->n_readers++;
    }
    *out = d;
    return 0;
}

void desk_close(struct desk *d)
{
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_cond_broadcast(&d->bell);
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->n_readers; i++)
        pthread_join(d->reader[i].thread, NULL);
    for (struct paper *p = d->first, *next; p; p = next) {
        next = p->next;
        route_refuse(p->x, 503, "the server is closing");
        mem_free(p);
    }
    pthread_cond_destroy(&d->bell);
    pthread_mutex_destroy(&d->lock);
    mem_free(d);
}
