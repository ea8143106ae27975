/* strategies.c - decoding with static, offloaded but resident, forked and dynamic caches in turn, so that all of them meet
 * the same moments of the machine.  Each has a few steps in a row, because the first one wakes the threads of its cache.
 * The floor is a plain read of as many bytes as the weights and the dynamic cache have.
 *
 *     build/release/bench_strategies MODEL [THREADS] */
#include "base/bandwidth.h"
#include "base/thread.h"
#include "fmt/fmt.h"
#include "kvik.h"
#include "model/model.h"
#include "steady.h"

#include <stdio.h>
#include <stdlib.h>

enum { KINDS = 4, TURN = 5, STEPS = 30 * TURN };

struct kind {
    const char *name, *implementation;
    kvik_cache *c;
    kvik_seq s;
    double t[STEPS];
};

static void check(int e)
{
    if (e >= 0) return;
    fprintf(stderr, "bench: %s\n", kvik_last_error());
    exit(1);
}

static void feed(struct kind *k, const int32_t *ids, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = k->s, .ids = ids, .n = n};
    check(kvik_forward(k->c, &span, 1, false, logits));
}

static double weight_bytes(const char *path)
{
    struct model *m;
    size_t embed;
    check(model_open(path, &m));
    size_t all = checkpoint_bytes(m->ck);
    if (!m->tied && dtype_bytes(m->embed.dtype, (uint64_t)m->embed.rows * m->embed.cols, &embed))
        all -= embed;
    model_close(m);
    return (double)all;
}

int main(int argc, char **argv)
{
    static const uint32_t depths[] = {0, 2048, 7000};
    static struct kind kind[KINDS] = {
        {.name = "dynamic", .implementation = "dynamic"},
        {.name = "static", .implementation = "static"},
        {.name = "offloaded", .implementation = "offloaded"},
        {.name = "forked"},
    };
    static int32_t ids[8192];
    kvik_model *m;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_strategies MODEL [THREADS]\n");
        return 2;
    }
    uint32_t threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : cpu_count();
    check(kvik_model_open(argv[1], &m));
    uint32_t vocab = kvik_model_vocab(m), context = kvik_model_context(m), at = 0;
    float *logits = malloc(vocab * sizeof *logits);
    for (uint32_t i = 0, x = 1; i < countof(ids); i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % vocab);
    }
    for (struct kind *k = kind; k->implementation; k++) {
        kvik_cache_config config = {.size = sizeof config,
                                    .cache_implementation = k->implementation,
                                    .cache_memory = (uint64_t)1 << 30,
                                    .max_sequences = 2,
                                    .threads = threads};
        check(kvik_cache_open(m, &config, &k->c));
        check(kvik_cache_new(k->c, &k->s));
        if (k == &kind[1]) check(kvik_cache_reserve(k->c, k->s, MIN(context, 8192)));
    }
    double bw = bandwidth_read(threads), weights = weight_bytes(argv[1]);
    printf("%s, %u threads, read %.1f GB/s\n", argv[1], threads, bw * 1e-9);
    for (size_t d = 0; d < countof(depths) && depths[d] + STEPS < context; d++) {
        kvik_usage u = {.size = sizeof u};
        for (struct kind *k = kind; at < depths[d] && k->implementation; k++)
            feed(k, ids, depths[d] - at, NULL);
        at = MAX(at, depths[d]);
        kvik_cache_usage(kind[0].c, &u);
        kind[3].c = kind[0].c;
        check(kvik_cache_fork(kind[0].c, kind[0].s, &kind[3].s));
        for (uint32_t from = 0; from < STEPS; from += TURN)
            for (uint32_t k = 0; k < KINDS; k++)
                for (uint32_t i = from; i < from + TURN; i++) {
                    double begun = now_seconds();
                    feed(&kind[k], ids + i, 1, logits);
                    kind[k].t[i] = now_seconds() - begun;
                }
        at += STEPS;
        check(kvik_cache_drop(kind[3].c, kind[3].s));
        double floor = (weights + (double)u.bytes) / bw, first = median_of(kind[0].t, STEPS);
        for (uint32_t k = 0; k < KINDS; k++) {
            double t = median_of(kind[k].t, STEPS);
            printf("decode at %4u  %-9s %7.2f ms  %6.1f tok/s  %.3f of dynamic's time  %3.0f %% of "
                   "the floor's speed%s\n",
                   depths[d], kind[k].name, 1e3 * t, 1 / t, t / first, 100 * floor / t,
                   text_mark(scatters(kind[0].t, STEPS) || scatters(kind[k].t, STEPS), floor / t));
        }
    }
    for (struct kind *k = kind; k->implementation; k++)
        kvik_cache_close(k->c);
    kvik_model_close(m);
    free(logits);
    return 0;
}
