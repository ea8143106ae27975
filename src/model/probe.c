/* probe.c - what a feed shows besides logits: the residual stream as it enters each layer, what the head sees, and the
 * probabilities of attention.
 *
 * The graph records a mark at the top of every layer; without a probe it is one test.  Rows are copied to where the
 * feed's arrays have them, so that steps, batch mates and chunks leave no trace. */
#include "model/graph.h"

#include <string.h>

struct mark {
    uint32_t layer;
};

static int mark_run(struct pass *p, const void *arg)
{
    const struct mark *a = arg;
    size_t d = p->x->m->hidden, t = 0;
    for (uint32_t i = 0; p->probed && i < p->n_fed; t += p->fed[i].n, i++) {
        const struct exec_span *s = &p->fed[i];
        if (s->probe && s->probe->hidden)
            memcpy(s->probe->hidden + ((size_t)a->layer * s->probe_n + s->probe_at) * d,
                   p->h + t * d, s->n * d * sizeof(float));
    }
    return 0;
}

void mod_mark(struct graph *g, uint32_t layer)
{
    struct mark *a = graph_own(g, 1, sizeof *a);
    if (!a) return;
    a->layer = layer;
    graph_op(g, mark_run, a);
}

void probe_last(struct pass *p)
{
    const struct model *m = p->x->m;
    size_t d = m->hidden, t = 0;
    for (uint32_t i = 0; i < p->n_fed; t += p->fed[i].n, i++) {
        const struct exec_span *s = &p->fed[i];
        const struct exec_probe *to = s->probe;
        float *hidden = to && to->hidden ? to->hidden + m->n_layers * s->probe_n * d : NULL;
        const float *from = p->h + t * d;
        if (to && to->last)
            norm_rows(p->dev, &m->final_norm, from, s->n, m->hidden, to->last + s->probe_at * d);
        if (hidden)
            norm_rows(p->dev, &m->final_norm, from, s->n, m->hidden, hidden + s->probe_at * d);
    }
}

void probe_attention(struct pass *p, uint32_t layer, const struct kv_view *v,
                     const struct dev_attn *a)
{
    bool any = false;
    for (uint32_t i = 0; i < p->n_fed; i++) {
        const struct exec_span *s = &p->fed[i];
        struct dev_probe *to = &p->shown[i];
        *to = (struct dev_probe){0};
        if (!s->probe || !s->probe->attention) continue;
        to->columns = s->probe->columns;
        to->ldh = (size_t)s->probe_n * to->columns;
        to->out = s->probe->attention + layer * a->n_heads * to->ldh;
        to->out += (size_t)s->probe_at * to->columns;
        any = true;
    }
    if (any) dev_attention_probe(p->dev, v, a, p->shown);
}
