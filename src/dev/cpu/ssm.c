/* ssm.c - the selective scan: the splitting over sequences and channels, the state, and the readable kernel.
 *
 * A channel is a small linear system: n numbers that decay, take up an input, and are read as a weighted sum.  Decay, input
 * and weights depend on the token, which is what "selective" means.  Channels do not meet, so a strip of 16 channels is a
 * vector, and a task is some strips of one sequence.  The tokens of a sequence follow one another, in a step of one token
 * and in a prefill alike.  (The scan by chunks of the papers adds in another order, which depends on where chunks begin.)
 *
 * A strip's state is copied from its page, lives in the L1 cache while its tokens pass, and is copied to the page of every
 * token that has one: the page of the step's last token, those of drafts, and snapshots. */
#include "dev/cpu/ssm.h"
#include "dev/cpu/mathfn.h"

#include <assert.h>
#include <string.h>

struct scan {
    const struct dev_scan *a;
    const struct kv_view *v;
    uint32_t plane, per_group, strips, per_task, per_lane; /* per_lane: tasks of a lane */
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

/* Copies a strip of `lanes` channels from channel c0 on between a page and h. */
static void state_load(const struct dev_scan *a, const float *page, uint32_t c0, uint32_t lanes,
                       float *h)
{
    if (!page || lanes < SCAN_LANES) memset(h, 0, (size_t)a->n * SCAN_LANES * sizeof *h);
    for (uint32_t n = 0; page && n < a->n; n++)
        memcpy(h + n * SCAN_LANES, page + (size_t)n * a->channels + c0, lanes * sizeof *h);
}

static void state_save(const struct dev_scan *a, const float *h, uint32_t c0, uint32_t lanes,
                       float *page)
{
    for (uint32_t n = 0; n < a->n; n++)
        memcpy(page + (size_t)n * a->channels + c0, h + n * SCAN_LANES, lanes * sizeof *h);
}

/* Scans strip i, whose channels lie in one group, over the tokens of a span. */
static void strip(const struct scan *o, const struct scan_span *s, uint32_t i, float *h)
{
    const struct dev_scan *a = o->a;
    uint32_t of_group = a->channels / a->groups, group = i / o->per_group;
    uint32_t in = i % o->per_group * SCAN_LANES, c0 = group * of_group + in;
    uint32_t per = a->channels / a->heads;
    struct cpu_scan j = {.h = h,
                         .ldx = a->ldx,
                         .lddt = a->heads,
                         .head0 = c0 % per,
                         .per = per,
                         .ldb = a->ldb,
                         .a = a->a + c0,
                         .lda = a->one_decay ? 0 : a->channels,
                         .d = a->d + c0,
                         .ldo = a->channels,
                         .lanes = MIN(SCAN_LANES, of_group - in),
                         .states = a->n};
    state_load(a, s->from, c0, j.lanes, h);
    for (uint32_t t = s->t0; t < s->t1; t += j.tokens) {
        uint32_t end = t;
        while (end + 1 < s->t1 && !o->v->dst[end])
            end++;
        j.tokens = end + 1 - t;
        j.x = a->x + t * a->ldx + c0;
        j.dt = a->dt + (size_t)t * a->heads + c0 / per;
        j.b = a->b + t * a->ldb + (size_t)group * a->n;
        j.c = a->c + t * a->ldb + (size_t)group * a->n;
        j.out = a->out + (size_t)t * a->channels + c0;
        o->fn(&j);
        float *page = scan_dst(o->v, o->plane, end);
        if (page) state_save(a, h, c0, j.lanes, page);
    }
}

static void scan_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct scan *o = ctx;
    uint32_t first = task % o->per_lane * o->per_task, end = MIN(first + o->per_task, o->strips);
    struct scan_span s = scan_span(o->v, o->plane, task / o->per_lane);
    _Alignas(64) float h[DEV_SCAN_STATES * SCAN_LANES];
    (void)thread;
    for (uint32_t i = first; i < end; i++)
        strip(o, &s, i, h);
}

void dev_scan(struct dev *d, const struct kv_view *v, uint32_t plane, const struct dev_scan *a)
{
    struct scan o = {.a = a, .v = v, .plane = plane};
    assert(a->n <= DEV_SCAN_STATES && a->channels % a->groups == 0);
    o.per_group = (a->channels / a->groups + SCAN_LANES - 1) / SCAN_LANES;
    o.strips = o.per_group * a->groups;
    o.per_task = scan_per_task(v, o.strips, (size_t)SCAN_LANES * a->n * (a->one_decay ? 2 : 12));
    o.per_lane = (o.strips + o.per_task - 1) / o.per_task;
    o.fn = (cpu_scan_fn)cpu_kernel_get(d, CPU_SCAN, CPU_ANY);
    pool_run(d->pool, v->counts[0] * o.per_lane, scan_task, &o);
}
