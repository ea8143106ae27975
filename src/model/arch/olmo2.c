/* olmo2.c - OLMo 2 and 3 (Ai2 2024, 2025): Llama's projections without norms before them.  The results of attention
 * and MLP have RMS norms before they are added.  Before the rotation, all queries of a token together have an RMS
 * norm, and so have all its keys.  In OLMo 3 three layers of four have a window and plain frequencies; the
 * frequencies of the other layers can be stretched.  GGUF files call both "olmo2". */
#include "model/block.h"

#include <math.h>
#include <string.h>

/* Reads rope[0], of full layers, and rope[1], of sliding layers.  Newer configurations have both by kind of layer;
 * else rope[1] is rope[0] without its stretch. */
static int olmo3_ropes(struct model *m)
{
    const json_t *by_kind = json_object_get(m->config, "rope_parameters");
    bool sliding = json_object_get(by_kind, "sliding_attention");
    if (sliding && !json_object_get(by_kind, "full_attention"))
        return ERR(UNSUPPORTED, "%s: rope_parameters has no \"full_attention\"", m->config_file);
    m->rope[1].theta = m->rope[0].theta;
    TRY(model_read_rope(m, 0, "full_attention"));
    if (sliding) return model_read_rope(m, 1, "sliding_attention");
    json_t *plain = json_pack("{s:f}", "rope_theta", m->rope[0].theta);
    if (!plain) return ERR(NOMEM, "out of memory");
    int e = rope_read(&m->rope[1], plain, m->config_file, m->context);
    json_decref(plain);
    m->rope[1].rot = m->rope[0].rot;
    m->n_ropes = 2;
    return e;
}

static int olmo2_read(struct model *m)
{
    bool three = strcmp(m->arch_name, "olmo3") == 0;
    uint32_t window = three ? 4096 : 0;
    if (!model_is_gguf(m)) {
        m->norm_eps = 1e-5f;
        m->rope[0].theta = three ? 500000 : 10000;
    }
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_decoder(m));
    if (!three && !model_is_gguf(m)) return model_read_rope(m, 0, NULL);
    TRY(model_read_window(m, &window));
    TRY(model_slide(m, window, 0, 4));
    return olmo3_ropes(m);
}

static int olmo2_bind_layer(struct model *m, uint32_t i, struct block_layer *l)
{
    uint32_t h = m->hidden, q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    struct block_attn *a = &l->attn;
    a->norm_whole = true;
    const struct model_proj p[] = {
        {"model.layers.%u.self_attn.q_proj", "blk.%u.attn_q", q, h, &a->q, &a->bq},
        {"model.layers.%u.self_attn.k_proj", "blk.%u.attn_k", kv, h, &a->k, &a->bk},
        {"model.layers.%u.self_attn.v_proj", "blk.%u.attn_v", kv, h, &a->v, &a->bv},
        {"model.layers.%u.self_attn.o_proj", "blk.%u.attn_output", h, q, &a->o, &a->bo},
        {NULL, NULL, 0, 0, NULL, NULL},
    };
    TRY(model_bind_projs(m, i, p));
    TRY(block_mlp_bind_projs(m, i, m->ffn, &l->mlp));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.self_attn.q_norm", "blk.%u.attn_q_norm", i, q,
                   false, &a->q_norm));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.self_attn.k_norm", "blk.%u.attn_k_norm", i, kv,
                   false, &a->k_norm));
    TRY(model_norm(m, NORM_RMS, "model.layers.%u.post_attention_layernorm",
                   "blk.%u.post_attention_norm", i, h, false, &a->post_norm));
    return model_norm(m, NORM_RMS, "model.layers.%u.post_feedforward_layernorm",
                      "blk.%u.post_ffw_norm", i, h, false, &l->mlp.post_norm);
}

static int olmo2_open(struct model *m)
{
    bool biases = false;
    TRY(olmo2_read(m));
    if (!model_is_gguf(m)) TRY(json_get_bool(m->config, m->config_file, "attention_bias", &biases));
    for (uint32_t i = 0; i < m->n_ropes; i++)
        TRY(rope_prepare(&m->rope[i]));
    TRY(model_bind_ends(m));
    struct block_layer *l = model_own(m, m->n_layers, sizeof *l);
    if (!l) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++)
        TRY(olmo2_bind_layer(m, i, &l[i]));
    return block_stack_biases(m, l, biases, biases);
}

static int olmo2_graph(const struct model *m, struct graph *g)
{
    const struct block_layer *l = m->arch_weights;
    struct block_buffers b = block_buffers_new(g, m, m->ffn);
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        mod_mark(g, i);
        struct block_form form = {.rope = m->n_ropes > 1 && m->site[i].window,
                                  .scale = 1.0f / sqrtf((float)m->head_dim)};
        block_attn_graph(g, i, i, &l[i].attn, &form, &b);
        block_mlp_graph(g, &l[i].mlp, &b);
    }
    return 0;
}

static const char *const names[] = {"olmo2", "olmo3", NULL};
static const struct arch olmo2_arch = {.names = names, .open = olmo2_open, .graph = olmo2_graph};
MODEL_ARCH(olmo2, &olmo2_arch);
