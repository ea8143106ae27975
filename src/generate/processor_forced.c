/* processor_forced.c - forced_bos_token_id after a prompt of one token, and forced_eos_token_id where the text has
 * room for one token more: every other score is removed, theirs become 0. */
#include "generate/chain.h"

#include <math.h>

static void force(const struct gen_chain *c, const int32_t *id, uint32_t n, float *scores)
{
    for (uint32_t i = 0; i < c->vocab; i++)
        scores[i] = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        scores[id[i]] = 0;
}

static bool wanted_bos(const kvik_generation *g)
{
    return g->forced_bos_token_id >= 0;
}

static int open_bos(struct gen_chain *c)
{
    return gen_check_ids(c, "forced_bos_token_id", &c->g.forced_bos_token_id, 1);
}

static void apply_bos(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    if (row->n + row->pad == 1) force(c, &c->g.forced_bos_token_id, 1, scores);
}

static bool wanted_eos(const kvik_generation *g)
{
    return g->n_forced_eos > 0;
}

static int open_eos(struct gen_chain *c)
{
    return gen_check_ids(c, "forced_eos_token_id", c->g.forced_eos_token_id, c->g.n_forced_eos);
}

static void apply_eos(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    if (row->n + 1 == row->max_length)
        force(c, c->g.forced_eos_token_id, c->g.n_forced_eos, scores);
}

GEN_PROCESSOR(forcedbos, 1200, false, wanted_bos, apply_bos, .open = open_bos);
GEN_PROCESSOR(forcedeos, 1300, false, wanted_eos, apply_eos, .open = open_eos);
