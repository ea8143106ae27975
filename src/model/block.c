/* block.c - see block.h. */
#include "model/block.h"

#include <math.h>
#include <stdio.h>

int block_attn_bind(struct model *m, uint32_t layer, const struct kv_site *site,
                    struct block_attn *b)
{
    const struct kv_site_plane *k = &site->plane[0], *v = &site->plane[1];
    uint32_t h = m->hidden, q = m->n_heads * k->dim, out = m->n_heads * v->dim;
    const struct model_proj p[] = {
        {"model.layers.%u.self_attn.q_proj", "blk.%u.attn_q", q, h, &b->q, &b->bq},
        {"model.layers.%u.self_attn.k_proj", "blk.%u.attn_k", k->heads * k->dim, h, &b->k, &b->bk},
        {"model.layers.%u.self_attn.v_proj", "blk.%u.attn_v", v->heads * v->dim, h, &b->v, &b->bv},
        {"model.layers.%u.self_attn.o_proj", "blk.%u.attn_output", h, out, &b->o, &b->bo},
        {NULL, NULL, 0, 0, NULL, NULL},
    };
    TRY(model_bind_projs(m, layer, p));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.self_attn.q_norm", "blk.%u.attn_q_norm", layer,
                   k->dim, true, &b->q_norm));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.self_attn.k_norm", "blk.%u.attn_k_norm", layer,
                   k->dim, true, &b->k_norm));
    return model_norm(m, NORM_RMS, "model.layers.%u.input_layernorm", "blk.%u.attn_norm", layer, h,
                      false, &b->norm);
}

int block_mlp_bind_at(struct model *m, uint32_t layer, const char *hf, const char *suffix,
                      uint32_t ffn, struct block_mlp *b)
{
    static const char *const part[] = {"gate", "up", "down"};
    uint32_t h = m->hidden;
    char name[3][2][96];
    for (int i = 0; i < 3; i++) {
        snprintf(name[i][0], sizeof name[i][0], "%s.%s_proj", hf, part[i]);
        snprintf(name[i][1], sizeof name[i][1], "blk.%%u.ffn_%s%s", part[i], suffix);
    }
    const struct model_proj p[] = {
        {name[0][0], name[0][1], ffn, h, &b->gate, &b->bgate},
        {name[1][0], name[1][1], ffn, h, &b->up, &b->bup},
        {name[2][0], name[2][1], h, ffn, &b->down, &b->bdown},
        {NULL, NULL, 0, 0, NULL, NULL},
    };
    return model_bind_projs(m, layer, p);
}

int block_mlp_bind_projs(struct model *m, uint32_t layer, uint32_t ffn, struct block_mlp *b)
{
    return block_mlp_bind_at(m, layer, "model.layers.%u.mlp", "", ffn, b);
}

int block_mlp_bind(struct model *m, uint32_t layer, uint32_t ffn, struct block_mlp *b)
{
    TRY(block_mlp_bind_projs(m, layer, ffn, b));
    return model_norm(m, NORM_RMS, "model.layers.%u.post_attention_layernorm", "blk.%u.ffn_norm",
                      layer, m->hidden, false, &b->norm);
}

struct block_buffers block_buffers_new(struct graph *g, const struct model *m, uint32_t ffn)
{
    size_t q = 0, k = 0, v = 0, out = 0;
    for (uint32_t i = 0; i < m->n_sites; i++) {
        const struct kv_site_plane *p = m->site[i].plane;
        if (m->site[i].kind == KV_STATE) continue;
        q = MAX(q, (size_t)m->n_heads * p[0].dim);
        k = MAX(k, (size_t)p[0].heads * p[0].dim);
        v = MAX(v, (size_t)p[1].heads * p[1].dim);
        out = MAX(out, (size_t)m->n_heads * p[1].dim);
    }
    return (struct block_buffers){
        .norm = graph_buffer(g, m->hidden),
        .q = graph_buffer(g, q),
        .k = graph_buffer(g, k),
        .v = graph_buffer(g, v),
        .att = graph_buffer(g, out),
        .gate = graph_buffer(g, ffn),
        .up = graph_buffer(g, ffn),
    };
}

/* Norms the heads of a token, each or all together. */
static void norm_heads(struct graph *g, const struct mod_norm *n, bool whole, uint32_t heads,
                       uint32_t dim, float *x)
{
    if (n->kind) mod_norm(g, n, x, whole ? 1 : heads, whole ? heads * dim : dim, x);
}

