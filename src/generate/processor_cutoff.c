/* processor_cutoff.c - epsilon_cutoff and eta_cutoff: removes tokens less probable than a threshold, except the `keep`
 * most likely and what equals the last of them (Hewitt et al. 2022, truncation sampling as desmoothing).  For epsilon the
 * threshold is fixed; for eta it is min(eta, sqrt(eta) * exp(-entropy)), lower where many tokens are plausible. */
#include "generate/chain.h"

#include <math.h>

static void cut(struct gen_chain *c, float *scores, double total, float least)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (scores[i] > -INFINITY) c->value[n++] = scores[i];
    float spared = gen_select(c->value, n, MIN(c->keep, n));
    (void)gen_weights(scores, c->vocab, c->value);
    for (uint32_t i = 0; i < c->vocab; i++)
        if (!(c->value[i] / (float)total >= least) && !(scores[i] >= spared)) scores[i] = c->filter;
}

static bool wanted_epsilon(const kvik_generation *g)
{
    return g->epsilon_cutoff > 0 && g->epsilon_cutoff < 1;
}

static void apply_epsilon(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    double total = gen_weights(scores, c->vocab, c->value);
    if (total > 0) cut(c, scores, total, (float)c->g.epsilon_cutoff);
}

static bool wanted_eta(const kvik_generation *g)
{
    return g->eta_cutoff > 0 && g->eta_cutoff < 1;
}

/* With weights w = exp(s - max) of sum W: log W - sum of w (s - max) / W. */
static double entropy(const struct gen_chain *c, const float *scores, double total)
{
    float max = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (scores[i] > max) max = scores[i];
    for (uint32_t i = 0; i < c->vocab; i++)
        if (c->value[i] > 0 && scores[i] < max) sum += (double)c->value[i] * (scores[i] - max);
    return log(total) - sum / total;
}

static void apply_eta(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    double total = gen_weights(scores, c->vocab, c->value);
    if (!(total > 0)) return;
    float eta = (float)c->g.eta_cutoff;
    float wide = sqrtf(eta) * expf((float)-entropy(c, scores, total));
    cut(c, scores, total, MIN(eta, wide));
}

GEN_PROCESSOR(epsilon, 1960, true, wanted_epsilon, apply_epsilon);
GEN_PROCESSOR(eta, 1970, true, wanted_eta, apply_eta);
