/* beam_group.c - diverse beam search: the beams of a prompt in groups, each a search of its own that is kept from choosing
 * what groups before it chose in the same step (processor_repetition.c).
 *
 * The rules of a group are those of the reference's 4.47 (cache-semantics 21.2, 21.3), since 5.x has no such search:
 * only end-of-sequence tokens end a sequence; a group is over when it holds as many finished ones as it has beams
 * and none that runs promises more; when the whole search ends, what still runs joins the finished sequences of its
 * group.  The best over all groups are returned; of equal scores the later found comes first.  Sums are in f32
 * and quotients in double, as there. */
#include "generate/beam_int.h"

#include <math.h>
#include <string.h>

static double quotient(const struct beam_search *b, float sum, uint32_t length)
{
    return sum / pow((double)length, b->rules.length_penalty);
}

/* The `beams` best are kept; of equal ones the first found goes. */
static void add(struct beam_search *b, const struct beam_candidate *c, uint32_t length, int ends)
{
    uint32_t beams = b->rules.beams, at = b->n_real;
    double score = quotient(b, c->score, length);
    if (b->n_real == beams) {
        uint32_t low = 0;
        if (!(score > b->worst)) return;
        for (uint32_t i = 1; i < beams; i++)
            if (b->done[i].score < b->done[low].score) low = i;
        struct beam_done gone = b->done[low];
        memmove(b->done + low, b->done + low + 1, (beams - 1 - low) * sizeof *b->done);
        b->done[--at] = gone;
    } else {
        b->n_real++;
    }
    struct beam_done *d = &b->done[at];
    beam_record(b, c, d);
    d->score = score;
    d->real = true;
    d->ends = ends;
    b->worst = b->done[0].score;
    for (uint32_t i = 1; i < b->n_real; i++)
        b->worst = fmin(b->worst, b->done[i].score);
}

static bool over(const struct beam_search *b, float best)
{
    bool never = b->rules.early == KVIK_EARLY_NEVER && b->rules.length_penalty > 0;
    if (b->n_real < b->rules.beams) return false;
    if (b->rules.early == KVIK_EARLY_TRUE) return true;
    return b->worst >= quotient(b, best, never ? b->rules.limit : b->n + 1);
}

bool beam_advance_group(struct beam_search *b)
{
    const struct beam_candidate *c = b->candidate;
    uint32_t beams = b->rules.beams, k = 0;
    for (uint32_t i = 0; i < b->held && k < beams; i++) {
        if (c[i].ends < 0)
            b->running[k++] = c[i];
        else if (i < beams)
            add(b, &c[i], b->n + 1, c[i].ends);
    }
    for (; k < beams; k++) { /* a vocabulary with nothing left to say */
        b->running[k] = c[0];
        b->running[k].score = -INFINITY;
    }
    bool ended = over(b, c[0].score);
    beam_follow(b);
    b->held = 0;
    return !ended;
}

void beam_group_end(struct beam_search *b, const int *ends)
{
    for (uint32_t i = 0; i < b->rules.beams; i++) {
        struct beam_candidate c = {.score = b->running[i].score, .beam = i, .token = -1};
        add(b, &c, b->n, ends[i]);
    }
}

void beam_group_best(struct beam_search *const *group, uint32_t n, const struct beam_done **best,
                     uint32_t n_best)
{
    uint32_t held = 0;
    for (uint32_t g = 0; g < n; g++)
        for (uint32_t i = 0; i < group[g]->n_real; i++) {
            const struct beam_done *d = &group[g]->done[i];
            uint32_t at = held < n_best ? held++ : n_best;
            for (; at > 0 && d->score >= best[at - 1]->score; at--)
                if (at < n_best) best[at] = best[at - 1];
            if (at < n_best) best[at] = d;
        }
}
