/* attn_probe.c - the probabilities of attention, for callers that ask for them.
 *
 * Scores are attention's own, bit for bit: same strips or pieces, same kernel, one query at a time.  They are gathered piece by
 * piece in the caller's array, row of the cache by row, and become probabilities with the last piece, by an exact
 * softmax over all of them (attention itself merges atoms and never has them at once). */
#include "base/thread.h"
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/mathfn.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct job {
    struct dev *d;
    const struct kv_view *v;
    const struct dev_attn *a;
    const struct dev_probe *lane;
    const struct attn_kernels *k;
    kv_strip_fn strip;
    const struct kv_kernels *own; /* of the codec of keys, or NULL */
    bool tiled, lossy;
};

/* The strip of keys at absolute row `row`, of which [a, b) are wanted; compare `gather` in attn.c. */
static const void *keys(const struct job *j, uint32_t token, uint32_t phase, uint32_t row,
                        uint32_t a, uint32_t b, uint32_t head, unsigned char *buf)
{
    const struct kv_view *v = j->v;
    const struct strip_from w = {v, 0, v->lane[token], j->strip};
    const struct kv_codec *c = v->codec[0];
    uint32_t seal0 = 0, seal1 = 0;
    const void *strip;
    if (j->tiled && !j->lossy) seal0 = v->lead, seal1 = v->edge[token];
    if (phase == ATTN_SEALED) seal1 = UINT32_MAX;
    if (phase == ATTN_SEALED && c && !c->lossless) seal0 = a, seal1 = b;
    strip_span(&w, row, 0, 1, seal0, seal1, head, buf, &strip);
    return strip;
}

/* Scores of the rows of this piece that the token sees, to out[row]. */
static void scores(const struct job *j, uint32_t token, uint32_t head, unsigned char *buf,
                   float *out)
{
    const struct kv_shape *s = &j->v->shape[0];
    uint32_t group = j->a->n_heads / s->heads;
    float p[KV_STRIP] __attribute__((aligned(64)));
    for (uint32_t phase = 0; phase < ATTN_PHASES; phase++) {
        const float *q = phase == ATTN_SINKS && j->a->q_sink ? j->a->q_sink : j->a->q;
        uint32_t a, b;
        q += token * j->a->ldq + (size_t)head * s->dim;
        attn_phase_rows(j->v, j->lossy, token, phase, &a, &b);
        if (phase == ATTN_SEALED && j->own) {
            struct tiles_from from = {j->v, 0, j->v->lane[token], j->own};
            tiles_query(&from, q, (float *)buf);
            tiles_score(&from, a, b, head / group, (float *)buf, 1, j->a->scale, out + a, 0);
            attn_bias(j->a->bias, head, j->v->pos[token], a, b, out + a);
            continue;
        }
        for (uint32_t row = a - a % KV_STRIP; row < b; row += KV_STRIP) {
            uint32_t r0 = MAX(row, a), r1 = MIN(row + KV_STRIP, b);
            const void *k = keys(j, token, phase, row, r0, r1, head / group, buf);
            j->k->score(s->dtype, q, 1, s->dim, &k, NULL, 0, 1, j->a->scale, p);
            memcpy(out + r0, p + (r0 - row), (r1 - r0) * sizeof *out);
            attn_bias(j->a->bias, head, j->v->pos[token], r0, r1, out + r0);
        }
    }
}

/* The rows a token sees, one after another: [0, sinks) and [lo, hi). */
#define EACH_SEEN(i, sinks, lo, hi)                                                                \
    (uint32_t i = sinks ? 0 : lo; i < hi; i = i + 1 == sinks ? lo : i + 1)

/* Scores to probabilities; `sink`: a logit that takes its share and has no row. */
static void soften(float *x, uint32_t sinks, uint32_t lo, uint32_t hi, float cap, const float *sink)
{
    float m = sink ? *sink : -INFINITY;
    for
        EACH_SEEN(i, sinks, lo, hi)
        {
            if (cap != 0) x[i] = cap * math_tanh(x[i] / cap);
            m = x[i] > m ? x[i] : m;
        }
    double sum = sink ? (double)math_exp(*sink - m) : 0;
    for
        EACH_SEEN(i, sinks, lo, hi)
        {
            x[i] = math_exp(x[i] - m);
            sum += (double)x[i];
        }
    for
        EACH_SEEN(i, sinks, lo, hi)
    x[i] = (float)((double)x[i] / sum);
}

/* One token and head. */
static void probe(void *ctx, uint32_t task, uint32_t thread)
{
    const struct job *j = ctx;
    const struct kv_view *v = j->v;
    uint32_t token = task / j->a->n_heads, head = task % j->a->n_heads, first = token;
    const struct dev_probe *to = &j->lane[v->lane[token]];
    if (!to->out) return;
    while (first && v->lane[first - 1] == v->lane[token])
        first--;
    float *out = to->out + head * to->ldh + (size_t)(token - first) * to->columns;
    uint32_t hi = v->hi[token], lo = MIN(v->lo[token], hi);
    assert(hi <= to->columns);
    if (v->first) memset(out, 0, to->columns * sizeof *out);
    scores(j, token, head, j->d->probe + thread * j->d->probe_bytes, out);
    if (!v->last) return;
    const float *sink = j->a->sink_logit ? &j->a->sink_logit[head] : NULL;
    soften(out, MIN(v->sinks, lo), lo, hi, j->a->softcap, sink);
}

void cpu_attention_probe(struct dev *d, const struct kv_view *v, const struct dev_attn *a,
                         const struct dev_probe *lane)
{
    struct job j = {.d = d, .v = v, .a = a, .lane = lane};
    j.k = ((attn_kernels_fn)cpu_kernel_get(d, CPU_ATTN_ATOM, CPU_ANY))();
    j.strip = (kv_strip_fn)cpu_kernel_get(d, CPU_KV_STRIP, CPU_ANY);
    j.own = tiles_kernels(d->isa, v->codec[0]);
    for (uint32_t i = 0; i < 2; i++) {
        j.tiled |= v->codec[i] != NULL;
        j.lossy |= v->codec[i] && !v->codec[i]->lossless;
    }
    pool_run(d->pool, v->counts[1] * a->n_heads, probe, &j);
}
