/* llama.c - Llama (Touvron et al. 2023; grouped-query attention as in Llama 2 and 3) and models that share its
 * graph: SmolLM2, TinyLlama.  Pre-norm blocks: attention with rotary positions, then a SwiGLU MLP; biases and a
 * separate head are optional.  GGUF files store q and k with rotary pairs adjacent, hence `interleaved`. */
#include "model/model.h"

#include <math.h>
#include <string.h>

struct layer {
    float *attn_norm, *ffn_norm;                    /* [hidden] */
    struct dev_weight q, k, v, o, gate, up, down;   /* [out][in] */
    float *bq, *bk, *bv, *bo, *bgate, *bup, *bdown; /* NULL: none */
};

static int gguf_rope(struct model *m)
{
    struct rope *r = &m->rope;
    const json_t *c = checkpoint_config(m->ck);
    const char *type = NULL;
    float theta = 10000, factor = 1, attn = 0;
    TRY(model_f32(m, NULL, "rope.freq_base", &theta));
    TRY(model_f32(m, NULL, "rope.scaling.factor", &factor));
    TRY(model_f32(m, NULL, "rope.scaling.attn_factor", &attn));
    uint32_t original = m->context;
    TRY(model_u32(m, NULL, "rope.scaling.original_context_length", 1, 1u << 30, &original));
    TRY(json_get_str(c, m->what, "llama.rope.scaling.type", &type));
    if (!type || strcmp(type, "none") == 0) type = "default";
    json_t *o = json_pack("{s:{s:s, s:f, s:f, s:i}}", "rope_parameters", "rope_type", type,
                          "rope_theta", (double)theta, "factor", (double)factor,
                          "original_max_position_embeddings", (int)original);
    if (!o) return ERR(NOMEM, "out of memory");
    int e = rope_read(r, o, m->what, m->context);
    json_decref(o);
    if (e < 0) return e;
    if (attn > 0) r->attention_factor *= attn;
    r->interleaved = true;
    return 0;
}

static int read_config(struct model *m)
{
    const json_t *c = checkpoint_config(m->ck);
    TRY(model_need_u32(m, "num_hidden_layers", "block_count", 1, 512, &m->n_layers));
    TRY(model_need_u32(m, "hidden_size", "embedding_length", 1, 1u << 17, &m->hidden));
    TRY(model_need_u32(m, "intermediate_size", "feed_forward_length", 1, 1u << 20, &m->ffn));
    TRY(model_need_u32(m, "num_attention_heads", "attention.head_count", 1, 1024, &m->n_heads));
    m->n_kv_heads = m->n_heads;
    TRY(model_u32(m, "num_key_value_heads", "attention.head_count_kv", 1, 1024, &m->n_kv_heads));
    if (m->n_heads % m->n_kv_heads)
        return ERR(FORMAT, "%s: %u attention heads are not a multiple of %u key-value heads",
                   m->what, m->n_heads, m->n_kv_heads);
    m->head_dim = m->hidden / m->n_heads;
    TRY(model_u32(m, "head_dim", "attention.key_length", 1, 1024, &m->head_dim));
    if (m->head_dim == 0) return ERR(FORMAT, "%s: the head dimension is 0", m->what);
    m->context = 2048;
    TRY(model_u32(m, "max_position_embeddings", "context_length", 1, 1u << 28, &m->context));
    m->norm_eps = 1e-6f;
    TRY(model_f32(m, "rms_norm_eps", "attention.layer_norm_rms_epsilon", &m->norm_eps));
    if (!(m->norm_eps >= 0)) return ERR(FORMAT, "%s: rms_norm_eps must not be negative", m->what);
    m->rope.rot = 0;
    if (model_is_gguf(m)) {
        TRY(gguf_rope(m));
        TRY(model_u32(m, NULL, "rope.dimension_count", 2, m->head_dim, &m->rope.rot));
    } else {
        const char *act = "silu";
        TRY(json_get_str(c, m->what, "hidden_act", &act));
        if (strcmp(act, "silu") != 0)
            return ERR(UNSUPPORTED, "%s: hidden_act \"%s\"; Llama needs silu", m->what, act);
        TRY(rope_read(&m->rope, c, m->what, m->context));
    }
    if (m->rope.rot == 0) m->rope.rot = m->head_dim;
    return 0;
}

/* The vocabulary is the embedding's first dimension; config.json must agree, GGUF may be silent. */
static int bind_embedding(struct model *m)
{
    const struct tensor *t = checkpoint_find(m->ck, model_is_gguf(m) ? "token_embd.weight"
                                                                     : "model.embed_tokens.weight");
    if (!t || t->n_dims != 2 || t->dim[0] < 1 || t->dim[0] > 1u << 24)
        return ERR(FORMAT, "%s: the token embedding is missing or not a matrix", m->what);
    m->vocab = (uint32_t)t->dim[0];
    TRY(model_u32(m, "vocab_size", "vocab_size", 1, 1u << 24, &m->vocab));
    TRY(model_matrix(m, "model.embed_tokens.weight", "token_embd.weight", 0, m->vocab, m->hidden,
                     &m->embed));
    const json_t *c = checkpoint_config(m->ck);
    bool tied = false;
    if (model_is_gguf(m))
        tied = !checkpoint_find(m->ck, "output.weight");
    else
        TRY(json_get_bool(c, m->what, "tie_word_embeddings", &tied));
    m->tied = tied;
    m->head = m->embed;
    if (!tied)
        TRY(model_matrix(m, "lm_head.weight", "output.weight", 0, m->vocab, m->hidden, &m->head));
    return model_vector(m, "model.norm.weight", "output_norm.weight", 0, m->hidden, false,
                        &m->final_norm);
}

