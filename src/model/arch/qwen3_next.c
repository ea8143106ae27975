/* qwen3_next.c - Qwen3-Next and Qwen3.5 (Qwen team 2025, 2026): three of four layers have the mixer of a gated delta net, the
 * others attention with a gate for its result, norms of heads and rotations of a part of each head.  The second half of a
 * layer is a mixture of experts with a shared expert, or an MLP.  Norm weights are stored as w - 1, except in the mixer.
 * "qwen3_5" and "qwen3_5_moe" are models of text and images; their text part runs here. */
#include "model/block.h"
#include "model/mixer.h"
#include "model/moe.h"

#include <math.h>
#include <string.h>

struct layer {
    bool attends, sparse;
    struct mod_norm norm, ff_norm;
    struct block_attn attn; /* q: of queries and gates, [heads][2][head_dim] */
    struct delta_net net;
    struct block_mlp mlp; /* the MLP, or the shared expert of a mixture */
    struct dev_weight share;
    struct moe moe;
};
/* Defaults of absent keys. */
struct family_defaults {
    const char *name;
    uint32_t kv_heads, ffn, experts, top;
};
static const struct family_defaults families[] = {
    {"qwen3_next", 2, 5632, 512, 10},
    {"qwen3_5_moe", 2, 512, 256, 8}, /* without MLPs */
    {"qwen3_5", 4, 12288, 0, 0},
};
struct qwen3_next {
    struct delta_shape s;
    uint32_t n, top, ffn, shared_ffn; /* of experts */
    bool renormalizes;
    struct layer layer[];
};

/* Reads which layers have attention: those of layer_types, else every full_attention_interval-th.  In GGUF files the
 * tensors of a layer show it. */
static int read_types(struct model *m, struct qwen3_next *w)
{
    uint32_t every = 4;
    bool linear[MODEL_LAYERS];
    TRY(model_u32(m, "full_attention_interval", NULL, 1, 512, &every));
    int given = model_layer_types(m, "linear_attention", linear);
    TRY(given);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        bool full = given ? !linear[i] : (i + 1) % every == 0;
        if (model_is_gguf(m)) full = model_find(m, NULL, "blk.%u.attn_q.weight", i) != NULL;
        w->layer[i].attends = full;
        if (!full) delta_site(&w->s, i, &m->site[i]);
    }
    return 0;
}

/* Marks the layers with experts. */
static int read_sparse(struct model *m, struct qwen3_next *w)
{
    const json_t *dense = model_is_gguf(m) ? NULL : json_object_get(m->config, "mlp_only_layers");
    uint32_t step = 1;
    char found[JSON_FOUND];
    if (json_is_null(dense)) dense = NULL;
    if (dense && !json_is_array(dense))
        return ERR(FORMAT, "%s: mlp_only_layers must be a list, not %s", m->config_file,
                   json_found(dense, found));
    TRY(model_u32(m, "decoder_sparse_step", NULL, 1, 1u << 16, &step));
    for (uint32_t i = 0; i < m->n_layers; i++)
        w->layer[i].sparse =
            w->n && (model_is_gguf(m) ? model_find(m, NULL, "blk.%u.ffn_gate_inp.weight", i) != NULL
                                      : (i + 1) % step == 0);
    for (size_t k = 0; k < json_array_size(dense); k++) {
        const json_t *one = json_array_get(dense, k);
        json_int_t i = json_integer_value(one);
        if (!json_is_integer(one))
            return ERR(FORMAT, "%s: mlp_only_layers[%zu] must be the number of a layer, not %s",
                       m->config_file, k, json_found(one, found));
        if (i >= 0 && i < m->n_layers) w->layer[i].sparse = false;
    }
    return 0;
}

static int read_experts(struct model *m, const struct family_defaults *f, struct qwen3_next *w)
{
    w->n = f ? f->experts : 0, w->top = f ? f->top : 0, w->ffn = w->shared_ffn = 512;
    w->renormalizes = true;
    TRY(model_u32(m, "num_experts", "expert_count", 0, MOE_MAX_EXPERTS, &w->n));
    TRY(model_u32(m, "num_experts_per_tok", "expert_used_count", 1, MOE_MAX_EXPERTS, &w->top));
    TRY(model_u32(m, "moe_intermediate_size", "expert_feed_forward_length", 1, 1u << 20, &w->ffn));
    TRY(model_u32(m, "shared_expert_intermediate_size", "expert_shared_feed_forward_length", 1,
                  1u << 20, &w->shared_ffn));
    if (w->n && (w->top == 0 || w->top > w->n))
        return ERR(FORMAT, "%s: a token gets %u of %u experts", m->what, w->top, w->n);
    if (f == families)
        TRY(json_get_bool(m->config, m->config_file, "norm_topk_prob", &w->renormalizes));
    return read_sparse(m, w);
}

/* Reads the rope.  A quarter of each head rotates unless the configuration says otherwise. */
static int read_rope(struct model *m)
{
    const json_t *in = json_object_get(m->config, "rope_parameters");
    TRY(model_read_rope(m, 0, NULL));
    if (!model_is_gguf(m) && !json_object_get(m->config, "partial_rotary_factor") &&
        !json_object_get(in, "partial_rotary_factor"))
        m->rope[0].rot = m->head_dim / 4;
    return rope_prepare(&m->rope[0]);
}

