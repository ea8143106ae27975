/* processor_toph.c - top_h: treats the 100 most likely tokens, in descending order, as a distribution of their
 * own.  Keeps the longest beginning of it whose terms of the entropy add up to at most top_h times the entropy.
 * The most likely token always stays. */
#include "generate/chain.h"

#include <math.h>

enum { TOP = 100 };
struct top {
    float score;
    uint32_t id;
};

static bool wanted_top_h(const kvik_generation *g)
{
    return g->top_h > 0;
}

/* Fills top with the best scores in descending order, equal ones by ascending id.  Returns their number, at most
 * TOP. */
static uint32_t best(struct gen_chain *c, const float *scores, struct top top[TOP])
{
    uint32_t n = 0, k = 0;
    for (uint32_t i = 0; i < c->vocab; i++)
        if (scores[i] > -INFINITY) c->value[n++] = scores[i];
    if (!n) return 0;
    float least = gen_select(c->value, n, MIN(n, TOP));
    uint32_t ties = MIN(n, TOP);
    for (uint32_t i = 0; i < c->vocab; i++)
        ties -= scores[i] > least;
    for (uint32_t i = 0; i < c->vocab; i++) {
        if (!(scores[i] > least) && !(scores[i] == least && ties > 0 && ties--)) continue;
        uint32_t at = k++;
        for (; at > 0 && top[at - 1].score < scores[i]; at--)
            top[at] = top[at - 1];
        top[at] = (struct top){scores[i], i};
    }
    return k;
}

static void apply_top_h(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    struct top top[TOP];
    float p[TOP];
    double total = 0, entropy = 0, sum = 0;
    uint32_t n = best(c, scores, top), kept = 1;
    (void)row;
    if (!n) return;
    for (uint32_t i = 0; i < n; i++) {
        bool sure = top[0].score == INFINITY;
        p[i] = sure ? (float)(top[i].score == INFINITY) : expf(top[i].score - top[0].score);
        total += p[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        p[i] = (float)(p[i] / total);
        p[i] = p[i] > 0 ? -p[i] * logf(p[i]) : NAN; /* the term of the entropy */
        if (p[i] > 0) entropy += p[i];
    }
    float most = (float)entropy * (float)c->g.top_h;
    for (sum = p[0]; kept < n; kept++)
        if (!((float)(sum += p[kept]) <= most)) break;
    for (uint32_t i = 0; i < c->vocab; i++)
        scores[i] = c->filter;
    for (uint32_t i = 0; i < kept; i++)
        scores[top[i].id] = top[i].score;
}

GEN_PROCESSOR(toph, 1910, true, wanted_top_h, apply_top_h);
