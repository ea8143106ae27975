/* job.c - jobs: the feeds of several callers, cut into steps that they share.  A job is a list of feeds; its
 * caller gets the logits when all its feeds are done.  A step takes tokens of several jobs: first of jobs that
 * decode, with one token or one draft for each sequence, then of jobs that prefill, in the room that is left.  So
 * a long prompt delays the decoding of others by one step at a time.  The caller orders the jobs; a job without
 * room waits for the next step.  How feeds share steps changes no bit of their rows and logits (dev.h, canonical
 * order).
 *
 * In a job of drafts each feed goes into one step as a whole: token 0 is certain, the others are draft tokens.
 * The job's owner judges the logits while the step is open.  Rejected rows never become part of the sequence
 * (kv_span.undo).  Each token counts as a turn of its own, so accepted rows have the bits of plain decoding. */
#include "model/model.h"

#include <assert.h>
#include <string.h>

uint32_t exec_draft_fits(const struct exec *x, kv_seq seq, uint32_t n)
{
    uint32_t len = kv_len(x->kv, seq);
    n = MIN(MIN(n, x->step_tokens), x->max_len - MIN(len, x->max_len));
    while (n && regime_changes(x, seq, n))
        n--;
    return n;
}

uint32_t job_wanted(const struct exec_feed *f, uint32_t at, uint32_t n)
{
    uint32_t k = 0;
    if (!f->want) return f->all ? n : at + n == f->n;
    for (uint32_t i = at; i < at + n; i++)
        k += f->want[i] != 0;
    return k;
}

/* A step that is being planned or run.  Its spans are in the order of the jobs. */
struct step_plan {
    struct exec_job *const *job;
    uint32_t n_jobs;
    struct exec_span *span; /* [n] */
    uint32_t n, room, lanes, rows;
};

static uint32_t draft_length(const struct exec_job *j, uint32_t i)
{
    return j->single ? 1 : j->feed[i].n;
}

/* Plans as many whole drafts of job k as fit, in order. */
static void plan_drafts(struct step_plan *p, uint32_t k)
{
    const struct exec_job *j = p->job[k];
    uint32_t rows = 0;
    for (uint32_t i = j->first; i < j->n && p->n < p->lanes; i++) {
        uint32_t n = draft_length(j, i);
        if (n > p->room || n > j->room - rows) return;
        p->span[p->n++] = (struct exec_span){
            .rows = {.seq = j->feed[i].seq, .tok = j->feed[i].tok, .n = n, .undo = n - 1},
            .feed = &j->feed[i],
            .n_logits = n,
            .job = k,
            .index = i,
        };
        p->room -= n;
        rows += n;
        p->rows += n;
    }
}

/* Plans a piece of every unfinished feed of job k, as far as there is room. */
static void plan_feeds(struct step_plan *p, uint32_t k)
{
    const struct exec_job *j = p->job[k];
    for (uint32_t i = j->first; i < j->n && p->room && p->n < p->lanes; i++) {
        const struct exec_feed *f = &j->feed[i];
        const struct exec_fed *g = &j->fed[i];
        uint32_t total = g->again + f->n, turn = total - f->singly;
        /* a turn ends with its step: one step never has parts of two turns */
        uint32_t left = (g->done < turn ? turn : total) - g->done;
        /* a span has either recomputed rows or tokens of the feed, not both */
        bool past = g->done < g->again;
        uint32_t at = past ? g->done : g->done - g->again;
        uint32_t take = MIN(MIN(past ? g->again - at : left, j->chunk), p->room);
        if (!take) continue;
        bool ids = past || (!f->embeds && !g->moved);
        struct exec_span s = {
            .rows = {.seq = f->seq,
                     .tok = ids ? (past ? g->past : f->tok) + at : NULL,
                     .n = take,
                     .turn = turn > 1 && g->done < turn,
                     .last = take == left},
            .feed = past ? NULL : f,
            .at = at,
            .turn_end = g->start + f->n - f->singly - 1,
            .n_logits = past ? 0 : job_wanted(f, at, take),
            .job = k,
            .index = i,
        };
        p->span[p->n++] = s;
        p->room -= take;
        p->rows += s.n_logits;
    }
}

bool exec_job_decodes(const struct exec_job *j)
{
    return j->draft || j->total == j->n;
}

/* Plans the jobs that prefill.  A chunk limits how long a step keeps the other jobs waiting, so all prompts of a shared step
 * together take no more tokens than the smallest chunk.  A job alone takes a chunk of each of its feeds. */
static void plan_prefills(struct step_plan *p)
{
    uint32_t most = p->room;
    for (uint32_t k = 0; k < p->n_jobs && p->n_jobs > 1; k++)
        if (!exec_job_decodes(p->job[k])) most = MIN(most, p->job[k]->chunk);
    uint32_t spare = p->room - most;
    p->room = most;
    for (uint32_t k = 0; k < p->n_jobs; k++)
        if (!exec_job_decodes(p->job[k])) plan_feeds(p, k);
    p->room += spare;
}

