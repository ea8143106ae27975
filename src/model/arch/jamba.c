/* jamba.c - Jamba (Lieber et al. 2024): most layers have the mixer of Mamba; one in attn_layer_period has attention,
 * without positions.  Some layers end in a mixture of experts, whose weights are the plain softmax of the router;
 * the others end in an MLP. */
#include "model/block.h"
#include "model/mixer.h"
#include "model/moe.h"

#include <math.h>

struct layer {
    bool attends, experts;
    struct block_attn attn; /* its norm also stands before the mixer */
    struct mixer1 mixer;
    struct block_mlp mlp; /* its norm also stands before the mixture */
    struct moe moe;
};
struct jamba {
    struct mixer1_shape s;
    uint32_t n, top; /* experts */
    struct layer layer[];
};
struct periods {
    uint32_t attn, attn_at, moe, moe_at;
};

static int read_sizes(struct model *m)
{
    TRY(model_need_u32(m, "num_hidden_layers", "block_count", 1, MODEL_LAYERS, &m->n_layers));
    TRY(model_need_u32(m, "hidden_size", "embedding_length", 1, 1u << 17, &m->hidden));
    TRY(model_need_u32(m, "intermediate_size", "feed_forward_length", 1, 1u << 20, &m->ffn));
    TRY(model_need_u32(m, "num_attention_heads", "attention.head_count", 1, 1024, &m->n_heads));
    m->n_kv_heads = model_is_null(m, "num_key_value_heads") ? m->n_heads : MIN(8, m->n_heads);
    TRY(model_u32(m, "num_key_value_heads", NULL, 1, 1024, &m->n_kv_heads));
    m->head_dim = m->hidden / m->n_heads;
    m->context = 262144;
    TRY(model_u32(m, "max_position_embeddings", "context_length", 1, 1u << 28, &m->context));
    TRY(model_read_eps(m, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6f));
    return model_expect_str(m, "hidden_act", "silu");
}

/* Finds the layers with attention of a GGUF file, and their key-value heads, by their keys. */
static void gguf_heads(struct model *m, bool *attends)
{
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct tensor *k = model_find(m, NULL, "blk.%u.attn_k.weight", i);
        attends[i] = k != NULL;
        if (k && k->n_dims == 2 && m->head_dim)
            m->n_kv_heads = (uint32_t)MIN(MAX(k->dim[0] / m->head_dim, 1), m->n_heads);
    }
}

static int read_layers(struct model *m, struct jamba *w)
{
    struct periods p = {8, 4, 2, 1};
    bool attends[MODEL_LAYERS] = {false};
    TRY(model_u32(m, "attn_layer_period", NULL, 1, 512, &p.attn));
    TRY(model_u32(m, "attn_layer_offset", NULL, 0, 511, &p.attn_at));
    TRY(model_u32(m, "expert_layer_period", NULL, 1, 512, &p.moe));
    TRY(model_u32(m, "expert_layer_offset", NULL, 0, 511, &p.moe_at));
    if (model_is_gguf(m)) gguf_heads(m, attends);
    if (m->head_dim == 0 || m->head_dim > 1024 || m->n_heads % m->n_kv_heads)
        return ERR(FORMAT, "%s: %u attention heads of %u values and %u key-value heads do not fit",
                   m->what, m->n_heads, m->head_dim, m->n_kv_heads);
    w->n = 16, w->top = 2;
    TRY(model_u32(m, "num_experts", "expert_count", 1, MOE_MAX_EXPERTS, &w->n));
    TRY(model_u32(m, "num_experts_per_tok", "expert_used_count", 1, MOE_MAX_EXPERTS, &w->top));
    TRY(model_new_sites(m, m->n_layers));
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct layer *l = &w->layer[i];
        l->attends = model_is_gguf(m) ? attends[i] : i % p.attn == p.attn_at;
        l->experts = model_is_gguf(m) ? model_find(m, NULL, "blk.%u.ffn_gate_inp.weight", i) != NULL
                                      : w->n > 1 && i % p.moe == p.moe_at;
        if (l->experts && w->top > w->n)
            return ERR(FORMAT, "%s: a token gets %u of %u experts", m->what, w->top, w->n);
        if (!l->attends) mixer1_site(&w->s, i, &m->site[i]);
    }
    return 0;
}

