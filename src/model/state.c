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
