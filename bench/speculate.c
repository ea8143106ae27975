/* speculate.c - make bench: speculative decoding by prompt lookup against plain decoding, in turns
 * in one run.
 * Two texts are sampled, one of them nearly by chance: there hardly a draft token is right.
 * The output is steps, tokens per second, and what verifying k draft tokens costs in steps of one
 * token. All figures are medians, and a ratio is the median of the ratios of each round; nothing
 * here is a test.
 *
 *     build/release/bench_speculate MODEL [THREADS] */
#include "base/base.h"
#include "kvik.h"
#include "steady.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 5, NEW = 100, MOST = 20 };

static const char line[] =
    "The old lighthouse keeper climbed the stairs every evening, lit the lamp, "
    "and wrote the weather into his book. ";
static const char list[] =
    "Copy this list three times: apples and pears, plums and cherries, figs and dates.\n"
    "1. apples and pears, plums and cherries, figs and dates.\n2. apples and pears,";
static const char story[] = "Once upon a time there was a small boat that wanted to see the sea.";
static const char talk[] = "The cat and the dog sat on the mat, and the bird on the tree, and the";

static void die(void)
{
    fprintf(stderr, "bench_speculate: %s\n", kvik_last_error());
    exit(1);
}

struct side {
    uint32_t steps;
    uint64_t drafted, accepted;
    double rate[RUNS];
    int32_t ids[NEW];
};

static void run(kvik_cache *c, const kvik_model *m, const char *text, float temperature,
                uint32_t drafts, int i, struct side *s)
{
    kvik_generation g;
    kvik_result *r;
    if (kvik_generation_init(&g, m) < 0) die();
    g.max_new_tokens = g.min_new_tokens = NEW;
    g.prompt_lookup_num_tokens = drafts;
    g.do_sample = temperature > 0;
    g.temperature = temperature > 0 ? temperature : 1;
    g.seed = 7;
    if (kvik_generate_text(c, &g, text, &r) < 0) die();
    s->rate[i] = (NEW - 1) / r->decode_seconds;
    s->steps = r->steps;
    s->drafted = r->drafted;
    s->accepted = r->accepted;
    memcpy(s->ids, r->row[0]->ids + r->row[0]->n_prompt, sizeof s->ids);
    kvik_result_free(r);
    kvik_generation_done(&g);
}

static void text(kvik_cache *c, const kvik_model *m, const char *name, const char *t,
                 float temperature)
{
    static const uint32_t drafts[] = {3, 10};
    struct side plain, with[countof(drafts)];
    for (int i = 0; i < RUNS; i++)
        for (size_t j = 0; j <= countof(drafts); j++) {
            size_t k = (j + (size_t)i) % (countof(drafts) + 1); /* each comes first once */
            if (k < countof(drafts))
                run(c, m, t, temperature, drafts[k], i, &with[k]);
            else
                run(c, m, t, temperature, 0, i, &plain);
        }
    double ratio[countof(drafts)][RUNS]; /* before median_of sorts the rates */
    for (size_t k = 0; k < countof(drafts); k++)
        for (int i = 0; i < RUNS; i++)
            ratio[k][i] = with[k].rate[i] / plain.rate[i];
    double rate = median_of(plain.rate, RUNS);
    printf("%-10s plain        %3u steps %6.1f tokens/s\n", name, plain.steps, rate);
    for (size_t k = 0; k < countof(drafts); k++) {
        double r = median_of(with[k].rate, RUNS), times = median_of(ratio[k], RUNS);
        printf(
            "%-10s lookup of %2u %3u steps %6.1f tokens/s, %.2f times%s; %llu of %llu draft tokens accepted%s\n",
            name, drafts[k], with[k].steps, r, times, text_mark(scatters(ratio[k], RUNS), 0),
            (unsigned long long)with[k].accepted, (unsigned long long)with[k].drafted,
            memcmp(with[k].ids, plain.ids, sizeof plain.ids) ? "; OTHER TOKENS" : "");
    }
}

/* Prints what a step of 1 + k tokens costs in steps of one token, by processor time. */
static void cost(kvik_cache *c)
{
    static const uint32_t k[] = {0, 1, 3, 5, 10, 20};
    int32_t ids[64];
    kvik_seq s;
    double one = 0;
    for (int i = 0; i < 64; i++)
        ids[i] = 300 + 7 * i;
    if (kvik_cache_new(c, &s) < 0) die();
    printf("a step with k draft tokens:");
    for (size_t j = 0; j < countof(k); j++) {
        double t[9];
        for (size_t i = 0; i < countof(t); i++) {
            if (kvik_cache_crop(c, s, 0) < 0 ||
                kvik_forward(c,
                             &(kvik_span){.size = sizeof(kvik_span), .seq = s, .ids = ids, .n = 16},
                             1, false, NULL) < 0)
                die();
            clock_t t0 = clock();
            if (kvik_forward(
                    c,
                    &(kvik_span){
                        .size = sizeof(kvik_span), .seq = s, .ids = ids + 16, .n = 1 + k[j]},
                    1, false, NULL) < 0)
                die();
            t[i] = (double)(clock() - t0) / CLOCKS_PER_SEC;
        }
        double median = median_of(t, countof(t));
        if (!j) one = median;
        printf("  k=%u %.2f", k[j], median / one);
    }
    printf("  (of %.1f ms)\n", one * 1e3);
    kvik_cache_drop(c, s);
}

int main(int argc, char **argv)
{
    kvik_model *m;
    kvik_cache *c;
    char repeated[5 * sizeof line] = "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2) {
        fprintf(stderr, "usage: bench_speculate MODEL [THREADS]\n");
        return 2;
    }
    kvik_cache_config config = {.size = sizeof config,
                                .max_sequences = 2,
                                .max_cache_len = 512,
                                .threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0};
    if (kvik_model_open(argv[1], &m) < 0 || kvik_cache_open(m, &config, &c) < 0) die();
    for (int i = 0; i < 5; i++)
        strcat(repeated, line);
    cost(c);
    text(c, m, "repetition", repeated, 0);
    text(c, m, "a list", list, 0);
    text(c, m, "a story", story, 0);
    text(c, m, "sampled", talk, 1);
    text(c, m, "chance", talk, 1.6f);
    kvik_cache_close(c);
    kvik_model_close(m);
    return 0;
}
