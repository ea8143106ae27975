/* loop.c - the generation loop: prefill, then choose, append, stop, feed, row by row in one batch; beams
 * have a loop of their own (beam_loop.c).
 *
 * A row that ends leaves the batch.  The last token chosen is never fed, as in the reference.  Without a cache
 * (use_cache false) every step feeds everything again into a fresh sequence: the oracle the other ways are compared
 * with. */
#include "generate/loop.h"
#include "generate/guidance.h"
#include "generate/notice.h"
#include "generate/run.h"

#include <string.h>

/* Rows of logits [at, at + n / per) become one for each of n rows, from `to` on. */
static void spread(struct run *r, uint32_t at, uint32_t to)
{
    size_t vocab = r->x->m->vocab;
    for (uint32_t i = r->n; i-- > 0;)
        memmove(r->logits + (to + i) * vocab, r->logits + (at + i / r->per) * vocab,
                vocab * sizeof *r->logits);
}

/* The first row of each prompt was fed; its others fork it. */
static int share_prompts(struct run *r)
{
    if (r->guide) spread(r, r->fed, r->n);
    spread(r, 0, 0);
    r->fed = r->n;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        uint32_t first = i - i % r->per;
        if (i == first) continue;
        TRY(run_fork(r->x, r->row[first].seq, &w->seq));
        if (r->guide) TRY(guide_fork(r, i, first));
        w->have = w->n;
        w->reused = w->n_prompt;
    }
    return 0;
}

/* The feeds of rows that run, and behind them those of their negative texts. */
static int gather(struct run *r, bool sharing, uint32_t *n)
{
    uint32_t k = 0, per = sharing ? r->per : 1;
    for (uint32_t i = 0; i < r->n; i += per) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        if (!r->g->use_cache) TRY(kv_new(r->x->kv, 0, &w->seq));
        r->feed[k++] = (struct exec_feed){.seq = w->seq,
                                          .tok = w->ids + w->have,
                                          .n = w->n - w->have,
                                          .pad = w->pad,
                                          .loose = true,
                                          .ends = w->ends};
    }
    r->fed = k;
    for (uint32_t i = 0; r->guide && i < r->n; i += per) {
        struct row *w = &r->row[i];
        if (!w->done)
            TRY(guide_feed(r, w, i, w->ids + w->n_prompt, w->n - w->n_prompt, &r->feed[k++]));
    }
    *n = k;
    return 0;
}

int run_feed_rows(struct run *r, uint32_t chunk, exec_progress progress)
{
    uint32_t n;
    bool sharing = r->steps == 0 && r->per > 1 && r->g->use_cache;
    int e = gather(r, sharing, &n);
    if (e >= 0) e = run_feed(r, 0, n, chunk, progress, r->hooks ? r->hooks->ctx : NULL);
    guide_fed(r);
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (w->done) continue;
        if (r->g->use_cache) {
            if (e >= 0) w->have = w->n;
        } else if (w->seq) {
            kv_drop(r->x->kv, w->seq);
            w->seq = 0;
        }
    }
    return e >= 0 && sharing ? share_prompts(r) : e;
}

/* Says a token of row i, or with -1 what its text has left; *stopped: a stop string ends in it. */
static int emit(struct run *r, uint32_t i, int32_t id, bool *stopped, bool *cancel)
{
    struct row *w = &r->row[i];
    size_t keep;
    buf_clear(&r->piece);
    if (w->stream) {
        TRY(id >= 0 ? tok_stream_put(w->stream, id, &r->piece)
                    : tok_stream_end(w->stream, &r->piece));
        TRY(buf_append(&w->text, r->piece.data, r->piece.len));
        *stopped = id >= 0 && gen_stop_put(w->stop, r->piece.data, r->piece.len, &keep);
    }
    const kvik_hooks *h = r->hooks;
    if (h && h->on_token && !h->on_token(h->ctx, i, id, r->piece.data ? r->piece.data : ""))
        *cancel = true;
    return 0;
}

int run_append(struct run *r, uint32_t i, int32_t id, bool *cancel)
{
    struct row *w = &r->row[i];
    bool stopped = false;
    w->ids[w->n++] = id;
    TRY(emit(r, i, id, &stopped, cancel));
    struct gen_row text = run_text(r, i);
    w->done = run_over(r, &text, stopped, &w->finish);
    return w->done ? emit(r, i, -1, &stopped, cancel) : 0;
}

int run_step_end(struct run *r, bool cancel, bool *running)
{
    bool stopped = false;
    *running = false;
    for (uint32_t i = 0; i < r->n; i++) {
        struct row *w = &r->row[i];
        if (cancel && !w->done) {
            w->done = true;
            w->finish = KVIK_FINISH_CANCELLED;
            TRY(emit(r, i, -1, &stopped, &cancel));
        }
        *running |= !w->done;
    }
    return 0;
}

struct gen_row run_text(const struct run *r, uint32_t i)
{
    const struct row *w = &r->row[i];
    return run_view(w, w->ids, w->n, i);
}

int run_choose(struct run *r, uint32_t i, const float *logits, bool *cancel)
{
    const struct row *w = &r->row[i];
    size_t vocab = r->x->m->vocab;
    uint32_t at =
        w->n - w->n_prompt; /* tokens it has so far: its step, however many are fed at once */
    float *kept, *kept_scores;
    TRY(run_keep(r, &r->kept, at, &kept));
    TRY(run_keep(r, &r->kept_scores, at, &kept_scores));
    memcpy(r->scores, logits, vocab * sizeof *r->scores);
    if (kept) memcpy(kept + i * vocab, r->scores, vocab * sizeof *kept);
    struct gen_row view = run_text(r, i);
    TRY(run_process(r, &view, r->guide ? logits + r->fed * vocab : NULL, r->scores));
    if (kept_scores) memcpy(kept_scores + i * vocab, r->scores, vocab * sizeof *kept);
    int32_t id = r->g->do_sample ? gen_sample(r->chain, r->scores, r->g->seed, i, at)
                                 : gen_argmax(r->scores, (uint32_t)vocab);
    return run_append(r, i, id, cancel);
}

