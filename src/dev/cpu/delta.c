/* delta.c - the gated delta rule: what a strip of values reads of each token, and the readable kernel.
 *
 * A head is a memory: a matrix whose row i has what is known under key i.  A token reads the value under its key, which is a sum over the rows.
 * Then it adds to every row, so that the next reading is closer to the token's own value.  Columns do not depend on each other (scan_work.c).
 * (Transformers solves prompts by chunks.  That adds in another order, which depends on where chunks begin.) */
#include "dev/cpu/mathfn.h"
#include "dev/cpu/ssm.h"

#include <assert.h>

struct delta {
    const struct dev_delta *a;
    uint32_t per_head; /* strips of a head */
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

/* The values of a strip belong to one head, whose matrix in the page is [keys][values]. */
static struct scan_strip strip_at(const void *arg, uint32_t i)
{
    const struct delta *o = arg;
    const struct dev_delta *a = o->a;
    uint32_t c0 = i % o->per_head * SCAN_LANES;
    return (struct scan_strip){i, (size_t)(i / o->per_head) * a->keys * a->values + c0,
                               MIN(SCAN_LANES, a->values - c0)};
}

static void pass(const void *arg, const struct scan_strip *s, uint32_t t, uint32_t n, float *h)
{
    const struct delta *o = arg;
    const struct dev_delta *a = o->a;
    uint32_t head = s->i / o->per_head, c0 = s->i % o->per_head * SCAN_LANES;
    size_t row = t, key = (size_t)(head / (a->heads / a->key_heads)) * a->keys;
    size_t value = (size_t)head * a->values + c0, ldo = (size_t)a->heads * a->values;
    o->fn(&(struct cpu_delta){.h = h,
                              .q = a->q + row * a->ldq + key,
                              .k = a->k + row * a->ldq + key,
                              .ldq = a->ldq,
                              .v = a->v + row * a->ldv + value,
                              .ldv = a->ldv,
                              .dt = a->dt + row * a->heads + head,
                              .beta = a->beta + row * a->heads + head,
                              .lddt = a->heads,
                              .a = a->a[head],
                              .scale = a->scale,
                              .out = a->out + row * ldo + value,
                              .ldo = ldo,
                              .lanes = s->lanes,
                              .keys = a->keys,
                              .tokens = n});
}

void cpu_delta(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
               const struct dev_delta *a)
{
    struct delta o = {.a = a, .fn = (cpu_delta_fn)cpu_kernel_get(d, CPU_DELTA, CPU_ANY)};
    assert(a->keys <= DEV_DELTA_KEYS && a->heads % a->key_heads == 0);
    o.per_head = (a->values + SCAN_LANES - 1) / SCAN_LANES;
    scan_run(d, &(struct scan_work){.v = v,
                                    .plane = plane,
                                    .strips = o.per_head * a->heads,
                                    .rows = a->keys,
                                    .width = a->values,
                                    .cost = (size_t)SCAN_LANES * a->keys * 4,
                                    .arg = &o,
                                    .place = strip_at,
                                    .pass = pass});
}
