/* phi3.c - Phi-3 (Abdin et al. 2024): Llama's graph with queries, keys and values in one projection, gate and up in
 * another, and a window on every layer if the configuration has one.  In the long variants the rotary frequencies
 * change once a sequence is longer than the original training length (longrope; regime.c). */
#include "model/block.h"

static int phi3_read_config(struct model *m)
{
    uint32_t window = 0;
    m->context = 4096;
    m->norm_eps = 1e-5f;
    TRY(model_read_decoder(m));
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_rope(m, 0, NULL));
    TRY(model_read_window(m, &window));
    for (uint32_t i = 0; i < m->n_layers; i++)
        m->site[i].window = window;
    return 0;
}

static int phi3_bind_layer(struct model *m, uint32_t i, struct block_layer *l)
{
    uint32_t h = m->hidden, q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    struct dev_weight qkv, gate_up;
    const struct model_proj p[] = {
        {"model.layers.%u.self_attn.qkv_proj", "blk.%u.attn_qkv", q + 2 * kv, h, &qkv, NULL},
        {"model.layers.%u.self_attn.o_proj", "blk.%u.attn_output", h, q, &l->attn.o, NULL},
        {"model.layers.%u.mlp.gate_up_proj", "blk.%u.ffn_up", 2 * m->ffn, h, &gate_up, NULL},
        {"model.layers.%u.mlp.down_proj", "blk.%u.ffn_down", h, m->ffn, &l->mlp.down, NULL},
        {NULL, NULL, 0, 0, NULL, NULL},
    };
    TRY(model_bind_projs(m, i, p));
    l->attn.q = model_rows(&qkv, 0, q);
    l->attn.k = model_rows(&qkv, q, kv);
    l->attn.v = model_rows(&qkv, q + kv, kv);
    l->mlp.gate = model_rows(&gate_up, 0, m->ffn);
    l->mlp.up = model_rows(&gate_up, m->ffn, m->ffn);
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.input_layernorm", "blk.%u.attn_norm", i, h, false,
                   &l->attn.norm));
    return model_norm(m, NORM_RMS, "model.layers.%u.post_attention_layernorm", "blk.%u.ffn_norm", i,
                      h, false, &l->mlp.norm);
}

static int phi3_open(struct model *m)
{
    TRY(phi3_read_config(m));
    TRY(model_bind_ends(m));
    TRY(rope_prepare(&m->rope[0]));
    struct block_layer *l = model_own(m, m->n_layers, sizeof *l);
    if (!l) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++)
        TRY(phi3_bind_layer(m, i, &l[i]));
    return 0;
}

static const char *const names[] = {"phi3", NULL};
static const struct arch phi3_arch = {
    .names = names, .open = phi3_open, .graph = block_stack_graph};
MODEL_ARCH(phi3, &phi3_arch);
