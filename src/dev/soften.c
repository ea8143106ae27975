/* soften.c - the softmax of a probe.  It is exact, over all rows that a token sees; attention itself merges atoms. */
#include "dev/soften.h"
#include "dev/cpu/mathfn.h"

#include <math.h>

/* Visits the rows that a token sees, one after another: [0, sinks) and [lo, hi). */
#define EACH_SEEN(i, sinks, lo, hi)                                                                \
    (uint32_t i = sinks ? 0 : lo; i < hi; i = i + 1 == sinks ? lo : i + 1)

void dev_soften(float *x, uint32_t sinks, uint32_t lo, uint32_t hi, float cap, const float *sink)
{
    float m = sink ? *sink : -INFINITY;
    for
        EACH_SEEN(i, sinks, lo, hi)
        {
            if (cap != 0) x[i] = cap * math_tanh(x[i] / cap);
            m = x[i] > m ? x[i] : m;
        }
    double sum = sink ? (double)math_exp(*sink - m) : 0;
    for
        EACH_SEEN(i, sinks, lo, hi)
        {
            x[i] = math_exp(x[i] - m);
            sum += (double)x[i];
        }
    for
        EACH_SEEN(i, sinks, lo, hi)
    x[i] = (float)((double)x[i] / sum);
}