static int bind_attention(struct model *m, uint32_t i, struct block_attn *a)
{
    uint32_t h = m->hidden, q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    bool biases = false;
    const struct model_proj p[] = {
        {"model.layers.%u.self_attn.q_proj", "blk.%u.attn_q", 2 * q, h, &a->q, &a->bq},
        {"model.layers.%u.self_attn.k_proj", "blk.%u.attn_k", kv, h, &a->k, &a->bk},
        {"model.layers.%u.self_attn.v_proj", "blk.%u.attn_v", kv, h, &a->v, &a->bv},
        {"model.layers.%u.self_attn.o_proj", "blk.%u.attn_output", h, q, &a->o, &a->bo},
        {NULL, NULL, 0, 0, NULL, NULL},
    };
    TRY(model_bind_projs(m, i, p));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.self_attn.q_norm", "blk.%u.attn_q_norm", i,
                   m->head_dim, false, &a->q_norm));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.self_attn.k_norm", "blk.%u.attn_k_norm", i,
                   m->head_dim, false, &a->k_norm));
    model_norm_plus_one(m, &a->q_norm, m->head_dim);
    model_norm_plus_one(m, &a->k_norm, m->head_dim);
    if (model_is_gguf(m)) return 0;
    TRY(json_get_bool(m->config, m->config_file, "attention_bias", &biases));
    if (biases && (!a->bq || !a->bk || !a->bv || !a->bo))
        return ERR(
            FORMAT,
            "%s: layer %u has no bias for one of its projections, but attention_bias is true",
            m->what, i);
    if (!biases) a->bq = a->bk = a->bv = a->bo = NULL;
    return 0;
}

/* Binds the gate of the shared expert, a matrix of one row, or a vector in some GGUF files. */
static int bind_share(struct model *m, uint32_t i, struct dev_weight *share)
{
    static const char hf[] = "model.layers.%u.mlp.shared_expert_gate.weight",
                      gguf[] = "blk.%u.ffn_gate_inp_shexp.weight";
    const struct tensor *t = model_find(m, hf, gguf, i);
    float *row;
    if (!t || t->n_dims != 1) return model_plain(m, hf, gguf, i, 1, m->hidden, share);
    TRY(model_vector(m, hf, gguf, i, m->hidden, false, &row));
    *share = (struct dev_weight){.data = row, .rows = 1, .cols = m->hidden, .dtype = DT_F32};
    return 0;
}

static int bind_mixture(struct model *m, uint32_t i, const struct qwen3_next *w, struct layer *l)
{
    static const char experts[] = "model.layers.%u.mlp.experts";
    static const struct moe_names names = {experts, "gate_proj", "up_proj", "down_proj", experts};
    TRY(moe_new(m, w->n, w->top, w->ffn, &l->moe));
    l->moe.route = w->renormalizes ? MOE_SOFTMAX_TOP : MOE_SOFTMAX_ALL;
    TRY(model_plain(m, "model.layers.%u.mlp.gate.weight", "blk.%u.ffn_gate_inp.weight", i, w->n,
                    m->hidden, &l->moe.router));
    TRY(moe_bind(m, i, &names, &l->moe));
    TRY(block_mlp_bind_at(m, i, "model.layers.%u.mlp.shared_expert", "_shexp", w->shared_ffn,
                          &l->mlp));
    return bind_share(m, i, &l->share);
}

static int qwen3_next_bind_layer(struct model *m, uint32_t i, const struct qwen3_next *w,
                                 struct layer *l)
{
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.input_layernorm", "blk.%u.attn_norm", i, m->hidden,
                   false, &l->norm));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.post_attention_layernorm",
                   "blk.%u.post_attention_norm", i, m->hidden, false, &l->ff_norm));
    model_norm_plus_one(m, &l->norm, m->hidden);
    model_norm_plus_one(m, &l->ff_norm, m->hidden);
    TRY(l->attends ? bind_attention(m, i, &l->attn)
                   : delta_bind(m, i, "model.layers.%u.linear_attn", &w->s, &l->net));
    return l->sparse ? bind_mixture(m, i, w, l) : block_mlp_bind_projs(m, i, m->ffn, &l->mlp);
}

static int qwen3_next_open(struct model *m)
{
    const struct family_defaults *f = model_is_gguf(m) ? NULL : families;
    TRY(model_enter_text(m));
    while (f && strncmp(m->arch_name, f->name, strlen(f->name)) != 0)
        f++;
    if (f) m->context = 32768, m->head_dim = 256, m->n_kv_heads = f->kv_heads, m->ffn = f->ffn;
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_decoder(m));
    struct qwen3_next *w = model_own(m, 1, sizeof *w + m->n_layers * sizeof w->layer[0]);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    TRY(delta_read(m, &w->s));
    TRY(read_types(m, w));
    TRY(read_experts(m, f, w));
    TRY(read_rope(m));
    TRY(model_bind_ends(m));
    model_norm_plus_one(m, &m->final_norm, m->hidden);
    for (uint32_t i = 0; i < m->n_layers; i++)
        TRY(qwen3_next_bind_layer(m, i, w, &w->layer[i]));
    return 0;
}

