/* llama.c - Llama (Touvron et al. 2023; grouped-query attention as in Llama 2 and 3) and models that share its graph, such as
 * SmolLM2 and TinyLlama.  Pre-norm blocks: attention with rotary positions, then a SwiGLU MLP; biases and a separate
 * head are optional.  GGUF files store q and k with the two values of a rotary pair adjacent, hence `interleaved`.
 * GGUF files of Mistral name their architecture "llama" and may have a window. */
#include "model/block.h"

static int llama_open(struct model *m)
{
    uint32_t window = 0;
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_decoder(m));
    if (model_is_gguf(m)) {
        TRY(model_read_window(m, &window));
        TRY(model_slide(m, window, 0, 0));
    }
    TRY(model_read_rope(m, 0, NULL));
    m->rope[0].interleaved = model_is_gguf(m);
    return block_stack_bind(m);
}

static const char *const names[] = {"llama", NULL};
static const struct arch llama_arch = {
    .names = names, .open = llama_open, .graph = block_stack_graph};
MODEL_ARCH(llama, &llama_arch);
