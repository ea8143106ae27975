/* hearing.c - a queue of recordings and its thread; see hearing.h. */
#include "serve/hearing.h"
#include "base/thread.h"

struct hearing {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t bell;
    struct hearing_job *first, **last;
    size_t n, most;
    atomic_bool closing;
};

static struct hearing_job *take(struct hearing *h)
{
    pthread_mutex_lock(&h->lock);
    while (!h->first && !hearing_ends(h))
        pthread_cond_wait(&h->bell, &h->lock);
    struct hearing_job *j = hearing_ends(h) ? NULL : h->first;
    if (j) {
        if (!(h->first = j->next)) h->last = &h->first;
        h->n--;
    }
    pthread_mutex_unlock(&h->lock);
    return j;
}

static void *run(void *arg)
{
    struct hearing *h = arg;
    for (struct hearing_job *j; (j = take(h));)
        (exchange_gone(j->x) ? j->refuse : j->run)(j);
    return NULL;
}

int hearing_put(struct hearing *h, struct hearing_job *j)
{
    pthread_mutex_lock(&h->lock);
    bool room = h->n < h->most && !hearing_ends(h);
    if (room) {
        *h->last = j;
        h->last = &j->next;
        h->n++;
        pthread_cond_signal(&h->bell);
    }
    pthread_mutex_unlock(&h->lock);
    return room ? 0 : ERR(BUSY, "%zu recordings wait already; try again later", h->most);
}

bool hearing_ends(const struct hearing *h)
{
    return atomic_load(&h->closing);
}

int hearing_open(size_t most, struct hearing **out)
{
    struct hearing *h = mem_alloc(sizeof *h);
    if (!h) return ERR_NOMEM;
    h->most = most;
    h->last = &h->first;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->bell, NULL);
    if (thread_start(&h->thread, NULL, run, h) != 0) {
        mem_free(h);
        return ERR(NOMEM, "the thread that transcribes cannot be started");
    }
    *out = h;
    return 0;
}

void hearing_close(struct hearing *h)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    atomic_store(&h->closing, true);
    pthread_cond_signal(&h->bell);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    for (struct hearing_job *j = h->first, *next; j; j = next) {
        next = j->next;
        j->refuse(j);
    }
    pthread_cond_destroy(&h->bell);
    pthread_mutex_destroy(&h->lock);
    mem_free(h);
}
