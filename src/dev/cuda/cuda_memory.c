/* cuda_memory.c - memory of the device: weights, arrays, pages, and copies.
 *
 * An operation may still run when its call returns, and so may a copy.  So what the host gives is first copied to
 * pinned memory, from which the device copies it later.  The caller's array is free at once. */
#include "dev/cuda/cuda.h"

#include <string.h>

/* --- the device */
void *cuda_weights(struct dev *base, const void *host, size_t n)
{
    struct cuda_dev *dev = (struct cuda_dev *)base;
    const struct cuda_rt *rt = dev->rt;
    void *stream = rt->stream(), *at = stream ? rt->alloc(CUDA_DEVICE, n) : NULL;
    const struct cuda_op op = {
        .act = CUDA_COPY, .how = CUDA_TO_DEVICE, .to = at, .from = host, .n = n};
    bool there = at && rt->give(stream, &op) >= 0 && rt->wait(stream) >= 0;
    if (!there)
        (void)ERR(NOMEM, "device cuda: no memory for %zu bytes of weights (%s)", n, rt->error());
    if (stream) rt->stream_close(stream);
    pthread_mutex_lock(&dev->lock);
    void **own = there ? mem_grow(dev->own, dev->n_own + 1u, sizeof *own) : NULL;
    if (own) {
        dev->own = own;
        own[dev->n_own++] = at;
    }
    pthread_mutex_unlock(&dev->lock);
    if (own) return at;
    if (at) rt->release(CUDA_DEVICE, at, 0);
    return NULL;
}

size_t cuda_page(const struct dev *d)
{
    return ((const struct cuda_dev *)d)->about.page;
}

void *cuda_range(struct dev *d, size_t n)
{
    return ((struct cuda_dev *)d)->rt->alloc(CUDA_RANGE, n);
}

void cuda_range_close(struct dev *d, void *at, size_t n)
{
    ((struct cuda_dev *)d)->rt->release(CUDA_RANGE, at, n);
}

int cuda_range_set(struct dev *d, void *at, size_t n, enum dev_range_as as)
{
    const struct cuda_rt *rt = ((struct cuda_dev *)d)->rt;
    if (as == DEV_RANGE_USED) return rt->back(at, n, true) < 0 ? -1 : 0;
    if (as == DEV_RANGE_DROPPED) (void)rt->back(at, n, false);
    return 0;
}

/* --- a queue */
static void *take(struct dev_queue *d, size_t n)
{
    void **own = mem_grow(d->own, d->n_own + 1u, sizeof *own);
    if (!own) return NULL;
    d->own = own;
    void *at = d->rt->alloc(CUDA_DEVICE, n);
    if (!at) {
        (void)ERR(NOMEM, "device cuda: no memory for %zu bytes (%s)", n, d->rt->error());
        return NULL;
    }
    own[d->n_own++] = at;
    return at;
}

void *cuda_alloc(struct dev_queue *d, size_t n)
{
    void *at = take(d, MAX(n, 1));
    if (at) cuda_fill(d, at, 0, n);
    return at;
}

void *cuda_mirror(struct dev_queue *d, const void *host, size_t n)
{
    (void)host;
    return take(d, MAX(n, 1));
}

void cuda_mirror_close(struct dev_queue *d, void *at, size_t n)
{
    (void)n;
    if (!at) return;
    cuda_wait(d); /* an operation may still read the memory */
    for (uint32_t i = 0; i < d->n_own; i++) {
        if (d->own[i] != at) continue;
        d->rt->release(CUDA_DEVICE, at, 0);
        d->own[i] = d->own[--d->n_own];
        return;
    }
}

int cuda_room(struct dev_queue *d, float **at, size_t *have, size_t n)
{
    if (n <= *have) return 0;
    cuda_wait(d);
    if (*at) d->rt->release(CUDA_DEVICE, *at, 0);
    *have = 0;
    *at = d->rt->alloc(CUDA_DEVICE, n * sizeof **at);
    if (!*at)
        return ERR(NOMEM, "device cuda: no memory for %zu bytes (%s)", n * sizeof **at,
                   d->rt->error());
    *have = n;
    return 0;
}

void *cuda_lend(struct dev_queue *d, const void *host, size_t n)
{
    (void)host;
    if (n <= d->n_lent && d->lent) return d->lent;
    cuda_wait(d);
    if (d->lent) d->rt->release(CUDA_DEVICE, d->lent, 0);
    d->n_lent = 0;
    d->lent = d->rt->alloc(CUDA_DEVICE, MAX(n, 1));
    if (!d->lent) {
        (void)ERR(NOMEM, "device cuda: no memory for %zu bytes (%s)", n, d->rt->error());
        return NULL;
    }
    d->n_lent = n;
    return d->lent;
}

