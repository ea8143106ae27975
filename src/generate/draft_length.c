/* draft_length.c - how many draft tokens of prompt lookup are worth checking.  A step of 1 + k tokens costs more
 * than a step of one, and rejected draft tokens are wasted.  So a row learns how often a draft token is right.  It
 * learns this separately for each number of right draft tokens directly before: a lookup that has been right is
 * likely to go on being right.
 *
 * The draft gets the length that promises most tokens for the cost of its step.  If no length promises more than
 * plain decoding, no draft token is checked.  The first draft token is then remembered and compared with the token
 * that is chosen.  So a row learns without cost, and begins to check drafts as soon as they come true.  The costs
 * are constants and no clock is read, so the steps of a text are the same on every machine. */
#include "generate/draft_length.h"

#include <string.h>

enum { RUNS = 6 }; /* 0, 1, 2, 3, 4 to 7, and 8 or more right draft tokens in a row */

struct length_row {
    /* numbers of right and of all draft tokens, by the run of right tokens before them; old ones fade */
    float right[RUNS], seen[RUNS];
    uint32_t run;   /* number of right draft tokens in a row, up to the end of the text */
    uint32_t at, n; /* the last draft: its position in the text, and its length */
    int32_t draft[DRAFT_MOST];
};
struct draft_length {
    struct length_row *row;
};

/* Assumed chances before anything was seen; they weigh as much as BELIEF draft tokens. */
static const float believed[RUNS] = {0.2f, 0.4f, 0.6f, 0.75f, 0.85f, 0.95f};
#define BELIEF 2.0f
#define FADE   0.95f
/* Cost in steps of one token: a step with k draft tokens costs FIRST + k * EACH (docs/PERFORMANCE.md), a step
 * without them 1. */
#define FIRST 1.1f
#define EACH  0.2f
/* A draft must promise this much more than plain decoding, because chances are estimates and a wrong one costs
 * time. */
#define WORTH 1.15f

static uint32_t run_class(uint32_t run)
{
    return run < 4 ? run : run < 8 ? 4 : 5;
}

static float chance(const struct length_row *r, uint32_t run)
{
    uint32_t c = run_class(run);
    return (r->right[c] + BELIEF * believed[c]) / (r->seen[c] + BELIEF);
}

/* Returns the best length up to `most`; 0: none is better than no draft. */
static uint32_t best_length(const struct length_row *r, uint32_t most)
{
    float tokens = 1, all = 1, best = WORTH;
    uint32_t length = 0;
    for (uint32_t k = 1; k <= most; k++) {
        all *= chance(r, r->run + k - 1);
        tokens += all;
        float rate = tokens / (FIRST + EACH * (float)k);
        if (rate > best) best = rate, length = k;
    }
    return length;
}

int draft_length_open(uint32_t n, struct draft_length **out)
{
    struct draft_length *l = *out = mem_alloc(sizeof *l);
    if (!l) return ERR_NOMEM;
    l->row = mem_array(n, sizeof *l->row);
    return l->row ? 0 : ERR_NOMEM;
}

void draft_length_close(struct draft_length *l)
{
    if (!l) return;
    mem_free(l->row);
    mem_free(l);
}

uint32_t draft_length_ask(const struct draft_length *l, uint32_t row, uint32_t most)
{
    return MIN(MAX(best_length(&l->row[row], MIN(most, DRAFT_MOST)), 1), most);
}

uint32_t draft_length_take(struct draft_length *l, const struct draft_row *w)
{
    struct length_row *r = &l->row[w->row];
    r->at = w->n;
    r->n = MIN(w->got, DRAFT_MOST);
    memcpy(r->draft, w->ids + w->n, r->n * sizeof *r->draft);
    return best_length(r, r->n) ? r->n : 0;
}

void draft_length_learn(struct draft_length *l, uint32_t row, const int32_t *ids, uint32_t n)
{
    struct length_row *r = &l->row[row];
    for (uint32_t i = 0; i < r->n && r->at + i < n; i++) {
        bool right = ids[r->at + i] == r->draft[i];
        uint32_t c = run_class(r->run);
        r->right[c] = r->right[c] * FADE + (right ? 1.0f : 0.0f);
        r->seen[c] = r->seen[c] * FADE + 1;
        r->run = right ? r->run + 1 : 0;
        if (!right) break;
    }
    r->n = 0;
}
