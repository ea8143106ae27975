/* mistral.c - Mistral (Jiang et al. 2023): Llama's graph with a window on every layer, unless sliding_window is null.
 * GGUF files of these models name their architecture "llama". */
#include "model/block.h"

static int mistral_open(struct model *m)
{
    uint32_t window = 0;
    if (!model_is_gguf(m)) {
        window = 4096;
        m->n_kv_heads = 8;
        m->context = 4096 * 32;
    }
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_decoder(m));
    TRY(model_read_window(m, &window));
    TRY(model_slide(m, window, 0, 0));
    for (uint32_t i = 0; i < m->n_layers; i++)
        if (m->site[i].window != window)
            return ERR(
                UNSUPPORTED,
                "%s: layer_types[%u] is not \"sliding_attention\"; all layers of Mistral slide",
                m->what, i);
    TRY(model_read_rope(m, 0, NULL));
    m->rope[0].interleaved = model_is_gguf(m);
    return block_stack_bind(m);
}

static const char *const names[] = {"mistral", NULL};
static const struct arch mistral_arch = {
    .names = names, .open = mistral_open, .graph = block_stack_graph};
MODEL_ARCH(mistral, &mistral_arch);
