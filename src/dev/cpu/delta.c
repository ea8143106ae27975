/* delta.c - the gated delta rule: the splitting over sequences, heads and values, the state, and the readable kernel.
 *
 * A head is a memory: a matrix whose row i holds what is known under key i.  A token reads the value under its key, a sum
 * over the rows, and adds to every row, so that the next reading is closer to the token's own value.  Columns do not
 * meet, so a strip of 16 columns is a vector, and a task is some strips of one sequence.  The tokens of a sequence
 * follow one another, in a step of one token and in a prefill alike.  (The solution by chunks, which Transformers uses
 * for prompts, adds in another order, which depends on where chunks begin.)
 *
 * As in ssm.c, a strip's state is copied from its page, lives in the L1 cache while its tokens pass, and is copied to
 * the page of every token that has one. */
#include "dev/cpu/mathfn.h"
#include "dev/cpu/ssm.h"

#include <assert.h>
#include <string.h>

struct delta {
    const struct dev_delta *a;
    const struct kv_view *v;
    uint32_t plane, per_head, strips, per_task, per_lane; /* per_lane: tasks of a lane */
    cpu_delta_fn fn;
};

static void delta_ref(const struct cpu_delta *j)
{
    for (uint32_t t = 0; t < j->tokens; t++) {
        const float *q = j->q + t * j->ldq, *k = j->k + t * j->ldq;
        float a = math_exp(j->dt[t * j->lddt] * j->a), beta = j->beta[t * j->lddt];
        for (uint32_t c = 0; c < j->lanes; c++) {
            float m[4] = {0}, p[4] = {0}, *h = j->h + c;
            for (uint32_t i = 0; i < j->keys; i++)
                m[i % 4] = __builtin_fmaf(h[i * SCAN_LANES], k[i], m[i % 4]);
            float u = (j->v[t * j->ldv + c] - a * ((m[0] + m[2]) + (m[1] + m[3]))) * beta;
            for (uint32_t i = 0; i < j->keys; i++) {
                float *s = &h[i * SCAN_LANES];
                *s = __builtin_fmaf(*s, a, u * k[i]);
                p[i % 4] = __builtin_fmaf(*s, q[i], p[i % 4]);
            }
            j->out[t * j->ldo + c] = j->scale * ((p[0] + p[2]) + (p[1] + p[3]));
        }
    }
}
CPU_KERNEL(DEV_REF, CPU_DELTA, CPU_ANY, delta_ref);

/* Copies a strip of columns between a head's matrix in a page, whose rows have `values` values, and h. */
static void state_load(const float *page, uint32_t keys, uint32_t values, uint32_t lanes, float *h)
{
    if (!page || lanes < SCAN_LANES) memset(h, 0, (size_t)keys * SCAN_LANES * sizeof *h);
    for (uint32_t i = 0; page && i < keys; i++)
        memcpy(h + i * SCAN_LANES, page + (size_t)i * values, lanes * sizeof *h);
}

static void state_save(const float *h, uint32_t keys, uint32_t values, uint32_t lanes, float *page)
{
    for (uint32_t i = 0; i < keys; i++)
        memcpy(page + (size_t)i * values, h + i * SCAN_LANES, lanes * sizeof *h);
}

/* Passes the tokens of a span over strip i. */
static void strip(const struct delta *o, const struct scan_span *s, uint32_t i, float *h)
{
    const struct dev_delta *a = o->a;
    uint32_t head = i / o->per_head, c0 = i % o->per_head * SCAN_LANES;
    size_t key = (size_t)(head / (a->heads / a->key_heads)) * a->keys;
    size_t at = (size_t)head * a->keys * a->values + c0, value = (size_t)head * a->values + c0;
    struct cpu_delta j = {.h = h,
                          .ldq = a->ldq,
                          .ldv = a->ldv,
                          .lddt = a->heads,
                          .a = a->a[head],
                          .scale = a->scale,
                          .ldo = (size_t)a->heads * a->values,
                          .lanes = MIN(SCAN_LANES, a->values - c0),
                          .keys = a->keys};
    state_load(s->from ? s->from + at : NULL, a->keys, a->values, j.lanes, h);
    for (uint32_t t = s->t0; t < s->t1; t += j.tokens) {
        uint32_t end = t;
        while (end + 1 < s->t1 && !o->v->dst[end])
            end++;
        j.tokens = end + 1 - t;
        j.q = a->q + t * a->ldq + key;
        j.k = a->k + t * a->ldq + key;
        j.v = a->v + t * a->ldv + value;
        j.dt = a->dt + (size_t)t * a->heads + head;
        j.beta = a->beta + (size_t)t * a->heads + head;
        j.out = a->out + t * j.ldo + value;
        o->fn(&j);
        float *page = scan_dst(o->v, o->plane, end);
        if (page) state_save(h, a->keys, a->values, j.lanes, page + at);
    }
}

static void delta_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct delta *o = ctx;
    uint32_t first = task % o->per_lane * o->per_task, end = MIN(first + o->per_task, o->strips);
    struct scan_span s = scan_span(o->v, o->plane, task / o->per_lane);
    _Alignas(64) float h[DEV_DELTA_KEYS * SCAN_LANES];
    (void)thread;
    for (uint32_t i = first; i < end; i++)
        strip(o, &s, i, h);
}

void dev_delta(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_delta *a)
{
    struct delta o = {.a = a, .v = v, .plane = plane};
    assert(a->keys <= DEV_DELTA_KEYS && a->heads % a->key_heads == 0);
    o.per_head = (a->values + SCAN_LANES - 1) / SCAN_LANES;
    o.strips = o.per_head * a->heads;
    o.per_task = scan_per_task(v, o.strips, (size_t)SCAN_LANES * a->keys * 4);
    o.per_lane = (o.strips + o.per_task - 1) / o.per_task;
    o.fn = (cpu_delta_fn)cpu_kernel_get(d, CPU_DELTA, CPU_ANY);
    pool_run(d->pool, v->counts[0] * o.per_lane, delta_task, &o);
}
