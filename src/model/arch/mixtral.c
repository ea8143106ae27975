/* mixtral.c - Mixtral (Jiang et al. 2024): Llama's attention, and in place of the MLP a mixture of SwiGLU experts.  Their
 * weights are the router's softmax, divided by the sum over the chosen experts.  Older checkpoints hold one tensor per
 * expert and matrix, newer ones hold stacked tensors with gate and up in one.  GGUF files name the architecture
 * "llama" and give a number of experts. */
#include "model/block.h"
#include "model/moe.h"

#include <math.h>

struct layer {
    struct block_attn attn;
    struct mod_norm norm; /* before the mixture */
    struct moe moe;
};

static int mixtral_read_config(struct model *m, uint32_t *n, uint32_t *top)
{
    uint32_t window = 0;
    m->context = 131072;
    m->norm_eps = 1e-5f;
    m->n_kv_heads = 8;
    TRY(model_read_decoder(m));
    TRY(moe_read_counts(m, n, top));
    TRY(model_expect_str(m, "hidden_act", "silu"));
    m->rope[0].theta = 1e6;
    TRY(model_read_rope(m, 0, NULL));
    m->rope[0].interleaved = model_is_gguf(m);
    TRY(model_read_window(m, &window));
    for (uint32_t i = 0; i < m->n_layers; i++)
        m->site[i].window = window;
    return 0;
}

static int mixtral_bind_layer(struct model *m, uint32_t layer, struct layer *l)
{
    static const struct moe_names names = {"model.layers.%u.block_sparse_moe.experts", "w1", "w3",
                                           "w2", "model.layers.%u.mlp.experts"};
    static const char old_router[] = "model.layers.%u.block_sparse_moe.gate.weight";
    static const char new_router[] = "model.layers.%u.mlp.gate.weight";
    bool old = model_find(m, old_router, NULL, layer);
    struct moe *moe = &l->moe;
    TRY(block_attn_bind(m, layer, &m->site[layer], &l->attn));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.post_attention_layernorm", "blk.%u.ffn_norm",
                   layer, m->hidden, false, &l->norm));
    TRY(model_plain(m, old ? old_router : new_router, "blk.%u.ffn_gate_inp.weight", layer, moe->n,
                    m->hidden, &moe->router));
    return moe_bind(m, layer, &names, moe);
}

static int mixtral_open(struct model *m)
{
    uint32_t n, top;
    TRY(mixtral_read_config(m, &n, &top));
    TRY(model_bind_ends(m));
    TRY(rope_prepare(&m->rope[0]));
    struct layer *l = model_own(m, m->n_layers, sizeof *l);
    if (!l) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        TRY(moe_new(m, n, top, m->ffn, &l[i].moe));
        TRY(mixtral_bind_layer(m, i, &l[i]));
    }
    return 0;
}

static int mixtral_graph(const struct model *m, struct graph *g)
{
    const struct layer *l = m->arch_weights;
    float *h = graph_h(g), *y = graph_buffer(g, m->hidden);
    struct block_buffers b = block_buffers_new(g, m, 1);
    struct moe_buffers *mb = moe_buffers_new(g, m->hidden, l->moe.n, l->moe.top, m->ffn);
    const struct block_form form = {.rope = 0, .scale = 1.0f / sqrtf((float)m->head_dim)};
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        mod_mark(g, i);
        block_attn_graph(g, i, i, &l[i].attn, &form, &b);
        mod_norm(g, &l[i].norm, h, 1, m->hidden, b.norm);
        mod_moe(g, &l[i].moe, mb, b.norm, y);
        mod_add(g, h, y, m->hidden);
    }
    return 0;
}

static const char *const names[] = {"mixtral", "llama+experts", NULL};
static const struct arch mixtral_arch = {
    .names = names, .open = mixtral_open, .graph = mixtral_graph};
MODEL_ARCH(mixtral, &mixtral_arch);
