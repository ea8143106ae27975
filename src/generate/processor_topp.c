/* processor_topp.c - top_p: with the scores in ascending order, removes those whose cumulative probability is at most
 * 1 - top_p, always leaving the `keep` largest.
 *
 * The removed tokens are a prefix of that order, so finding its end is enough and nothing is sorted.  The weights are
 * partitioned around a pivot as in quickselect.  The search descends into the side with the boundary and adds up the
 * weight of the other side: expected linear time.  Sums run in f64 and are rounded to f32 where Transformers compares
 * f32.  Among equal scores at the boundary, lower ids are removed first, as in a stable sort. */
#include "generate/chain.h"

#include <math.h>

static bool wanted_top_p(const kvik_generation *g)
{
    return g->top_p < 1.0;
}

/* The end of the removed prefix: all weights below `least` are removed, and `ties` of those equal to it. */
struct edge {
    float least;
    uint32_t ties;
};

/* True if a sum of removed weights is within the limit.  As in Transformers the sum is divided by the total first. */
static bool removed(double sum, double total, float limit)
{
    return (float)(sum / total) <= limit;
}

static struct edge edge_of_sorted(const float *w, uint32_t n, double below, double total,
                                  float limit)
{
    struct edge e = {n ? w[0] : INFINITY, 0};
    for (uint32_t i = 0; i < n; i++) {
        below += w[i];
        if (w[i] != e.least) e = (struct edge){w[i], 0};
        if (!removed(below, total, limit)) return e;
        e.ties++;
    }
    return e;
}

static struct edge find_edge(float *w, uint32_t n, double total, float limit)
{
    uint32_t lo = 0, hi = n; /* the boundary lies in [lo, hi); all weights before lo are removed */
    double below = 0;
    for (int rounds = 0; hi - lo > 32 && rounds < 64; rounds++) {
        uint32_t m = hi - lo;
        float pivot =
            w[lo + (uint32_t)((uint64_t)(2654435761u * (uint32_t)(rounds + 1)) * m >> 32)];
        uint32_t first = lo, i = lo, last = hi;
        double less = 0, equal = 0;
        while (i < last) {
            float x = w[i];
            if (x < pivot) {
                less += x;
                w[i++] = w[first];
                w[first++] = x;
            } else if (x > pivot) {
                w[i] = w[--last];
                w[last] = x;
            } else {
                equal += x;
                i++;
            }
        }
        if (first > lo && !removed(below + less, total, limit)) {
            hi = first;
        } else if (removed(below + less + equal, total, limit) && last < hi) {
            below += less + equal;
            lo = last;
        } else {
            return edge_of_sorted(w + first, last - first, below + less, total, limit);
        }
    }
    gen_sort(w + lo, hi - lo); /* at most 32 weights, or more if the order defeats the pivots */
    return edge_of_sorted(w + lo, hi - lo, below, total, limit);
}

static void apply_top_p(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    double total = gen_weights(scores, c->vocab, c->value);
    if (!(total > 0)) return;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (c->value[i] > 0) c->value[n++] = c->value[i];
    struct edge e = find_edge(c->value, n, total, (float)(1.0 - c->g.top_p));
    gen_weights(scores, c->vocab, c->value);
    uint32_t ties = e.ties, kept = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        kept += c->value[i] >= e.least;
    kept -= MIN(kept, ties);
    if (kept < c->keep) {
        gen_keep(c, scores);
        return;
    }
    for (uint32_t i = 0; i < c->vocab; i++) {
        float w = c->value[i];
        if (!(w > 0) || w < e.least || (w == e.least && ties > 0 && ties--)) scores[i] = c->filter;
    }
}

GEN_PROCESSOR(topp, 1930, true, wanted_top_p, apply_top_p);
