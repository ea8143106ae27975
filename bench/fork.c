/* fork.c - what kvik_cache_fork costs at 100, 1 000 and 10 000 tokens, and what a prefix hit of the
 * same length costs. Two CSV rows per length, in the geometry of SmolLM2-135M (30 layers, 3 heads
 * of 64, f16). The benchmark reads no model and computes no KV row.
 *
 *     cache,fork,tokens,median us,rows copied,bytes allocated,first write after it us
 *
 *     cache,match,tokens,median us of finding all of them among 32 other prefixes,of finding one block
 *
 * Each median is of 401 samples of 32 forks. The last column of a fork is the first token that the
 * fork appends: the fork then gets tables of its own and copies the filled rows of its open block. */
#include "generate/handle.h"
#include "model/model.h"
#include "store.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 401, FORKS = 32 };

static int append(struct kv *kv, kv_seq s, uint32_t n)
{
    struct kv_step *st;
    static int32_t ids[16384];
    for (uint32_t i = 0; i < countof(ids); i++)
        ids[i] = (int32_t)(i * 7919 % 49152);
    for (uint32_t k; n; n -= k) {
        k = MIN(n, 256u);
        struct kv_span span = {.seq = s, .n = k, .tok = ids + kv_len(kv, s)};
        TRY(kv_begin(kv, &span, 1, &st));
        TRY(kv_commit(st, NULL));
    }
    return 0;
}

static int measure(kvik_cache *c, kvik_seq s)
{
    static double fork[SAMPLES], write[SAMPLES];
    struct kv *kv = c->x->kv;
    struct kv_usage before, after;
    kvik_seq f[FORKS];
    size_t bytes = 0;
    uint64_t copied = 0;
    for (uint32_t i = 0; i < SAMPLES; i++) {
        kv_usage(kv, &before);
        size_t held = mallinfo2().uordblks;
        double t = now_seconds();
        for (uint32_t k = 0; k < FORKS; k++)
            TRY(kvik_cache_fork(c, s, &f[k]));
        fork[i] = (now_seconds() - t) / FORKS;
        bytes = MAX(bytes, mallinfo2().uordblks - held);
        kv_usage(kv, &after);
        copied += after.rows_copied - before.rows_copied;
        t = now_seconds();
        TRY(append(kv, f[0], 1));
        write[i] = now_seconds() - t;
        for (uint32_t k = 0; k < FORKS; k++)
            TRY(kv_keep(kv, f[k])); /* as kvik_cache_drop, which needs a driver */
    }
    printf("cache,fork,%u,%.3f,%llu,%zu,%.2f\n", kv_len(kv, s), 1e6 * median_of(fork, SAMPLES),
           (unsigned long long)copied, bytes, 1e6 * median_of(write, SAMPLES));
    return 0;
}

/* Looks up the tokens of s in the prefix index, and tokens that differ after the first block. */
static int find(struct kv *kv, kv_seq s)
{
    static double t[2][SAMPLES];
    static int32_t ids[16384];
    uint32_t n = kv_len(kv, s), have;
    kv_seq q;
    memcpy(ids, kv_tokens(kv, s), n * sizeof *ids);
    for (int miss = 0; miss < 2; miss++) {
        struct kv_prefix p = {.tok = ids, .n = n};
        ids[16] += miss;
        for (uint32_t i = 0; i < SAMPLES; i++) {
            TRY(kv_new(kv, NULL, &q));
            double at = now_seconds();
            TRY(kv_match(kv, q, &p, &have));
            t[miss][i] = now_seconds() - at;
            TRY(kv_drop(kv, q));
            if (have != (miss ? 16 : n)) return ERR(ARG, "%u rows found", have);
        }
    }
    printf("cache,match,%u,%.2f,%.2f\n", n, 1e6 * median_of(t[0], SAMPLES),
           1e6 * median_of(t[1], SAMPLES));
    return 0;
}

/* Keeps sequences that begin with other tokens. */
static int others(struct kv *kv)
{
    int32_t ids[64];
    kv_seq s;
    struct kv_step *st;
    for (uint32_t k = 0; k < FORKS; k++) {
        for (uint32_t i = 0; i < countof(ids); i++)
            ids[i] = (int32_t)(1000 + k * 64 + i);
        struct kv_span span = {.n = countof(ids), .tok = ids};
        TRY(kv_new(kv, NULL, &s));
        span.seq = s;
        TRY(kv_begin(kv, &span, 1, &st));
        TRY(kv_commit(st, NULL));
        TRY(kv_keep(kv, s));
    }
    return 0;
}

static int run(void)
{
    struct exec x = {0};
    kvik_cache c = {.x = &x,
                    .refs = {1, REFS_OPEN}}; /* a call takes a reference and gives it back */
    static const uint32_t at[] = {100, 1000, 10000};
    kvik_seq s;
    guard_init(&c.guard);
    TRY(store_open(&x.kv, 0, true, (size_t)16 << 30));
    int e = others(x.kv);
    if (e >= 0) e = kv_new(x.kv, NULL, &s);
    for (uint32_t i = 0; i < countof(at) && e >= 0; i++) {
        e = append(x.kv, s, at[i] - kv_len(x.kv, s));
        if (e >= 0) e = measure(&c, s);
        if (e >= 0) e = find(x.kv, s);
    }
    kv_close(x.kv);
    return e;
}

int main(void)
{
    if (run() >= 0) return 0;
    fprintf(stderr, "bench_fork: %s\n", err_last());
    return 1;
}
