/* feed.c - computes feeds (tokens to append) of any length, in steps.
 *
 * A feed that needs several steps first marks each sequence that already has rows.  If a later step
 * fails or is cancelled, the sequence is rolled back, so the caller's cache is exactly as it was.
 * Callers that hold such a mark themselves say so (loose).
 *
 * How a feed is cut into steps changes no bit (dev.h, canonical order) and no form.  A sequence
 * that a feed brings into another regime of its rotary frequencies (regime.c) is recomputed from
 * its first token; such a sequence is always marked. */
#include "model/model.h"

#include <string.h>

int feed_open(struct exec *x)
{
    x->fed = mem_array(2 * (size_t)x->max_seqs, sizeof *x->fed);
    x->span = mem_array(2 * (size_t)x->max_seqs, sizeof *x->span);
    x->call = mem_array(x->max_seqs, sizeof *x->call);
    x->said = mem_array(x->n_handles, sizeof *x->said);
    return x->fed && x->span && x->call && x->said ? 0 : ERR_NOMEM;
}

void feed_close(struct exec *x)
{
    mem_free(x->fed);
    mem_free(x->call);
    mem_free(x->said);
    mem_free(x->span);
}

/* True if a token has another position than the index of its row. */
static bool moved(const struct exec *x, const struct exec_feed *f)
{
    uint32_t len = kv_len(x->kv, f->seq);
    for (uint32_t j = 0; f->pos && j < f->n; j++)
        if (f->pos[j] != len + j) return true;
    return false;
}

static int check_positions(const struct exec *x, const struct exec_feed *f)
{
    const struct model *m = x->m;
    for (uint32_t i = 0; i < m->n_ropes && !x->lender; i++)
        if (m->rope[i].type == ROPE_LONG || m->rope[i].type == ROPE_DYNAMIC)
            return ERR(UNSUPPORTED,
                       "%s: its rotary frequencies (%s) depend on how many tokens there are, so "
                       "position ids other than the tokens' own cannot be right",
                       m->what, rope_type_name(m->rope[i].type));
    if (m->encoder.n_layers && !m->n_ropes && !m->learned_positions && !x->lender)
        return ERR(UNSUPPORTED, "%s: its attention counts rows, so it takes no position ids",
                   m->what);
    for (uint32_t i = 0; i < x->n_groups; i++)
        if (x->group[i].policy.sinks)
            return ERR(UNSUPPORTED,
                       "a sink cache chooses the positions of its rows; position ids other than "
                       "the tokens' own need another cache");
    for (uint32_t j = 0; m->learned_positions && j < f->n; j++)
        if (f->pos[j] >= m->context)
            return ERR(ARG, "%s: position %u, the model has learned positions for %u tokens only",
                       m->what, f->pos[j], m->context);
    return 0;
}

