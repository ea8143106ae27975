/* arena.h - the memory of the hidden device, for device.c alone: pieces that were given out, side by side, readable and writable
 * only between enter and leave, and checks that an array lies in one of them. */
#pragma once
#include "dev/dev.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_THREAD__ /* the thread sanitizer has no larger ranges of addresses */
#define ARENA ((size_t)1 << 38)
#else
#define ARENA ((size_t)1 << 45) /* of addresses, for all devices */
#endif

#define PAGE ((size_t)16 << 10) /* of ranges; not the system's */

/* What was given out, ascending, side by side.  All of it goes back with the last device. */
struct piece {
    size_t from, n;
    const struct dev_queue *of; /* closed with this queue; NULL: of the device */
    bool closed;
    unsigned char *used; /* of a range: [n / PAGE] pages in use */
};
static struct piece *piece; /* [n_pieces] */
static size_t n_pieces;
static unsigned char *arena;
static size_t used,
    closed;            /* bytes that were given out, and those of them that callers have closed */
static uint32_t depth; /* of enter */
static size_t range_used;

static void protect(int how)
{
    if (used && mprotect(arena, used, how) != 0) {
        perror("hidden device: mprotect");
        abort();
    }
}

static void enter(void)
{
    if (depth++ == 0) protect(PROT_READ | PROT_WRITE);
}

static void leave(void)
{
    if (--depth == 0) protect(PROT_NONE);
}

/* Returns the piece that an address lies in, or NULL. */
static struct piece *piece_of(const void *at)
{
    size_t from = (size_t)((const unsigned char *)at - arena), lo = 0, hi = n_pieces;
    if (from >= used) return NULL;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        *(piece[mid].from <= from ? &lo : &hi) = mid;
    }
    return from - piece[lo].from < piece[lo].n ? &piece[lo] : NULL;
}

/* Ends the process unless these bytes lie in one piece of memory of the device. */
static void in(const char *what, const void *at, size_t n)
{
    const struct piece *p = n ? piece_of(at) : NULL;
    if (n == 0) return;
    size_t first = p ? (size_t)((const unsigned char *)at - arena) - p->from : 0;
    bool fits = p && !p->closed && n <= p->n - first, there = fits;
    for (size_t i = first / PAGE; fits && p->used && i * PAGE < first + n; i++)
        there = there && p->used[i];
    if (there) return;
    fprintf(stderr, "hidden device: %s, %zu bytes, %s\n", what, n,
            !p          ? "is memory of the host"
            : p->closed ? "was closed"
            : fits      ? "is in no page that is in use"
                        : "ends behind its memory");
    abort();
}

/* Ends the process if some of these bytes are memory of the device. */
static void outside(const char *what, const void *at, size_t n)
{
    const unsigned char *p = at;
    if (n == 0 || !arena || p >= arena + ARENA || p + n <= arena) return;
    fprintf(stderr, "hidden device: %s is memory of the device\n", what);
    abort();
}

static void floats(const char *what, const float *at, size_t n)
{
    in(what, at, n * sizeof *at);
}

/* The same for what need not be there. */
static void perhaps(const char *what, const float *at, size_t n)
{
    if (at) floats(what, at, n);
}

static void weight(const struct dev_weight *w)
{
    size_t n = 0;
    (void)dtype_bytes(w->dtype, (uint64_t)w->rows * w->cols, &n);
    in("a weight", w->data, n);
}

/* Returns one more than the largest of n ids that lie there. */
static size_t ids_end(const char *what, const void *at, uint32_t n)
{
    const uint32_t *id = at;
    size_t end = 0;
    in(what, id, n * sizeof *id);
    enter();
    for (uint32_t i = 0; i < n; i++)
        end = MAX(end, (size_t)id[i] + 1);
    leave();
    return end;
}

/* Returns what n bytes take, at least one. */
static size_t space(size_t n)
{
    return (n + 64) & ~(size_t)63;
}

static void *take(const struct dev_queue *of, size_t n, int fill)
{
    size_t bytes = space(n);
    if (!arena) {
        arena = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED) abort();
    }
    if (bytes > ARENA - used) {
        (void)ERR(NOMEM, "hidden device: no memory");
        return NULL;
    }
    struct piece *all = realloc(piece, (n_pieces + 1) * sizeof *piece);
    if (!all) abort();
    piece = all;
    piece[n_pieces++] = (struct piece){.from = used, .n = n, .of = of};
    void *at = arena + used;
    used += bytes;
    if (!fill) return at; /* new pages are zero */
    enter();
    memset(at, fill, n);
    leave();
    return at;
}

static void close_piece(void *at, size_t n)
{
    struct piece *p = at ? piece_of(at) : NULL;
    if (!at) return;
    if (!p || p->closed || p->n != n) {
        fprintf(stderr, "hidden device: what is closed was not given out\n");
        abort();
    }
    for (size_t i = 0; p->used && i < n / PAGE; i++)
        range_used -= p->used[i] * PAGE;
    free(p->used);
    p->used = NULL;
    p->closed = true;
    madvise(at, n, MADV_DONTNEED);
    closed += space(n);
    while (used > ARENA / 4 && n_pieces && piece[n_pieces - 1].closed) { /* addresses come again */
        closed -= used - piece[n_pieces - 1].from;
        used = piece[--n_pieces].from;
    }
}
