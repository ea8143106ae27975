/* divergence.c - the divergence of two predictions, in double over the whole vocabulary.
 *
 * With logits a and b and their probabilities p and q, the Kullback-Leibler divergence is the sum of
 * p * (log p - log q).  It is computed as
 *
 *     sum of p * (a - b)  +  log_sum(b) - log_sum(a)
 *
 * so that equal logits give exactly 0, and near ones lose no digits to the size of the logits. */
#include "base/divergence.h"

#include <math.h>

double log_sum_exp(const float *x, uint32_t n, uint32_t *best)
{
    double sum = 0;
    *best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[*best]) *best = i;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - x[*best]);
    return log(sum) + x[*best];
}

void divergence_reference(struct divergence *at, uint32_t vocab)
{
    at->log_sum = log_sum_exp(at->logits, vocab, &at->best);
    for (uint32_t i = 0; i < vocab; i++)
        at->p[i] = exp(at->logits[i] - at->log_sum);
}

bool divergence_compare(const struct divergence *at, const float *logits, uint32_t vocab,
                        double *kld, double *nll, bool *same)
{
    uint32_t best;
    double sum = log_sum_exp(logits, vocab, &best), moved = 0;
    for (uint32_t i = 0; i < vocab; i++) /* a token that a model forbids has -inf in both */
        if (at->p[i] > 0) moved += at->p[i] * ((double)at->logits[i] - logits[i]);
    *kld = fmax(moved + (sum - at->log_sum), 0);
    *nll = sum - logits[at->next];
    *same = best == at->best;
    return isfinite(moved) && isfinite(sum) && isfinite(*nll);
}