/* Checks feed i before the first step, because a failure of a later step would waste the earlier ones. */
static int check_feed(const struct exec *x, const struct exec_feed *feed, uint32_t i)
{
    if (feed[i].n == 0) return ERR(ARG, "row %u: no tokens to append", i);
    for (uint32_t j = 0; j < i; j++)
        if (feed[j].seq == feed[i].seq)
            return ERR(ARG, "rows %u and %u are the same sequence; append to it once per call", j,
                       i);
    if (!feed[i].source && exec_unheard(x, feed[i].seq))
        return ERR(ARG,
                   "row %u: the sequence has no encoder rows; give it the encoder's input first "
                   "(kvik_cache_encode)",
                   i);
    if (!feed[i].tok && !feed[i].embeds)
        return ERR(ARG, "row %u: neither token ids nor embeddings", i);
    for (uint32_t j = 0; j < feed[i].n && !feed[i].embeds; j++)
        if (feed[i].tok[j] < 0 || (uint32_t)feed[i].tok[j] >= x->m->vocab)
            return ERR(ARG, "token id %d is outside the vocabulary of %u", feed[i].tok[j],
                       x->m->vocab);
    uint32_t after = kv_len(x->kv, feed[i].seq) + feed[i].n;
    if (feed[i].probe && feed[i].probe->attention && feed[i].probe->columns != after)
        return ERR(ARG,
                   "row %u: attention weights of %u columns, but the sequence then has %u rows", i,
                   feed[i].probe->columns, after);
    if (kv_borrowed(x->kv, feed[i].seq) &&
        (x->lender || (feed[i].probe && feed[i].probe->attention)))
        return ERR(
            UNSUPPORTED,
            "row %u: %u rows of the sequence are chunks at other positions, which no attention weights "
            "and no rows of the caller's own can show; compute the text instead",
            i, kv_borrowed(x->kv, feed[i].seq));
    uint32_t heard = kv_cross(x->kv, feed[i].seq);
    if (feed[i].probe && feed[i].probe->cross && feed[i].probe->heard != heard)
        return ERR(ARG, "row %u: attention weights of %u encoder rows, but the sequence has %u", i,
                   feed[i].probe->heard, heard);
    return moved(x, &feed[i]) ? check_positions(x, &feed[i]) : 0;
}

/* Adds up the tokens of all feeds, with the rows that a change of regime recomputes.  *one_step: one step is
 * enough. */
static int sum_feeds(const struct exec *x, const struct exec_feed *feed, uint32_t n, uint32_t chunk,
                     uint64_t *total, bool *one_step)
{
    *one_step = true;
    *total = 0;
    for (uint32_t i = 0; i < n; i++) {
        TRY(check_feed(x, feed, i));
        uint32_t len = kv_len(x->kv, feed[i].seq);
        if (feed[i].n > x->max_len - MIN(len, x->max_len))
            return ERR(
                LIMIT,
                "%u token%s after the %u already cached do not fit in max_cache_len %u, which is the model's "
                "context unless it was set",
                feed[i].n, feed[i].n == 1 ? "" : "s", len, x->max_len);
        bool again = regime_changes(x, feed[i].seq, feed[i].n);
        *total += feed[i].n + (again ? len : 0);
        *one_step &= feed[i].n <= chunk && !again && (!feed[i].singly || feed[i].n == 1);
    }
    *one_step &= *total <= x->step_tokens && n <= kv_step_lanes(x->kv);
    return 0;
}

static int begin_feed(struct exec *x, const struct exec_feed *feed, struct exec_fed *g, uint32_t i,
                      bool one_step)
{
    g[i] = (struct exec_fed){.start = kv_len(x->kv, feed[i].seq),
                             .moved = moved(x, &feed[i]),
                             .rows = job_wanted(&feed[i], 0, feed[i].n)};
    if (feed[i].source) TRY(exec_encode(x, feed[i].seq, feed[i].source));
    /* rows depend on the padding, so the salt does, too */
    if (!g[i].start && x->m->counts_padding) {
        struct kv_salt salt = kv_salt(x->kv, feed[i].seq);
        salt.pad = feed[i].pad;
        TRY(kv_resalt(x->kv, feed[i].seq, &salt));
    }
    TRY(regime_enter(x, feed[i].seq, feed[i].n, &g[i]));
    if (one_step || !g[i].start || g[i].again || feed[i].loose) return 0;
    return kv_mark(x->kv, feed[i].seq, &g[i].mark);
}

/* Ends the feeds.  A sequence without a mark was empty, or its caller restores or drops it. */
static void end_feeds(struct exec *x, const struct exec_feed *feed, struct exec_fed *g, uint32_t n,
                      bool failed)
{
    uint32_t have;
    for (uint32_t i = 0; i < n; i++) {
        bool empties = failed && !g[i].mark.seq && g[i].done && !feed[i].loose;
        kv_settle(x->kv, &g[i].mark, failed);
        if (empties) (void)kv_trim(x->kv, feed[i].seq, 0, &have);
    }
}

