/* granite.c - Granite (IBM 2024): Llama's graph with four factors: of the embeddings (also of given ones), of the
 * scores of attention, of the result of each half of a layer, and one that divides the logits.  GGUF files store q
 * and k with the two values of a rotary pair adjacent, like those of Llama. */
#include "model/block.h"

#include <math.h>

/* Reads a factor, which stays what it is if the key is absent.  In GGUF files 0 means absent. */
static int read_factor(const struct model *m, const char *hf, const char *gguf, float *by)
{
    float v = *by;
    TRY(model_f32(m, hf, gguf, &v));
    if (v == 0 && model_is_gguf(m)) return 0;
    if (!(v > 0) || isinf(v))
        return ERR(FORMAT, "%s: %s must be above 0, not %g", m->config_file,
                   model_is_gguf(m) ? gguf : hf, (double)v);
    *by = v;
    return 0;
}

static int granite_open(struct model *m)
{
    float embed = 1, score = 1, residual = 1, logits = 1;
    if (!model_is_gguf(m)) {
        m->context = 2048;
        m->norm_eps = 1e-6f;
    }
    TRY(model_expect_str(m, "hidden_act", "silu"));
    TRY(model_read_decoder(m));
    if (model_is_gguf(m)) score = 1 / sqrtf((float)m->head_dim);
    TRY(read_factor(m, "embedding_multiplier", "embedding_scale", &embed));
    TRY(read_factor(m, "attention_multiplier", "attention.scale", &score));
    TRY(read_factor(m, "residual_multiplier", "residual_scale", &residual));
    TRY(read_factor(m, "logits_scaling", "logit_scale", &logits));
    TRY(model_read_rope(m, 0, NULL));
    m->rope[0].interleaved = model_is_gguf(m);
    m->embed_scale = embed;
    m->scales_given = true;
    m->head_scale = 1 / logits;
    TRY(block_stack_bind(m));
    struct block_layer *l = m->arch_weights;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        l[i].score_scale = score;
        l[i].attn.residual = l[i].mlp.residual = residual;
    }
    return 0;
}

static const char *const names[] = {"granite", NULL};
static const struct arch granite_arch = {
    .names = names, .open = granite_open, .graph = block_stack_graph};
MODEL_ARCH(granite, &granite_arch);
