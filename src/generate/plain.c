/* plain.c - greedy decoding and sampling: choose, append, stop, feed, row by row in one batch.  A row that ends
 * leaves the batch.  As in Transformers (Hugging Face), the last token that is chosen is never fed.  Without a
 * cache (use_cache false) every step feeds the whole text into a new sequence.  Tests compare the other ways of
 * decoding with this one. */
#include "generate/guidance.h"
#include "generate/notice.h"
#include "generate/run.h"

#include <string.h>

#define PULSE 0.05 /* seconds between two calls of on_pulse */

/* Copies rows of logits so that all rows of a prompt have them: each of the n / per rows from row `at` on is copied
 * `per` times, to row `to` and the rows behind it. */
static void spread_logits(struct run *r, uint32_t at, uint32_t to)
{
    size_t vocab = r->x->m->vocab;
    for (uint32_t i = r->n; i-- > 0;)
        memmove(r->logits + (to + i) * vocab, r->logits + (at + i / r->per) * vocab,
                vocab * sizeof *r->logits);
}

/* Forks the first row of each prompt, which was fed, into the other rows of the prompt. */
static int share_prompts(struct run *r)
{
    if (r->guide) spread_logits(r, r->fed, r->n);
    spread_logits(r, 0, 0);
    r->fed = r->n;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        uint32_t first = i - i % r->per;
        if (i == first) continue;
        TRY(exec_fork(r->x, r->row[first].seq, &w->seq));
        if (r->guide) TRY(guide_fork(r, i, first));
        w->have = w->n;
        w->reused = run_prompt_rows(w);
    }
    return 0;
}

/* True in the first job if the rows of a prompt share its feed. */
static bool sharing(const struct run *r)
{
    return r->steps == 0 && r->per > 1 && r->g->use_cache;
}

int run_gather_rows(struct run *r)
{
    uint32_t k = 0, per = sharing(r) ? r->per : 1;
    for (uint32_t i = 0; i < r->n; i += per) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        if (!r->g->use_cache) TRY(kv_new(r->x->kv, &r->salt, &w->seq));
        bool lead = w->lead && !r->steps;
        /* if the rope's regime has changed, all tokens up to the change are one turn */
        uint32_t turn = MIN(w->n, MAX(w->n_prompt, regime_of(r->x->m, w->n)));
        uint32_t more = r->steps || w->ends ? 0 : w->n - turn;
        r->feed[k++] = (struct exec_feed){.seq = w->seq,
                                          .tok = lead ? NULL : w->ids + w->have,
                                          .embeds = lead ? w->embeds : NULL,
                                          .n = lead ? w->lead : w->n - w->have,
                                          .pad = w->pad,
                                          .singly = MIN(more, w->n - w->have),
                                          .loose = true,
                                          .ends = w->ends,
                                          .source = run_hears(r, w)};
    }
    r->fed = k;
    for (uint32_t i = 0; r->guide && i < r->n; i += per) {
        struct row *w = &r->row[i];
        if (!w->done)
            TRY(guide_feed(r, w, i, w->ids + w->n_prompt, w->n - w->n_prompt, &r->feed[k++]));
    }
    r->job.n = k;
    return 0;
}

int run_rows_fed(struct run *r)
{
    bool shared = sharing(r);
    guide_fed(r);
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        if (r->g->use_cache) {
            w->have = w->n;
        } else if (w->seq) {
            kv_drop(r->x->kv, w->seq);
            w->seq = 0;
        }
    }
    return shared ? share_prompts(r) : 0;
}

/* Appends the text of a token to the row; id -1: the rest of its text.  *stopped: the token completes a stop
 * string. */
static int add_token_text(struct run *r, struct row *w, int32_t id, bool *stopped)
{
    size_t end;
    bool whole = r->g->include_stop_str_in_output;
    buf_clear(&r->piece);
    if (w->closed) return 0;
    TRY(id >= 0 ? tok_stream_put(w->stream, id, &r->piece) : tok_stream_end(w->stream, &r->piece));
    TRY(buf_append(&w->text, r->piece.data, r->piece.len));
    *stopped = id >= 0 && gen_stop_put(w->stop, r->piece.data, r->piece.len, &end);
    if (!*stopped || whole) return 0;
    end -= w->stop_seen;
    /* the stop string may begin in the prompt */
    buf_cut(&w->text, end - MIN(end, gen_stop_match(w->stop)));
    w->closed = true;
    return 0;
}

