/* draft_lookup.c - prompt lookup: finds an earlier occurrence of the last few tokens in the text; the tokens that
 * followed there are the draft.  The rules are those of Transformers (Hugging Face).  The longest n-gram is tried
 * first, and of its occurrences the leftmost.  A draft token that a processor forbids ends the draft; if the first
 * token is forbidden, the next occurrence is tried.  An end-of-sequence token is never part of a draft. */
#include "generate/chain.h"
#include "generate/draft.h"

#include <math.h>
#include <string.h>

struct lookup {
    const kvik_generation *g;
    /* processors that forbid tokens, without the filters of sampling; NULL: none */
    struct gen_chain *chain;
    float *scores; /* [vocab] */
    uint32_t vocab;
};

/* Computes the scores of the next token after the first n of a row; -INFINITY: forbidden. */
static void score_next(const struct lookup *l, const struct draft_row *w, uint32_t n)
{
    struct gen_row view = w->text;
    if (!l->chain) return;
    view.n = n;
    for (uint32_t i = 0; i < l->vocab; i++)
        l->scores[i] = 1;
    (void)gen_chain_apply(l->chain, &view, l->scores);
}

static bool forbidden(const struct lookup *l, int32_t id)
{
    return l->chain && l->scores[id] == -INFINITY;
}

/* Copies the tokens from `at` on behind the text, as many as the draft may have. */
static void take_draft(const struct lookup *l, struct draft_row *w, uint32_t at)
{
    uint32_t end = MIN(w->n, at + w->max);
    w->got = 0;
    for (; at < end; at++) {
        int32_t id = w->ids[at];
        score_next(l, w, w->n + w->got);
        if (forbidden(l, id) || run_ends(l->g, id)) return;
        w->ids[w->n + w->got++] = id;
    }
}

/* Returns how many tokens before `end`, at most `most`, equal the last tokens of the text. */
static uint32_t common_tail(const struct draft_row *w, uint32_t end, uint32_t most)
{
    uint32_t n = 0;
    most = MIN(most, end);
    while (n < most && w->ids[end - 1 - n] == w->ids[w->n - 1 - n])
        n++;
    return n;
}

static void find_draft(const struct lookup *l, struct draft_row *w)
{
    uint32_t most = l->g->max_matching_ngram_size, best = 0, at = 0;
    score_next(l, w, w->n);
    for (uint32_t end = 1; end < w->n && best < most; end++) {
        uint32_t n = forbidden(l, w->ids[end]) ? 0 : common_tail(w, end, most);
        if (n > best) best = n, at = end;
    }
    if (best) take_draft(l, w, at);
}

static int propose(void *ctx, struct draft_row *row, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (row[i].max) find_draft(ctx, &row[i]);
    return 0;
}

static void close_lookup(void *ctx)
{
    struct lookup *l = ctx;
    if (!l) return;
    if (l->chain) gen_chain_drop(l->chain);
    mem_free(l->scores);
    mem_free(l);
}

int draft_lookup_open(const struct run *r, struct drafter *out)
{
    const kvik_generation *g = r->g;
    struct lookup *l = mem_alloc(sizeof *l);
    if (!l) return ERR_NOMEM;
    l->g = g;
    l->vocab = r->x->m->vocab;
    kvik_generation greedy = *g;
    greedy.do_sample = false;
    int e = gen_chain_new(&greedy, l->vocab, r->tok, &l->chain);
    if (e >= 0 && !l->chain->n) {
        gen_chain_drop(l->chain);
        l->chain = NULL;
    }
    if (e >= 0 && l->chain && !(l->scores = mem_array(l->vocab, sizeof *l->scores))) e = ERR_NOMEM;
    if (e < 0) {
        close_lookup(l);
        return e;
    }
    *out = (struct drafter){
        .propose = propose, .close = close_lookup, .ctx = l, .most = g->prompt_lookup_num_tokens};
    return 0;
}
