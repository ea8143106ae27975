/* median.c - the middle of repeated measurements. */
#include "base/base.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_of(double *v, size_t n)
{
    if (!n) return 0;
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}
