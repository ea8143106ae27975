/* processor_xtc.c - xtc_probability and xtc_threshold (p-e-w 2024, exclude top choices).  With probability
 * xtc_probability, a step removes all likely tokens except the least likely of them.  So a text avoids the obvious
 * words and stays sensible.  A token is likely if its probability is at least xtc_threshold.  Tokens as likely as
 * the one that stays also stay.  If fewer than `keep` tokens would be left, none is removed.  Which steps remove
 * tokens depends on (seed, row, step) alone. */
#include "generate/chain.h"
#include "generate/random.h"

#include <math.h>

/* number of its own stream of random numbers; beams have low numbers */
enum { NO_BEAM = 0x787463 };

static bool wanted_xtc(const kvik_generation *g)
{
    /* no two tokens can both have a probability above 0.5 */
    return g->xtc_probability > 0 && g->xtc_threshold <= 0.5;
}

static void apply_xtc(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    uint32_t step = (uint32_t)(row->n - row->n_prompt), likely = 0, gone = 0, can = 0;
    if (random_uniform(c->g.seed, row->row, step, NO_BEAM, 0) >= c->g.xtc_probability) return;
    double total = gen_weights(scores, c->vocab, c->value);
    float least = INFINITY, limit = (float)(c->g.xtc_threshold * total);
    for (uint32_t i = 0; i < c->vocab; i++) {
        can += scores[i] > -INFINITY;
        if (!(c->value[i] > 0 && c->value[i] >= limit)) continue;
        likely++;
        least = MIN(least, c->value[i]);
    }
    if (likely < 2) return;
    for (uint32_t i = 0; i < c->vocab; i++)
        gone += c->value[i] > least;
    if (can - gone < c->keep) return;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (c->value[i] > least) scores[i] = c->filter;
}

GEN_PROCESSOR(xtc, 1985, true, wanted_xtc, apply_xtc);
