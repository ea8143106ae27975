/* processor_repetition.c - repetition_penalty p: the score of every distinct token already in the text is
 * divided by p when positive and multiplied when negative, once each (Keskar et al. 2019, CTRL, section 4.1). */
#include "generate/chain.h"

static bool wanted(const kvik_generation *g)
{
    return g->repetition_penalty != 1.0;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    float p = (float)c->g.repetition_penalty;
    for (size_t i = 0; i < row->n; i++) {
        int32_t id = row->ids[i];
        if (gen_seen_set(c, id)) scores[id] = scores[id] < 0 ? scores[id] * p : scores[id] / p;
    }
    for (size_t i = 0; i < row->n; i++)
        gen_seen_clear(c, row->ids[i]);
}

GEN_PROCESSOR(repetition, 500, false, wanted, apply);
