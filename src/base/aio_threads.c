/* aio_threads.c - background transfers by a few threads in pread and pwrite, where io_uring is not granted.
 * One queue, first in first out; everything but the transfer itself happens under one lock. */
#include "base/aio_int.h"
#include "base/thread.h"

#include <pthread.h>
#include <string.h>

/* a disk is fastest with a few requests at once; copies from memory gain nothing from more */
#define WORKERS 4u
#define STACK   ((size_t)1 << 17) /* a worker's frames are small, but sanitizers want room */

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct aio_op *head, **tail; /* queued */
    bool quit;
    int fd;
    uint32_t n;
    pthread_t worker[WORKERS];
};

static void *serve(void *arg)
{
    struct workers *c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->head && !c->quit)
            pthread_cond_wait(&c->work, &c->lock);
        struct aio_op *op = c->head;
        if (!op) break;
        c->head = op->next;
        if (!c->head) c->tail = &c->head;
        pthread_mutex_unlock(&c->lock);
        aio_block(c->fd, op);
        pthread_mutex_lock(&c->lock);
        op->busy = false;
        pthread_cond_signal(&c->done); /* one thread waits at most */
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void threads_close(struct aio *a)
{
    struct workers *c = a->own;
    pthread_mutex_lock(&c->lock);
    c->quit = true;
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < c->n; i++)
        pthread_join(c->worker[i], NULL);
    pthread_cond_destroy(&c->done);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

static int threads_open(struct aio *a)
{
    struct workers *c = mem_alloc(sizeof *c);
    pthread_attr_t attr;
    int e = 0;
    if (!c) return ERR_NOMEM;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->done, NULL);
    c->tail = &c->head;
    c->fd = a->fd;
    a->own = c;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    while (c->n < WORKERS && (e = thread_start(&c->worker[c->n], &attr, serve, c)) == 0)
        c->n++;
    pthread_attr_destroy(&attr);
    if (c->n) return 0; /* fewer threads are slower, but correct */
    threads_close(a);
    return ERR(NOMEM, "cannot start a thread for background transfers: %s", strerror(e));
}

static void threads_start(struct aio *a, struct aio_op *const *op, uint32_t n)
{
    struct workers *c = a->own;
    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < n; i++) {
        *c->tail = op[i];
        c->tail = &op[i]->next;
    }
    if (n == 1)
        pthread_cond_signal(&c->work);
    else
        pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
}

static void threads_wait(struct aio *a, struct aio_op *op)
{
    struct workers *c = a->own;
    pthread_mutex_lock(&c->lock);
    while (op->busy)
        pthread_cond_wait(&c->done, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

const struct aio_kind aio_threads = {"threads", threads_open, threads_close, threads_start,
                                     threads_wait};
