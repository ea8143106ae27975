/* index.c - what the prefix index costs with 10, 1 000 and 10 000 kept or live sequences: one CSV row for
 * each, in the geometry of SmolLM2-135M (30 layers, 3 heads of 64, f16). The benchmark reads no
 * model and computes no KV row.
 *
 *     cache,index,kept or live,sequences,median us of a hit of 1 024 tokens,of a hit of the 64 tokens that all share,of a miss,
 *     of keeping a sequence of 128 tokens,KiB of tables per sequence
 *
 * Every kept or live sequence has 128 tokens, and the first 64 are the same in all: a system prompt. Each
 * median is of 401 samples. */
#include "store.h"

#include <stdio.h>

enum { SAMPLES = 401, SHARED = 64, LENGTH = 128, LONG = 1024 };

static double median_us(double *v, size_t n)
{
    return 1e6 * median_of(v, n);
}

/* Makes the tokens of sequence k: the shared ones, then its own. */
static void tokens(int32_t *ids, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(i < SHARED ? i : 1000 + (i * 7919u + k * 104729u) % 40000);
}

/* Makes a sequence; keep: drops it and leaves it to the index. */
static int make(struct kv *kv, const int32_t *ids, uint32_t n, bool keep, double *seconds)
{
    kv_seq s;
    struct kv_step *st;
    uint32_t have;
    struct kv_prefix p = {.tok = ids, .n = n - 1};
    TRY(kv_new(kv, NULL, &s));
    TRY(kv_match(kv, s, &p, &have));
    for (uint32_t k; have < n; have += k) {
        k = MIN(n - have, 256u);
        struct kv_span span = {.seq = s, .n = k, .tok = ids + have};
        TRY(kv_begin(kv, &span, 1, &st));
        TRY(kv_commit(st, NULL));
    }
    double t = now_seconds();
    if (keep) TRY(kv_keep(kv, s));
    *seconds = now_seconds() - t;
    return 0;
}

/* Measures the median time of looking for ids; the index must find `want` of them. */
static int find(struct kv *kv, const int32_t *ids, uint32_t n, uint32_t want, double *us)
{
    static double t[SAMPLES];
    struct kv_prefix p = {.tok = ids, .n = n};
    uint32_t have;
    kv_seq s;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        TRY(kv_new(kv, NULL, &s));
        double at = now_seconds();
        TRY(kv_match(kv, s, &p, &have));
        t[i] = now_seconds() - at;
        TRY(kv_drop(kv, s));
        if (have != want) return ERR(ARG, "%u of %u rows found", have, want);
    }
    *us = median_us(t, SAMPLES);
    return 0;
}

static int measure(struct kv *kv, uint32_t n, bool kept)
{
    static int32_t ids[LONG];
    static double t[10001];
    double whole, part, miss;
    struct kv_usage u;
    for (uint32_t k = 0; k < n; k++) {
        tokens(ids, LENGTH, k + 1);
        TRY(make(kv, ids, LENGTH, kept, &t[k]));
    }
    kv_usage(kv, &u);
    if (u.kept != (kept ? n : 0)) return ERR(ARG, "%u of %u sequences are kept", u.kept, n);
    tokens(ids, LONG, 0);
    TRY(make(kv, ids, LONG, true, &t[n]));
    TRY(find(kv, ids, LONG, LONG, &whole));
    ids[SHARED] = 7;
    TRY(find(kv, ids, LONG, SHARED, &part));
    ids[0] = 7;
    TRY(find(kv, ids, LONG, 0, &miss));
    printf("cache,index,%s,%u,%.2f,%.2f,%.2f,%.2f,%.1f\n", kept ? "kept" : "live", n, whole, part,
           miss, median_us(t, n), (double)u.index_tables / n / 1024);
    return 0;
}

int main(void)
{
    static const uint32_t at[] = {10, 1000, 10000};
    int e = 0;
    for (uint32_t i = 0; i < 2 * countof(at) && e >= 0; i++) {
        struct kv *kv;
        uint32_t n = at[i % countof(at)];
        bool kept = i < countof(at);
        if ((e = store_open_for(&kv, kept ? 64 : n + 2, 0, true, (size_t)48 << 30)) < 0) break;
        e = measure(kv, n, kept);
        kv_close(kv);
    }
    if (e >= 0) return 0;
    fprintf(stderr, "bench_index: %s\n", err_last());
    return 1;
}
