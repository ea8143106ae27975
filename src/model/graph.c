/* graph.c - the words an architecture's forward is written in.  Each is one device operation over the
 * tokens of the step; none knows how many sequences there are.  Attention reaches rows only through the
 * view the store hands out, site by site. */
#include "model/model.h"

void mod_embed(struct pass *p, const struct dev_weight *w)
{
    dev_embed(p->dev, w, p->tok, p->n, p->h);
}

void mod_norm(struct pass *p, const float *x, const float *w, float *out)
{
    const struct model *m = p->x->m;
    dev_rmsnorm(p->dev, x, w, m->norm_eps, p->n, m->hidden, out);
}

void mod_linear(struct pass *p, const float *x, const struct mod_out *out, uint32_t n_out)
{
    struct dev_mm mm[4];
    for (uint32_t i = 0; i < n_out; i++)
        mm[i] = (struct dev_mm){out[i].w, out[i].bias, out[i].y, out[i].w->rows};
    dev_matmul(p->dev, p->x->compute, x, out[0].w->cols, p->n, mm, n_out);
}

void mod_rope(struct pass *p, float *x, uint32_t heads)
{
    const struct model *m = p->x->m;
    dev_rope(p->dev, x, (size_t)heads * m->head_dim, p->n, heads, m->head_dim, m->rope.rot,
             m->rope.interleaved, p->cos, p->sin);
}

int mod_attention(struct pass *p, uint32_t layer, float scale)
{
    const struct model *m = p->x->m;
    size_t kv_width = (size_t)m->n_kv_heads * m->head_dim;
    struct dev_attn a = {
        .q = p->q,
        .ldq = (size_t)m->n_heads * m->head_dim,
        .out = p->att,
        .ldo = (size_t)m->n_heads * m->head_dim,
        .n_heads = m->n_heads,
        .scale = scale,
    };
    struct kv_view view;
    int e;
    while ((e = kv_next(p->step, p->x->site[layer], &view)) > 0) {
        if (view.first) {
            dev_kv_write(p->dev, &view, 0, p->k, kv_width);
            dev_kv_write(p->dev, &view, 1, p->v, kv_width);
            dev_kv_seal(p->dev, &view);
        }
        dev_attention(p->dev, &view, &a);
    }
    return e;
}

void mod_residual(struct pass *p, const float *y)
{
    dev_add(p->dev, p->h, y, p->n, p->x->m->hidden);
}

void mod_swiglu(struct pass *p)
{
    dev_silu_mul(p->dev, p->gate, p->up, p->n, p->x->m->ffn);
}
