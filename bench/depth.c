/* depth.c - make bench: what depth costs, for native rows and for codecs, in turn in one run: prefill of 512 tokens at depth 0
 * and at DEPTH, decoding at DEPTH, and eight forks of 4 000 tokens, or of DEPTH if that is less.
 *
 *     depth,cache,what,median,best   in tokens a second; other work on the machine slows single runs, so look at both
 *
 * With one thread time is the processor time of the process, which other work disturbs less.
 *
 *     build/release/bench_depth MODEL [THREADS [DEPTH [ROUNDS [CACHE...]]]]
 *
 * CACHE: to measure beside native rows, a cache_config of a quantized cache as JSON, or the name of a cache_implementation;
 * kvik with 8 and with 4 bits if there is none. */
#include "base/base.h"
#include "kvik.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    PREFILL = 512,
    STEPS = 12,
    FORKS = 8,
    MOST_FORKED = 4000,
    MOST_ROUNDS = 32,
    MOST_CACHES = 8
};
enum { AT_0, AT_DEPTH, DECODE, ONE, EIGHT, WHATS };
static const char *const names[WHATS] = {"prefill at 0", "prefill at depth", "decode at depth",
                                         "one fork", "8 forks"};

struct subject {
    const char *name, *config; /* config: JSON, or a cache_implementation */
    kvik_cache *c;
    kvik_seq start, shared, deep; /* of no tokens, forked_at and depth */
    double rate[WHATS][MOST_ROUNDS];
};
static int32_t ids[16384];
static float *logits;
static uint32_t forked_at; /* tokens that forks share */
static clockid_t timer = CLOCK_MONOTONIC;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(timer, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(int e)
{
    if (e >= 0) return;
    fprintf(stderr, "bench_depth: %s\n", kvik_last_error());
    exit(1);
}

static void feed(const struct subject *s, kvik_seq seq, uint32_t from, uint32_t n, float *out)
{
    const kvik_span span = {.size = sizeof span, .seq = seq, .ids = ids + from, .n = n};
    check(kvik_forward(s->c, &span, 1, false, out));
}

static void set_up(struct subject *s, kvik_model *m, uint32_t threads, uint32_t depth)
{
    bool json = s->config && *s->config == '{';
    const kvik_cache_config config = {.size = sizeof config,
                                      .cache_implementation = json ? "quantized" : s->config,
                                      .cache_config = json ? s->config : NULL,
                                      .max_sequences = FORKS + 3,
                                      .max_cache_len = depth + PREFILL,
                                      .threads = threads,
                                      .no_prefix_cache = true};
    check(kvik_cache_open(m, &config, &s->c));
    check(kvik_cache_new(s->c, &s->start));
    check(kvik_cache_new(s->c, &s->shared));
    feed(s, s->shared, 0, forked_at, NULL);
    check(kvik_cache_fork(s->c, s->shared, &s->deep));
    if (depth > forked_at) feed(s, s->deep, forked_at, depth - forked_at, NULL);
}

/* Tokens a second of n tokens behind row `at`, in pieces.  They are those of a fork, because a crop can compute rows again. */
static double appended(const struct subject *s, kvik_seq seq, uint32_t at, uint32_t n,
                       uint32_t piece)
{
    kvik_seq own;
    check(kvik_cache_fork(s->c, seq, &own));
    double t = seconds();
    for (uint32_t i = 0; i < n; i += piece)
        feed(s, own, at + i, piece, logits);
    t = seconds() - t;
    check(kvik_cache_drop(s->c, own));
    return n / t;
}

/* Tokens a second of steps of one token for each of n forks. */
static double forked(const struct subject *s, uint32_t n)
{
    kvik_seq own[FORKS];
    kvik_span span[FORKS];
    for (uint32_t i = 0; i < n; i++)
        check(kvik_cache_fork(s->c, s->shared, &own[i]));
    double t = seconds();
    for (uint32_t k = 0; k < STEPS; k++) {
        for (uint32_t i = 0; i < n; i++)
            span[i] = (kvik_span){
                .size = sizeof *span, .seq = own[i], .ids = ids + forked_at + i + k, .n = 1};
        check(kvik_forward(s->c, span, n, true, logits));
    }
    t = seconds() - t;
    for (uint32_t i = 0; i < n; i++)
        check(kvik_cache_drop(s->c, own[i]));
    return n * STEPS / t;
}

static void measure(struct subject *s, uint32_t depth, uint32_t round)
{
    double *r[WHATS];
    for (int i = 0; i < WHATS; i++)
        r[i] = &s->rate[i][round];
    *r[AT_0] = appended(s, s->start, 0, PREFILL, PREFILL);
    *r[AT_DEPTH] = appended(s, s->deep, depth, PREFILL, PREFILL);
    *r[DECODE] = appended(s, s->deep, depth, STEPS, 1);
    *r[ONE] = forked(s, 1);
    *r[EIGHT] = forked(s, FORKS);
}

int main(int argc, char **argv)
{
    static struct subject s[MOST_CACHES] = {
        {.name = "native"},
        {.name = "kvik 8", .config = "{\"backend\":\"kvik\",\"nbits\":8}"},
        {.name = "kvik 4", .config = "{\"backend\":\"kvik\",\"nbits\":4}"}};
    kvik_model *m;
    uint32_t n = 3, threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    uint32_t depth = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 7000;
    uint32_t rounds = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 7;
    if (argc < 2 || depth < 1 || depth + PREFILL > countof(ids) || !rounds ||
        rounds > MOST_ROUNDS || argc > 4 + MOST_CACHES) {
        fprintf(stderr, "usage: bench_depth MODEL [THREADS [DEPTH [ROUNDS [CACHE...]]]]\n");
        return 2;
    }
    for (int i = 5; i < argc; i++) {
        n = (uint32_t)i - 3;
        s[n - 1] = (struct subject){.name = argv[i], .config = argv[i]};
    }
    forked_at = MIN(depth, MOST_FORKED);
    if (threads == 1) timer = CLOCK_PROCESS_CPUTIME_ID;
    check(kvik_model_open(argv[1], &m));
    for (uint32_t i = 0, x = 1; i < countof(ids); i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % kvik_model_vocab(m));
    }
    logits = malloc(FORKS * kvik_model_vocab(m) * sizeof *logits);
    if (!logits) return 1;
    for (uint32_t i = 0; i < n; i++)
        set_up(&s[i], m, threads, depth);
    for (uint32_t r = 0; r < rounds; r++)
        for (uint32_t i = 0; i < n; i++)
            measure(&s[i], depth, r);
    for (uint32_t i = 0; i < n; i++) {
        for (int w = 0; w < WHATS; w++) {
            double best = 0;
            for (uint32_t r = 0; r < rounds; r++)
                best = MAX(best, s[i].rate[w][r]);
            printf("depth,%s,%s,%.1f,%.1f\n", s[i].name, names[w], median_of(s[i].rate[w], rounds),
                   best);
        }
        kvik_cache_close(s[i].c);
    }
    kvik_model_close(m);
    free(logits);
    return 0;
}
