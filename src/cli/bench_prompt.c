/* bench_prompt.c - measures one prompt in one call, as a user's prompt is fed, and the quality of the tokens after
 * it.
 *
 * Under quanto and hqq the tokens of a call read each other unquantized until the call ends, as in Transformers.
 * So the peak of memory is far above what the cache holds afterwards.  The tokens after the prompt read it
 * quantized.  They are fed one by one, and their logits are compared with those of the dynamic cache, which saw
 * the same tokens. */
#include "base/divergence.h"
#include "cli/bench.h"

#include <math.h>
#include <string.h>

struct curve_watch {
    kvik_cache *cache;
    struct bench_curve *curve;
};

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct curve_watch *w = ctx;
    if (done < total) bench_sample(w->cache, (uint32_t)done, w->curve);
    return !interrupt_seen();
}

/* Feeds the prompt as kvik_generate does, in one turn. */
static int feed_prompt(struct bench *b, struct bench_prompt *p, kvik_cache *c, kvik_seq s,
                       kvik_generation *g)
{
    struct curve_watch watch = {c, &p->memory};
    kvik_hooks hooks = {.size = sizeof hooks, .on_progress = on_progress, .ctx = &watch};
    uint32_t n = bench_longest(b);
    kvik_prompt prompt = {.size = sizeof prompt, .ids = b->ids, .n = n, .seq = s};
    kvik_usage u = {.size = sizeof u};
    kvik_result *r;
    /* the one token is chosen from the logits of the prompt and not computed */
    g->max_new_tokens = 1;
    g->prefill_chunk_size = MAX(BENCH_PIECE, n / (BENCH_SAMPLES - 3) + 1);
    g->n_eos = 0;
    TRY(kvik_generate(c, g, &prompt, 1, &hooks, &r));
    p->prefill = r->prefill_seconds > 0 ? n / r->prefill_seconds : 0;
    kvik_result_free(r);
    if (interrupt_seen()) return ERR_CANCELLED;
    kvik_cache_usage(c, &u);
    p->held = u.bytes + u.reserved;
    /* Rows are quantized at the very end of the call, so the curve has its peak there. */
    struct bench_curve *m = &p->memory;
    if (u.seals && u.peak_bytes > p->held && m->n + 1 < BENCH_SAMPLES) {
        m->tokens[m->n] = n;
        m->bytes[m->n++] = u.peak_bytes;
    }
    bench_sample(c, n, m);
    p->disk = u.spilled;
    return 0;
}

/* Adds one position: p are the logits of the dynamic cache, q those of this row. */
static void add_position(struct bench_prompt *at, const float *p, const float *q, uint32_t n)
{
    uint32_t best_p, best_q;
    double lp = log_sum_exp(p, n, &best_p), lq = log_sum_exp(q, n, &best_q), kld = 0;
    for (uint32_t i = 0; i < n; i++)
        kld += exp(p[i] - lp) * ((p[i] - lp) - (q[i] - lq));
    at->identical &= memcmp(p, q, n * sizeof *p) == 0;
    at->same += best_p == best_q;
    at->kld += (fmax(kld, 0) - at->kld) / ++at->n;
}

static int feed_quality(struct bench *b, struct bench_row *r, kvik_cache *c, kvik_seq s,
                        float *logits)
{
    struct bench_prompt *at = &r->prompt;
    uint32_t n = bench_longest(b), vocab = kvik_model_vocab(b->engine->model);
    bool first = r == b->row;
    at->identical = true;
    for (uint32_t i = 0; i < BENCH_QUALITY && n + i < b->n_ids; i++) {
        kvik_span span = {.size = sizeof span, .seq = s, .ids = b->ids + n + i, .n = 1};
        float *kept = b->logits + (size_t)i * vocab, *into = first ? kept : logits;
        TRY(kvik_forward(c, &span, 1, false, into));
        if (!b->row[0].refused) add_position(at, kept, into, vocab);
        if (interrupt_seen()) return ERR_CANCELLED;
    }
    return 0;
}

int bench_prompt(struct bench *b, struct bench_row *r)
{
    kvik_generation g;
    kvik_cache *c = NULL;
    kvik_seq s;
    if (r->refused) return 0;
    if (bench_longest(b) == 0) return 0;
    float *logits = mem_array(kvik_model_vocab(b->engine->model), sizeof *logits);
    int e = logits ? kvik_generation_init(&g, NULL) : ERR_NOMEM;
    if (e >= 0) {
        e = bench_open(b, &r->s, &c, &s);
        if (e >= 0) e = feed_prompt(b, &r->prompt, c, s, &g);
        if (e >= 0) e = feed_quality(b, r, c, s, logits);
        kvik_cache_close(c);
        kvik_generation_done(&g);
    }
    mem_free(logits);
    return bench_refuse(r, e);
}
