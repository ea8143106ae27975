/* driver.c - the one loop of generation; see driver.h.
 *
 * All feeds of a run are one job (model/job.c).  A step of the driver is one step of the model.  It takes the jobs
 * that decode, then those that prefill, as far as it has room; jobs that have waited longest come first.  So every
 * run gets its turn, and the time of a step does not grow with the number of waiting prompts.
 *
 * If a shared step fails, each run tries its part alone, in the given order.  A run whose own part fails ends with
 * that error and gives its rows back at once, which makes room for the next ones.
 *
 * Callbacks run while the driver chooses, when no step is open; they may generate on the same cache.  The
 * callbacks of drafts and progress run inside a step and may not (ERR_BUSY). */
#include "generate/driver.h"
#include "generate/guidance.h"
#include "generate/notice.h"
#include "generate/run.h"

#include <stdio.h>
#include <string.h>

struct driver {
    struct exec *x;
    struct run *first;     /* runs that have not been freed, oldest first */
    struct exec_job **job; /* [cap] jobs of one step of the model */
    struct run **run;      /* [cap] the run of each job */
    uint32_t cap, n_runs;
    uint64_t turns; /* number of parts of steps that runs have had */
    float *logits;  /* [rows][vocab] logits of a step that several runs or rows share */
    size_t rows;
};

int driver_open(struct exec *x, struct driver **out)
{
    struct driver *d = mem_alloc(sizeof *d);
    if (!d) return ERR_NOMEM;
    d->x = x;
    *out = d;
    return 0;
}

void driver_close(struct driver *d)
{
    if (!d) return;
    while (d->first)
        run_free(d->first);
    mem_free(d->job);
    mem_free(d->run);
    mem_free(d->logits);
    mem_free(d);
}

/* --- Starting. */

/* True if the run continues this sequence, or has made it for a row, beam, candidate or negative text.  The feeds
 * name the sequences that a mode has made.  A feed may name a sequence that was dropped, but no later handle is
 * equal to that of a dropped sequence. */
static bool runs_with(const struct run *r, kvik_seq seq)
{
    for (uint32_t i = 0; r->row && i < r->n; i++)
        if (r->row[i].given == seq || r->row[i].seq == seq) return true;
    for (uint32_t i = 0; r->feed && i < r->lanes; i++)
        if (r->feed[i].seq == seq) return true;
    if (guide_owns(r, seq)) return true;
    return r->own && r->mode->owns && r->mode->owns(r, seq);
}

int driver_owns(const struct driver *d, kvik_seq seq)
{
    for (const struct run *o = d->first; seq && o; o = o->next)
        if (runs_with(o, seq))
            return ERR(BUSY,
                       "a request that has not ended continues this sequence (%#x); end it first",
                       seq);
    return 0;
}

bool driver_inherit(struct driver *d, kvik_seq seq)
{
    for (struct run *o = d->first; o; o = o->next)
        for (uint32_t i = 0; o->row && i < o->n; i++)
            if (o->row[i].given && o->row[i].given == seq) return o->row[i].orphaned = true;
    return false;
}

static int check_others(const struct driver *d, const struct gen_call *call, const struct run *r)
{
    uint64_t lanes = r->lanes;
    for (uint32_t i = 0; i < call->n; i++)
        TRY(driver_owns(d, call->prompt[i].seq));
    for (const struct run *o = d->first; o; o = o->next)
        lanes += o->row ? o->lanes : 0;
    if (lanes > r->x->max_seqs)
        return ERR(LIMIT,
                   "the request needs %u sequences beside the %llu of others, the cache was opened "
                   "for %u; end one or raise max_sequences",
                   r->lanes, (unsigned long long)lanes - r->lanes, r->x->max_seqs);
    return 0;
}

/* Makes room for a step of all runs and the new one: for jobs, and for rows of logits. */
static int reserve_step(struct driver *d, const struct run *r)
{
    size_t rows = MAX(r->lanes, r->draft_rows), bytes;
    bool shared = rows > 1;
    uint32_t n = d->n_runs + 1;
    for (const struct run *o = d->first; o; o = o->next) {
        shared |= o->row != NULL;
        rows += o->row ? MAX(o->lanes, o->draft_rows) : 0;
    }
    if (n > d->cap) {
        uint32_t cap = 2 * n;
        struct exec_job **job = mem_grow(d->job, cap, sizeof(struct exec_job *));
        if (job) d->job = job;
        struct run **run = mem_grow(d->run, cap, sizeof(struct run *));
        if (run) d->run = run;
        if (!job || !run) return ERR_NOMEM;
        d->cap = cap;
    }
    rows = MIN(rows, d->x->step_tokens); /* each row belongs to a token of the step */
    if (!shared || rows <= d->rows) return 0;
    if (!ck_mul(d->x->m->vocab * sizeof(float), rows, &bytes)) return ERR(NOMEM, "too many rows");
    mem_free(d->logits);
    d->logits = mem_aligned(bytes);
    d->rows = d->logits ? rows : 0;
    return d->logits ? 0 : ERR_NOMEM;
}

