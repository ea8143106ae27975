/* processor_filters.c - the family that removes improbable tokens by a threshold: top_k, min_p, epsilon_cutoff and
 * eta_cutoff.  Every filter leaves at least the `keep` most likely tokens.  Filters with an order of their own (top_p,
 * top_h, typical_p) have files of their own. */
#include "generate/chain.h"

#include <math.h>

/* Copies the scores above -inf to c->value; returns how many there are. */
static uint32_t scores_of(struct gen_chain *c, const float *scores)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (scores[i] > -INFINITY) c->value[n++] = scores[i];
    return n;
}

/* --- top_k: removes every score below the k-th largest.  All ties at the threshold stay. */

static bool wanted_top_k(const kvik_generation *g)
{
    return g->top_k > 0;
}

static void apply_top_k(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    uint32_t k = MAX(c->g.top_k, c->keep), n = scores_of(c, scores);
    if (k >= n) return;
    float least = gen_select(c->value, n, k);
    for (uint32_t i = 0; i < c->vocab; i++)
        if (!(scores[i] >= least)) scores[i] = c->filter;
}

/* --- min_p: removes tokens whose probability is below min_p times that of the most likely token. */

static bool wanted_min_p(const kvik_generation *g)
{
    return g->min_p > 0;
}

static void apply_min_p(struct gen_chain *c, const struct gen_row *row, float *scores)
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

/* --- epsilon_cutoff and eta_cutoff: remove tokens less probable than a threshold (Hewitt et al. 2022, truncation
 * sampling as desmoothing).  The threshold of epsilon is fixed.  That of eta is min(eta, sqrt(eta) *
 * exp(-entropy)), which is lower if many tokens are plausible.  Tokens as probable as the last one that must stay
 * also stay. */

static void cut_improbable(struct gen_chain *c, float *scores, double total, float least)
{
    uint32_t n = scores_of(c, scores);
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
    if (total > 0) cut_improbable(c, scores, total, (float)c->g.epsilon_cutoff);
}

static bool wanted_eta(const kvik_generation *g)
{
    return g->eta_cutoff > 0 && g->eta_cutoff < 1;
}

/* Returns the entropy, log W - sum of w (s - max) / W, of the weights w = exp(s - max) in c->value, whose sum is W. */
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
    cut_improbable(c, scores, total, MIN(eta, wide));
}

GEN_PROCESSOR(topk, 1920, true, wanted_top_k, apply_top_k);
GEN_PROCESSOR(minp, 1940, true, wanted_min_p, apply_min_p);
GEN_PROCESSOR(epsilon, 1960, true, wanted_epsilon, apply_epsilon);
GEN_PROCESSOR(eta, 1970, true, wanted_eta, apply_eta);
