/* processor_scores.c - the family that changes every score alike: invalid values, temperature, and log-probabilities. */
#include "generate/beam.h"
#include "generate/chain.h"

#include <float.h>
#include <math.h>

/* --- remove_invalid_values: NaN becomes 0, and an infinite score becomes the largest or smallest finite float. */

static bool wanted_invalid(const kvik_generation *g)
{
    return g->remove_invalid_values;
}

static void apply_invalid(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    for (uint32_t i = 0; i < c->vocab; i++) {
        if (isnan(scores[i])) scores[i] = 0;
        scores[i] = scores[i] > FLT_MAX ? FLT_MAX : scores[i] < -FLT_MAX ? -FLT_MAX : scores[i];
    }
}

/* --- temperature T: every score is divided by T, in f32. */

static bool wanted_temperature(const kvik_generation *g)
{
    return g->temperature != 1.0;
}

static void apply_temperature(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    float t = (float)c->g.temperature;
    for (uint32_t i = 0; i < c->vocab; i++)
        scores[i] /= t;
}

/* --- renormalize_logits: the scores become log-probabilities again, after everything else. */

static bool wanted_normalize(const kvik_generation *g)
{
    return g->renormalize_logits;
}

static void apply_normalize(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    beam_log_softmax(scores, c->vocab);
}

GEN_PROCESSOR(invalid, 1400, false, wanted_invalid, apply_invalid);
GEN_PROCESSOR(temperature, 1900, true, wanted_temperature, apply_temperature);
GEN_PROCESSOR(normalize, 2100, false, wanted_normalize, apply_normalize);
