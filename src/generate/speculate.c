/* speculate.c - speculative decoding: several draft tokens are checked in one step.  A job feeds every running row
 * its last token and the draft tokens behind it.  While the step is open, the judge goes through the logits as
 * plain decoding would, one token at a time: processors on the text so far, the same choice (when sampling, the
 * draw of that position), the same ends.  The judge stops at the first choice that differs from the draft token.
 * Rows up to there are accepted; the others never become part of the sequence.  So tokens, logits and the order of
 * callbacks are those of plain decoding, whatever the drafts.  Only the number of steps differs.
 *
 * Each row has its own number of draft tokens.  A job that is too wide for one step takes several.  A step that
 * does not fit the budget is repeated without drafts. */
#include "generate/draft_length.h"

#include <string.h>

#define LOGIT_BYTES ((size_t)64 << 20) /* most bytes of logits of a step, unless one row has more */

struct speculation {
    struct run *r;
    struct drafter maker;
    struct draft_length *length; /* lengths of drafts by prompt lookup; NULL: the maker decides */
    struct draft_row *row;       /* [r->n] the running rows, in order */
    uint32_t n_rows;
    float *logits;   /* [room][vocab] */
    uint32_t room;   /* most tokens of a step */
    uint32_t *right; /* [r->n] draft tokens that were accepted, in the order of row[] */
    bool drafting;   /* the job has draft tokens */
    bool cancel;
};

static void drafts_end(struct run *r)
{
    struct speculation *s = r->own;
    if (s->maker.close) s->maker.close(s->maker.ctx);
    draft_length_close(s->length);
    mem_free(s->row);
    mem_free(s->right);
    mem_free(s->logits);
    mem_free(s);
}

static int maker_open(const struct run *r, struct speculation *s)
{
    if (r->assist && r->assist->maker) {
        s->maker = *r->assist->maker;
        return 0;
    }
    if (!r->g->prompt_lookup_num_tokens)
        return draft_model_open(r, r->assist->assistant, &s->maker);
    TRY(draft_length_open(r->n, &s->length));
    return draft_lookup_open(r, &s->maker);
}

static int drafts_begin(struct run *r)
{
    struct speculation *s = mem_alloc(sizeof *s);
    if (!(r->own = s)) return ERR_NOMEM;
    s->r = r;
    TRY(maker_open(r, s));
    size_t row = r->x->m->vocab * sizeof(float), rows = MAX(LOGIT_BYTES / row, r->n), bytes;
    uint64_t wanted = (uint64_t)r->n * ((uint64_t)s->maker.most + 1);
    rows = MAX(rows, (size_t)MIN(s->maker.most, DRAFT_MOST) + 1);
    s->room = (uint32_t)MIN(MIN(wanted, rows), r->x->step_tokens);
    r->draft_rows = s->room;
    if (!ck_mul(row, s->room, &bytes)) return ERR(NOMEM, "too many rows");
    s->row = mem_array(r->n, sizeof *s->row);
    s->right = mem_array(r->n, sizeof *s->right);
    s->logits = mem_aligned(bytes);
    return s->row && s->right && s->logits ? 0 : ERR_NOMEM;
}

/* Makes drafts for all running rows, behind their tokens. */
static int propose(struct speculation *s)
{
    struct run *r = s->r;
    s->n_rows = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        /* the last token of a text is chosen but not fed, so a draft never contains it */
        uint32_t most = MIN(MIN(w->limit - (w->n - w->n_prompt) - 1, s->maker.most), s->room - 1);
        if (s->length) draft_length_learn(s->length, i, w->ids, w->n);
        if (s->length && most) most = draft_length_ask(s->length, i, most);
        uint32_t fits = exec_draft_fits(r->x, w->seq, 1 + most);
        s->row[s->n_rows++] =
            (struct draft_row){.text = run_text(r, i),
                               .row = i,
                               .ids = w->ids,
                               .n = w->n,
                               .max = MAX(fits, 1) - 1,
                               .source = w->source && w->source->given ? &w->source->in : NULL};
    }
    memset(s->right, 0, s->n_rows * sizeof *s->right);
    TRY(s->maker.propose(s->maker.ctx, s->row, s->n_rows));
    for (uint32_t k = 0; s->length && k < s->n_rows; k++)
        s->row[k].got = draft_length_take(s->length, &s->row[k]);
    return 0;
}

