/* processor_typical.c - typical_p: keeps the tokens whose surprise -log p is nearest to the expected surprise, the
 * entropy, until they hold the probability typical_p (Meister et al. 2022, locally typical sampling).  Nothing is
 * sorted.  As in top_p, partitions find the distance at which the sum is reached, in expected linear time.  All
 * tokens at that distance stay.  At least `keep` tokens stay; of equally distant ones those with lower ids. */
#include "generate/beam.h"
#include "generate/chain.h"

#include <math.h>

static bool wanted_typical(const kvik_generation *g)
{
    return g->typical_p < 1.0;
}

static int take_pairs(struct gen_chain *c)
{
    c->pair = mem_array(c->vocab ? c->vocab : 1, sizeof *c->pair);
    return c->pair ? 0 : ERR_NOMEM;
}

static void swap(struct gen_pair *a, struct gen_pair *b)
{
    struct gen_pair t = *a;
    *a = *b;
    *b = t;
}

static void sift(struct gen_pair *v, uint32_t i, uint32_t n)
{
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && v[child + 1].far > v[child].far) child++;
        if (!(v[child].far > v[i].far)) return;
        swap(&v[i], &v[child]);
    }
}

/* Sorts v[0, n) and returns the distance at which `sum` reaches `mass`, or the last distance if it never does. */
static float edge_of_sorted(struct gen_pair *v, uint32_t n, double sum, float mass)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(v, i, n);
    for (uint32_t m = n; m > 1;) {
        swap(&v[0], &v[--m]);
        sift(v, 0, m);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!((float)(sum += v[i].p) < mass)) return v[i].far;
    return n ? v[n - 1].far : INFINITY;
}

static float find_edge(struct gen_pair *v, uint32_t n, float mass)
{
    uint32_t lo = 0,
             hi = n; /* the edge lies in [lo, hi); sum: probability of all pairs before lo */
    double sum = 0;
    for (uint32_t round = 1; hi - lo > 32 && round <= 64; round++) {
        float pivot = v[lo + (uint32_t)((uint64_t)(2654435761u * round) * (hi - lo) >> 32)].far;
        uint32_t first = lo, i = lo, last = hi;
        double near = 0, equal = 0;
        while (i < last) {
            if (v[i].far < pivot) {
                near += v[i].p;
                swap(&v[i++], &v[first++]);
            } else if (v[i].far > pivot) {
                swap(&v[i], &v[--last]);
            } else {
                equal += v[i++].p;
            }
        }
        if (first > lo && !((float)(sum + near) < mass)) {
            hi = first;
        } else if ((float)(sum + near + equal) < mass && last < hi) {
            sum += near + equal;
            lo = last;
        } else {
            return pivot;
        }
    }
    return edge_of_sorted(v + lo, hi - lo, sum, mass);
}

/* Returns the k-th smallest distance.  *ties: how many tokens at that distance are among the k nearest. */
static float edge_of_rank(struct gen_chain *c, const float *far, uint32_t k, uint32_t *ties)
{
    float *v = (float *)c->pair;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (far[i] < INFINITY) v[n++] = -far[i];
    float edge = -gen_select(v, n, k);
    *ties = k;
    for (uint32_t i = 0; i < c->vocab; i++)
        *ties -= far[i] < edge;
    return edge;
}

static void apply_typical(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    float *far = c->value; /* log p at first, then distances */
    double entropy = 0;
    uint32_t n = 0, kept = 0;
    (void)row;
    for (uint32_t i = 0; i < c->vocab; i++)
        far[i] = scores[i];
    beam_log_softmax(far, c->vocab);
    for (uint32_t i = 0; i < c->vocab; i++)
        if (far[i] > -INFINITY) entropy -= (double)far[i] * expf(far[i]);
    for (uint32_t i = 0; i < c->vocab; i++) {
        float p = expf(far[i]);
        far[i] = fabsf(-far[i] - (float)entropy);
        if (far[i] < INFINITY) c->pair[n++] = (struct gen_pair){far[i], p};
    }
    if (!n) return;
    float edge = find_edge(c->pair, n, (float)c->g.typical_p);
    for (uint32_t i = 0; i < c->vocab; i++)
        kept += far[i] <= edge;
    uint32_t ties = UINT32_MAX;
    if (kept < c->keep && kept < n) edge = edge_of_rank(c, far, MIN(c->keep, n), &ties);
    for (uint32_t i = 0; i < c->vocab; i++)
        if (!(far[i] < edge) && !(far[i] == edge && ties > 0 && ties--)) scores[i] = c->filter;
}

GEN_PROCESSOR(typical, 1950, true, wanted_typical, apply_typical, .open = take_pairs);
