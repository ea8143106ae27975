/* speculate.c - speculative decoding: guesses of what comes next are checked together, in one step.
 *
 * A round feeds every running row its last token and the guesses behind it, and while that step is open goes through the
 * logits as the plain loop would one by one: processors on the text so far, the same choice (of sampling, the draw
 * of that position), the same ends.  It stops at the first choice that is not the guess; the rows up to there stay, the
 * others were never part of the sequence (exec_draft).  So tokens, logits and the order of calls to the caller are those of
 * plain decoding whatever the guesses; only the number of steps differs.
 *
 * Rows are ragged: each has its own number of guesses, and rounds that are too wide for a step take several.  A step that does
 * not fit the budget is done again without guesses. */
#include "generate/draft.h"
#include "generate/notice.h"

#include <string.h>

#define LOGIT_BYTES ((size_t)64 << 20) /* of a step, unless one row has more */

struct speculation {
    struct run *r;
    struct drafter maker;
    struct draft_row *row; /* [r->n] the running rows */
    uint32_t n_rows;
    struct exec_draft *draft; /* [r->n] of the open step: rows row[at, at + n_draft) */
    uint32_t at, n_draft;
    float *logits;   /* [room][vocab] */
    uint32_t room;   /* tokens of a step */
    uint32_t *right; /* [r->n] guesses that came true, by row[] */
    bool judged, cancel;
};

static void done(struct speculation *s)
{
    if (s->maker.close) s->maker.close(s->maker.ctx);
    mem_free(s->row);
    mem_free(s->draft);
    mem_free(s->right);
    mem_free(s->logits);
}

static int begin(struct speculation *s)
{
    struct run *r = s->r;
    size_t row = r->x->m->vocab * sizeof(float), rows = MAX(LOGIT_BYTES / row, r->n), bytes;
    uint64_t wanted = (uint64_t)r->n * ((uint64_t)s->maker.most + 1);
    rows = MAX(rows, (size_t)MIN(s->maker.most, DRAFT_MOST) + 1);
    s->room = (uint32_t)MIN(MIN(wanted, rows), r->x->step_tokens);
    if (!ck_mul(row, s->room, &bytes)) return ERR(NOMEM, "too many rows");
    s->row = mem_array(r->n, sizeof *s->row);
    s->draft = mem_array(r->n, sizeof *s->draft);
    s->right = mem_array(r->n, sizeof *s->right);
    s->logits = mem_aligned(bytes);
    return s->row && s->draft && s->right && s->logits ? 0 : ERR_NOMEM;
}

/* Guesses for all rows that run, behind their tokens. */
static int propose(struct speculation *s)
{
    struct run *r = s->r;
    s->n_rows = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        /* of the tokens still to come the last one is chosen, not guessed */
        uint32_t most = MIN(MIN(w->limit - (w->n - w->n_prompt) - 1, s->maker.most), s->room - 1);
        uint32_t fits = exec_draft_fits(r->x, w->seq, 1 + most);
        s->row[s->n_rows++] = (struct draft_row){
            .text = run_text(r, i), .row = i, .ids = w->ids, .n = w->n, .max = MAX(fits, 1) - 1};
    }
    memset(s->right, 0, s->n_rows * sizeof *s->right);
    return s->maker.propose(s->maker.ctx, s->row, s->n_rows);
}

/* What the logits of a draft say, as far as they follow from tokens that were chosen. */
static int judge_row(struct speculation *s, uint32_t k, const float *logits, uint32_t *accepted)
{
    const struct draft_row *d = &s->row[k];
    struct row *w = &s->r->row[d->row];
    for (uint32_t t = 0; t <= d->got; t++) {
        int32_t guess = t < d->got ? w->ids[w->n] : -1;
        TRY(run_choose(s->r, d->row, logits + (size_t)t * s->r->x->m->vocab, &s->cancel));
        *accepted = t + 1;
        bool right = w->ids[w->n - 1] == guess;
        s->right[k] += right;
        if (!right || w->done || s->cancel) break;
    }
    return 0;
}

static int judge(void *ctx, const float *logits, uint32_t *accepted)
{
    struct speculation *s = ctx;
    s->judged = true;
    for (uint32_t i = 0; i < s->n_draft; i++) {
        TRY(judge_row(s, s->at + i, logits, &accepted[i]));
        s->r->row[s->row[s->at + i].row].have += accepted[i];
        logits += (size_t)s->draft[i].n * s->r->x->m->vocab;
    }
    return 0;
}

