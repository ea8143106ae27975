/* ssm.c - the selective scan: what a strip of channels reads of each token, and the readable kernel.
 *
 * A channel is a small linear system: n numbers decay, take up an input, and are read as a weighted sum.  Decay, input and weights depend on the
 * token, which is what "selective" means.  Channels do not depend on each other, so each column of the state is a channel (scan_work.c).
 * (The scan by chunks of the papers adds in another order, which depends on where chunks begin.) */
#include "dev/cpu/ssm.h"
#include "dev/cpu/mathfn.h"

#include <assert.h>

struct scan_args {
    const struct dev_scan *a;
    uint32_t per_group; /* strips of a group */
    cpu_scan_fn fn;
};

static void scan_ref(const struct cpu_scan *j)
{
    for (uint32_t t = 0; t < j->tokens; t++) {
        const float *b = j->b + t * j->ldb, *c = j->c + t * j->ldb;
        for (uint32_t i = 0; i < j->lanes; i++) {
            float x = j->x[t * j->ldx + i], dt = j->dt[t * j->lddt + (j->head0 + i) / j->per];
            float u = dt * x, p[4] = {0}, a = math_exp(dt * j->a[i]);
            for (uint32_t n = 0; n < j->states; n++) {
                float *h = &j->h[n * SCAN_LANES + i];
                if (j->lda && n) a = math_exp(dt * j->a[n * j->lda + i]);
                *h = __builtin_fmaf(*h, a, u * b[n]);
                p[n % 4] = __builtin_fmaf(*h, c[n], p[n % 4]);
            }
            j->out[t * j->ldo + i] = __builtin_fmaf(j->d[i], x, (p[0] + p[2]) + (p[1] + p[3]));
        }
    }
}
CPU_KERNEL(DEV_REF, CPU_SCAN, CPU_ANY, scan_ref);

/* The channels of a strip belong to one group. */
static struct scan_strip strip_at(const void *arg, uint32_t i)
{
    const struct scan_args *o = arg;
    uint32_t of_group = o->a->channels / o->a->groups, in = i % o->per_group * SCAN_LANES;
    return (struct scan_strip){i, i / o->per_group * of_group + in, MIN(SCAN_LANES, of_group - in)};
}

static void pass(const void *arg, const struct scan_strip *s, uint32_t t, uint32_t n, float *h)
{
    const struct scan_args *o = arg;
    const struct dev_scan *a = o->a;
    uint32_t c0 = (uint32_t)s->at, per = a->channels / a->heads;
    size_t row = t, group = (size_t)(s->i / o->per_group) * a->n;
    o->fn(&(struct cpu_scan){.h = h,
                             .x = a->x + row * a->ldx + c0,
                             .ldx = a->ldx,
                             .dt = a->dt + row * a->heads + c0 / per,
                             .lddt = a->heads,
                             .head0 = c0 % per,
                             .per = per,
                             .b = a->b + row * a->ldb + group,
                             .c = a->c + row * a->ldb + group,
                             .ldb = a->ldb,
                             .a = a->a + c0,
                             .lda = a->one_decay ? 0 : a->channels,
                             .d = a->d + c0,
                             .out = a->out + row * a->channels + c0,
                             .ldo = a->channels,
                             .lanes = s->lanes,
                             .states = a->n,
                             .tokens = n});
}

void cpu_scan(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
              const struct dev_scan *a)
{
    struct scan_args o = {.a = a, .fn = (cpu_scan_fn)cpu_kernel_get(d, CPU_SCAN, CPU_ANY)};
    assert(a->n <= DEV_SCAN_STATES && a->channels % a->groups == 0);
    o.per_group = (a->channels / a->groups + SCAN_LANES - 1) / SCAN_LANES;
    scan_run(d, &(struct scan_work){.v = v,
                                    .plane = plane,
                                    .strips = o.per_group * a->groups,
                                    .rows = a->n,
                                    .width = a->channels,
                                    .cost = (size_t)SCAN_LANES * a->n * (a->one_decay ? 2 : 12),
                                    .arg = &o,
                                    .place = strip_at,
                                    .pass = pass});
}
