/* processor_minlength.c - min_length and min_new_tokens: until the text, or its generated part, is that long,
 * the tokens that end it cannot be chosen. */
#include "generate/chain.h"

#include <math.h>

static bool wanted(const kvik_generation *g)
{
    return g->n_eos && (g->min_length || g->min_new_tokens);
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    if (row->n + row->pad >= c->g.min_length && row->n - row->n_prompt >= c->g.min_new_tokens)
        return;
    gen_remove(c, c->g.eos_token_id, c->g.n_eos, scores);
}

GEN_PROCESSOR(minlength, 900, false, wanted, apply);
