/* arrivals.c - make bench: the time between two tokens of a stream while prompts arrive.
 *
 * One request decodes.  Then 0, 1, 4 or 16 requests with prompts of 2 044 tokens (four chunks) start at once, and the time of each step is
 * taken while these prompts are being computed: with chunks of step_tokens (512) and of 64 tokens.  The last column is the
 * median in medians of one prompt; without prompts there is none.
 *
 *     arrivals,chunk,prompts,steps,median ms,longest ms,in medians of one prompt
 *
 *     build/release/bench_arrivals MODEL [THREADS] */
#include "base/base.h"
#include "kvik_loop.h"

#include <stdio.h>
#include <stdlib.h>

enum { PROMPT = 4 * 511, MOST = 16, STEPS = MOST * PROMPT / 64 };
static const uint32_t arriving[] = {0, 1, 4, MOST}, chunks[] = {0, 64};
static int32_t ids[MOST + 1][PROMPT];

static void check(int e)
{
    if (e >= 0) return;
    fprintf(stderr, "bench_arrivals: %s\n", kvik_last_error());
    exit(1);
}

static kvik_request *start(kvik_cache *c, const kvik_generation *g, uint32_t i, uint32_t n)
{
    kvik_prompt p = {.size = sizeof p, .ids = ids[i], .n = n};
    kvik_request *r;
    check(kvik_request_start(c, g, &p, 1, NULL, &r));
    return r;
}

static double t[STEPS], longest;

/* Adds the times of the steps of a stream beside n prompts; returns the number of times. */
static uint32_t measure(kvik_cache *c, kvik_generation *g, uint32_t n, uint32_t done)
{
    kvik_request *r[MOST + 1];
    r[0] = start(c, g, 0, 16);
    for (uint32_t i = 0; i < 8; i++)
        check(kvik_request_step(r, 1));
    for (uint32_t i = 1; i <= n; i++)
        r[i] = start(c, g, i, PROMPT);
    /* The steps with a whole chunk: afterwards the prompts decode. */
    uint32_t chunk = g->prefill_chunk_size ? g->prefill_chunk_size : 511;
    for (uint32_t steps = n ? n * PROMPT / chunk : 160; steps && done < STEPS; steps--) {
        double begun = now_seconds();
        check(kvik_request_step(r, 1 + n));
        t[done] = now_seconds() - begun;
        longest = MAX(longest, t[done]);
        done++;
    }
    for (uint32_t i = 0; i <= n; i++)
        kvik_request_free(r[i]);
    return done;
}

/* Measures as many prompts in all, whether one, four or sixteen arrive at once. */
static void compare(kvik_cache *c, kvik_generation *g)
{
    double one = 0;
    for (uint32_t i = 0; i < countof(arriving); i++) {
        uint32_t n = arriving[i], done = 0;
        longest = 0;
        for (uint32_t k = 0; k < (n ? MOST / n : 1); k++)
            done = measure(c, g, n, done);
        double m = median_of(t, done);
        if (n == 1) one = m;
        printf("arrivals,%u,%u,%u,%.1f,%.1f,%.2f\n",
               g->prefill_chunk_size ? g->prefill_chunk_size : 512, n, done, 1e3 * m, 1e3 * longest,
               n ? m / one : 0);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_arrivals MODEL [THREADS]\n");
        return 2;
    }
    kvik_model *m;
    kvik_cache *c;
    kvik_generation g;
    check(kvik_model_open(argv[1], &m));
    const kvik_cache_config k = {.size = sizeof k,
                                 .max_sequences = MOST + 1,
                                 .max_cache_len = 2 * PROMPT,
                                 .no_prefix_cache = true,
                                 .threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 0};
    check(kvik_cache_open(m, &k, &c));
    check(kvik_generation_init(&g, m));
    g.max_new_tokens = PROMPT;
    g.n_eos = 0;
    for (uint32_t i = 0; i <= MOST; i++)
        for (uint32_t j = 0; j < PROMPT; j++)
            ids[i][j] = (int32_t)(100 + (i * 7919 + j * 104729) % 20000);
    for (uint32_t q = 0; q < countof(chunks); q++) {
        g.prefill_chunk_size = chunks[q];
        compare(c, &g);
    }
    kvik_generation_done(&g);
    kvik_cache_close(c);
    kvik_model_close(m);
    return 0;
}
