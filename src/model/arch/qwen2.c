/* qwen2.c - Qwen2 and Qwen2.5 (Yang et al. 2024): Llama's graph with biases on q, k and v.  Layers from max_window_layers on
 * have a window if use_sliding_window is true. */
#include "model/block.h"

static int qwen2_open(struct model *m)
{
    if (!model_is_gguf(m)) m->context = 32768;
    m->n_kv_heads = 32;
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_decoder(m));
    TRY(block_upper_window(m));
    TRY(model_read_rope(m, 0, NULL));
    TRY(block_stack_bind(m));
    return block_stack_biases(m, m->arch_weights, true, false);
}

static const char *const names[] = {"qwen2", NULL};
static const struct arch qwen2_arch = {
    .names = names, .open = qwen2_open, .graph = block_stack_graph};
MODEL_ARCH(qwen2, &qwen2_arch);