struct buffers {
    struct block_buffers block;
    struct delta_buffers net;
    struct moe_buffers *moe;
    float *x, *y, *query, *gate, *share; /* query: [heads][2][head_dim]; gate: [heads][head_dim] */
};

/* b->x = attention of b->x. */
static void attend(const struct model *m, struct graph *g, uint32_t i, const struct block_attn *a,
                   const struct buffers *b)
{
    const struct block_buffers *k = &b->block;
    uint32_t heads = m->n_heads, dim = m->head_dim, q = heads * dim;
    mod_linear(
        g, b->x,
        (struct mod_out[]){{&a->q, a->bq, b->query}, {&a->k, a->bk, k->k}, {&a->v, a->bv, k->v}},
        3);
    for (uint32_t part = 0; part < 2; part++)
        mod_cut(g, &(struct mod_cut){.x = b->query,
                                     .ldx = (size_t)2 * q,
                                     .parts = heads,
                                     .stride = 2 * dim,
                                     .at = part * dim,
                                     .width = dim,
                                     .out = part ? b->gate : k->q,
                                     .ldo = q});
    mod_norm(g, &a->q_norm, k->q, heads, dim, k->q);
    mod_norm(g, &a->k_norm, k->k, m->n_kv_heads, dim, k->k);
    const float *q_sink = mod_rope_query(g, i, 0, k->q, heads, dim);
    mod_rope(g, 0, k->k, m->n_kv_heads, dim);
    mod_attention(g, &(struct mod_attention){.layer = i,
                                             .site = i,
                                             .heads = heads,
                                             .q = k->q,
                                             .k = k->k,
                                             .v = k->v,
                                             .q_sink = q_sink,
                                             .out = k->att,
                                             .scale = 1.0f / sqrtf((float)dim)});
    mod_sigmoid(g, b->gate, q);
    mod_mul(g, k->att, b->gate, q);
    mod_linear(g, k->att, (struct mod_out[]){{&a->o, a->bo, b->x}}, 1);
}

/* b->y = the MLP, or the experts, of b->x. */
static void mlp_graph(const struct model *m, struct graph *g, const struct layer *l,
                      const struct buffers *b)
{
    const struct block_buffers *k = &b->block;
    const struct block_mlp *a = &l->mlp;
    if (l->sparse) mod_moe(g, &l->moe, b->moe, b->x, b->y);
    struct mod_out out[] = {
        {&a->gate, a->bgate, k->gate}, {&a->up, a->bup, k->up}, {&l->share, NULL, b->share}};
    mod_linear(g, b->x, out, l->sparse ? 3 : 2);
    mod_silu_mul(g, k->gate, k->up, a->gate.rows);
    mod_linear(g, k->gate, (struct mod_out[]){{&a->down, a->bdown, l->sparse ? b->x : b->y}}, 1);
    if (!l->sparse) return;
    mod_sigmoid(g, b->share, 1);
    mod_scale_rows(g, b->x, b->share, m->hidden);
    mod_add(g, b->y, b->x, m->hidden);
}

static int qwen3_next_graph(const struct model *m, struct graph *g)
{
    const struct qwen3_next *w = m->arch_weights;
    uint32_t d = m->hidden, q = m->n_heads * m->head_dim;
    struct buffers b = {.block = block_buffers_new(g, m, MAX(m->ffn, w->shared_ffn)),
                        .net = delta_buffers_new(g, &w->s),
                        .moe = w->n ? moe_buffers_new(g, d, w->n, w->top, w->ffn) : NULL,
                        .x = graph_buffer(g, d),
                        .y = graph_buffer(g, d),
                        .query = graph_buffer(g, (size_t)2 * q),
                        .gate = graph_buffer(g, q),
                        .share = graph_buffer(g, 1)};
    float *h = graph_h(g);
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct layer *l = &w->layer[i];
        mod_mark(g, i);
        mod_norm(g, &l->norm, h, 1, d, b.x);
        if (l->attends)
            attend(m, g, i, &l->attn, &b);
        else
            delta_graph(g, i, &l->net, &b.net, b.x, b.x);
        mod_narrow(g, i, b.x, d);
        mod_add(g, h, b.x, d);
        mod_norm(g, &l->ff_norm, h, 1, d, b.x);
        mlp_graph(m, g, l, &b);
        mod_add(g, h, b.y, d);
    }
    return 0;
}

static const char *const names[] = {
    "qwen3_next",   "qwen3next+experts", "qwen3next",        "qwen3_5",
    "qwen3_5_text", "qwen3_5_moe",       "qwen3_5_moe_text", NULL};
static const struct arch qwen3_next_arch = {
    .names = names, .open = qwen3_next_open, .graph = qwen3_next_graph};
MODEL_ARCH(qwen3_next, &qwen3_next_arch);