static void insert_run(struct driver *d, struct run *r)
{
    struct run **at = &d->first;
    while (*at)
        at = &(*at)->next;
    *at = r;
    d->n_runs++;
}

static void job_end(struct run *r, bool failed)
{
    if (!r->pending) return;
    exec_job_end(r->x, &r->job, failed);
    r->computed += r->job.computed;
    r->pending = false;
}

/* Frees what the run holds, except for its error and its result. */
static void release(struct run *r, bool failed)
{
    job_end(r, failed);
    run_progress(r, &r->counts);
    r->counts.prefills = 0;
    if (r->own && r->mode->end) r->mode->end(r);
    r->own = NULL;
    run_end(r, failed);
}

static int begin_rows(struct run *r, const struct gen_call *call)
{
    uint64_t computed = r->x->computed;
    if (call->n == 0) return ERR(ARG, "no prompt");
    TRY(gen_validate(r->g));
    TRY(run_shape(r));
    TRY(check_others(r->driver, call, r));
    gen_notice_encoded(r->x, NULL, &r->told_rung);
    /* notices that an earlier run gave are not given again */
    (void)gen_notice_full(r->x, NULL, &r->told);
    TRY(run_begin(r, call->prompt));
    if (r->mode->begin) TRY(r->mode->begin(r));
    r->computed = r->x->computed - computed;
    return reserve_step(r->driver, r);
}

int run_start(struct driver *d, const struct gen_call *call, struct run **out)
{
    TRY(exec_idle(d->x));
    struct run *r = mem_alloc(sizeof *r);
    if (!r) return ERR_NOMEM;
    *r = (struct run){.driver = d,
                      .x = d->x,
                      .tok = call->tok,
                      .g = call->g,
                      .chunk = call->g->prefill_chunk_size,
                      .hooks = call->hooks,
                      .assist = call->assist,
                      .finish = call->finish,
                      .n_prompts = call->n,
                      .turn = d->turns, /* the run comes after the runs that wait */
                      .begun = now_seconds()};
    int e = begin_rows(r, call);
    if (e < 0) {
        release(r, true);
        mem_free(r);
        return e;
    }
    insert_run(d, r);
    *out = r;
    run_tell_mode(r);
    return 0;
}

/* --- A step. */

static void fail_run(struct run *r, int e)
{
    snprintf(r->why, sizeof r->why, "%s", err_last());
    r->error = e;
    release(r, true);
}

static bool active(const struct run *r)
{
    return !r->error && !r->over && !r->paused;
}

/* Lets a run judge its drafts.  If the judge fails, the error waits until the step has ended, because the step is
 * valid for the other runs. */
static void judge_run(void *ctx, uint32_t first, uint32_t n, uint32_t *accepted)
{
    struct run *r = ctx;
    int e = r->error ? r->error : r->mode->judge(r, first, n, accepted);
    if (e >= 0) return;
    for (uint32_t i = 0; i < n; i++)
        accepted[i] = 1;
    if (!r->error) snprintf(r->why, sizeof r->why, "%s", err_last());
    r->error = e;
}

static int gather_job(struct run *r)
{
    bool first = !r->prefilled;
    r->job.draft = false;
    r->job.chunk = first || !r->g->use_cache ? r->chunk : 0;
    r->job.logits = r->logits;
    r->progress = first && r->hooks ? r->hooks->on_progress : NULL;
    r->progress_ctx = r->hooks ? r->hooks->ctx : NULL;
    r->job.n = 0;
    if (first) TRY(share_gather(r));
    r->sharing = r->job.n > 0;
    if (r->sharing)
        r->job.logits = NULL;
    else
        TRY(r->mode->gather(r));
    r->job.feed = r->feed;
    r->job.judge = judge_run;
    r->job.ctx = r;
    TRY(exec_job_begin(r->x, &r->job));
    r->pending = true;
    return 0;
}

/* True if the run's job takes part in the next step of the model. */
static bool waits(const struct run *r)
{
    return active(r) && r->pending && r->job.done < r->job.total;
}

/* Calls the run's callbacks that can cancel a step.  Returns false if one of them does. */
static bool ask_callbacks(void *ctx, uint64_t done, uint64_t total)
{
    struct run *r = ctx;
    gen_notice_encoded(r->x, r->hooks, &r->told_rung);
    (void)gen_notice_full(r->x, r->hooks, &r->told);
    return !r->progress || r->progress(r->progress_ctx, done, total);
}