void cuda_put(struct dev_queue *d, void *at, const void *host, size_t n)
{
    for (size_t done = 0, part; done < n && !d->failed; done += part) {
        part = MIN(n - done, CUDA_STAGE);
        if (part > CUDA_STAGE - d->staged) cuda_wait(d);
        unsigned char *from = d->stage + d->staged;
        memcpy(from, (const unsigned char *)host + done, part);
        d->staged = MIN((d->staged + part + 63) & ~(size_t)63, CUDA_STAGE);
        cuda_copy(d, (unsigned char *)at + done, from, part, CUDA_TO_DEVICE);
    }
}

/* Copies through the pinned memory, too.  The stream has done all copies that were staged there before. */
void cuda_get(struct dev_queue *d, void *host, const void *at, size_t n)
{
    cuda_flush(d);
    for (size_t done = 0, part; done < n && !d->failed; done += part) {
        part = MIN(n - done, CUDA_STAGE);
        const struct cuda_op op = {.act = CUDA_COPY,
                                   .how = CUDA_TO_HOST,
                                   .to = d->stage,
                                   .from = (const unsigned char *)at + done,
                                   .n = part};
        if (!cuda_ok(d, d->rt->give(d->main, &op))) break;
        cuda_wait(d);
        memcpy((unsigned char *)host + done, d->stage, part);
    }
    if (!n) cuda_wait(d);
}

const void *cuda_look(struct dev_queue *d, const void *at, size_t n, void *room)
{
    cuda_get(d, room, at, n);
    return room;
}

/* Adds a copy to a stream, in parts none of which crosses from one pinned piece into the next. */
static int give_parts(struct dev_queue *d, void *stream, unsigned char *to,
                      const unsigned char *from, size_t n, enum cuda_copy how)
{
    size_t page = cuda_page(d->base.dev);
    uintptr_t host = (uintptr_t)(how == CUDA_TO_DEVICE ? from : to);
    for (size_t done = 0, part; done < n; done += part) {
        part = MIN(n - done, page - (host + done) % page);
        const struct cuda_op op = {
            .act = CUDA_COPY, .how = how, .to = to + done, .from = from + done, .n = part};
        int e = d->rt->give(stream, &op);
        if (e < 0) return e;
    }
    return 0;
}

/* Returns a record of a copy that has ended, or a new one. */
static struct cuda_beside *beside(struct dev_queue *d)
{
    uint32_t i = 0;
    while (i < d->n_beside && d->beside[i].number)
        i++;
    if (i < d->n_beside) return &d->beside[i];
    struct cuda_beside *all = mem_grow(d->beside, i + 1u, sizeof *all);
    if (!all) {
        cuda_failed(d, ERR_NOMEM);
        return NULL;
    }
    d->beside = all;
    all[i] = (struct cuda_beside){0, d->rt->event()};
    if (!cuda_ok(d, all[i].event ? 0 : -1)) return NULL;
    d->n_beside++;
    return &all[i];
}

/* Begins a copy on the stream of its direction, after the operations that were called so far. */
static uint32_t begin(struct dev_queue *d, void *to, const void *from, size_t n, enum cuda_copy how)
{
    const struct cuda_rt *rt = d->rt;
    void *stream = d->aside[how];
    cuda_flush(d);
    struct cuda_beside *b = beside(d);
    if (!b || d->failed) return 0; /* 0 is no copy's number */
    bool begun = rt->record(d->reached, d->main) >= 0 && rt->after(stream, d->reached) >= 0 &&
                 give_parts(d, stream, to, from, n, how) >= 0 && rt->record(b->event, stream) >= 0;
    if (!cuda_ok(d, begun ? 0 : -1)) {
        (void)rt->wait(stream); /* nobody will wait for the parts that have begun */
        return 0;
    }
    d->last += d->last == UINT32_MAX ? 2 : 1; /* never 0 */
    return b->number = d->last;
}

uint32_t cuda_put_begin(struct dev_queue *d, void *at, const void *host, size_t n)
{
    return begin(d, at, host, n, CUDA_TO_DEVICE);
}

uint32_t cuda_get_begin(struct dev_queue *d, void *host, const void *at, size_t n)
{
    return begin(d, host, at, n, CUDA_TO_HOST);
}

int cuda_copied(struct dev_queue *d, uint32_t number)
{
    cuda_flush(d); /* the device must have work while the host waits */
    for (uint32_t i = 0; number && i < d->n_beside; i++) {
        struct cuda_beside *b = &d->beside[i];
        if (b->number != number) continue;
        b->number = 0;
        /* Operations that follow on the main stream may read what was copied, or reuse the source. */
        int e = d->rt->happened(b->event);
        if (e >= 0) e = d->rt->after(d->main, b->event);
        return e < 0 ? ERR(IO, "device cuda: %s", d->rt->error()) : 0;
    }
    return ERR(IO, "device cuda: a copy could not begin (%s)", d->why);
}

void cuda_move(struct dev_queue *d, void *to, const void *from, size_t n, size_t parts,
               size_t stride)
{
    if (n) LAUNCH(d, k_move, cuda_blocks(n * parts), 1, to, from, n, stride, n * parts);
}
