/* gpt_oss.c - gpt-oss (OpenAI 2025): windows on every second layer, biases everywhere, YaRN positions, and a mixture of
 * experts with a clamped gate in every layer.  Each head has a learned logit that takes part in the softmax of the
 * scores and has no value.  Experts come in a float type, [in][out] with gate and up in alternate columns, or in
 * MXFP4, [out][in] with alternate rows. */
#include "model/block.h"
#include "model/moe.h"

#include <math.h>
#include <string.h>

struct layer {
    struct block_attn attn;
    float *sink_logit;    /* [n_heads] */
    struct mod_norm norm; /* before the mixture */
    struct moe moe;
};

static int gpt_oss_read_config(struct model *m)
{
    uint32_t window = 128;
    if (model_is_gguf(m))
        return ERR(UNSUPPORTED, "%s: gpt-oss is read from Hugging Face directories", m->what);
    m->context = 131072;
    m->norm_eps = 1e-5f;
    m->n_kv_heads = 8;
    if (!model_is_null(m, "head_dim")) m->head_dim = 64;
    TRY(model_read_decoder(m));
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_window(m, &window));
    TRY(model_slide(m, window, 0, 2));
    if (!json_is_object(json_object_get(m->config, "rope_parameters")) &&
        !json_is_object(json_object_get(m->config, "rope_scaling")))
        return ERR(FORMAT, "%s: the configuration lacks \"rope_parameters\"", m->config_file);
    m->rope[0].theta = 150000;
    return model_read_rope(m, 0, NULL);
}

/* Binds one of two projections whose columns alternate: out[e][r][c] is element (e, c, first + 2 * r) of a tensor
 * [n][cols][2 * rows]. */
static int alternate(struct model *m, const char *hf, uint32_t layer, uint32_t n, uint32_t rows,
                     uint32_t cols, uint32_t first, struct dev_weight *out)
{
    const struct tensor *t = model_find(m, hf, NULL, layer);
    if (!t || t->n_dims != 3 || t->dim[0] != n || t->dim[1] != cols ||
        t->dim[2] != 2 * (uint64_t)rows)
        return ERR(FORMAT, "%s: layer %u: gate_up_proj is missing or not [%u, %u, %u]", m->what,
                   layer, n, cols, 2 * rows);
    if (t->dtype != DT_F32 && t->dtype != DT_F16 && t->dtype != DT_BF16)
        return ERR(UNSUPPORTED, "%s: tensor %s has type %s", m->what, t->name,
                   dtype_name(t->dtype));
    size_t size = dtype_size(t->dtype), one = (size_t)rows * cols;
    for (uint32_t e = 0; e < n; e++) {
        unsigned char *to = model_own(m, one, size);
        const unsigned char *from = (const unsigned char *)t->data + e * 2 * one * size;
        if (!to) return ERR_NOMEM;
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t c = 0; c < cols; c++)
                memcpy(to + ((size_t)r * cols + c) * size,
                       from + ((size_t)c * 2 * rows + first + 2 * (size_t)r) * size, size);
        out[e] = (struct dev_weight){to, rows, cols, t->dtype};
    }
    return 0;
}

/* Binds a bias of every expert, [n][width], as f32. */
static int bind_bias(struct model *m, const char *hf, uint32_t layer, uint32_t n, uint32_t width,
                     float **out)
{
    struct dev_weight w;
    TRY(model_plain(m, hf, NULL, layer, n, width, &w));
    float *all = model_own(m, (size_t)n * width, sizeof *all);
    if (!all) return ERR_NOMEM;
    dev_to_f32(w.dtype, w.data, all, (size_t)n * width);
    *out = all;
    return 0;
}

static int bind_biases(struct model *m, uint32_t layer, struct moe *moe)
{
    uint32_t n = moe->n, f = moe->ffn, h = m->hidden;
    float *both, *down, *split = model_own(m, 2 * (size_t)n * f, sizeof *split);
    if (!split) return ERR_NOMEM;
    TRY(bind_bias(m, "model.layers.%u.mlp.experts.gate_up_proj_bias", layer, n, 2 * f, &both));
    TRY(bind_bias(m, "model.layers.%u.mlp.experts.down_proj_bias", layer, n, h, &down));
    for (uint32_t e = 0; e < n; e++) {
        struct moe_expert *x = &moe->expert[e];
        x->bgate = split + 2 * (size_t)e * f;
        x->bup = x->bgate + f;
        x->bdown = down + (size_t)e * h;
        for (uint32_t i = 0; i < 2 * f; i++)
            (i % 2 ? x->bup : x->bgate)[i / 2] = both[2 * (size_t)e * f + i];
    }
    return 0;
}

