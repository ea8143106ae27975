/* processor_invalid.c - remove_invalid_values: what is no number becomes 0, what is infinite the largest or least
 * finite number. */
#include "generate/chain.h"

#include <float.h>
#include <math.h>

static bool wanted(const kvik_generation *g)
{
    return g->remove_invalid_values;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    for (uint32_t i = 0; i < c->vocab; i++) {
        if (isnan(scores[i])) scores[i] = 0;
        scores[i] = scores[i] > FLT_MAX ? FLT_MAX : scores[i] < -FLT_MAX ? -FLT_MAX : scores[i];
    }
}

GEN_PROCESSOR(invalid, 1400, false, wanted, apply);
