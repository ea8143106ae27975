/* keeps.c - what it costs to evict the oldest snapshot of 1, 256 or 4 096 sequences with states.
 * The benchmark computes no state.
 *
 * The sequences grow in turn, by one snapshot a step.  Memory holds two snapshots for each
 * sequence, so each step evicts the oldest of all.  Then the same steps run with ample memory:
 *
 *     cache,keeps,sequences,median us of a step,snapshots evicted a step,median us with ample memory */
#include "kv/kv.h"

#include <stdio.h>

enum { MOST = 4096, EVERY = 16, FEWEST = 401, LAST = 201, ROUNDS = 8, WIDTH = 8192 };

static int grow(struct kv *kv, kv_seq s)
{
    static const int32_t ids[EVERY];
    struct kv_span span = {.seq = s, .n = EVERY, .tok = ids};
    struct kv_step *st;
    TRY(kv_begin(kv, &span, 1, &st));
    return kv_commit(st, NULL);
}

/* Takes all steps.  Measures the last ones: their median time, and how many snapshots a step
 * evicts. */
static int steps(struct kv *kv, uint32_t n, uint32_t all, double *us, double *evicted)
{
    static kv_seq s[MOST];
    static double seconds[LAST];
    struct kv_usage u;
    uint64_t before = 0;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t left = all - i;
        if (i < n) TRY(kv_new(kv, NULL, &s[i]));
        if (left == LAST) {
            kv_usage(kv, &u);
            before = u.evictions;
        }
        double t = now_seconds();
        TRY(grow(kv, s[i % n]));
        if (left <= LAST) seconds[LAST - left] = now_seconds() - t;
    }
    kv_usage(kv, &u);
    *evicted = (double)(u.evictions - before) / LAST;
    *us = 1e6 * median_of(seconds, LAST);
    return 0;
}

static int measure(uint32_t n, bool ample, double *us, double *evicted)
{
    uint32_t all = MAX(FEWEST, ROUNDS * n), rows = (all + n - 1) / n * EVERY;
    struct kv_group g = {.policy = {.kind = KV_STATE, .every = EVERY},
                         .n_sites = 1,
                         .n_planes = 2,
                         .plane = {{"conv", {1, WIDTH, DT_F32, KV_FLAT}, NULL},
                                   {"ssm", {1, WIDTH, DT_F32, KV_FLAT}, NULL}}};
    struct kv_config c = {
        .group = &g, .n_groups = 1, .max_seqs = n, .max_tokens = 256, .max_len = rows};
    size_t states = ample ? 16 * (size_t)n + 16 : 3 * (size_t)n + 1;
    struct kv *kv;
    c.pool_bytes =
        kv_pool_bytes(&c, states * 2 * WIDTH * sizeof(float) + 2 * n * kv_metadata_bytes(&c, rows));
    TRY(kv_open(&kv, &c));
    int e = steps(kv, n, all, us, evicted);
    kv_close(kv);
    return e;
}

int main(void)
{
    for (uint32_t n = 1; n <= MOST; n = n == 1 ? 256 : n * 16) {
        double full, ample, evicted, none;
        if (measure(n, false, &full, &evicted) < 0 || measure(n, true, &ample, &none) < 0) {
            fprintf(stderr, "bench_keeps: %s\n", err_last());
            return 1;
        }
        printf("cache,keeps,%u,%.2f,%.2f,%.2f\n", n, full, evicted, ample);
    }
    return 0;
}
