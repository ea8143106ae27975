/* qwen3.c - Qwen3 (Yang et al. 2025): Llama's graph with an RMS norm of every query and key head before the rotation.
 * Projections have biases only if attention_bias is true.  Windows are those of Qwen2. */
#include "model/block.h"

static int qwen3_open(struct model *m)
{
    bool biases = false;
    if (!model_is_gguf(m)) {
        m->context = 32768;
        m->n_kv_heads = 32;
        m->head_dim = 128;
        TRY(json_get_bool(m->config, m->config_file, "attention_bias", &biases));
    }
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_decoder(m));
    TRY(block_upper_window(m));
    TRY(model_read_rope(m, 0, NULL));
    TRY(block_stack_bind(m));
    struct block_layer *l = m->arch_weights;
    TRY(block_stack_biases(m, l, biases, biases));
    for (uint32_t i = 0; i < m->n_layers; i++)
        if (!l[i].attn.q_norm.kind || !l[i].attn.k_norm.kind)
            return ERR(FORMAT, "%s: layer %u has no norms of its queries and keys", m->what, i);
    return 0;
}

static const char *const names[] = {"qwen3", NULL};
static const struct arch qwen3_arch = {
    .names = names, .open = qwen3_open, .graph = block_stack_graph};
MODEL_ARCH(qwen3, &qwen3_arch);
