/* crew.c - a queue and its threads; see crew.h. */
#include "serve/crew.h"
#include "base/thread.h"

struct crew {
    struct crew_options o;
    struct hand {
        struct crew *crew;
        pthread_t thread;
        size_t bytes;
        uint64_t client; /* client of the short work that the thread does now; 0: it does none */
    } hand[CREW_MOST];
    uint32_t n;      /* threads that were started */
    uint64_t newest; /* client of the work that was taken last */
    pthread_mutex_t lock;
    pthread_cond_t bell;
    struct crew_work *first, **last;
    size_t n_waiting;
    atomic_bool closing;
};

bool crew_ends(const struct crew *c)
{
    return atomic_load(&c->closing);
}

/* True if the work is short: every thread takes it. */
static bool is_short(const struct crew *c, const struct crew_work *w)
{
    for (uint32_t i = 0; i < CREW_MOST && c->o.bytes[i]; i++)
        if (w->x->n_body > c->o.bytes[i]) return false;
    return true;
}

/* True if some thread does a short work of this client.  Such a client gets no second thread for short works, so
 * that short requests which are hard to read (schemas) cannot keep all threads from the requests of others. */
static bool is_served(const struct crew *c, uint64_t client)
{
    for (uint32_t i = 0; i < CREW_MOST; i++)
        if (client && c->hand[i].client == client) return true;
    return false;
}

/* Finds the next work for a thread.  Clients take turns: a client whose work was taken last waits for the others. */
static struct crew_work **next_work(struct crew *c, const struct hand *h)
{
    struct crew_work **at = &c->first, **again = NULL;
    for (; *at; at = &(*at)->next) {
        const struct crew_work *w = *at;
        if (w->x->n_body > h->bytes ||
            (c->o.bytes[1] && is_short(c, w) && is_served(c, w->x->client)))
            continue;
        if (w->x->client != c->newest) return at;
        if (!again) again = at;
    }
    return again ? again : at;
}

static struct crew_work *wait_for_work(struct hand *h)
{
    struct crew *c = h->crew;
    struct crew_work **at, *w;
    pthread_mutex_lock(&c->lock);
    if (h->client) pthread_cond_broadcast(&c->bell);
    h->client = 0;
    while (!*(at = next_work(c, h)) && !crew_ends(c))
        pthread_cond_wait(&c->bell, &c->lock);
    w = crew_ends(c) ? NULL : *at;
    if (w) {
        c->newest = w->x->client;
        h->client = is_short(c, w) ? w->x->client : 0;
        if (!(*at = w->next)) c->last = at;
        c->n_waiting--;
    }
    pthread_mutex_unlock(&c->lock);
    return w;
}

static void *thread_main(void *arg)
{
    for (struct crew_work *w; (w = wait_for_work(arg));) {
        if (exchange_gone(w->x))
            w->refuse(w, 499, "the client has left");
        else
            w->run(w);
    }
    return NULL;
}

int crew_put(struct crew *c, struct crew_work *w)
{
    pthread_mutex_lock(&c->lock);
    bool room = c->n_waiting < c->o.waiting && !crew_ends(c);
    if (room) {
        w->next = NULL;
        *c->last = w;
        c->last = &w->next;
        c->n_waiting++;
        pthread_cond_broadcast(&c->bell);
    }
    pthread_mutex_unlock(&c->lock);
    return room ? 0 : ERR(BUSY, "%zu %s wait already; try again later", c->o.waiting, c->o.what);
}

int crew_open(const struct crew_options *o, struct crew **out)
{
    struct crew *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    c->o = *o;
    c->last = &c->first;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->bell, NULL);
    for (uint32_t i = 0; i < CREW_MOST; i++)
        c->hand[i] = (struct hand){.crew = c, .bytes = o->bytes[i]};
    for (uint32_t i = 0; i < CREW_MOST && o->bytes[i]; i++, c->n++) {
        struct hand *h = &c->hand[i];
        if (thread_start(&h->thread, NULL, thread_main, h) != 0) {
            crew_close(c);
            return ERR(NOMEM, "a thread for %s cannot be started", o->what);
        }
    }
    *out = c;
    return 0;
}

void crew_stop(struct crew *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->closing, true);
    pthread_cond_broadcast(&c->bell);
    pthread_mutex_unlock(&c->lock);
    for (; c->n; c->n--)
        pthread_join(c->hand[c->n - 1].thread, NULL);
    for (struct crew_work *w = c->first; w; w = c->first) {
        c->first = w->next;
        w->refuse(w, 503, "the server is closing");
    }
    c->last = &c->first;
}

void crew_close(struct crew *c)
{
    if (!c) return;
    crew_stop(c);
    pthread_cond_destroy(&c->bell);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}
