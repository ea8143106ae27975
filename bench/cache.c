/* cache.c - what the cache's own bookkeeping costs: one CSV row per case. The benchmark reads no
 * model and writes no KV row, so a step is begin, the views of 30 layers, and commit. */
#include "store.h"

#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int grow(struct kv *kv, kv_seq s, uint32_t n)
{
    struct kv_step *st;
    while (n) {
        struct kv_span sp = {.seq = s, .n = MIN(n, 256u)};
        TRY(kv_begin(kv, &sp, 1, &st));
        TRY(kv_commit(st, NULL));
        n -= sp.n;
    }
    return 0;
}

/* Measures the mean microseconds of a decode step of `lanes` sequences: the best of five rounds. */
static int step_time(struct kv *kv, const kv_seq *s, uint32_t lanes, bool views, double *best)
{
    struct kv_span sp[64];
    struct kv_view v;
    *best = 1e9;
    for (int round = 0; round < 5; round++) {
        double t = now();
        for (uint32_t i = 0; i < 100; i++) {
            struct kv_step *st;
            for (uint32_t k = 0; k < lanes; k++)
                sp[k] = (struct kv_span){.seq = s[k], .n = 1};
            TRY(kv_begin(kv, sp, lanes, &st));
            for (uint32_t site = 0; views && site < 30; site++)
                TRY(kv_next(st, site, &v));
            TRY(kv_commit(st, NULL));
        }
        t = (now() - t) / 100;
        if (t < *best) *best = t;
    }
    return 0;
}

static int fork_time(struct kv *kv, kv_seq s, double *best)
{
    kv_seq f[32];
    *best = 1e9;
    for (int round = 0; round < 5; round++) {
        double t = now();
        for (uint32_t i = 0; i < countof(f); i++)
            TRY(kv_fork(kv, s, &f[i]));
        t = (now() - t) / countof(f);
        if (t < *best) *best = t;
        for (uint32_t i = 0; i < countof(f); i++)
            TRY(kv_drop(kv, f[i]));
    }
    return 0;
}

static int reorder_time(struct kv *kv, const kv_seq *s, uint32_t n, double *best)
{
    uint32_t from[64];
    for (uint32_t i = 0; i < n; i++)
        from[i] = i / 2;
    *best = 1e9;
    for (int round = 0; round < 5; round++) {
        double t = now();
        TRY(kv_reorder(kv, s, from, n));
        t = now() - t;
        if (t < *best) *best = t;
    }
    return 0;
}

static int run(uint32_t window)
{
    struct kv *kv;
    double t;
    kv_seq s;
    TRY(store_open(&kv, window, false, (size_t)16 << 30));
    const char *name = window ? "window 512" : "full";
    static const uint32_t at[] = {100, 1200, 7000, 10000};
    TRY(kv_new(kv, NULL, &s));
    for (uint32_t i = 0; i < countof(at); i++) {
        TRY(grow(kv, s, at[i] - kv_len(kv, s)));
        TRY(fork_time(kv, s, &t));
        printf("cache,%s,fork,%u rows,%.2f us\n", name, at[i], t);
        TRY(step_time(kv, &s, 1, false, &t));
        printf("cache,%s,begin+commit,%u rows,%.2f us\n", name, at[i], t);
        TRY(step_time(kv, &s, 1, true, &t));
        printf("cache,%s,begin+30 views+commit,%u rows,%.2f us\n", name, at[i], t);
    }
    kv_seq beam[16] = {s};
    for (uint32_t i = 1; i < countof(beam); i++)
        TRY(kv_fork(kv, s, &beam[i]));
    TRY(step_time(kv, beam, 16, true, &t));
    printf("cache,%s,begin+30 views+commit of 16,about 11000 rows,%.2f us\n", name, t);
    TRY(reorder_time(kv, beam, 16, &t));
    printf("cache,%s,reorder of 16,about 11000 rows,%.2f us\n", name, t);
    kv_close(kv);
    return 0;
}

int main(void)
{
    if (run(0) < 0 || run(512) < 0) {
        fprintf(stderr, "bench_cache: %s\n", err_last());
        return 1;
    }
    return 0;
}