/* Puts the text that the caller may get now, and did not get before, into r->piece.  last: no text follows. */
static int next_piece(struct run *r, struct row *w, bool last)
{
    size_t to = w->text.len, from = w->told;
    if (!r->g->include_stop_str_in_output && !last && !w->closed)
        to -= MIN(to, gen_stop_partial(w->stop));
    if (to <= from) to = from;
    w->told = to;
    buf_clear(&r->piece);
    return to > from ? buf_append(&r->piece, w->text.data + from, to - from) : 0;
}

/* Reports a token of row i to the caller; id -1: the rest of its text.  *stopped: the token completes a stop
 * string. */
static int emit(struct run *r, uint32_t i, int32_t id, bool *stopped, bool *cancel)
{
    struct row *w = &r->row[i];
    if (w->stream) {
        TRY(add_token_text(r, w, id, stopped));
        TRY(next_piece(r, w, id < 0));
    }
    const kvik_hooks *h = r->hooks;
    if (h && h->on_token && !h->on_token(h->ctx, i, id, r->piece.data ? r->piece.data : ""))
        *cancel = true;
    return 0;
}

bool run_pulse(struct run *r)
{
    const kvik_hooks *h = r->hooks;
    if (!h || !h->on_pulse || now_seconds() - r->pulsed < PULSE) return true;
    r->pulsed = now_seconds();
    return h->on_pulse(h->ctx);
}

int run_replay(struct run *r, struct row *w)
{
    bool stopped = false;
    if (!w->stream) return 0;
    for (uint32_t t = w->n_prompt; t < w->n && !stopped; t++)
        TRY(add_token_text(r, w, w->ids[t], &stopped));
    if (stopped)
        return ERR(ARG, "the new tokens have a stop string: the text is complete, leave it out");
    return next_piece(r, w, false);
}

int run_append(struct run *r, uint32_t i, int32_t id, bool *cancel)
{
    struct row *w = &r->row[i];
    bool stopped = false;
    w->ids[w->n++] = id;
    TRY(emit(r, i, id, &stopped, cancel));
    if (!*cancel && !run_pulse(r)) *cancel = true;
    struct gen_row text = run_text(r, i);
    w->done = run_over(r, &text, stopped, &w->finish);
    return w->done ? emit(r, i, -1, &stopped, cancel) : 0;
}

bool run_sound(const struct run *r, const float *logits)
{
    return r->g->remove_invalid_values || gen_finite(logits, r->x->m->vocab);
}

/* Ends a row behind its last token. */
static int stop(struct run *r, uint32_t i, enum kvik_finish why, bool *cancel)
{
    bool stopped = false;
    r->row[i].done = true;
    r->row[i].finish = why;
    return emit(r, i, -1, &stopped, cancel);
}

int run_break(struct run *r, uint32_t i, bool *cancel)
{
    gen_notice_broken(r->hooks, i, r->row[i].n - r->row[i].n_prompt, &r->told_broken);
    return stop(r, i, KVIK_FINISH_NOT_FINITE, cancel);
}

int run_step_end(struct run *r, bool cancel, bool *running)
{
    *running = false;
    for (uint32_t i = 0; i < r->n; i++) {
        if (cancel && !r->row[i].done) TRY(stop(r, i, KVIK_FINISH_CANCELLED, &cancel));
        *running |= !r->row[i].done;
    }
    return 0;
}

struct gen_row run_text(const struct run *r, uint32_t i)
{
    const struct row *w = &r->row[i];
    return run_view(w, w->ids, w->n, i);
}

