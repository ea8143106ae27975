/* probe.c - shows a caller the inside of a feed, or of an encoder, besides logits: the residual stream at the top of each layer, the
 * input of the head, and attention probabilities.  The graph records a mark at the top of every layer, which costs
 * one test if no feed has a probe.  Each row is copied to its place in the feed's arrays, so the result does not
 * depend on steps, batch or chunks. */
#include "model/graph.h"

struct shown_rows {
    uint32_t layer;
    const float *x; /* [n][hidden] what is shown */
};

/* Returns what the caller of a span wants besides logits, or NULL; *n: the rows of its arrays. */
static const struct exec_probe *wanted(const struct exec_span *s, size_t *n)
{
    *n = s->feed ? s->feed->n : s->rows.n; /* an encoder's input is one step */
    return s->feed ? s->feed->probe : s->source ? s->source->probe : NULL;
}

static int mark_run(struct pass *p, const void *arg)
{
    const struct shown_rows *a = arg;
    size_t d = p->x->m->hidden, t = 0, n;
    for (uint32_t i = 0; p->probed && i < p->n_fed; t += p->fed[i].rows.n, i++) {
        const struct exec_span *s = &p->fed[i];
        const struct exec_probe *to = wanted(s, &n);
        if (to && to->hidden)
            dev_get(p->queue, to->hidden + (a->layer * n + s->at) * d, a->x + t * d,
                    s->rows.n * d * sizeof(float));
    }
    return 0;
}

void mod_mark_end(struct graph *g, uint32_t n_layers, const float *x)
{
    struct shown_rows *a = graph_own(g, 1, sizeof *a);
    if (!a) return;
    *a = (struct shown_rows){n_layers, x};
    graph_op(g, mark_run, a);
}

void mod_mark(struct graph *g, uint32_t layer)
{
    mod_mark_end(g, layer, graph_h(g));
}

void probe_last(struct pass *p)
{
    const struct model *m = p->x->m;
    size_t d = m->hidden, t = 0;
    for (uint32_t i = 0; i < p->n_fed; t += p->fed[i].rows.n, i++) {
        const struct exec_span *s = &p->fed[i];
        const struct exec_probe *to = s->feed ? s->feed->probe : NULL;
        size_t bytes = s->rows.n * d * sizeof(float);
        if (!to || !(to->last || to->hidden)) continue;
        float *hidden = to->hidden ? to->hidden + m->n_layers * s->feed->n * d : NULL;
        norm_rows(p->queue, &p->x->ends.norm, p->h + t * d, s->rows.n, m->hidden, p->rows);
        if (to->last) dev_get(p->queue, to->last + s->at * d, p->rows, bytes);
        if (hidden) dev_get(p->queue, hidden + s->at * d, p->rows, bytes);
    }
}

void probe_attention(struct pass *p, uint32_t layer, bool cross, const struct kv_view *v,
                     const struct dev_attn *a)
{
    bool any = false;
    size_t n;
    for (uint32_t i = 0; i < p->n_fed; i++) {
        const struct exec_span *s = &p->fed[i];
        struct dev_probe *to = &p->shown[i];
        *to = (struct dev_probe){0};
        const struct exec_probe *of = wanted(s, &n);
        float *out = !of ? NULL : cross ? of->cross : of->attention;
        if (!out) continue;
        to->columns = cross ? of->heard : of->columns;
        to->ldh = n * to->columns;
        to->out = out + layer * a->n_heads * to->ldh + (size_t)s->at * to->columns;
        any = true;
    }
    if (any) dev_attention_probe(p->queue, v, a, p->shown);
}
