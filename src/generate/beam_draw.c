/* beam_draw.c - beam sampling: a step's candidates are drawn by their probability instead of ranked.
 *
 * The reference draws K continuations of all beams without replacement from softmax(score so far + log-probability).
 * The K largest of (score + a Gumbel variate each) are such a draw, in the order of drawing (Gumbel's trick:
 * a race of exponential clocks), and can be found in one pass over the candidates like the K best.  A variate depends on
 * (seed, prompt, step, beam, token) alone.  Candidates stay in the order they were drawn, as in v5: only the first `beams`
 * of them may finish; the running beams are then the best of them. */
#include "generate/beam_int.h"
#include "generate/random.h"

#include <math.h>
#include <string.h>

double beam_draw_key(const struct beam_search *b, float score, uint32_t beam, uint32_t token)
{
    if (!(score > -INFINITY)) return -INFINITY;
    double u = random_uniform(b->rules.seed, b->rules.row, b->n, beam + 1, token);
    return score - log(-log(u > 0 ? u : 0x1p-54));
}

static float running_score(const struct beam_candidate *c)
{
    return c->ends < 0 ? c->score : c->score + BEAM_DEAD;
}

/* Merge sort, so that of equals the first drawn comes first. */
static void sort(struct beam_candidate *c, struct beam_candidate *tmp, uint32_t n)
{
    uint32_t half = n / 2, i = 0, j = half, k = 0;
    if (n < 2) return;
    sort(c, tmp, half);
    sort(c + half, tmp, n - half);
    memcpy(tmp, c, n * sizeof *c);
    while (k < n) {
        bool second = i == half || (j < n && running_score(&tmp[j]) > running_score(&tmp[i]));
        c[k++] = tmp[second ? j++ : i++];
    }
}

void beam_running_drawn(struct beam_search *b)
{
    struct beam_candidate *c = b->sorted;
    memcpy(c, b->candidate, b->held * sizeof *c);
    sort(c, c + b->keep, b->held);
    for (uint32_t i = 0; i < b->rules.beams; i++) {
        b->running[i] = c[i];
        b->running[i].score = running_score(&c[i]);
    }
}
