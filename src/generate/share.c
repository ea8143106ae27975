/* share.c - computes a common prefix of several prompts of one call only once.  If the prompt of a row shares a
 * prefix with an earlier row, its leader, the row waits for the leader.  Before the first choice, rows that do not
 * wait are prefilled up to the next place where a follower's prompt differs.  The followers then reuse that prefix
 * from the prefix index, by reference, and lead their own followers.  When no row waits any more, the run gathers
 * as usual.  KV rows are bit-identical however a prompt is cut, so only time changes.
 *
 * A sequence of the caller that was empty before the call may follow, as a new one does.  A sequence with rows may
 * only lead. */
#include "generate/run.h"

enum { LEAST_GAIN = 32 }; /* fewer common tokens are not worth a step of their own */

static uint32_t common_rows(const struct row *a, const struct row *b)
{
    /* the last token of each prompt is fed for its logits */
    return sync_common(a->ids, b->ids, MIN(a->n, b->n) - 1);
}

/* True if the row was empty before the call, so that it may begin with rows of another. */
static bool may_follow(const struct row *w)
{
    return !w->given || (!w->sync.len && !w->prompt->append);
}

/* True if all ids of the row's prompt will be in its sequence. */
static bool may_lead(const struct row *w)
{
    return !w->given || (!w->sync.report->offset && !w->prompt->append);
}

void share_begin(struct run *r)
{
    struct kv *kv = r->x->kv;
    /* with an encoder, rows also depend on the encoder's input */
    bool off = r->source || !r->g->use_cache || !kv_indexes(kv) || kv_by_turns(kv) ||
               r->x->regime_rows || r->mode->anew;
    for (uint32_t i = 0; i < r->n; i += r->per)
        off |= r->row[i].lead > 0;
    for (uint32_t i = r->per; !off && i < r->n; i += r->per) {
        struct row *w = &r->row[i];
        for (uint32_t j = 0; j < i && may_follow(w) && w->common + 1 < w->n; j += r->per) {
            const struct row *l = &r->row[j];
            uint32_t n = may_lead(l) && l->pad == w->pad ? common_rows(l, w) : 0;
            if (n < MAX(w->common + 1, w->have + LEAST_GAIN)) continue;
            w->common = n;
            w->leader = j;
        }
    }
}

/* Gives the row the prefix that its leader has computed. */
static int follow_leader(struct run *r, struct row *w)
{
    uint32_t none;
    w->common = 0;
    TRY(kv_trim(r->x->kv, w->seq, 0, &none));
    TRY(exec_match(r->x, w->seq, w->ids, w->n, w->pad, &w->have));
    w->reused = w->have;
    if (w->given)
        sync_match(&w->sync, w->n, w->have);
    else
        w->miss = w->have ? NULL : kv_miss_text(kv_match_reason(r->x->kv));
    return 0;
}

/* Returns the least number of tokens that a row which waits for row j shares with it; UINT32_MAX: no row waits for j. */
static uint32_t parting(const struct run *r, uint32_t j)
{
    uint32_t at = UINT32_MAX;
    for (uint32_t i = j + r->per; i < r->n; i += r->per)
        if (r->row[i].common && r->row[i].leader == j) at = MIN(at, r->row[i].common);
    return at;
}

int share_gather(struct run *r)
{
    r->job.n = 0;
    for (uint32_t i = 0; i < r->n; i += r->per) {
        struct row *w = &r->row[i];
        const struct row *l = &r->row[w->leader]; /* the leader is an earlier row */
        if (w->common && !l->common && l->have >= w->common) TRY(follow_leader(r, w));
    }
    for (uint32_t i = 0; i < r->n; i += r->per) {
        const struct row *w = &r->row[i];
        uint32_t to = w->common ? UINT32_MAX : parting(r, i);
        if (to != UINT32_MAX)
            r->feed[r->job.n++] = (struct exec_feed){.seq = w->seq,
                                                     .tok = w->ids + w->have,
                                                     .n = to - w->have,
                                                     .pad = w->pad,
                                                     .loose = true};
    }
    r->fed = r->job.n;
    return 0;
}

void share_fed(struct run *r)
{
    for (uint32_t i = 0, k = 0; k < r->job.n; i += r->per)
        if (r->row[i].seq == r->feed[k].seq) r->row[i].have += r->feed[k++].n;
}
