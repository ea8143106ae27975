/* stream.c - the cost of the store's own work while pages stream: 256 sequences of 8 000 rows each,
 * an eighth of which fits in memory. The tier does nothing, and the benchmark computes no KV row.
 * One CSV row is for a resident cache and one for a streaming cache:
 *
 *     cache,stream,where,seconds to fill,median us of a step of one token each,of a step of one sequence */
#include "kv/kv.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 256, ROWS = 8000, CHUNK = 250, STEPS = 21 };

static int none(struct kv_tier *t, struct kv_io *io, uint32_t n)
{
    (void)t;
    for (uint32_t i = 0; i < n; i++)
        io[i].err = 0;
    return 0;
}

static void drop(struct kv_tier *t, uint64_t at, size_t n)
{
    (void)t, (void)at, (void)n;
}

static void done(struct kv_tier *t)
{
    (void)t;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures the median time of a step of one token for each of n sequences. */
static int steps(struct kv *kv, const kv_seq *s, uint32_t n, double *us)
{
    static struct kv_span span[SEQS];
    static double t[STEPS];
    static const int32_t id = 5;
    for (uint32_t i = 0; i < STEPS; i++) {
        struct kv_step *st;
        uint32_t lanes = MIN(n, kv_step_lanes(kv));
        double at = now_seconds();
        for (uint32_t k = 0; k < n; k += lanes) {
            for (uint32_t j = 0; j < MIN(lanes, n - k); j++)
                span[j] = (struct kv_span){.seq = s[k + j], .n = 1, .tok = &id};
            TRY(kv_begin(kv, span, MIN(lanes, n - k), &st));
            TRY(kv_commit(st, NULL));
        }
        t[i] = now_seconds() - at;
    }
    qsort(t, STEPS, sizeof *t, by_value);
    *us = 1e6 * t[STEPS / 2];
    return 0;
}

static int measure(struct kv_config *config, const char *where)
{
    static int32_t ids[CHUNK];
    static kv_seq s[SEQS];
    struct kv *kv;
    double many, one;
    TRY(kv_open(&kv, config));
    int e = 0;
    double t = now_seconds();
    for (uint32_t i = 0; i < SEQS && e >= 0; i++)
        e = kv_new(kv, 0, &s[i]);
    for (uint32_t at = 0; at < ROWS; at += CHUNK)
        for (uint32_t i = 0; i < SEQS && e >= 0; i++) {
            struct kv_span span = {.seq = s[i], .n = CHUNK, .tok = ids};
            struct kv_step *st;
            if ((e = kv_begin(kv, &span, 1, &st)) >= 0) e = kv_commit(st, NULL);
        }
    t = now_seconds() - t;
    if (e >= 0) e = steps(kv, s, SEQS, &many);
    if (e >= 0) e = steps(kv, s, 1, &one);
    if (e >= 0) printf("cache,stream,%s,%.3f,%.1f,%.1f\n", where, t, many, one);
    kv_close(kv);
    return e;
}

int main(void)
{
    struct kv_group g = {.policy = {.kind = KV_ROWS},
                         .n_sites = 1,
                         .rows = 16,
                         .n_planes = 2,
                         .stream = true,
                         .plane = {{"k", {1, 16, DT_F16, KV_STRIPS}, NULL},
                                   {"v", {1, 16, DT_F16, KV_ROWMAJOR}, NULL}}};
    struct kv_tier tier = {"nothing", none, none, drop, done};
    struct kv_config config = {.group = &g,
                               .n_groups = 1,
                               .max_seqs = SEQS,
                               .max_tokens = 256,
                               .max_len = ROWS + 200,
                               .pool_bytes = (size_t)256 << 20};
    int e = measure(&config, "memory");
    config.tier = &tier;
    config.streaming = KV_STREAM;
    config.stage_bytes = 8 << 20;
    config.pool_bytes = ((size_t)SEQS * ROWS * 64) / 8 + config.stage_bytes;
    if (e >= 0) e = measure(&config, "tier");
    if (e >= 0) return 0;
    fprintf(stderr, "bench_stream: %s\n", err_last());
    return 1;
}
