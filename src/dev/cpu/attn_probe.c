/* attn_probe.c - the probabilities of attention, for callers that ask for them.
 *
 * The scores are attention's own, bit for bit, from the same loop.  They are gathered piece by piece in the caller's array, in the order of
 * the cache's rows.  After the last piece an exact softmax over all scores turns them into probabilities.  (Attention itself merges atoms and
 * never has all scores at once.) */
#include "base/thread.h"
#include "dev/cpu/attn_job.h"
#include "dev/soften.h"

#include <assert.h>
#include <string.h>

struct probe_job {
    struct attn_job attn;
    const struct dev_probe *lane;
};

/* Writes the scores of the rows of this piece that a token sees to out[head][row], for the query heads of one kv
 * head. */
static void scores(const struct attn_job *j, uint32_t token, uint32_t head, uint32_t thread,
                   float *out, size_t ldh)
{
    struct attn_atom m = {.token = token};
    const struct attn_task t = {.m = &m,
                                .edge = j->v->edge[token],
                                .h0 = head,
                                .heads = 1,
                                .nq = j->group,
                                .thread = thread,
                                .p = attn_part(j, thread, j->lay.p),
                                .qt = attn_part(j, thread, j->lay.qt)};
    for (; m.phase < ATTN_PHASES; m.phase++) {
        uint32_t end;
        attn_phase_rows(j->v, j->lossy, token, m.phase, &m.a, &end);
        if (m.a < end) attn_form_queries(j, &m, &token, 1, head, thread, t.qt);
        for (; m.a < end; m.a = m.b) {
            m.b = MIN(end, m.a - m.a % KV_ATOM + KV_ATOM);
            attn_scores(j, &t);
            for (uint32_t i = 0; i < j->group; i++) {
                float *to = out + i * ldh + m.a;
                memcpy(to, t.p + (size_t)i * KV_ATOM + m.a % KV_ATOM, (m.b - m.a) * sizeof *to);
                attn_bias(j->a->bias, head * j->group + i, j->v->pos[token], m.a, m.b, to);
            }
        }
    }
}

/* Writes the probabilities of one token and kv head. */
static void probe(void *ctx, uint32_t task, uint32_t thread)
{
    const struct probe_job *job = ctx;
    const struct attn_job *j = &job->attn;
    const struct kv_view *v = j->v;
    uint32_t token = task / j->n_kv, kv = task % j->n_kv, first = token;
    const struct dev_probe *to = &job->lane[v->lane[token]];
    if (!to->out) return;
    while (first && v->lane[first - 1] == v->lane[token])
        first--;
    float *out = to->out + kv * j->group * to->ldh + (size_t)(token - first) * to->columns;
    uint32_t hi = v->hi[token], lo = MIN(v->lo[token], hi);
    assert(hi <= to->columns);
    for (uint32_t i = 0; v->first && i < j->group; i++)
        memset(out + i * to->ldh, 0, to->columns * sizeof *out);
    scores(j, token, kv, thread, out, to->ldh);
    for (uint32_t i = 0; v->last && i < j->group; i++) {
        const float *sink = j->a->sink_logit ? &j->a->sink_logit[kv * j->group + i] : NULL;
        dev_soften(out + i * to->ldh, MIN(v->sinks, lo), lo, hi, j->a->softcap, sink);
    }
    attn_rest(j);
}

void cpu_attention_probe(struct dev_queue *d, const struct kv_view *v, const struct dev_attn *a,
                         const struct dev_probe *lane)
{
    struct probe_job j = {.lane = lane};
    attn_open(d, v, a, &j.attn);
    pool_run(d->pool, j.attn.n_tokens * j.attn.n_kv, probe, &j);
}