/* After a step of the model: ends runs whose judge has failed, and reports the progress of prompts. */
static void told(struct run *r)
{
    if (r->job.done == r->before) return;
    r->turn = ++r->driver->turns;
    int e = r->error;
    if (e < 0) {
        release(r, true);
        return;
    }
    e = exec_tell(r->x, ask_callbacks, r, r->job.done, r->job.total);
    if (e < 0) fail_run(r, e);
}

/* Runs one step of the model for d->run[at, at + n). */
static int step_together(struct driver *d, uint32_t at, uint32_t n)
{
    int e;
    do
        e = exec_step_jobs(d->x, d->job + at, n, d->logits);
    while (e == JOB_FEWER);
    return e;
}

/* Lists the runs whose jobs wait, in the given order.  Returns their number. */
static uint32_t list(struct driver *d, const struct driver_batch *b)
{
    uint32_t k = 0;
    for (struct run *r = b->first; r; r = r->after) {
        if (!waits(r)) continue;
        d->run[k] = r;
        d->job[k++] = &r->job;
    }
    return k;
}

/* Moves the runs that have waited longest to the front of the list. */
static void take_turns(struct driver *d, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct run *r = d->run[i];
        uint32_t at = i;
        for (; at && d->run[at - 1]->turn > r->turn; at--) {
            d->run[at] = d->run[at - 1];
            d->job[at] = d->job[at - 1];
        }
        d->run[at] = r;
        d->job[at] = &r->job;
    }
}

/* Runs one step of the model for the waiting jobs. */
static void feed_jobs(struct driver *d, const struct driver_batch *b)
{
    uint32_t k = list(d, b);
    if (!k) return;
    take_turns(d, k);
    for (uint32_t i = 0; i < k; i++)
        d->run[i]->before = d->run[i]->job.done;
    int e = step_together(d, 0, k);
    if (e < 0) k = list(d, b);
    for (uint32_t i = 0; e < 0 && i < k; i++) {
        int own = k > 1 ? step_together(d, i, 1) : e;
        if (own < 0) fail_run(d->run[i], own);
    }
    for (uint32_t i = 0; i < k; i++)
        told(d->run[i]);
}

/* True if all logits of the run's job are there. */
static bool computed(const struct run *r)
{
    return active(r) && r->pending && r->job.done == r->job.total;
}

static void decide(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    run_decide(((struct driver *)ctx)->run[task]);
}

/* Lets the threads share the choices of several runs, because processors and draws go through the whole vocabulary.
 * The callbacks, and changes of the cache, follow run by run. */
static void decide_ahead(struct driver *d, const struct driver_batch *b)
{
    uint32_t k = 0;
    for (struct run *r = b->first; r; r = r->after)
        if (computed(r) && run_decides(r)) d->run[k++] = r;
    if (k > 1) dev_each(d->x->queue, k, decide, d);
}

static void choose_tokens(struct run *r)
{
    bool running = true;
    if (!computed(r)) return;
    job_end(r, false);
    if (r->sharing) {
        share_fed(r);
        return;
    }
    if (!r->prefilled) r->prefilled = now_seconds();
    int e = r->mode->choose(r, &running);
    if (e < 0) fail_run(r, e);
    r->over = e >= 0 && !running;
}

static void leave_batch(struct driver_batch *b)
{
    for (struct run *r = b->first; r; r = r->after)
        r->stepping = false;
    *b = (struct driver_batch){0};
}

int driver_add(struct driver *d, struct driver_batch *b, struct run *r)
{
    int e = 0;
    if (r->driver != d)
        e = ERR(ARG, "request %u is of another cache; a step advances the requests of one", b->n);
    else if (r->stepping)
        e = ERR(BUSY, "request %u is in a step already: give it once, and not in its own callback",
                b->n);
    if (e < 0) {
        leave_batch(b);
        return e;
    }
    r->stepping = true; /* no callback may end the run */
    r->after = NULL;
    if (b->last)
        b->last->after = r;
    else
        b->first = r;
    b->last = r;
    b->n++;
    return 0;
}

int driver_step(struct driver *d, struct driver_batch *b)
{
    int busy = exec_idle(d->x);
    if (busy < 0) {
        leave_batch(b);
        return busy;
    }
    for (struct run *r = b->first; r; r = r->after) {
        int e = active(r) && !r->pending ? gather_job(r) : 0;
        if (e < 0) fail_run(r, e);
    }
    feed_jobs(d, b);
    decide_ahead(d, b);
    for (struct run *r = b->first; r; r = r->after)
        choose_tokens(r);
    leave_batch(b);
    return 0;
}

/* --- Ending. */

enum run_state run_state(const struct run *r)
{
    return r->error ? RUN_FAILED : r->over ? RUN_OVER : r->paused ? RUN_PAUSED : RUN_ACTIVE;
}

