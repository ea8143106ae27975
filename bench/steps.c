/* steps.c - make bench: what a step of 2, 4 and 8 tokens costs in steps of one token.
 *
 * The tokens are of one sequence, as draft tokens are, or of as many sequences, as in a batch. The third kind is eight
 * forks of a prefix of 4 000 tokens against the prefix alone. All kinds alternate in one run, and the logits after every
 * token are computed. The figures are medians, and steady.h marks those that scatter; nothing here is a test.
 *
 *     steps,kind,tokens,milliseconds of a step,in steps of one token,tokens a second
 *
 *     build/release/bench_steps MODEL [THREADS] [ISA] [CACHE_CONFIG]
 *
 * CACHE_CONFIG: as JSON, of a quantized cache; with it only forks are measured.  An empty ISA is the best one. */
#include "base/base.h"
#include "kvik.h"
#include "steady.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 6, STEPS = 4, MOST = 8, NEAR = 16, FAR = 4000, SIZES = 4 };
static const uint32_t size[SIZES] = {1, 2, 4, MOST};

static void die(void)
{
    fprintf(stderr, "bench_steps: %s\n", kvik_last_error());
    exit(1);
}

static int32_t ids[FAR + MOST];

/* Seconds of a step of n tokens at depth `depth`: of s[0], or a token of each of s[0..n). */
static double step(kvik_cache *c, const kvik_seq *s, bool one, uint32_t depth, uint32_t n,
                   float *logits)
{
    kvik_span span[MOST];
    uint32_t spans = one ? 1 : n;
    for (uint32_t i = 0; i < spans; i++) {
        span[i] = (kvik_span){.size = sizeof *span,
                              .seq = s[i],
                              .ids = ids + depth + (one ? 0 : i),
                              .n = one ? n : 1};
        if (kvik_cache_crop(c, s[i], depth) < 0) die();
    }
    double t = now_seconds();
    if (kvik_forward(c, span, spans, true, logits) < 0) die();
    return now_seconds() - t;
}

static void prefill(kvik_cache *c, kvik_seq s, uint32_t n)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    if (kvik_forward(c, &span, 1, false, NULL) < 0) die();
}

static void report(const char *kind, double (*t)[ROUNDS * STEPS], uint32_t sizes, uint32_t rounds)
{
    double one = 0;
    for (uint32_t i = 0; i < SIZES; i++) {
        if (!(sizes >> i & 1)) continue;
        double m = median_of(t[i], rounds * STEPS);
        if (!i) one = m;
        bool doubtful = scatters(t[0], rounds * STEPS) || scatters(t[i], rounds * STEPS);
        printf("%ssteps,%s,%u,%.3f,%.2f,%.1f\n", line_mark(doubtful), kind, size[i], 1e3 * m,
               m / one, size[i] / m);
    }
}

int main(int argc, char **argv)
{
    static double t[3][SIZES][ROUNDS * STEPS];
    kvik_model *m;
    kvik_cache *c;
    kvik_seq near[MOST], far[MOST];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2) {
        fprintf(stderr, "usage: bench_steps MODEL [THREADS] [ISA] [CACHE_CONFIG]\n");
        return 2;
    }
    kvik_cache_config config = {.size = sizeof config,
                                .max_sequences = 2 * MOST,
                                .max_cache_len = FAR + MOST,
                                .threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0,
                                .isa = argc > 3 ? argv[3] : NULL,
                                .cache_implementation = argc > 4 ? "quantized" : NULL,
                                .cache_config = argc > 4 ? argv[4] : NULL};
    if (kvik_model_open(argv[1], &m) < 0 || kvik_cache_open(m, &config, &c) < 0) die();
    float *logits = malloc(MOST * kvik_model_vocab(m) * sizeof *logits);
    if (!logits) return 1;
    for (uint32_t i = 0, x = 1; i < countof(ids); i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % kvik_model_vocab(m));
    }
    bool deep = kvik_model_context(m) >= FAR + MOST;
    for (uint32_t i = 0; i < MOST; i++) {
        if (kvik_cache_new(c, &near[i]) < 0) die();
        prefill(c, near[i], NEAR);
    }
    if (deep) {
        if (kvik_cache_new(c, &far[0]) < 0) die();
        prefill(c, far[0], FAR);
        for (uint32_t i = 1; i < MOST; i++)
            if (kvik_cache_fork(c, far[0], &far[i]) < 0) die();
    }
    for (uint32_t r = 0; r < ROUNDS; r++)
        for (uint32_t k = 0; k < 3; k++)
            for (uint32_t i = 0; i < SIZES; i++) {
                if (argc > 4 && k != 2) continue;
                if (k == 2 && (!deep || (i && i + 1 < SIZES))) continue;
                /* The first step finds the caches full of another kind's rows, and is not counted. */
                for (uint32_t j = 0; j <= STEPS; j++) {
                    double s =
                        step(c, k == 2 ? far : near, k == 0, k == 2 ? FAR : NEAR, size[i], logits);
                    if (j) t[k][i][r * STEPS + j - 1] = s;
                }
            }
    if (argc <= 4) {
        report("one sequence", t[0], 15, ROUNDS);
        report("sequences", t[1], 15, ROUNDS);
    }
    if (deep) report("forks of 4000", t[2], 9, ROUNDS);
    free(logits);
    kvik_cache_close(c);
    kvik_model_close(m);
    return 0;
}
