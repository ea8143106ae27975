/* processor_encoderrepetition.c - encoder_repetition_penalty p: the score of every distinct token of the prompt is
 * multiplied by p when positive and divided when negative, so that an answer keeps to its prompt: the penalty for
 * repetition with 1/p. */
#include "generate/chain.h"

static bool wanted(const kvik_generation *g)
{
    return g->encoder_repetition_penalty != 1.0;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    gen_penalize(c, row->ids, row->n_prompt, (float)(1.0 / c->g.encoder_repetition_penalty),
                 scores);
}

GEN_PROCESSOR(encoderrepetition, 400, false, wanted, apply);
