/* bench_pace.c - a dynamic cache that decodes in turns with every strategy, a few steps each.  The speed of a
 * machine changes from second to second, by more than most strategies differ.  Two caches that take turns see the
 * same changes, so the ratio of their steps is reliable.  The speed of a strategy is that of the dynamic cache
 * times this ratio. */
#include "cli/bench.h"

/* Appends the tokens [from, to) of the text to the growing sequence. */
static int grow(struct bench *b, uint32_t from, uint32_t to)
{
    while (from < to) {
        uint32_t n = MIN(BENCH_PIECE, to - from);
        kvik_span span = {.size = sizeof span, .seq = b->pace.grows, .ids = b->ids + from, .n = n};
        TRY(kvik_forward(b->pace.cache, &span, 1, false, NULL));
        if (interrupt_seen()) return ERR_CANCELLED;
        from += n;
    }
    return 0;
}

int bench_pace_open(struct bench *b)
{
    struct bench_pace *p = &b->pace;
    kvik_cache_config c =
        cache_config(&b->engine->common,
                     &(struct cache_options){.sequences = b->n_depths + 2, .tokens = b->n_ids});
    p->logits = mem_array(kvik_model_vocab(b->engine->model), sizeof *p->logits);
    int e = p->logits ? kvik_cache_open(b->engine->model, &c, &p->cache) : ERR_NOMEM;
    if (e >= 0) e = kvik_cache_new(p->cache, &p->grows);
    for (uint32_t d = 0; e >= 0 && d < b->n_depths; d++) {
        e = grow(b, d ? b->depth[d - 1] : 0, b->depth[d]);
        if (e >= 0) e = kvik_cache_fork(p->cache, p->grows, &p->at[d]);
    }
    b->in_turn = e >= 0;
    /* without it, speeds are those that each strategy measures alone */
    if (e < 0) bench_pace_close(b);
    return e == ERR_CANCELLED ? EXIT_INTERRUPTED : 0;
}

void bench_pace_close(struct bench *b)
{
    kvik_cache_close(b->pace.cache);
    mem_free(b->pace.logits);
    b->pace = (struct bench_pace){0};
}

int bench_pace_begin(struct bench *b, uint32_t d)
{
    struct bench_pace *p = &b->pace;
    if (p->turn) TRY(bench_pace_end(b)); /* a strategy that failed has left this fork */
    p->depth = b->depth[d];
    return p->cache ? kvik_cache_fork(p->cache, p->at[d], &p->turn) : 0;
}

int bench_pace_step(struct bench *b, double *seconds)
{
    struct bench_pace *p = &b->pace;
    kvik_span span = {.size = sizeof span, .seq = p->turn, .ids = b->ids + p->depth, .n = 1};
    double begun = now_seconds();
    *seconds = 0;
    if (!p->cache) return 0;
    TRY(kvik_forward(p->cache, &span, 1, false, p->logits));
    *seconds = now_seconds() - begun;
    p->depth++;
    return 0;
}

int bench_pace_end(struct bench *b)
{
    kvik_seq turn = b->pace.turn;
    b->pace.turn = 0;
    return b->pace.cache ? kvik_cache_drop(b->pace.cache, turn) : 0;
}

void bench_pace_settle(struct bench *b)
{
    for (uint32_t d = 0; d < b->n_depths; d++) {
        double dynamic = bench_median(b->row[0].at[d].decode, b->row[0].runs);
        for (struct bench_row *r = b->row + 1; r < b->row + b->n_rows; r++)
            for (uint32_t run = 0; run < r->runs; run++)
                if (r->at[d].ratio[run] > 0 && dynamic > 0)
                    r->at[d].decode[run] = dynamic * r->at[d].ratio[run];
    }
}
