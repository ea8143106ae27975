/* processor_minp.c - min_p: removes tokens whose probability is below min_p times that of the most likely one,
 * except the `keep` most likely. */
#include "generate/chain.h"

#include <math.h>

static bool wanted(const kvik_generation *g)
{
    return g->min_p > 0;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    double sum = gen_weights(scores, c->vocab, c->value);
    if (!(sum > 0)) return;
    float total = (float)sum, least = (float)c->g.min_p * (1.0f / total);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        kept += c->value[i] / total >= least && c->value[i] > 0;
    if (kept < c->keep) {
        gen_keep(c, scores);
        return;
    }
    for (uint32_t i = 0; i < c->vocab; i++)
        if (!(c->value[i] / total >= least)) scores[i] = c->filter;
}

GEN_PROCESSOR(minp, 1940, true, wanted, apply);
