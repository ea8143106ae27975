/* eval_score.c - the divergence of two predictions, in double over the whole vocabulary.
 *
 * With logits a and b and their probabilities p and q, the Kullback-Leibler divergence is the sum of
 * p * (log p - log q).  It is computed as
 *
 *     sum of p * (a - b)  +  log_sum(b) - log_sum(a)
 *
 * so that equal logits give exactly 0, and near ones lose no digits to the size of the logits. */
#include "cli/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void eval_reference(struct eval_position *at, uint32_t vocab)
{
    at->log_sum = bench_log_sum(at->logits, vocab, &at->best);
    for (uint32_t i = 0; i < vocab; i++)
        at->p[i] = exp(at->logits[i] - at->log_sum);
}

bool eval_compare(const struct eval_position *at, const float *logits, uint32_t vocab, double *kld,
                  double *nll, bool *same)
{
    uint32_t best;
    double sum = bench_log_sum(logits, vocab, &best), moved = 0;
    for (uint32_t i = 0; i < vocab; i++) /* a token that a model forbids has -inf in both */
        if (at->p[i] > 0) moved += at->p[i] * ((double)at->logits[i] - logits[i]);
    *kld = fmax(moved + (sum - at->log_sum), 0);
    *nll = sum - logits[at->next];
    *same = best == at->best;
    return isfinite(moved) && isfinite(sum) && isfinite(*nll);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double eval_quantile(double *v, uint32_t n, double q)
{
    if (!n) return 0;
    qsort(v, n, sizeof *v, ascending);
    double rank = ceil(q * n - 1e-9);
    return v[rank < 1 ? 0 : MIN((uint32_t)rank, n) - 1];
}

struct eval_summary eval_summary(const struct eval_scores *s)
{
    struct eval_summary out = {.perplexity = s->n ? exp(s->nll / s->n) : 0};
    double sum = 0, squares = 0;
    for (uint32_t i = 0; s->kld && i < s->n; i++)
        sum += s->kld[i];
    if (!s->n || !s->kld) return out;
    out.mean = sum / s->n;
    for (uint32_t i = 0; i < s->n; i++)
        squares += (s->kld[i] - out.mean) * (s->kld[i] - out.mean);
    if (s->n > 1) out.error = sqrt(squares / (s->n - 1) / s->n);
    /* sorted in place: their order says nothing more */
    out.p999 = eval_quantile(s->kld, s->n, 0.999);
    out.p99 = eval_quantile(s->kld, s->n, 0.99);
    out.most = eval_quantile(s->kld, s->n, 1);
    return out;
}
