/* processor_temperature.c - temperature T: every score divided by T, in f32. */
#include "generate/chain.h"

static bool wanted(const kvik_generation *g)
{
    return g->temperature != 1.0;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    float t = (float)c->g.temperature;
    for (uint32_t i = 0; i < c->vocab; i++)
        scores[i] /= t;
}

GEN_PROCESSOR(temperature, 1900, true, wanted, apply);
