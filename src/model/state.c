/* state.c - see state.h.  A group of states has one piece, whose pages hold every plane of the site.  So each word
 * takes the view of its site itself. */
#include "model/state.h"

#include <string.h>

/* Returns a copy of an argument that lives as long as the graph. */
static void *own_argument(struct graph *g, const void *arg, size_t size)
{
    void *a = graph_own(g, 1, size);
    if (a) memcpy(a, arg, size);
    return a;
}

static int conv_run(struct pass *p, const void *arg)
{
    const struct mod_conv *a = arg;
    struct kv_view view;
    int e;
    while ((e = kv_next(p->step, a->site, &view)) > 0)
        dev_conv(p->queue, &view, a->plane, &a->conv);
    return e;
}

void mod_conv(struct graph *g, const struct mod_conv *a)
{
    struct mod_conv *w = own_argument(g, a, sizeof *a);
    size_t row = a->conv.channels * sizeof(float);
    if (!w) return;
    w->conv.w = graph_weights(g, a->conv.w, a->conv.taps * row);
    w->conv.bias = graph_weights(g, a->conv.bias, row);
    w->site = graph_number(g, a->site);
    graph_op(g, conv_run, w);
}

static int scan_run(struct pass *p, const void *arg)
{
    const struct mod_scan *a = arg;
    struct kv_view view;
    int e;
    while ((e = kv_next(p->step, a->site, &view)) > 0)
        dev_scan(p->queue, &view, a->plane, &a->scan);
    return e;
}

void mod_scan(struct graph *g, const struct mod_scan *a)
{
    struct mod_scan *w = own_argument(g, a, sizeof *a);
    size_t row = a->scan.channels * sizeof(float);
    if (!w) return;
    w->scan.a = graph_weights(g, a->scan.a, a->scan.one_decay ? row : a->scan.n * row);
    w->scan.d = graph_weights(g, a->scan.d, row);
    w->site = graph_number(g, a->site);
    graph_op(g, scan_run, w);
}

static int delta_run(struct pass *p, const void *arg)
{
    const struct mod_delta *a = arg;
    struct kv_view view;
    int e;
    while ((e = kv_next(p->step, a->site, &view)) > 0)
        dev_delta(p->queue, &view, a->plane, &a->delta);
    return e;
}

void mod_delta(struct graph *g, const struct mod_delta *a)
{
    struct mod_delta *w = own_argument(g, a, sizeof *a);
    if (!w) return;
    w->delta.a = graph_weights(g, a->delta.a, a->delta.heads * sizeof(float));
    w->site = graph_number(g, a->site);
    graph_op(g, delta_run, w);
}

static int cut_run(struct pass *p, const void *arg)
{
    dev_cut(p->queue, arg, p->n);
    return 0;
}

static void add_cut(struct graph *g, const struct dev_cut *a)
{
    struct dev_cut *w = own_argument(g, a, sizeof *a);
    if (w) graph_op(g, cut_run, w);
}

void mod_cut(struct graph *g, const struct mod_cut *a)
{
    add_cut(g,
            &(struct dev_cut){a->x + a->at, a->ldx, a->parts, a->stride, a->width, a->out, a->ldo});
}

struct softplus_args {
    float *x;
    const float *y;
    float lo, hi;
    uint32_t width;
};

static int softplus_run(struct pass *p, const void *arg)
{
    const struct softplus_args *a = arg;
    dev_softplus(p->queue, a->x, a->y, a->lo, a->hi, p->n, a->width);
    return 0;
}

void mod_softplus(struct graph *g, float *x, const float *bias, float lo, float hi, uint32_t width)
{
    const float *y = graph_weights(g, bias, width * sizeof *y);
    struct softplus_args *w =
        own_argument(g, &(struct softplus_args){x, y, lo, hi, width}, sizeof *w);
    if (w) graph_op(g, softplus_run, w);
}

static int mul_row_run(struct pass *p, const void *arg)
{
    const struct softplus_args *a = arg;
    dev_mul_row(p->queue, a->x, a->y, p->n, a->width);
    return 0;
}

void mod_mul_row(struct graph *g, float *x, const float *by, uint32_t width)
{
    const float *y = graph_weights(g, by, width * sizeof *y);
    struct softplus_args *w =
        own_argument(g, &(struct softplus_args){.x = x, .y = y, .width = width}, sizeof *w);
    if (w) graph_op(g, mul_row_run, w);
}

static int sigmoid_run(struct pass *p, const void *arg)
{
    const struct softplus_args *a = arg;
    dev_sigmoid(p->queue, a->x, p->n, a->width);
    return 0;
}

void mod_sigmoid(struct graph *g, float *x, uint32_t width)
{
    struct softplus_args *w =
        own_argument(g, &(struct softplus_args){.x = x, .width = width}, sizeof *w);
    if (w) graph_op(g, sigmoid_run, w);
}

static int scale_rows_run(struct pass *p, const void *arg)
{
    const struct softplus_args *a = arg;
    dev_scale_rows(p->queue, a->x, a->y, p->n, a->width);
    return 0;
}

void mod_scale_rows(struct graph *g, float *x, const float *by, uint32_t width)
{
    struct softplus_args *w =
        own_argument(g, &(struct softplus_args){.x = x, .y = by, .width = width}, sizeof *w);
    if (w) graph_op(g, scale_rows_run, w);
}

static int gelu_erf_mul_run(struct pass *p, const void *arg)
{
    const struct softplus_args *a = arg;
    dev_gelu_erf_mul(p->queue, a->x, a->y, p->n, a->width);
    return 0;
}

void mod_gelu_erf_mul(struct graph *g, float *gate, const float *up, uint32_t width)
{
    struct softplus_args *w =
        own_argument(g, &(struct softplus_args){.x = gate, .y = up, .width = width}, sizeof *w);
    if (w) graph_op(g, gelu_erf_mul_run, w);
}

void mod_join(struct graph *g, const float *x, const float *y, uint32_t width, float *out)
{
    add_cut(g, &(struct dev_cut){x, width, 1, width, width, out, 2 * (size_t)width});
    add_cut(g, &(struct dev_cut){y, width, 1, width, width, out + width, 2 * (size_t)width});
}

void mod_copy(struct graph *g, const float *x, uint32_t width, float *out)
{
    add_cut(g, &(struct dev_cut){x, width, 1, width, width, out, width});
}