static int bind_experts(struct model *m, uint32_t layer, struct moe *moe, struct dev_weight *tmp)
{
    static const char gate_up[] = "model.layers.%u.mlp.experts.gate_up_proj";
    static const char down[] = "model.layers.%u.mlp.experts.down_proj";
    uint32_t n = moe->n, f = moe->ffn, h = m->hidden;
    for (uint32_t side = 0; side < 2; side++) {
        int e = model_mxfp4(m, gate_up, layer, n, f, h, side, 2, tmp);
        if (e == 0) e = alternate(m, gate_up, layer, n, f, h, side, tmp);
        if (e < 0) return e;
        for (uint32_t i = 0; i < n; i++)
            *(side ? &moe->expert[i].up : &moe->expert[i].gate) = tmp[i];
    }
    int e = model_mxfp4(m, down, layer, n, h, f, 0, 1, tmp);
    if (e == 0) e = model_experts(m, down, NULL, layer, n, h, f, true, tmp);
    if (e < 0) return e;
    for (uint32_t i = 0; i < n; i++)
        moe->expert[i].down = tmp[i];
    return bind_biases(m, layer, moe);
}

static int gpt_oss_bind_layer(struct model *m, uint32_t i, struct layer *l, struct dev_weight *tmp)
{
    struct moe *moe = &l->moe;
    moe->route = MOE_TOP_SOFTMAX;
    moe->clamped = true;
    moe->alpha = 1.702f;
    moe->limit = 7;
    TRY(model_f32(m, "swiglu_alpha", NULL, &moe->alpha));
    TRY(model_f32(m, "swiglu_limit", NULL, &moe->limit));
    if (!(moe->limit > 0))
        return ERR(FORMAT, "%s: swiglu_limit must be above 0, not %g", m->config_file,
                   (double)moe->limit);
    TRY(block_attn_bind(m, i, &m->site[i], &l->attn));
    TRY(model_vector(m, "model.layers.%u.self_attn.sinks", NULL, i, m->n_heads, false,
                     &l->sink_logit));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.post_attention_layernorm", NULL, i, m->hidden,
                   false, &l->norm));
    TRY(model_plain(m, "model.layers.%u.mlp.router.weight", NULL, i, moe->n, m->hidden,
                    &moe->router));
    TRY(model_vector(m, "model.layers.%u.mlp.router.bias", NULL, i, moe->n, false,
                     &moe->router_bias));
    return bind_experts(m, i, moe, tmp);
}

static int gpt_oss_open(struct model *m)
{
    uint32_t n, top;
    TRY(gpt_oss_read_config(m));
    TRY(moe_read_counts(m, &n, &top));
    TRY(model_bind_ends(m));
    TRY(rope_prepare(&m->rope[0]));
    struct layer *l = model_own(m, m->n_layers, sizeof *l);
    struct dev_weight *tmp = model_own(m, n, sizeof *tmp);
    if (!l || !tmp) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        TRY(moe_new(m, n, top, m->ffn, &l[i].moe));
        TRY(gpt_oss_bind_layer(m, i, &l[i], tmp));
    }
    return 0;
}

static int gpt_oss_graph(const struct model *m, struct graph *g)
{
    const struct layer *l = m->arch_weights;
    float *h = graph_h(g), *y = graph_buffer(g, m->hidden);
    struct block_buffers b = block_buffers_new(g, m, 1);
    struct moe_buffers *mb = moe_buffers_new(g, m->hidden, l->moe.n, l->moe.top, m->ffn);
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct block_form form = {
            .rope = 0, .scale = 1.0f / sqrtf((float)m->head_dim), .sink_logit = l[i].sink_logit};
        mod_mark(g, i);
        block_attn_graph(g, i, i, &l[i].attn, &form, &b);
        mod_norm(g, &l[i].norm, h, 1, m->hidden, b.norm);
        mod_moe(g, &l[i].moe, mb, b.norm, y);
        mod_add(g, h, y, m->hidden);
    }
    return 0;
}

static const char *const names[] = {"gpt_oss", NULL};
static const struct arch gpt_oss_arch = {
    .names = names, .open = gpt_oss_open, .graph = gpt_oss_graph};
MODEL_ARCH(gpt_oss, &gpt_oss_arch);
