/* conv.c - the causal convolution in front of a selective scan: how the work is split over sequences and channels, the state, and the
 * readable kernel.
 *
 * A channel's output needs its last `taps` inputs.  The page of the state has the inputs of earlier steps.  So the taps of a token are rows of
 * the step or rows of the page, and the kernel only gets pointers to them.  A result therefore depends on the inputs alone, and not on where a
 * step began. */
#include "dev/cpu/mathfn.h"
#include "dev/cpu/ssm.h"

#include <assert.h>
#include <string.h>

struct convolution {
    const struct dev_conv *a;
    const struct kv_view *v;
    uint32_t plane, strips, per_task, per_lane; /* per_lane: tasks of a lane */
    cpu_conv_fn fn;
};

static void conv_ref(const float *const *row, uint32_t taps, const float *w, size_t ldw,
                     const float *bias, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        float y = bias[i];
        for (uint32_t k = 0; k < taps; k++)
            y = __builtin_fmaf(w[k * ldw + i], row[k][i], y);
        out[i] = math_silu(y);
    }
}
CPU_KERNEL(DEV_REF, CPU_CONV, CPU_ANY, conv_ref);

/* Writes the inputs that the page after a token holds.  Zeros stand for inputs before the first token. */
static void save(const struct dev_conv *a, const float *const *row, uint32_t missing, uint32_t c0,
                 uint32_t n, float *page)
{
    for (uint32_t k = 0; k < a->taps; k++)
        if (k < missing)
            memset(page + (size_t)k * a->channels + c0, 0, n * sizeof *page);
        else
            memcpy(page + (size_t)k * a->channels + c0, row[k], n * sizeof *page);
}

static void conv_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct convolution *o = ctx;
    const struct dev_conv *a = o->a;
    uint32_t part = task % o->per_lane * o->per_task * SCAN_LANES;
    uint32_t n = MIN(o->per_task * SCAN_LANES, a->channels - part);
    struct scan_span s = scan_span(o->v, o->plane, task / o->per_lane);
    const float *row[DEV_CONV_TAPS];
    (void)thread;
    for (uint32_t t = s.t0; t < s.t1; t++) {
        uint32_t pos = s.pos + (t - s.t0), missing = a->taps - MIN(pos + 1, a->taps);
        for (uint32_t k = missing; k < a->taps; k++) {
            uint32_t back = a->taps - 1 - k; /* the input `back` tokens before this one */
            row[k] = back <= t - s.t0
                         ? a->x + (size_t)(t - back) * a->channels + part
                         : s.from + (size_t)(a->taps - (back - (t - s.t0))) * a->channels + part;
        }
        o->fn(row + missing, a->taps - missing, a->w + (size_t)missing * a->channels + part,
              a->channels, a->bias + part, n, a->out + (size_t)t * a->channels + part);
        float *page = scan_dst(o->v, o->plane, t);
        if (page) save(a, row, missing, part, n, page);
    }
}

void cpu_conv(struct dev_queue *d, const struct kv_view *v, uint32_t plane,
              const struct dev_conv *a)
{
    struct convolution o = {.a = a, .v = v, .plane = plane};
    assert(a->taps <= DEV_CONV_TAPS);
    o.strips = (a->channels + SCAN_LANES - 1) / SCAN_LANES;
    o.per_task = scan_per_task(v, o.strips, (size_t)SCAN_LANES * (a->taps + 16));
    o.per_lane = (o.strips + o.per_task - 1) / o.per_task;
    o.fn = (cpu_conv_fn)cpu_kernel_get(d, CPU_CONV, CPU_ANY);
    pool_run(d->pool, v->counts[0] * o.per_lane, conv_task, &o);
}