/* row[at, at + n_draft) without guesses, as the plain loop feeds them. */
static int plain_step(struct speculation *s)
{
    struct run *r = s->r;
    for (uint32_t i = 0; i < s->n_draft; i++) {
        struct row *w = &r->row[s->row[s->at + i].row];
        s->row[s->at + i].got = 0;
        r->feed[i] = (struct exec_feed){.seq = w->seq,
                                        .tok = w->ids + w->have,
                                        .n = w->n - w->have,
                                        .pad = w->pad,
                                        .loose = true};
    }
    TRY(run_feed(r, 0, s->n_draft, 0, NULL, NULL));
    for (uint32_t i = 0; i < s->n_draft; i++) {
        uint32_t accepted;
        TRY(judge_row(s, s->at + i, r->logits + (size_t)i * r->x->m->vocab, &accepted));
        r->row[s->row[s->at + i].row].have += accepted;
    }
    return 0;
}

/* As many rows from `at` on as one step holds. */
static void gather(struct speculation *s)
{
    struct exec *x = s->r->x;
    uint32_t tokens = 0, lanes = kv_step_lanes(x->kv);
    s->n_draft = 0;
    for (uint32_t k = s->at; k < s->n_rows && s->n_draft < lanes; k++) {
        const struct draft_row *d = &s->row[k];
        const struct row *w = &s->r->row[d->row];
        if (d->got + 1 > s->room - tokens) break;
        s->draft[s->n_draft++] = (struct exec_draft){w->seq, w->ids + w->n - 1, d->got + 1};
        tokens += d->got + 1;
    }
}

static int step(struct speculation *s)
{
    struct exec *x = s->r->x;
    uint32_t guesses = 0;
    bool plain = false;
    gather(s);
    for (uint32_t i = 0; i < s->n_draft; i++) {
        guesses += s->draft[i].n - 1;
        plain |= !exec_draft_fits(x, s->draft[i].seq, 1);
    }
    if (!guesses || plain) return plain_step(s);
    s->judged = false;
    int e = exec_draft(x, s->draft, s->n_draft, s->logits, judge, s);
    (void)gen_notice_full(x, s->r->hooks, &s->r->told);
    bool narrow = e == ERR_FULL || s->n_draft > kv_step_lanes(x->kv);
    return e < 0 && !s->judged && narrow ? plain_step(s) : e;
}

static int round_of_all(struct speculation *s, bool *running)
{
    struct run *r = s->r;
    TRY(propose(s));
    for (s->at = 0; s->at < s->n_rows; s->at += s->n_draft)
        TRY(step(s));
    for (uint32_t k = 0; k < s->n_rows; k++) {
        const struct draft_row *d = &s->row[k];
        r->drafted += d->got;
        r->accepted += s->right[k];
        if (s->maker.told) s->maker.told(s->maker.ctx, d->row, d->got, s->right[k]);
    }
    r->steps++;
    return run_step_end(r, s->cancel, running);
}

static int search(struct speculation *s, double *prefilled)
{
    struct run *r = s->r;
    bool running = true;
    TRY(begin(s));
    TRY(run_feed_rows(r, r->g->prefill_chunk_size, r->hooks ? r->hooks->on_progress : NULL));
    *prefilled = now_seconds();
    for (uint32_t i = 0; i < r->n; i++)
        TRY(run_choose(r, i, r->logits + (size_t)i * r->x->m->vocab, &s->cancel));
    r->steps++;
    TRY(run_step_end(r, s->cancel, &running));
    while (running)
        TRY(round_of_all(s, &running));
    return 0;
}

static int maker_open(const struct run *r, struct drafter *out)
{
    if (r->assist && r->assist->maker) {
        *out = *r->assist->maker;
        return 0;
    }
    if (r->g->prompt_lookup_num_tokens) return draft_lookup_open(r, out);
    return draft_model_open(r, r->assist->assistant, out);
}

int speculate_run(struct run *r, kvik_result *out, double *prefilled)
{
    struct speculation s = {.r = r};
    if (!r->g->use_cache)
        return ERR(ARG, "%s needs use_cache: guesses are checked on top of what is cached",
                   r->g->prompt_lookup_num_tokens ? "prompt_lookup_num_tokens" : "assistant_model");
    TRY(maker_open(r, &s.maker));
    int e = search(&s, prefilled);
    done(&s);
    return e < 0 ? e : run_rows(r, out);
}