static void plan(struct step_plan *p)
{
    for (uint32_t k = 0; k < p->n_jobs; k++) {
        if (p->job[k]->draft)
            plan_drafts(p, k);
        else if (exec_job_decodes(p->job[k]))
            plan_feeds(p, k);
    }
    plan_prefills(p);
}

/* Returns where the logits of span i begin in its job's array, as a row.  The drafts of a step begin at row 0.
 * The rows of other feeds follow those of the feeds before them. */
static size_t target(const struct step_plan *p, uint32_t i)
{
    const struct exec_job *j = p->job[p->span[i].job];
    size_t row = 0;
    if (j->draft) {
        for (uint32_t s = i; s-- > 0 && p->span[s].job == p->span[i].job;)
            row += p->span[s].n_logits;
        return row;
    }
    if (j->one_row) return p->span[i].index;
    for (uint32_t f = 0; f < p->span[i].index; f++)
        row += j->fed[f].rows;
    return row + j->fed[p->span[i].index].written;
}

/* Returns the array into which the step can write its logits directly, or NULL if they must be copied. */
static float *direct(const struct exec *x, const struct step_plan *p)
{
    float *begin = NULL;
    uint32_t owner = 0;
    size_t next = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct exec_job *j = p->job[p->span[i].job];
        if (!p->span[i].n_logits) continue;
        size_t at = target(p, i);
        if (!j->logits || (begin && (p->span[i].job != owner || at != next))) return NULL;
        if (!begin) begin = j->logits + at * x->m->vocab;
        owner = p->span[i].job;
        next = at + p->span[i].n_logits;
    }
    return begin;
}

/* Copies the logits of the step to the arrays of their jobs. */
static void distribute(const struct exec *x, const struct step_plan *p, const float *logits)
{
    size_t vocab = x->m->vocab;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct exec_job *j = p->job[p->span[i].job];
        size_t n = p->span[i].n_logits * vocab;
        if (n && j->logits) memcpy(j->logits + target(p, i) * vocab, logits, n * sizeof *logits);
        logits += n;
    }
}

struct verdict {
    struct exec *x;
    const struct step_plan *plan;
    bool copied;
};

static int judge_drafts(void *ctx, const float *logits, uint32_t *accepted)
{
    const struct verdict *v = ctx;
    const struct step_plan *p = v->plan;
    if (v->copied) distribute(v->x, p, logits);
    v->x->telling = true; /* the plan is in use, so nothing else may feed */
    for (uint32_t i = 0, n; i < p->n; i += n) {
        struct exec_job *j = p->job[p->span[i].job];
        for (n = 1; i + n < p->n && p->span[i + n].job == p->span[i].job;)
            n++;
        if (j->draft) j->judge(j->ctx, p->span[i].index, n, accepted + i);
    }
    v->x->telling = false;
    return 0;
}

/* Notes how far the feeds are after a step that succeeded. */
static void advance_feeds(const struct step_plan *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        struct exec_job *j = p->job[p->span[i].job];
        struct exec_fed *g = &j->fed[p->span[i].index];
        g->written += p->span[i].n_logits;
        g->done += p->span[i].rows.n;
        j->done += j->draft ? j->feed[p->span[i].index].n : p->span[i].rows.n;
        j->computed += p->span[i].rows.n;
        bool whole = j->draft || g->done == g->again + j->feed[p->span[i].index].n;
        if (whole && j->first == p->span[i].index) j->first++;
    }
}

/* Leaves draft tokens out of the next plan.  Returns true if this plan has any. */
static bool without_drafts(const struct step_plan *p)
{
    bool any = false;
    for (uint32_t i = 0; i < p->n; i++) {
        any |= p->span[i].rows.undo > 0;
        p->job[p->span[i].job]->single |= p->span[i].rows.undo > 0;
    }
    return any;
}

int exec_step_jobs(struct exec *x, struct exec_job *const *job, uint32_t n, float *tmp)
{
    for (;;) {
        struct step_plan p = {.job = job,
                              .n_jobs = n,
                              .span = x->span,
                              .room = x->step_tokens,
                              .lanes = MIN(kv_step_lanes(x->kv), 2 * x->max_seqs)};
        plan(&p);
        assert(p.n);
        bool drafts = false;
        for (uint32_t k = 0; k < n; k++)
            drafts |= job[k]->draft;
        float *to = direct(x, &p), *logits = to ? to : tmp;
        struct verdict v = {x, &p, !to && logits};
        int e = exec_step_judged(x, p.span, p.n, logits, drafts ? judge_drafts : NULL, &v);
        if (e >= 0) {
            if (!drafts && v.copied) distribute(x, &p, logits);
            advance_feeds(&p);
            return 0;
        }
        /* pages begin to stream, so a step holds fewer sequences */
        bool fewer = p.n > kv_step_lanes(x->kv);
        if ((e == ERR_FULL || fewer) && without_drafts(&p)) continue;
        return fewer ? JOB_FEWER : e;
    }
}
