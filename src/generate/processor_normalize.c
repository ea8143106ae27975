/* processor_normalize.c - renormalize_logits: scores become log-probabilities again, after everything else. */
#include "generate/beam.h"
#include "generate/chain.h"

static bool wanted(const kvik_generation *g)
{
    return g->renormalize_logits;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    beam_log_softmax(scores, c->vocab);
}

GEN_PROCESSOR(normalize, 2100, false, wanted, apply);