static int bind_layer(struct model *m, uint32_t i, struct layer *l)
{
    uint32_t h = m->hidden, q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    const struct {
        const char *hf, *gguf, *hf_bias, *gguf_bias;
        uint32_t rows, cols;
        struct dev_weight *w;
        float **b;
    } row[] = {
#define PROJ(hf, gguf, rows, cols, w, b)                                                           \
    {"model.layers.%u." hf ".weight",                                                              \
     "blk.%u." gguf ".weight",                                                                     \
     "model.layers.%u." hf ".bias",                                                                \
     "blk.%u." gguf ".bias",                                                                       \
     rows,                                                                                         \
     cols,                                                                                         \
     &l->w,                                                                                        \
     &l->b}
        PROJ("self_attn.q_proj", "attn_q", q, h, q, bq),
        PROJ("self_attn.k_proj", "attn_k", kv, h, k, bk),
        PROJ("self_attn.v_proj", "attn_v", kv, h, v, bv),
        PROJ("self_attn.o_proj", "attn_output", h, q, o, bo),
        PROJ("mlp.gate_proj", "ffn_gate", m->ffn, h, gate, bgate),
        PROJ("mlp.up_proj", "ffn_up", m->ffn, h, up, bup),
        PROJ("mlp.down_proj", "ffn_down", h, m->ffn, down, bdown),
#undef PROJ
    };
    for (uint32_t j = 0; j < countof(row); j++) {
        TRY(model_matrix(m, row[j].hf, row[j].gguf, i, row[j].rows, row[j].cols, row[j].w));
        TRY(model_vector(m, row[j].hf_bias, row[j].gguf_bias, i, row[j].rows, true, row[j].b));
    }
    TRY(model_vector(m, "model.layers.%u.input_layernorm.weight", "blk.%u.attn_norm.weight", i, h,
                     false, &l->attn_norm));
    return model_vector(m, "model.layers.%u.post_attention_layernorm.weight",
                        "blk.%u.ffn_norm.weight", i, h, false, &l->ffn_norm);
}

static int llama_open(struct model *m)
{
    TRY(read_config(m));
    TRY(bind_embedding(m));
    if (model_is_gguf(m)) {
        float *f;
        TRY(model_vector(m, "", "rope_freqs.weight", 0, m->rope.rot / 2, true, &f));
        if (f) {
            m->rope.freq_factor = mem_array(m->rope.rot / 2, sizeof *f);
            if (!m->rope.freq_factor) return ERR_NOMEM;
            memcpy(m->rope.freq_factor, f, m->rope.rot / 2 * sizeof *f);
        }
    }
    TRY(rope_prepare(&m->rope));
    struct layer *l = model_own(m, m->n_layers, sizeof *l);
    m->layer = mem_array(m->n_layers, sizeof *m->layer);
    if (!l || !m->layer) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        TRY(bind_layer(m, i, &l[i]));
        m->layer[i] = (struct kv_layer){.heads = m->n_kv_heads, .dim = m->head_dim};
    }
    return 0;
}

static int llama_forward(const struct model *m, struct pass *p)
{
    const struct layer *layers = m->arch_weights;
    float scale = 1.0f / sqrtf((float)m->head_dim);
    mod_embed(p, &m->embed);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct layer *l = &layers[i];
        mod_norm(p, p->h, l->attn_norm, p->norm);
        mod_linear(
            p, p->norm,
            (struct mod_out[]){{&l->q, l->bq, p->q}, {&l->k, l->bk, p->k}, {&l->v, l->bv, p->v}},
            3);
        mod_rope(p, p->q, m->n_heads);
        mod_rope(p, p->k, m->n_kv_heads);
        TRY(mod_attention(p, i, scale));
        mod_linear(p, p->att, (struct mod_out[]){{&l->o, l->bo, p->norm}}, 1);
        mod_residual(p, p->norm);
        mod_norm(p, p->h, l->ffn_norm, p->norm);
        mod_linear(p, p->norm,
                   (struct mod_out[]){{&l->gate, l->bgate, p->gate}, {&l->up, l->bup, p->up}}, 2);
        mod_swiglu(p);
        mod_linear(p, p->gate, (struct mod_out[]){{&l->down, l->bdown, p->norm}}, 1);
        mod_residual(p, p->norm);
    }
    return 0;
}

static const char *const names[] = {"llama", NULL};
static const struct arch llama_arch = {names, llama_open, llama_forward};
MODEL_ARCH(llama, &llama_arch);
