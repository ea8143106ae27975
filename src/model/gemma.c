/* gemma.c - see gemma.h. */
#include "model/gemma.h"

#include <math.h>

/* Returns sqrt(hidden) rounded to the type of the embedding, as Transformers holds it. */
static float embed_scale(const struct model *m)
{
    float s = sqrtf((float)m->hidden);
    int bits = m->embed.dtype == DT_BF16 ? 8 : m->embed.dtype == DT_F16 ? 11 : 24, e;
    float part = frexpf(s, &e);
    return ldexpf(nearbyintf(ldexpf(part, bits)), e - bits);
}

static int read_cap(const struct model *m, const char *hf, const char *gguf, float *cap)
{
    if (model_is_null(m, hf)) *cap = 0;
    int e = model_f32(m, hf, gguf, cap);
    if (e < 0) return e;
    if (*cap < 0 || (e > 0 && *cap == 0 && !model_is_gguf(m)))
        return ERR(FORMAT, "%s: %s must be above 0, or null, not %g", m->config_file, hf,
                   (double)*cap);
    return 0;
}

static int read_scale(const struct model *m, uint32_t odd_layers, float *scale)
{
    float by = 256;
    if (model_is_gguf(m))
        by = (float)(m->n_layers == odd_layers ? m->hidden / m->n_heads : m->head_dim);
    TRY(model_f32(m, "query_pre_attn_scalar", NULL, &by));
    if (!(by > 0))
        return ERR(FORMAT, "%s: query_pre_attn_scalar must be above 0, not %g", m->config_file,
                   (double)by);
    *scale = (float)(1 / sqrt((double)by));
    return 0;
}

static void defaults(struct model *m)
{
    m->tied = true;
    if (model_is_gguf(m)) return;
    m->hidden = 2304;
    m->ffn = 9216;
    m->n_layers = 26;
    m->n_heads = 8;
    m->n_kv_heads = 4;
    m->head_dim = 256;
}

int gemma_read(struct model *m, uint32_t odd_layers, float attn_cap, float logit_cap)
{
    struct gemma *w = model_own(m, 1, sizeof *w);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    defaults(m);
    TRY(model_expect_str(m, "hidden_activation", "gelu_pytorch_tanh"));
    TRY(model_expect_false(m, "use_bidirectional_attention"));
    TRY(model_read_decoder(m));
    TRY(read_scale(m, odd_layers, &w->scale));
    w->softcap = attn_cap;
    m->logit_softcap = logit_cap;
    TRY(read_cap(m, "attn_logit_softcapping", "attn_logit_softcapping", &w->softcap));
    return read_cap(m, "final_logit_softcapping", "final_logit_softcapping", &m->logit_softcap);
}

static int gemma_bind_layer(struct model *m, uint32_t i, struct block_layer *l)
{
    uint32_t h = m->hidden;
    TRY(block_attn_bind(m, i, &m->site[i], &l->attn));
    TRY(block_mlp_bind_projs(m, i, m->ffn, &l->mlp));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.post_attention_layernorm",
                   "blk.%u.post_attention_norm", i, h, false, &l->attn.post_norm));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.pre_feedforward_layernorm", "blk.%u.ffn_norm", i,
                   h, false, &l->mlp.norm));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.post_feedforward_layernorm",
                   "blk.%u.post_ffw_norm", i, h, false, &l->mlp.post_norm));
    l->mlp.gelu = true;
    model_norm_plus_one(m, &l->attn.norm, h);
    model_norm_plus_one(m, &l->attn.post_norm, h);
    model_norm_plus_one(m, &l->mlp.norm, h);
    model_norm_plus_one(m, &l->mlp.post_norm, h);
    model_norm_plus_one(m, &l->attn.q_norm, m->head_dim);
    model_norm_plus_one(m, &l->attn.k_norm, m->head_dim);
    return 0;
}

int gemma_bind(struct model *m)
{
    struct gemma *w = m->arch_weights;
    bool biases = false;
    TRY(model_bind_ends(m));
    model_norm_plus_one(m, &m->final_norm, m->hidden);
    m->embed_scale = embed_scale(m);
    w->layer = model_own(m, m->n_layers, sizeof *w->layer);
    if (!w->layer) return ERR_NOMEM;
    for (uint32_t i = 0; i < m->n_layers; i++)
        TRY(gemma_bind_layer(m, i, &w->layer[i]));
    if (model_is_gguf(m)) return 0;
    TRY(json_get_bool(m->config, m->config_file, "attention_bias", &biases));
    return block_stack_biases(m, w->layer, biases, biases);
}

int gemma_graph(const struct model *m, struct graph *g)
{
    const struct gemma *w = m->arch_weights;
    struct block_buffers b = block_buffers_new(g, m, m->ffn);
    struct block_form form = {.scale = w->scale, .softcap = w->softcap};
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        mod_mark(g, i);
        form.rope = m->n_ropes > 1 && m->site[i].window;
        block_attn_graph(g, i, i, &w->layer[i].attn, &form, &b);
        block_mlp_graph(g, &w->layer[i].mlp, &b);
    }
    return 0;
}