/* Chooses tokens from the logits of a draft, until a choice differs from the draft token. */
static int judge_row(struct speculation *s, uint32_t k, const float *logits, uint32_t *accepted)
{
    const struct draft_row *d = &s->row[k];
    struct row *w = &s->r->row[d->row];
    for (uint32_t t = 0; t <= d->got; t++) {
        int32_t draft = t < d->got ? w->ids[w->n] : -1;
        uint32_t before = w->n;
        TRY(run_choose(s->r, d->row, logits + (size_t)t * s->r->x->m->vocab, &s->cancel));
        *accepted = t + 1;
        bool right = w->n > before && w->ids[w->n - 1] == draft;
        s->right[k] += right;
        if (!right || w->done || s->cancel) break;
    }
    return 0;
}

/* Judges rows [first, first + n), whose logits are adjacent in s->logits. */
static int drafts_judge(struct run *r, uint32_t first, uint32_t n, uint32_t *accepted)
{
    struct speculation *s = r->own;
    const float *logits = s->logits;
    for (uint32_t i = 0; i < n; i++) {
        struct draft_row *d = &s->row[first + i];
        if (r->job.single) d->got = 0; /* the drafts did not fit */
        TRY(judge_row(s, first + i, logits, &accepted[i]));
        r->row[d->row].have += accepted[i];
        logits += (size_t)(d->got + 1) * r->x->m->vocab;
    }
    return 0;
}

/* Sets a job of drafts.  False: there are no drafts, or the next token of a row changes the regime of its rope,
 * which a draft cannot do. */
static bool gather_drafts(struct speculation *s)
{
    struct run *r = s->r;
    uint32_t drafts = 0;
    bool plain = false;
    for (uint32_t k = 0; k < s->n_rows; k++) {
        const struct draft_row *d = &s->row[k];
        struct row *w = &r->row[d->row];
        drafts += d->got;
        plain |= !exec_draft_fits(r->x, w->seq, 1);
        r->feed[k] = (struct exec_feed){
            .seq = w->seq, .tok = w->ids + w->n - 1, .n = d->got + 1, .loose = true};
    }
    if (!drafts || plain) return false;
    r->job.n = s->n_rows;
    r->job.draft = true;
    r->job.room = s->room;
    r->job.logits = s->logits;
    return true;
}

static int drafts_gather(struct run *r)
{
    struct speculation *s = r->own;
    s->drafting = false;
    if (!r->steps) return run_gather_rows(r);
    TRY(propose(s));
    if ((s->drafting = gather_drafts(s))) return 0;
    for (uint32_t k = 0; k < s->n_rows; k++)
        s->row[k].got = 0;
    return run_gather_rows(r);
}

static int drafts_choose(struct run *r, bool *running)
{
    struct speculation *s = r->own;
    if (!s->drafting) TRY(run_choose_rows(r, &s->cancel));
    for (uint32_t k = 0; k < s->n_rows; k++) {
        const struct draft_row *d = &s->row[k];
        r->drafted += d->got;
        r->accepted += s->right[k];
        if (s->maker.told) s->maker.told(s->maker.ctx, d->row, d->got, s->right[k]);
    }
    r->steps++;
    return run_step_end(r, s->cancel, running);
}

static int drafts_check(const struct run *r)
{
    if (r->g->use_cache) return 0;
    return ERR(ARG, "%s needs use_cache: draft tokens are checked on top of the cached tokens",
               r->g->prompt_lookup_num_tokens ? "prompt_lookup_num_tokens" : "assistant_model");
}

const struct run_mode speculate_mode = {.sequences = "rows",
                                        .by_logits = true,
                                        .drafts = true,
                                        .unfed = 1,
                                        .width = run_width,
                                        .check = drafts_check,
                                        .begin = drafts_begin,
                                        .gather = drafts_gather,
                                        .choose = drafts_choose,
                                        .judge = drafts_judge,
                                        .finish = run_rows,
                                        .end = drafts_end};
