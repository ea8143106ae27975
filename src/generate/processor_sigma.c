/* processor_sigma.c - top_n_sigma: removes scores that lie more than so many standard deviations below the best
 * (Tang et al. 2024, top-n-sigma).  The deviation is that of all scores above -inf.  The temperature multiplies the
 * deviation and the distances by the same factor, so it does not change which tokens stay. */
#include "generate/chain.h"

#include <math.h>

static bool wanted_sigma(const kvik_generation *g)
{
    return g->top_n_sigma > 0;
}

/* Returns the score below which tokens are removed.  Beside +inf no other score has weight. */
static double least_of(const struct gen_chain *c, const float *scores)
{
    double best = -INFINITY, sum = 0, squares = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->vocab; i++) {
        if (!(scores[i] > -INFINITY)) continue;
        if (scores[i] > best) best = scores[i];
        sum += scores[i];
        n++;
    }
    if (!n || best == INFINITY) return best;
    for (uint32_t i = 0; i < c->vocab; i++) {
        double off = scores[i] - sum / n;
        if (scores[i] > -INFINITY) squares += off * off;
    }
    return best - c->g.top_n_sigma * sqrt(squares / n);
}

static void apply_sigma(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    double least = least_of(c, scores);
    uint32_t kept = 0;
    (void)row;
    for (uint32_t i = 0; i < c->vocab; i++)
        kept += scores[i] >= least && scores[i] > -INFINITY;
    if (kept < c->keep) {
        gen_keep(c, scores);
        return;
    }
    for (uint32_t i = 0; i < c->vocab; i++)
        if (!(scores[i] >= least)) scores[i] = c->filter;
}

GEN_PROCESSOR(sigma, 1905, true, wanted_sigma, apply_sigma);