static int bind_mixer(struct model *m, uint32_t i, const struct mixer1_shape *s, struct layer *l)
{
    const char *hf = "model.layers.%u.mamba";
    TRY(mixer1_bind(m, i, hf, s, &l->mixer));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.mamba.dt_layernorm", "blk.%u.ssm_dt_norm", i,
                   s->rank, false, &l->mixer.dt_norm));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.mamba.b_layernorm", "blk.%u.ssm_b_norm", i,
                   s->states, false, &l->mixer.b_norm));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.mamba.c_layernorm", "blk.%u.ssm_c_norm", i,
                   s->states, false, &l->mixer.c_norm));
    return model_norm(m, NORM_RMS, "model.layers.%u.input_layernorm", "blk.%u.attn_norm", i,
                      m->hidden, false, &l->attn.norm);
}

static int bind_experts(struct model *m, uint32_t i, const struct jamba *w, struct moe *moe)
{
    static const char experts[] = "model.layers.%u.feed_forward.experts";
    static const struct moe_names names = {experts, "gate_proj", "up_proj", "down_proj", experts};
    uint32_t h = m->hidden, f = m->ffn;
    TRY(moe_new(m, w->n, w->top, f, moe));
    moe->route = MOE_SOFTMAX_ALL;
    TRY(model_plain(m, "model.layers.%u.feed_forward.router.weight", "blk.%u.ffn_gate_inp.weight",
                    i, w->n, h, &moe->router));
    return moe_bind(m, i, &names, moe);
}

static int jamba_open(struct model *m)
{
    static const struct mixer1_keys keys = {"mamba_expand", "mamba_d_state", "mamba_d_conv",
                                            "mamba_dt_rank"};
    TRY(read_sizes(m));
    struct jamba *w = model_own(m, 1, sizeof *w + m->n_layers * sizeof w->layer[0]);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    TRY(mixer1_read(m, &keys, &w->s));
    TRY(read_layers(m, w));
    TRY(model_bind_named_ends(m, "model.embed_tokens.weight", "model.final_layernorm"));
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct layer *l = &w->layer[i];
        TRY(l->attends ? block_attn_bind(m, i, &m->site[i], &l->attn) : bind_mixer(m, i, &w->s, l));
        TRY(model_norm(m, NORM_RMS, "model.layers.%u.pre_ff_layernorm", "blk.%u.ffn_norm", i,
                       m->hidden, false, &l->mlp.norm));
        TRY(l->experts
                ? bind_experts(m, i, w, &l->moe)
                : block_mlp_bind_at(m, i, "model.layers.%u.feed_forward", "", m->ffn, &l->mlp));
    }
    return 0;
}

static int jamba_graph(const struct model *m, struct graph *g)
{
    const struct jamba *w = m->arch_weights;
    struct block_buffers b = block_buffers_new(g, m, m->ffn);
    struct mixer1_buffers mixer = mixer1_buffers_new(g, &w->s);
    struct moe_buffers *moe = moe_buffers_new(g, m->hidden, w->n, w->top, m->ffn);
    const struct block_form form = {.rope = -1, .scale = 1.0f / sqrtf((float)m->head_dim)};
    float *h = graph_h(g), *x = graph_buffer(g, m->hidden);
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct layer *l = &w->layer[i];
        mod_mark(g, i);
        if (l->attends) {
            block_attn_graph(g, i, i, &l->attn, &form, &b);
        } else {
            mod_norm(g, &l->attn.norm, h, 1, m->hidden, x);
            mixer1_graph(g, i, &l->mixer, &mixer, x, x);
            mod_add(g, h, x, m->hidden);
        }
        if (!l->experts) {
            block_mlp_graph(g, &l->mlp, &b);
            continue;
        }
        mod_norm(g, &l->mlp.norm, h, 1, m->hidden, b.norm);
        mod_moe(g, &l->moe, moe, b.norm, x);
        mod_add(g, h, x, m->hidden);
    }
    return 0;
}

static const char *const names[] = {"jamba", "jamba+experts", NULL};
static const struct arch jamba_arch = {.names = names, .open = jamba_open, .graph = jamba_graph};
MODEL_ARCH(jamba, &jamba_arch);
