/* criteria.c - decides whether a text ends with its last token, and why.  The reason is the first of these that
 * applies: an end-of-sequence token, a stop string, the length, the caller's criteria, max_time.  Stop strings are
 * found by plain.c and beam_mode.c, which have the text that a token adds. */
#include "generate/run.h"

bool run_ends(const kvik_generation *g, int32_t id)
{
    for (uint32_t i = 0; i < g->n_eos; i++)
        if (g->eos_token_id[i] == id) return true;
    return false;
}

bool run_criteria(const struct run *r, uint32_t row, const int32_t *ids, size_t n,
                  enum kvik_finish *why)
{
    const kvik_hooks *h = r->hooks;
    if (h && h->stopping_criteria && !together_judges(r->together) &&
        h->stopping_criteria(h->ctx, row, ids, n)) {
        *why = KVIK_FINISH_CRITERIA;
        return true;
    }
    if (!(r->g->max_time > 0) || now_seconds() - r->begun <= r->g->max_time) return false;
    *why = KVIK_FINISH_TIME;
    return true;
}

bool run_over(const struct run *r, const struct gen_row *text, bool stopped, enum kvik_finish *why)
{
    *why = run_ends(r->g, text->ids[text->n - 1]) ? KVIK_FINISH_EOS
           : stopped                              ? KVIK_FINISH_STOP
                                                  : KVIK_FINISH_LENGTH;
    if (*why != KVIK_FINISH_LENGTH || text->n >= text->max_length) return true;
    return run_criteria(r, text->row, text->ids, text->n, why);
}
