/* processor_topk.c - top_k: removes every score below the k-th largest; ties at the threshold all stay. */
#include "generate/chain.h"

#include <math.h>

static bool wanted(const kvik_generation *g)
{
    return g->top_k > 0;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    uint32_t k = MAX(c->g.top_k, c->keep), n = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (scores[i] > -INFINITY) c->value[n++] = scores[i];
    if (k >= n) return;
    float least = gen_select(c->value, n, k);
    for (uint32_t i = 0; i < c->vocab; i++)
        if (!(scores[i] >= least)) scores[i] = c->filter;
}

GEN_PROCESSOR(topk, 1920, true, wanted, apply);