int run_error(const struct run *r, const char **text)
{
    *text = r->why;
    return r->error;
}

void run_progress(const struct run *r, kvik_progress *out)
{
    *out = r->counts;
    if (!r->row) return;
    *out = (kvik_progress){.computed_tokens = r->computed + (r->pending ? r->job.computed : 0),
                           .new_tokens = r->mode->search ? r->kept_steps : 0,
                           .prefills = !r->prefilled && !r->over};
    for (uint32_t i = 0; i < r->n; i++) {
        const struct row *w = &r->row[i];
        if (i % r->per == 0) {
            out->prompt_tokens += run_prompt_rows(w);
            out->reused_tokens += MIN(w->reused, run_prompt_rows(w));
        }
        if (!r->mode->search) out->new_tokens += w->n - w->n_prompt;
    }
}

void run_pause(struct run *r, bool paused)
{
    r->paused = paused;
}

void run_set_chunk(struct run *r, uint32_t tokens)
{
    r->chunk = tokens;
    if (r->pending && !r->prefilled)
        r->job.chunk = tokens ? MIN(tokens, r->x->step_tokens) : r->x->step_tokens;
}

/* Fills the result of a run that has chosen at least one token for each row. */
static int complete_result(struct run *r, kvik_result *out)
{
    uint64_t computed = r->x->computed;
    int e = r->over ? 0 : r->mode->cancel ? r->mode->cancel(r) : run_cancel(r);
    if (e >= 0) e = r->mode->finish(r, out);
    if (r->own && r->mode->end) r->mode->end(r);
    r->own = NULL;
    out->computed_tokens = r->computed + (r->x->computed - computed);
    out->prefill_seconds = r->prefilled - r->begun;
    out->decode_seconds = now_seconds() - r->prefilled;
    if (e >= 0 && r->mode->by_logits) idle_run(r);
    if (e >= 0 && r->finish) e = r->finish->call(r->finish->ctx, out);
    run_result_end(r, out, e < 0);
    return e;
}

/* Removes the tokens of a job that was computed although the run was paused before it chose.  They are cut from
 * the sequences of rows.  Sequences of beams, candidates and negative texts are dropped, or cut to the tokens of
 * their row. */
static int unfeed(struct run *r)
{
    bool rows = r->mode->by_logits && !r->job.draft;
    for (uint32_t i = 0; rows && r->g->use_cache && i < r->fed; i++)
        if (kv_len(r->x->kv, r->feed[i].seq) > r->job.fed[i].start)
            TRY(exec_crop(r->x, r->feed[i].seq, r->job.fed[i].start));
    bool decided = false;
    uint32_t most = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        decided |= r->row[i].decided;
        most = MAX(most, r->row[i].n - r->row[i].n_prompt);
    }
    if (decided) r->kept_steps = most; /* steps that were decided but not chosen do not count */
    return 0;
}

static int end_active(struct run *r, kvik_result **out)
{
    kvik_result *res;
    if (r->error) return err_set(r->error, "%s", r->why);
    if (!r->row) return ERR(ARG, "the request has ended and given its result");
    bool chosen = r->steps > 0;
    if (chosen) TRY(exec_idle(r->x)); /* ending may compute: padding, rows of beams, a crop */
    TRY(run_result_begin(r, &res));
    bool pending = r->pending;
    job_end(r, !chosen);
    int e = chosen && pending ? unfeed(r) : 0;
    r->over = r->over || !chosen;
    if (e >= 0) e = chosen ? complete_result(r, res) : run_no_rows(r, res);
    if (e < 0) {
        gen_result_free(res);
        fail_run(r, e);
        return e;
    }
    release(r, !chosen);
    r->over = true;
    *out = res;
    return 0;
}

int run_finish(struct run *r, kvik_result **out)
{
    if (r->stepping)
        return ERR(BUSY, "a callback cannot end a request that takes part in the step or is ended");
    r->stepping = true; /* on_token gets the last texts here, and may not end the request */
    int e = end_active(r, out);
    r->stepping = false;
    return e;
}

void run_free(struct run *r)
{
    if (!r) return;
    struct driver *d = r->driver;
    struct run **at = &d->first;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    d->n_runs--;
    release(r, true);
    mem_free(r);
    if (d->first) return;
    mem_free(d->logits);
    d->logits = NULL;
    d->rows = 0;
}

int gen_run(struct driver *d, const struct gen_call *call, kvik_result **out)
{
    struct run *r;
    TRY(run_start(d, call, &r));
    int e = 0;
    while (e >= 0 && run_state(r) == RUN_ACTIVE) {
        struct driver_batch b = {0};
        e = driver_add(d, &b, r);
        if (e >= 0) e = driver_step(d, &b);
    }
    if (e >= 0) e = run_finish(r, out);
    run_free(r);
    return e;
}
