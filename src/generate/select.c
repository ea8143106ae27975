/* select.c - finds the k-th largest value of an array in expected linear time, by quickselect.  Partitions are
 * three-way, because equal scores are common after a filter.  A fixed counter picks the pivots, so equal scores
 * always take the same path.  If the pivots are bad, heapsort limits the cost to n log n. */
#include "generate/chain.h"

static void swap(float *a, float *b)
{
    float t = *a;
    *a = *b;
    *b = t;
}

static void sift(float *v, uint32_t i, uint32_t n)
{
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && v[child + 1] > v[child]) child++;
        if (!(v[child] > v[i])) return;
        swap(&v[i], &v[child]);
    }
}

void gen_sort(float *v, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(v, i, n);
    for (uint32_t m = n; m > 1;) {
        swap(&v[0], &v[--m]);
        sift(v, 0, m);
    }
}

static float median(float a, float b, float c)
{
    if (a > b) swap(&a, &b);
    if (b > c) b = c;
    return a > b ? a : b;
}

float gen_select(float *v, uint32_t n, uint32_t k)
{
    uint32_t want = n - k, lo = 0, hi = n; /* index in ascending order, searched in [lo, hi) */
    if (k == 1) {
        for (uint32_t i = 1; i < n; i++)
            if (v[i] > v[0]) swap(&v[0], &v[i]);
        return v[0];
    }
    for (int rounds = 0; hi - lo > 16; rounds++) {
        if (rounds == 64) break;
        uint32_t m = hi - lo;
        uint32_t at =
            lo + (uint32_t)((uint64_t)(2654435761u * (uint32_t)(rounds + 1)) * (m - 2) >> 32);
        float pivot = median(v[at], v[lo + m / 2], v[at + 1]);
        uint32_t below = lo, i = lo, above = hi;
        while (i < above) {
            if (v[i] < pivot)
                swap(&v[below++], &v[i++]);
            else if (v[i] > pivot)
                swap(&v[i], &v[--above]);
            else
                i++;
        }
        if (want < below)
            hi = below;
        else if (want >= above)
            lo = above;
        else
            return pivot;
    }
    gen_sort(v + lo, hi - lo);
    return v[want];
}
