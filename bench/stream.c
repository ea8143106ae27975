/* stream.c - the cost of the store's own work while pages stream.  The tier does nothing, and the
 * benchmark computes no KV row.
 *
 * Filling: 256 sequences of 8 000 rows each, an eighth of which fits in memory.  One CSV row is for
 * a resident cache and one for a streaming cache:
 *
 *     cache,stream,where,seconds to fill,median us of a step of one token each,of a step of one sequence
 *
 * Moving: one sequence grows while others hold all memory, so each new page moves one to the tier.
 * The others are live, or kept by the prefix index:
 *
 *     cache,moves,how others are held,number of others,pages moved,us per page */
#include "kv/kv.h"

#include <stdio.h>

enum {
    SEQS = 256,
    ROWS = 8000,
    CHUNK = 250,
    STEPS = 21,
    OTHERS = 4096,
    SHORT = 512,
    GROWTH = 4000
};

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

static struct kv_tier tier = {
    .name = "nothing", .start = none, .finish = none, .drop = drop, .close = done};

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
    *us = 1e6 * median_of(t, STEPS);
    return 0;
}

/* Appends n rows of token `first`, then of token 0. */
static int grow(struct kv *kv, kv_seq s, int32_t first, uint32_t n)
{
    static int32_t ids[CHUNK];
    for (uint32_t at = 0; at < n; at += CHUNK) {
        struct kv_span span = {.seq = s, .n = MIN(CHUNK, n - at), .tok = ids};
        struct kv_step *st;
        ids[0] = at ? 0 : first;
        TRY(kv_begin(kv, &span, 1, &st));
        TRY(kv_commit(st, NULL));
    }
    return 0;
}

static int filling(struct kv_config *config, const char *where)
{
    static kv_seq s[SEQS];
    struct kv *kv;
    double many, one;
    TRY(kv_open(&kv, config));
    int e = 0;
    double t = now_seconds();
    for (uint32_t i = 0; i < SEQS && e >= 0; i++)
        e = kv_new(kv, 0, &s[i]);
    for (uint32_t at = 0; at < ROWS; at += CHUNK)
        for (uint32_t i = 0; i < SEQS && e >= 0; i++)
            e = grow(kv, s[i], 0, CHUNK);
    t = now_seconds() - t;
    if (e >= 0) e = steps(kv, s, SEQS, &many);
    if (e >= 0) e = steps(kv, s, 1, &one);
    if (e >= 0) printf("cache,stream,%s,%.3f,%.1f,%.1f\n", where, t, many, one);
    kv_close(kv);
    return e;
}

/* Fills memory with n sequences of SHORT rows, then measures the growth of one more. */
static int moves(struct kv *kv, uint32_t n, bool kept, size_t page)
{
    struct kv_usage before, after;
    kv_seq s;
    for (uint32_t i = 0; i < n; i++) {
        TRY(kv_new(kv, 0, &s));
        TRY(grow(kv, s, (int32_t)i + 1, SHORT));
        if (kept) TRY(kv_keep(kv, s));
    }
    TRY(kv_new(kv, 0, &s));
    kv_usage(kv, &before);
    double t = now_seconds();
    TRY(grow(kv, s, 0, GROWTH));
    t = now_seconds() - t;
    kv_usage(kv, &after);
    if (after.seqs + after.kept != n + 1)
        return ERR(FULL, "%u sequences were evicted", n - after.kept);
    uint64_t pages = (after.tier_written - before.tier_written) / page;
    printf("cache,moves,%s,%u,%llu,%.2f\n", kept ? "kept" : "live", n, (unsigned long long)pages,
           1e6 * t / (double)MAX(pages, 1));
    return 0;
}

static int moving(struct kv_config *config, size_t row)
{
    for (uint32_t n = 16; n <= OTHERS; n *= 16)
        for (int kept = 0; kept < 2; kept++) {
            struct kv *kv;
            config->max_seqs = n + 1;
            config->max_len = GROWTH;
            config->index = kept;
            config->pool_bytes =
                kv_pool_bytes(config, (size_t)n * SHORT * row / 8 + row * GROWTH / 4 +
                                          2 * (n * kv_metadata_bytes(config, SHORT) +
                                               kv_metadata_bytes(config, GROWTH)));
            TRY(kv_open(&kv, config));
            int e = moves(kv, n, kept, config->group->rows * row);
            kv_close(kv);
            TRY(e);
        }
    return 0;
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
    struct kv_config config = {.group = &g,
                               .n_groups = 1,
                               .max_seqs = SEQS,
                               .max_tokens = 256,
                               .max_len = ROWS + 200,
                               .pool_bytes = (size_t)256 << 20};
    int e = filling(&config, "memory");
    config.tier = &tier;
    config.streaming = KV_STREAM;
    config.stage_bytes = 8 << 20;
    size_t tables = 2 * SEQS * kv_metadata_bytes(&config, ROWS + 200);
    config.pool_bytes = kv_pool_bytes(&config, (size_t)SEQS * ROWS * 64 / 8 + tables);
    if (e >= 0) e = filling(&config, "tier");
    /* Wide rows, so that the index has room for all contents that it is to keep. */
    g.plane[0].shape.dim = g.plane[1].shape.dim = 512;
    if (e >= 0) e = moving(&config, 2 * 512 * 2);
    if (e >= 0) return 0;
    fprintf(stderr, "bench_stream: %s\n", err_last());
    return 1;
}