void block_attend(struct graph *g, uint32_t layer, uint32_t site, const struct block_attn *a,
                  const struct block_form *f, const struct block_buffers *b, const float *x)
{
    const struct kv_site_plane *k = &graph_site(g, site)->plane[0];
    uint32_t heads = a->q.rows / k->dim;
    const float *q_sink = NULL;
    mod_linear(g, x,
               (struct mod_out[]){{&a->q, a->bq, b->q}, {&a->k, a->bk, b->k}, {&a->v, a->bv, b->v}},
               3);
    norm_heads(g, &a->q_norm, a->norm_whole, heads, k->dim, b->q);
    norm_heads(g, &a->k_norm, a->norm_whole, k->heads, k->dim, b->k);
    if (f->rope >= 0) {
        q_sink = mod_rope_query(g, site, (uint32_t)f->rope, b->q, heads, k->dim);
        mod_rope(g, (uint32_t)f->rope, b->k, k->heads, k->dim);
    }
    mod_attention(g, &(struct mod_attention){.layer = layer,
                                             .site = site,
                                             .heads = heads,
                                             .q = b->q,
                                             .k = b->k,
                                             .v = b->v,
                                             .q_sink = q_sink,
                                             .out = b->att,
                                             .scale = f->scale,
                                             .softcap = f->softcap,
                                             .sink_logit = f->sink_logit});
}

/* Returns norm(h), which is in out, or h where there is no norm. */
static const float *normed(struct graph *g, const struct mod_norm *norm, uint32_t hidden,
                           float *out)
{
    if (!norm->kind) return graph_h(g);
    mod_norm(g, norm, graph_h(g), 1, hidden, out);
    return out;
}

/* h += residual * post_norm(x); x is overwritten. */
static void add_result(struct graph *g, const struct mod_norm *post_norm, float residual, float *x,
                       uint32_t hidden)
{
    if (post_norm->kind) mod_norm(g, post_norm, x, 1, hidden, x);
    if (residual != 0) mod_scale(g, x, residual, hidden);
    mod_add(g, graph_h(g), x, hidden);
}

void block_attn_graph(struct graph *g, uint32_t layer, uint32_t site, const struct block_attn *a,
                      const struct block_form *f, const struct block_buffers *b)
{
    uint32_t hidden = a->o.rows;
    block_attend(g, layer, site, a, f, b, normed(g, &a->norm, hidden, b->norm));
    mod_narrow(g, layer, b->att, a->o.cols);
    mod_linear(g, b->att, (struct mod_out[]){{&a->o, a->bo, b->norm}}, 1);
    add_result(g, &a->post_norm, a->residual, b->norm, hidden);
}

void block_mlp_graph(struct graph *g, const struct block_mlp *a, const struct block_buffers *b)
{
    uint32_t hidden = a->down.rows;
    mod_linear(g, normed(g, &a->norm, hidden, b->norm),
               (struct mod_out[]){{&a->gate, a->bgate, b->gate}, {&a->up, a->bup, b->up}}, 2);
    if (a->gelu)
        mod_gelu_mul(g, b->gate, b->up, a->gate.rows);
    else
        mod_silu_mul(g, b->gate, b->up, a->gate.rows);
    mod_linear(g, b->gate, (struct mod_out[]){{&a->down, a->bdown, b->norm}}, 1);
    add_result(g, &a->post_norm, a->residual, b->norm, hidden);
}

int block_stack_bind(struct model *m)
{
    TRY(rope_prepare(&m->rope[0]));
    TRY(model_bind_ends(m));
    struct block_layer *l = model_own(m, m->n_layers, sizeof *l);
    if (!l) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        TRY(block_attn_bind(m, i, &m->site[i], &l[i].attn));
        TRY(block_mlp_bind(m, i, m->ffn, &l[i].mlp));
    }
    return 0;
}

int block_stack_biases(const struct model *m, struct block_layer *l, bool qkv, bool o)
{
    for (uint32_t i = 0; i < m->n_layers && !model_is_gguf(m); i++) {
        struct block_attn *a = &l[i].attn;
        if ((qkv && (!a->bq || !a->bk || !a->bv)) || (o && !a->bo))
            return ERR(
                FORMAT,
                "%s: layer %u has no bias for one of its projections, but attention_bias is true",
                m->what, i);
        if (!qkv) a->bq = a->bk = a->bv = NULL;
        if (!o) a->bo = NULL;
    }
    return 0;
}

int block_stack_graph(const struct model *m, struct graph *g)
{
    const struct block_layer *l = m->arch_weights;
    struct block_buffers b = block_buffers_new(g, m, m->ffn);
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        mod_mark(g, i);
        struct block_form form = {.scale = l[i].score_scale};
        if (form.scale == 0) form.scale = 1.0f / sqrtf((float)m->site[i].plane[0].dim);
        block_attn_graph(g, i, i, &l[i].attn, &form, &b);
        block_mlp_graph(g, &l[i].mlp, &b);
    }
    return 0;
}

int block_upper_window(struct model *m)
{
    bool use = false;
    uint32_t window = 4096, from = 28;
    if (model_is_gguf(m)) return 0;
    TRY(json_get_bool(m->config, m->config_file, "use_sliding_window", &use));
    TRY(model_u32(m, "max_window_layers", NULL, 0, 1u << 30, &from));
    TRY(model_read_window(m, &window));
    return model_slide(m, use ? window : 0, from, 0);
}
