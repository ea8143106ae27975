/* processor_badwords.c - bad_words_ids: the token that would complete one of the sequences cannot be chosen.  A sequence
 * that is just an end-of-sequence token is no bad word. */
#include "generate/chain.h"

#include <math.h>

static bool wanted(const kvik_generation *g)
{
    return g->n_bad_words_ids > 0;
}

static int open(struct gen_chain *c)
{
    return gen_check_sequences(c, "bad_words_ids", c->g.bad_words_ids, c->g.n_bad_words_ids);
}

static bool is_eos(const kvik_generation *g, int32_t id)
{
    for (uint32_t i = 0; i < g->n_eos; i++)
        if (g->eos_token_id[i] == id) return true;
    return false;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    for (uint32_t i = 0; i < c->g.n_bad_words_ids; i++) {
        const kvik_bias *b = &c->g.bad_words_ids[i];
        if (b->n == 1 && is_eos(&c->g, b->ids[0])) continue;
        if (gen_row_ends(row, b->ids, b->n - 1)) scores[b->ids[b->n - 1]] = -INFINITY;
    }
}

GEN_PROCESSOR(badwords, 800, false, wanted, apply, .open = open);
