/* processor_suppress.c - suppress_tokens, and begin_suppress_tokens for the first generated token: they cannot be
 * chosen.  Where the first token is forced (forced_bos_token_id after a prompt of one token), the second counts. */
#include "generate/chain.h"

static bool wanted(const kvik_generation *g)
{
    return g->n_suppress_tokens > 0;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    gen_remove(c, c->g.suppress_tokens, c->g.n_suppress_tokens, scores);
}

static bool wanted_begin(const kvik_generation *g)
{
    return g->n_begin_suppress_tokens > 0;
}

static void apply_begin(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    size_t first = c->g.forced_bos_token_id >= 0 && row->n_prompt + row->pad <= 1;
    if (row->n - row->n_prompt == first)
        gen_remove(c, c->g.begin_suppress_tokens, c->g.n_begin_suppress_tokens, scores);
}

GEN_PROCESSOR(suppress, 1600, false, wanted, apply);
GEN_PROCESSOR(suppressbegin, 1700, false, wanted_begin, apply_begin);