/* Chooses the next token of row i, in `next`; or sets `broken` if its logits are not finite. */
static int decide(struct run *r, uint32_t i, const float *logits)
{
    struct row *w = &r->row[i];
    size_t vocab = r->x->m->vocab;
    uint32_t at =
        /* number of new tokens so far: the step, however many tokens are fed at once */
        w->n - w->n_prompt;
    float *kept, *kept_scores;
    TRY(run_keep(r, &r->kept, at, &kept));
    TRY(run_keep(r, &r->kept_scores, at, &kept_scores));
    const float *scored = together_scores(r->together, i);
    memcpy(r->scores, scored ? scored : logits, vocab * sizeof *r->scores);
    if (kept) memcpy(kept + i * vocab, logits, vocab * sizeof *kept);
    w->broken = !run_sound(r, logits);
    if (w->broken) return 0;
    struct gen_row view = run_text(r, i);
    if (scored)
        TRY(gen_chain_after(r->chain, &view, r->scores));
    else
        TRY(run_process(r, &view, r->guide ? logits + r->fed * vocab : NULL, r->scores));
    if (kept_scores) memcpy(kept_scores + i * vocab, r->scores, vocab * sizeof *kept);
    w->next = r->g->do_sample ? gen_sample(r->chain, r->scores, r->g->seed, i, at)
                              : gen_argmax(r->scores, (uint32_t)vocab);
    return 0;
}

bool run_decides(const struct run *r)
{
    /* not in the first step, in which the rows of a prompt share logits; nor for drafts, whose tokens are judged
     * one by one */
    return r->mode->by_logits && r->steps > 0 && !r->job.draft && !r->sharing &&
           !(r->hooks && (r->hooks->logits_processor || r->hooks->together));
}

void run_decide(struct run *r)
{
    size_t vocab = r->x->m->vocab;
    for (uint32_t i = 0, k = 0; i < r->n; i++)
        if (!r->row[i].done) /* after an error run_choose decides again and reports it */
            r->row[i].decided = decide(r, i, r->logits + k++ * vocab) == 0;
}

int run_choose(struct run *r, uint32_t i, const float *logits, bool *cancel)
{
    struct row *w = &r->row[i];
    if (!w->decided) TRY(decide(r, i, logits));
    w->decided = false;
    if (w->broken) return run_break(r, i, cancel);
    if (!run_logprobs(r, i, logits, w->next)) *cancel = true;
    return run_append(r, i, w->next, cancel);
}

int run_cancel(struct run *r)
{
    bool running;
    return run_step_end(r, true, &running);
}

/* Shows all rows to the caller's processor that sees them at once. */
static int process_together(struct run *r)
{
    struct together *t = r->together;
    size_t vocab = r->x->m->vocab;
    if (!together_begin(t)) return 0;
    for (uint32_t i = 0, k = 0; i < r->n; i++) {
        struct gen_row view = run_text(r, i);
        float *scores = together_add(t, &view, r->row[i].done);
        if (r->row[i].done) continue;
        const float *logits = r->logits + k++ * vocab;
        memcpy(scores, logits, vocab * sizeof *scores);
        if (run_sound(r, logits))
            run_process_before(r, &view, r->guide ? logits + r->fed * vocab : NULL, scores);
    }
    return together_process(t);
}

/* Asks the caller's criteria that see all rows at once. */
static int judge_together(struct run *r, bool *cancel)
{
    struct together *t = r->together;
    if (!together_judges(t) || *cancel) return 0;
    together_clear(t);
    for (uint32_t i = 0; i < r->n; i++) {
        struct gen_row view = run_text(r, i);
        (void)together_add(t, &view, r->row[i].done);
    }
    together_judge(t, r->kept_scores.data, r->kept_steps, r->width);
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->row[i].done && together_ends(t, i)) TRY(stop(r, i, KVIK_FINISH_CRITERIA, cancel));
    return 0;
}

int run_choose_rows(struct run *r, bool *cancel)
{
    TRY(run_rows_fed(r));
    TRY(process_together(r));
    for (uint32_t i = 0, k = 0; i < r->n; i++)
        if (!r->row[i].done)
            TRY(run_choose(r, i, r->logits + (size_t)k++ * r->x->m->vocab, cancel));
    TRY(judge_together(r, cancel));
    together_end(r->together);
    return 0;
}

/* Chooses one token for every running row. */
static int choose_rows(struct run *r, bool *running)
{
    bool cancel = false;
    TRY(run_choose_rows(r, &cancel));
    r->steps++;
    return run_step_end(r, cancel, running);
}

const struct run_mode plain_mode = {.sequences = "rows",
                                    .by_logits = true,
                                    .embeds = true,
                                    .unfed = 1,
                                    .width = run_width,
                                    .gather = run_gather_rows,
                                    .choose = choose_rows,
                                    .finish = run_rows};
