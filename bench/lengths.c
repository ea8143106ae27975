/* lengths.c - what a token costs after 1 000 to 100 000 tokens: speed of decoding and bytes of the cache, for
 * each model that is named.  A state-space model pays the same at every length, attention does not.
 *
 *     build/release/bench_lengths MODEL... [LENGTH]
 *
 *     length,model,tokens,tokens a second,bytes of rows and states,bytes of snapshots,bytes of metadata
 *
 * The text before the measured tokens is not computed: its rows and states are filled with one value, which costs
 * a reader what other values cost.  The speed is that of the median of 65 tokens.  scripts/make-lengths.py writes two models of
 * the same size.  LENGTH ends the list early. */
#include "generate/handle.h"
#include "uncomputed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 512, TOKENS = 65 };
static const uint32_t lengths[] = {1000, 2000, 5000, 10000, 20000, 50000, 100000};

static int measure(kvik_cache *c, const char *model, kvik_seq s, uint32_t len)
{
    static double seconds[TOKENS];
    const int32_t id = 7;
    const kvik_span span = {.size = sizeof span, .seq = s, .ids = &id, .n = 1};
    kvik_usage u = {.size = sizeof u};
    TRY(grow(c->x, s, len, STEP));
    float *logits = mem_array(c->x->m->vocab, sizeof *logits);
    int e = logits ? 0 : ERR_NOMEM;
    for (int i = -3; e >= 0 && i < TOKENS; i++) { /* three tokens to warm up */
        double t = now_seconds();
        e = kvik_forward(c, &span, 1, false, logits);
        if (i >= 0) seconds[i] = now_seconds() - t;
    }
    mem_free(logits);
    if (e >= 0) e = kvik_cache_usage(c, &u);
    if (e < 0) return e;
    printf("length,%s,%u,%.1f,%llu,%llu,%llu\n", model, len, 1 / median_of(seconds, TOKENS),
           (unsigned long long)(u.live + u.states), (unsigned long long)u.index,
           (unsigned long long)u.metadata);
    fflush(stdout);
    return 0;
}

static int model(const char *path, uint32_t most)
{
    kvik_model *m;
    kvik_cache *c = NULL;
    kvik_seq s;
    const char *slash = strrchr(path, '/');
    TRY(kvik_model_open(path, &m));
    const kvik_cache_config k = {.size = sizeof k,
                                 .max_cache_len = most + STEP,
                                 .step_tokens = STEP,
                                 .max_sequences = 1,
                                 .no_prefix_cache = true};
    int e = kvik_cache_open(m, &k, &c);
    if (e >= 0) e = kvik_cache_new(c, &s);
    for (uint32_t i = 0; e >= 0 && i < countof(lengths) && lengths[i] <= most; i++)
        e = measure(c, slash ? slash + 1 : path, s, lengths[i]);
    kvik_cache_close(c);
    kvik_model_close(m);
    return e;
}

int main(int argc, char **argv)
{
    long given = argc > 2 ? strtol(argv[argc - 1], NULL, 10) : 0;
    uint32_t most =
        given > 0 && given <= 10000000 ? (uint32_t)given : lengths[countof(lengths) - 1];
    int n = given > 0 ? argc - 1 : argc;
    if (n < 2) {
        fprintf(stderr, "usage: bench_lengths MODEL... [LENGTH]\n");
        return 2;
    }
    for (int i = 1; i < n; i++)
        if (model(argv[i], most) < 0) {
            fprintf(stderr, "bench_lengths: %s\n", kvik_last_error());
            return 1;
        }
    return 0;
}
