/* rates.c - prefill and decoding at several depths in one sequence, for `make bench-peers`, which runs other programs by
 * the same plan (plan.h): a line "what,tokens a second" for each measurement.
 * Or, if a file for logits is named: the logits [N][vocab] in f32 of the tokens after a prompt of QUALITY
 * tokens, each computed by a step of its own; and lines with the bytes of the cache for each token at the end, and the
 * tokens a second of these steps, the median.
 *
 *     build/release/bench_rates MODEL THREADS CACHE IDS [LOGITS [N]]
 *
 * CACHE: f16 (the dynamic cache), q8_0 (hqq with 8 bits), q4_0 (quanto with 4 bits), exact (float32 throughout), or a codec
 * with its bits: kvik8, kvik4, kvik3, kvik2, quanto4, hqq8, hqq4 or fp8.  N: COUNTED, if it is not given.
 * IDS: a file with token ids as text. */
#include "base/thread.h"
#include "kvik.h"
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kvik_cache *c;
static kvik_seq s;
static float *logits;

static void check(int e)
{
    if (e >= 0) return;
    fprintf(stderr, "bench_rates: %s\n", kvik_last_error());
    exit(1);
}

static void feed(uint32_t from, uint32_t n, float *out)
{
    const kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + from, .n = n};
    check(kvik_forward(c, &span, 1, false, out));
}

/* Appends n tokens at depth `at`, in pieces of `piece`, and removes them.  Does so for two seconds, at most MOST_RUNS times, and
 * prints the median of the rates. */
static void rate(const char *what, uint32_t at, uint32_t n, uint32_t piece)
{
    double rates[MOST_RUNS], spent = 0;
    size_t runs = 0;
    while (runs < MOST_RUNS && spent < ENOUGH_SECONDS) {
        double t = now_seconds();
        for (uint32_t i = 0; i < n; i += piece)
            feed(at + i, piece, logits);
        t = now_seconds() - t;
        check(kvik_cache_crop(c, s, at));
        rates[runs++] = n / t;
        spent += t;
    }
    printf("%s at %u,%.2f\n", what, at, median_of(rates, runs));
    fflush(stdout);
}

static void speeds(uint32_t n)
{
    feed(0, PROMPT, NULL); /* the weights come into memory */
    check(kvik_cache_crop(c, s, 0));
    for (uint32_t d = 0, at = 0; d < DEPTHS && depths[d] + PROMPT <= n; at = depths[d++]) {
        if (depths[d] > at) feed(at, depths[d] - at, NULL);
        rate("prefill 512", depths[d], PROMPT, PROMPT);
        rate("decode", depths[d], STEPS, 1);
    }
}

static void quality(const char *path, uint32_t n, uint32_t counted, uint32_t vocab)
{
    static double took[MOST];
    kvik_usage u = {.size = sizeof u};
    FILE *f = fopen(path, "wb");
    bool ok = f != NULL && counted && n >= QUALITY + counted;
    if (ok) feed(0, QUALITY, NULL);
    for (uint32_t i = 0; ok && i < counted; i++) {
        double begun = now_seconds();
        feed(QUALITY + i, 1, logits);
        took[i] = now_seconds() - begun;
        ok = fwrite(logits, sizeof *logits, vocab, f) == vocab;
    }
    check(kvik_cache_usage(c, &u));
    if (ok)
        printf("bytes,%.1f\ndecode,%.2f\n", (double)u.live / (QUALITY + counted),
               1 / median_of(took, counted));
    if (!f || fclose(f) != 0 || !ok) {
        fprintf(stderr, "bench_rates: no logits were written to %s\n", path);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static const char *const config[][3] = {
        {"f16", "dynamic", NULL},
        {"exact", "dynamic", NULL},
        {"q8_0", "quantized", "{\"backend\":\"hqq\",\"nbits\":8,\"axis_key\":1,\"axis_value\":1}"},
        {"q4_0", "quantized", "{\"backend\":\"quanto\",\"nbits\":4}"},
        {"kvik8", "quantized", "{\"backend\":\"kvik\",\"nbits\":8}"},
        {"kvik4", "quantized", "{\"backend\":\"kvik\",\"nbits\":4}"},
        {"kvik3", "quantized", "{\"backend\":\"kvik\",\"nbits\":3}"},
        {"kvik2", "quantized", "{\"backend\":\"kvik\",\"nbits\":2}"},
        {"quanto4", "quantized", "{\"backend\":\"quanto\",\"nbits\":4}"},
        {"hqq8", "quantized", "{\"backend\":\"hqq\",\"nbits\":8,\"axis_key\":1,\"axis_value\":1}"},
        {"hqq4", "quantized", "{\"backend\":\"hqq\",\"nbits\":4,\"axis_key\":1,\"axis_value\":1}"},
        {"fp8", "quantized", "{\"backend\":\"fp8\"}"},
    };
    kvik_model *m;
    size_t k = 0;
    if (argc < 5) {
        fprintf(stderr, "usage: bench_rates MODEL THREADS CACHE IDS [LOGITS [N]]\n");
        return 2;
    }
    while (k < countof(config) && strcmp(config[k][0], argv[3]) != 0)
        k++;
    check(kvik_model_open(argv[1], &m));
    uint32_t n = MIN(read_ids(argv[4]), kvik_model_context(m)), vocab = kvik_model_vocab(m);
    if (k == countof(config) || n < PROMPT) {
        fprintf(stderr, "bench_rates: no cache is called %s, or %s has less than %d ids\n", argv[3],
                argv[4], PROMPT);
        return 1;
    }
    const kvik_cache_config cache = {.size = sizeof cache,
                                     .cache_implementation = config[k][1],
                                     .cache_config = config[k][2],
                                     .compute = strcmp(argv[3], "exact") ? NULL : "exact",
                                     .max_sequences = 1,
                                     .threads = (uint32_t)strtoul(argv[2], NULL, 10),
                                     .no_prefix_cache = true};
    check(kvik_cache_open(m, &cache, &c));
    check(kvik_cache_new(c, &s));
    logits = malloc(vocab * sizeof *logits);
    if (!logits) return 1;
    if (argc > 5)
        quality(argv[5], n, argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : COUNTED, vocab);
    else
        speeds(n);
    free(logits);
    kvik_cache_close(c);
    kvik_model_close(m);
    return 0;
}
