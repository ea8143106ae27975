/* llama.c - Llama (Touvron et al. 2023; grouped-query attention as in Llama 2 and 3) and models that share its
 * graph: SmolLM2, TinyLlama.  Pre-norm blocks: attention with rotary positions, then a SwiGLU MLP; biases and a
 * separate head are optional.  GGUF files store q and k with rotary pairs adjacent, hence `interleaved`. */
#include "model/block.h"

#include <math.h>
#include <string.h>

struct layer {
    struct block_attn attn;
    struct block_mlp mlp;
};

static int llama_open(struct model *m)
{
    const char *act = "silu";
    TRY(model_read_decoder(m));
    TRY(model_read_rope(m, 0, NULL));
    m->rope[0].interleaved = model_is_gguf(m);
    if (!model_is_gguf(m)) TRY(json_get_str(checkpoint_config(m->ck), m->what, "hidden_act", &act));
    if (strcmp(act, "silu") != 0)
        return ERR(UNSUPPORTED, "%s: hidden_act \"%s\"; Llama needs silu", m->what, act);
    TRY(model_bind_ends(m));
    TRY(rope_prepare(&m->rope[0]));
    struct layer *l = model_own(m, m->n_layers, sizeof *l);
    if (!l) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        TRY(block_attn_bind(m, i, &l[i].attn));
        TRY(block_mlp_bind(m, i, m->ffn, &l[i].mlp));
    }
    return 0;
}

static int llama_graph(const struct model *m, struct graph *g)
{
    const struct layer *l = m->arch_weights;
    struct block_buffers b = block_buffers_new(g, m, m->ffn);
    struct block_form form = {.rope = 0, .scale = 1.0f / sqrtf((float)m->head_dim)};
    mod_embed(g, &m->embed);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        block_attn_graph(g, m, i, &l[i].attn, &form, &b);
        block_mlp_graph(g, m, &l[i].mlp, &b);
    }
    return 0;
}

static const char *const names[] = {"llama", NULL};
static const struct arch llama_arch = {names, llama_open, llama_graph};
MODEL_ARCH(llama, &llama_arch);
