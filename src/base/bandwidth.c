/* bandwidth.c - see bandwidth.h.  The buffer is far larger than any cache, so every byte comes from memory. */
#include "base/bandwidth.h"
#include "base/thread.h"

#include <string.h>

enum { RUNS = 5, PIECE = 1 << 15, MOST_THREADS = 64 };

typedef uint64_t vec __attribute__((vector_size(32)));
struct read_test {
    const vec *data;
    size_t n;
    vec sum[MOST_THREADS]; /* so that the reads are not optimized away */
};

static void read_piece(void *ctx, uint32_t task, uint32_t thread)
{
    struct read_test *s = ctx;
    vec a = {0}, b = {0}, c = {0}, d = {0};
    size_t end = MIN(((size_t)task + 1) * PIECE, s->n);
    for (size_t i = (size_t)task * PIECE; i + 4 <= end; i += 4) {
        a += s->data[i];
        b += s->data[i + 1];
        c += s->data[i + 2];
        d += s->data[i + 3];
    }
    s->sum[thread % MOST_THREADS] += a + b + c + d;
}

double bandwidth_read(uint32_t n_threads)
{
    size_t bytes = (size_t)512 << 20;
    void *data = mem_aligned(bytes);
    struct read_test *s = mem_aligned(sizeof *s);
    struct pool *p = NULL;
    double t[RUNS], rate = 0;
    if (data && s && pool_open(&p, n_threads) >= 0) {
        *s = (struct read_test){.data = data, .n = bytes / sizeof(vec)};
        memset(data, 1, bytes);
        for (int i = 0; i < RUNS; i++) {
            double begun = now_seconds();
            pool_run(p, (uint32_t)((s->n + PIECE - 1) / PIECE), read_piece, s);
            t[i] = now_seconds() - begun;
        }
        rate = (double)bytes / median_of(t, RUNS);
        pool_close(p);
    }
    mem_free(s);
    mem_free(data);
    return rate;
}
