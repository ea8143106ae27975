/* generate.c - make bench: load, prefill and decode of a model against the memory-bandwidth floor
 * measured in the same run.
 * A decode step must read every matrix weight and every visible KV row once. The floor is the time
 * a plain read of a large buffer takes for as many bytes, with the same threads. All figures are
 * medians; nothing here is a test.
 *
 *     build/release/bench_generate MODEL [THREADS] [ISA] */
#include "base/bandwidth.h"
#include "base/thread.h"
#include "fmt/fmt.h"
#include "kvik.h"
#include "model/model.h"
#include "steady.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { RUNS = 5, STEPS = 24 };

static void die(void)
{
    fprintf(stderr, "bench: %s\n", kvik_last_error());
    exit(1);
}

/* Returns the bytes a decode step reads: all matrices, the embedding only if it is also the head. */
static double weight_bytes(const struct model *m)
{
    size_t all = checkpoint_bytes(m->ck), embed;
    if (!m->tied && dtype_bytes(m->embed.dtype, (uint64_t)m->embed.rows * m->embed.cols, &embed))
        all -= embed;
    return (double)all;
}

static void feed(kvik_cache *c, kvik_seq s, const int32_t *ids, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    if (kvik_forward(c, &span, 1, false, logits) < 0) die();
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2) {
        fprintf(stderr, "usage: bench_generate MODEL [THREADS] [ISA]\n");
        return 2;
    }
    uint32_t threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : cpu_count();
    double load[RUNS], t[RUNS], step[STEPS];
    kvik_model *m = NULL;
    kvik_cache *c;
    for (int i = 0; i < RUNS; i++) {
        kvik_model_close(m);
        double t0 = now_seconds();
        if (kvik_model_open(argv[1], &m) < 0) die();
        load[i] = now_seconds() - t0;
    }
    struct model *inner;
    if (model_open(argv[1], &inner) < 0) die();
    uint32_t vocab = kvik_model_vocab(m), context = kvik_model_context(m);
    kvik_cache_config config = {.size = sizeof config,
                                .max_sequences = 2,
                                .threads = threads,
                                .isa = argc > 3 ? argv[3] : NULL};
    if (kvik_cache_open(m, &config, &c) < 0) die();
    float *logits = malloc(vocab * sizeof *logits);
    int32_t *ids = malloc(context * sizeof *ids);
    for (uint32_t i = 0, x = 1; i < context; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % vocab);
    }
    double bw = bandwidth_read(threads), weights = weight_bytes(inner);
    printf("model %s, %u threads\n", argv[1], threads);
    double loaded = median_of(load, RUNS);
    printf("load            %8.1f ms%s\n", 1e3 * loaded, text_mark(scatters(load, RUNS), 0));
    printf("read bandwidth  %8.1f GB/s   weights %.1f MB a step: floor %.2f ms\n", bw / 1e9,
           weights / 1e6, 1e3 * weights / bw);
    kvik_seq s;
    uint32_t n = MIN(512u, context);
    for (int i = 0; i < RUNS; i++) {
        if (kvik_cache_new(c, &s) < 0) die();
        double t0 = now_seconds();
        feed(c, s, ids, n, logits);
        t[i] = now_seconds() - t0;
        kvik_cache_drop(c, s);
    }
    double prompt = median_of(t, RUNS);
    printf("prefill %-5u   %8.1f tok/s%s\n", n, n / prompt, text_mark(scatters(t, RUNS), 0));
    static const uint32_t depths[] = {0, 2048, 7000};
    for (size_t d = 0; d < countof(depths); d++) {
        kvik_usage u = {.size = sizeof u};
        if (depths[d] + STEPS + 1 > context) break;
        if (kvik_cache_new(c, &s) < 0) die();
        if (depths[d]) feed(c, s, ids, depths[d], NULL);
        kvik_cache_usage(c, &u);
        double rows = (double)u.bytes;
        for (int r = 0; r < RUNS; r++) {
            kvik_seq f;
            if (kvik_cache_fork(c, s, &f) < 0) die();
            for (int i = 0; i < STEPS; i++) {
                double t0 = now_seconds();
                feed(c, f, ids + i, 1, logits);
                step[i] = now_seconds() - t0;
            }
            t[r] = median_of(step, STEPS);
            kvik_cache_drop(c, f);
        }
        kvik_cache_drop(c, s);
        double one = median_of(t, RUNS), floor_s = (weights + rows) / bw;
        printf(
            "decode at %-5u %8.1f tok/s   %.2f ms, floor %.2f ms: %.0f %% of the floor's speed%s\n",
            depths[d], 1 / one, 1e3 * one, 1e3 * floor_s, 100 * floor_s / one,
            text_mark(scatters(t, RUNS), floor_s / one));
    }
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    printf(
        "peak memory     %8.1f MB (mapped weights and the bandwidth buffer of 512 MB included)\n",
        (double)ru.ru_maxrss / 1024);
    free(logits);
    free(ids);
    kvik_cache_close(c);
    model_close(inner);
    kvik_model_close(m);
    return 0;
}