int exec_tell(struct exec *x, exec_progress progress, void *ctx, uint64_t done, uint64_t total)
{
    if (!progress) return 0;
    x->telling = true; /* the buffers of the feed, and the driver's list of runs, are in use */
    bool goes_on = progress(ctx, done, total);
    x->telling = false;
    return goes_on ? 0 : ERR(CANCELLED, "cancelled");
}

int exec_idle(const struct exec *x)
{
    return !x->telling ? 0
                       : ERR(BUSY, "a call is computing in this cache; callbacks may read it, not "
                                   "append to it");
}

static int can_feed(const struct exec *x, uint32_t n)
{
    TRY(exec_idle(x));
    if (n > 2 * x->max_seqs)
        return ERR(
            LIMIT,
            "%u rows in one call, max_sequences is %u and the limit of a call is %u; split the call",
            n, x->max_seqs, 2 * x->max_seqs);
    return checkpoint_recheck(x->m->ck); /* reading a mapped file that shrank would raise SIGBUS */
}

int exec_feed(struct exec *x, const struct exec_feed *feed, uint32_t n, uint32_t chunk,
              float *logits, exec_progress progress, void *ctx)
{
    bool one_step, many = false;
    TRY(can_feed(x, n));
    if (chunk == 0 || chunk > x->step_tokens) chunk = x->step_tokens;
    struct exec_job job = {.feed = feed, .fed = x->fed, .n = n, .chunk = chunk, .logits = logits};
    TRY(sum_feeds(x, feed, n, chunk, &job.total, &one_step));
    size_t vocab = x->m->vocab, rows = x->step_tokens;
    for (uint32_t i = 0; i < n; i++)
        many |= feed[i].all || feed[i].want;
    if (!many) rows = MIN(rows, n);
    job.one_row = !many;
    float *tmp = !logits || one_step ? NULL : mem_array(rows, vocab * sizeof *tmp);
    int e = logits && !one_step && !tmp ? ERR_NOMEM : 0;
    uint32_t started = 0;
    for (; e >= 0 && started < n; started++)
        e = begin_feed(x, feed, x->fed, started, one_step && !progress);
    while (e >= 0 && job.done < job.total) {
        e = exec_step_jobs(x, (struct exec_job *[]){&job}, 1, tmp);
        if (e == JOB_FEWER && one_step) { /* several steps need a mark, for the undo */
            end_feeds(x, feed, x->fed, started, false);
            return exec_feed(x, feed, n, chunk, logits, progress, ctx);
        }
        if (e == 0) e = exec_tell(x, progress, ctx, job.done, job.total);
    }
    end_feeds(x, feed, x->fed, started, e < 0);
    mem_free(tmp);
    return e;
}

int exec_job_begin(struct exec *x, struct exec_job *job)
{
    bool one_step;
    uint32_t i = 0;
    TRY(can_feed(x, job->n));
    if (job->chunk == 0 || job->chunk > x->step_tokens) job->chunk = x->step_tokens;
    job->done = job->computed = 0;
    job->first = 0;
    job->single = false;
    job->one_row = true;
    memset(job->fed, 0, job->n * sizeof *job->fed);
    TRY(sum_feeds(x, job->feed, job->n, job->chunk, &job->total, &one_step));
    int e = 0;
    for (; e >= 0 && i < job->n; i++) {
        e = begin_feed(x, job->feed, job->fed, i, false);
        job->one_row &= job->fed[i].rows == 1;
    }
    if (e < 0) exec_job_end(x, job, true);
    return e;
}

void exec_job_end(struct exec *x, struct exec_job *job, bool failed)
{
    for (uint32_t i = 0; i < job->n; i++) {
        struct exec_fed *g = &job->fed[i];
        bool whole = g->done == g->again + job->feed[i].n;
        kv_settle(x->kv, &g->mark, failed || !whole);
    }
}
