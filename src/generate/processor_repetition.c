/* processor_repetition.c - repetition_penalty p: the score of every distinct token already in the text is
 * divided by p when positive and multiplied when negative, once each (Keskar et al. 2019, CTRL, section 4.1). */
#include "generate/chain.h"

static bool wanted(const kvik_generation *g)
{
    return g->repetition_penalty != 1.0;
}

void gen_penalize(struct gen_chain *c, const int32_t *ids, size_t n, float p, float *scores)
{
    for (size_t i = 0; i < n; i++)
        if (gen_seen_set(c, ids[i]))
            scores[ids[i]] = scores[ids[i]] < 0 ? scores[ids[i]] * p : scores[ids[i]] / p;
    for (size_t i = 0; i < n; i++)
        gen_seen_clear(c, ids[i]);
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    gen_penalize(c, row->ids, row->n, (float)c->g.repetition_penalty, scores);
}

GEN_PROCESSOR(repetition, 500, false, wanted, apply);
