/* desk.c - a queue of requests and the thread that reads them; see desk.h. */
#include "serve/desk.h"
#include "base/thread.h"

struct paper {
    struct paper *next;
    struct exchange *x;
    const struct route *route;
};

struct desk {
    struct server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t bell;
    struct paper *first, **last;
    bool closing;
};

static struct paper *take(struct desk *d)
{
    pthread_mutex_lock(&d->lock);
    while (!d->first && !d->closing)
        pthread_cond_wait(&d->bell, &d->lock);
    struct paper *p = d->closing ? NULL : d->first;
    if (p && !(d->first = p->next)) d->last = &d->first;
    pthread_mutex_unlock(&d->lock);
    return p;
}

static void *run(void *arg)
{
    struct desk *d = arg;
    for (struct paper *p; (p = take(d));) {
        if (exchange_gone(p->x))
            route_refuse(p->x, 499, "the client has left");
        else
            route_answer(d->server, p->x, p->route);
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
    pthread_cond_signal(&d->bell);
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
    if (thread_start(&d->thread, NULL, run, d) != 0) {
        mem_free(d);
        return ERR(NOMEM, "the thread that reads requests cannot be started");
    }
    *out = d;
    return 0;
}

void desk_close(struct desk *d)
{
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_cond_signal(&d->bell);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    for (struct paper *p = d->first, *next; p; p = next) {
        next = p->next;
        route_refuse(p->x, 503, "the server is closing");
        mem_free(p);
    }
    pthread_cond_destroy(&d->bell);
    pthread_mutex_destroy(&d->lock);
    mem_free(d);
}
