/* eval_score.c - sums up the divergences of a row (base/divergence.h): means, quantiles, perplexity. */
#include "cli/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    /* sorts in place; the order is not used after this */
    out.p999 = eval_quantile(s->kld, s->n, 0.999);
    out.p99 = eval_quantile(s->kld, s->n, 0.99);
    out.most = eval_quantile(s->kld, s->n, 1);
    return out;
}
