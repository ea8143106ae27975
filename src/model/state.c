/* state.c - see state.h.  A state group has one piece, and its pages hold every plane of the site, so each word takes the
 * view of its site by itself. */
#include "model/state.h"

#include <string.h>

/* Returns a copy of an argument that lives as long as the graph. */
static void *own(struct graph *g, const void *arg, size_t size)
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
        dev_conv(p->dev, &view, a->plane, &a->conv);
    return e;
}

void mod_conv(struct graph *g, const struct mod_conv *a)
{
    struct mod_conv *w = own(g, a, sizeof *a);
    if (!w) return;
    w->site = graph_number(g, a->site);
    graph_op(g, conv_run, w);
}

static int scan_run(struct pass *p, const void *arg)
{
    const struct mod_scan *a = arg;
    struct kv_view view;
    int e;
    while ((e = kv_next(p->step, a->site, &view)) > 0)
        dev_scan(p->dev, &view, a->plane, &a->scan);
    return e;
}

void mod_scan(struct graph *g, const struct mod_scan *a)
{
    struct mod_scan *w = own(g, a, sizeof *a);
    if (!w) return;
    w->site = graph_number(g, a->site);
    graph_op(g, scan_run, w);
}

static int delta_run(struct pass *p, const void *arg)
{
    const struct mod_delta *a = arg;
    struct kv_view view;
    int e;
    while ((e = kv_next(p->step, a->site, &view)) > 0)
        dev_delta(p->dev, &view, a->plane, &a->delta);
    return e;
}

void mod_delta(struct graph *g, const struct mod_delta *a)
{
    struct mod_delta *w = own(g, a, sizeof *a);
    if (!w) return;
    w->site = graph_number(g, a->site);
    graph_op(g, delta_run, w);
}

static int cut_run(struct pass *p, const void *arg)
{
    const struct mod_cut *a = arg;
    for (size_t t = 0; t < p->n; t++)
        for (size_t i = 0; i < a->parts; i++)
            memcpy(a->out + t * a->ldo + i * a->width, a->x + t * a->ldx + i * a->stride + a->at,
                   a->width * sizeof *a->out);
    return 0;
}

void mod_cut(struct graph *g, const struct mod_cut *a)
{
    struct mod_cut *w = own(g, a, sizeof *a);
    if (w) graph_op(g, cut_run, w);
}

struct map {
    float *x;
    const float *y;
    float lo, hi;
    uint32_t width;
};

static int softplus_run(struct pass *p, const void *arg)
{
    const struct map *a = arg;
    dev_softplus(p->dev, a->x, a->y, a->lo, a->hi, p->n, a->width);
    return 0;
}

void mod_softplus(struct graph *g, float *x, const float *bias, float lo, float hi, uint32_t width)
{
    struct map *w = own(g, &(struct map){x, bias, lo, hi, width}, sizeof *w);
    if (w) graph_op(g, softplus_run, w);
}

static int mul_row_run(struct pass *p, const void *arg)
{
    const struct map *a = arg;
    dev_mul_row(p->dev, a->x, a->y, p->n, a->width);
    return 0;
}

void mod_mul_row(struct graph *g, float *x, const float *by, uint32_t width)
{
    struct map *w = own(g, &(struct map){.x = x, .y = by, .width = width}, sizeof *w);
    if (w) graph_op(g, mul_row_run, w);
}

static int sigmoid_run(struct pass *p, const void *arg)
{
    const struct map *a = arg;
    dev_sigmoid(p->dev, a->x, p->n, a->width);
    return 0;
}

void mod_sigmoid(struct graph *g, float *x, uint32_t width)
{
    struct map *w = own(g, &(struct map){.x = x, .width = width}, sizeof *w);
    if (w) graph_op(g, sigmoid_run, w);
}

static int scale_rows_run(struct pass *p, const void *arg)
{
    const struct map *a = arg;
    dev_scale_rows(p->dev, a->x, a->y, p->n, a->width);
    return 0;
}

void mod_scale_rows(struct graph *g, float *x, const float *by, uint32_t width)
{
    struct map *w = own(g, &(struct map){.x = x, .y = by, .width = width}, sizeof *w);
    if (w) graph_op(g, scale_rows_run, w);
}

static int gelu_erf_mul_run(struct pass *p, const void *arg)
{
    const struct map *a = arg;
    dev_gelu_erf_mul(p->dev, a->x, a->y, p->n, a->width);
    return 0;
}

void mod_gelu_erf_mul(struct graph *g, float *gate, const float *up, uint32_t width)
{
    struct map *w = own(g, &(struct map){.x = gate, .y = up, .width = width}, sizeof *w);
    if (w) graph_op(g, gelu_erf_mul_run, w);
}

struct join {
    const float *x, *y; /* y NULL: x alone */
    uint32_t width;
    float *out;
};

static int join_run(struct pass *p, const void *arg)
{
    const struct join *a = arg;
    size_t n = a->width, wide = a->y ? 2 * n : n;
    for (size_t t = 0; t < p->n; t++) {
        memcpy(a->out + t * wide, a->x + t * n, n * sizeof *a->out);
        if (a->y) memcpy(a->out + t * wide + n, a->y + t * n, n * sizeof *a->out);
    }
    return 0;
}

void mod_join(struct graph *g, const float *x, const float *y, uint32_t width, float *out)
{
    struct join *w = own(g, &(struct join){x, y, width, out}, sizeof *w);
    if (w) graph_op(g, join_run, w);
}

void mod_copy(struct graph *g, const float *x, uint32_t width, float *out)
{
    mod_join(g, x, NULL, width, out);
}