/* One token for every row that runs. */
static int choose(struct run *r, bool *running)
{
    bool cancel = false;
    for (uint32_t i = 0, k = 0; i < r->n; i++)
        if (!r->row[i].done)
            TRY(run_choose(r, i, r->logits + (size_t)k++ * r->x->m->vocab, &cancel));
    r->steps++;
    return run_step_end(r, cancel, running);
}

static int plain_run(struct run *r, kvik_result *out, double *prefilled)
{
    bool running = true;
    TRY(run_feed_rows(r, r->g->prefill_chunk_size, r->hooks ? r->hooks->on_progress : NULL));
    *prefilled = now_seconds();
    for (;;) {
        TRY(choose(r, &running));
        if (!running) break;
        TRY(run_feed_rows(r, r->g->use_cache ? 0 : r->g->prefill_chunk_size, NULL));
    }
    return run_rows(r, out);
}

static int check_mode(const kvik_generation *g)
{
    enum gen_mode m = gen_mode(g);
    if (m == GEN_CONTRASTIVE && !g->use_cache)
        return ERR(ARG,
                   "penalty_alpha=%g (contrastive search) forks the cache for its candidates; set "
                   "use_cache",
                   g->penalty_alpha);
    return 0;
}

/* How many rows a run has, and sequences: rows or beams or candidates, and negative texts. */
static int shape(struct run *r, uint32_t n_prompts)
{
    const kvik_generation *g = r->g;
    bool beams = g->num_beams > 1, contrasts = gen_mode(g) == GEN_CONTRASTIVE,
         guided = g->guidance_scale != 1;
    uint64_t rows = beams ? g->num_beams : g->num_return_sequences,
             each = contrasts ? contrastive_width(r) : rows,
             sequences = n_prompts * (each + (guided ? rows : 0));
    if (sequences > r->x->max_seqs)
        return ERR(LIMIT,
                   "%u prompts with %llu %s each%s need %llu sequences, the cache was opened for "
                   "%u; raise max_sequences",
                   n_prompts, (unsigned long long)each,
                   beams       ? "beams"
                   : contrasts ? "candidates (top_k)"
                               : "rows",
                   guided ? " and their negative texts" : "", (unsigned long long)sequences,
                   r->x->max_seqs);
    if (beams && r->hooks && r->hooks->on_token)
        return ERR(ARG,
                   "on_token cannot be used with num_beams=%u: which text is the best is not known "
                   "before the end",
                   g->num_beams);
    r->width = (uint32_t)(n_prompts * rows);
    r->lanes = (uint32_t)sequences;
    r->per = beams ? 1 : (uint32_t)rows;
    r->n = n_prompts * r->per;
    return 0;
}

/* Every way of generating fills the rows of the result; *prefilled: when the prompts had been fed. */
typedef int run_mode(struct run *r, kvik_result *out, double *prefilled);

static run_mode *mode_of(const struct run *r)
{
    const kvik_generation *g = r->g;
    run_mode *mode = g->num_beams > 1                 ? beam_run
                     : gen_mode(g) == GEN_CONTRASTIVE ? contrastive_run
                                                      : plain_run;
    if (!g->prompt_lookup_num_tokens && !r->assist) return mode;
    if (gen_assisted(g, r->assist != NULL) && g->guidance_scale == 1) return speculate_run;
    if (r->hooks && r->hooks->on_notice)
        r->hooks->on_notice(r->hooks->ctx,
                            "prompt lookup and assistants are for greedy decoding and sampling "
                            "without guidance; ignored");
    return mode;
}

int gen_run(struct exec *x, const struct tok *tok, const kvik_generation *g,
            const kvik_prompt *prompt, uint32_t n, const kvik_hooks *hooks, kvik_result **out)
{
    return gen_run_with(x, tok, g, prompt, n, hooks, NULL, NULL, out);
}

int gen_run_with(struct exec *x, const struct tok *tok, const kvik_generation *g,
                 const kvik_prompt *prompt, uint32_t n, const kvik_hooks *hooks,
                 const struct gen_assist *assist, const struct gen_finish *finish,
                 kvik_result **out)
{
    struct run r = {
        .x = x, .tok = tok, .g = g, .hooks = hooks, .assist = assist, .begun = now_seconds()};
    if (n == 0) return ERR(ARG, "no prompt");
    TRY(gen_validate(g));
    TRY(check_mode(g));
    TRY(shape(&r, n));
    kvik_result *res;
    TRY(run_result_begin(&r, n, &res));
    double prefilled = r.begun;
    uint64_t computed = x->computed;
    (void)gen_notice_full(x, NULL, &r.told); /* in an earlier run: no news */
    int e = run_begin(&r, prompt, n);
    if (e >= 0) e = mode_of(&r)(&r, res, &prefilled);
    res->prefill_seconds = prefilled - r.begun;
    res->decode_seconds = now_seconds() - prefilled;
    res->computed_tokens = x->computed - computed;
    if (e >= 0 && gen_mode(g) <= GEN_SAMPLE) idle_run(&r);
    if (e >= 0 && finish) e = finish->call(finish->ctx, res);
    run_result_end(&r, res, e < 0);
    run_end(&r, e < 0);
    if (e < 0) {
        gen_result_free(res);
        return e;
    }
    *out = res;
    return 0;
}
