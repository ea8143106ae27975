/* gpt2.c - GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each half, one fused projection for queries,
 * keys and values, an MLP with tanh-GELU, biases everywhere, and the embedding as head.  Hugging Face files hold
 * matrices as Conv1D does, [in][out], and may prefix names with "transformer.".  Positions are rows of a table, so a
 * sink cache, which moves rows to other positions, is refused. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct layer {
    struct mod_norm norm1, norm2;
    struct dev_weight q, k, v, o, up, down;
    float *bqkv, *bo, *bup, *bdown;
    float scale;
};
struct gpt2 {
    struct dev_weight positions;
    struct layer layer[];
};

static int gpt2_read_config(struct model *m)
{
    const json_t *c = m->config;
    const char *act = "gelu_new";
    bool cross = false;
    TRY(model_need_u32(m, "n_layer", "block_count", 1, MODEL_LAYERS, &m->n_layers));
    TRY(model_need_u32(m, "n_embd", "embedding_length", 1, 1u << 17, &m->hidden));
    TRY(model_need_u32(m, "n_head", "attention.head_count", 1, 1024, &m->n_heads));
    TRY(model_need_u32(m, "n_positions", "context_length", 1, 1u << 24, &m->context));
    m->ffn = 4 * m->hidden;
    TRY(model_u32(m, "n_inner", "feed_forward_length", 1, 1u << 20, &m->ffn));
    TRY(model_read_eps(m, "layer_norm_epsilon", "attention.layer_norm_epsilon", 1e-5f));
    if (m->hidden % m->n_heads)
        return ERR(FORMAT, "%s: n_embd %u is not a multiple of n_head %u", m->config_file,
                   m->hidden, m->n_heads);
    m->n_kv_heads = m->n_heads;
    m->head_dim = m->hidden / m->n_heads;
    m->learned_positions = true;
    m->no_sinks = "its positions are learned, so rows cannot move to other positions";
    if (!model_is_gguf(m)) {
        TRY(json_get_str(c, m->config_file, "activation_function", &act));
        TRY(json_get_bool(c, m->config_file, "add_cross_attention", &cross));
    }
    if (strcmp(act, "gelu_new") != 0 && strcmp(act, "gelu_pytorch_tanh") != 0)
        return ERR(UNSUPPORTED,
                   "%s: activation_function is \"%s\", but gpt2 supports only gelu_new",
                   m->config_file, act);
    if (cross) return ERR(UNSUPPORTED, "%s: add_cross_attention is not supported", m->what);
    return model_new_sites(m, m->n_layers);
}

/* Builds tensor names with the prefix that the file uses. */
struct namer {
    const char *prefix;
    char name[96];
};

static const char *name(struct namer *n, const char *tail)
{
    snprintf(n->name, sizeof n->name, "%s%s", n->prefix, tail);
    return n->name;
}

static int bind_norm(struct model *m, struct namer *n, uint32_t layer, const char *hf,
                     const char *gguf, struct mod_norm *norm)
{
    TRY(model_norm(m, NORM_LAYER, name(n, hf), gguf, layer, m->hidden, false, norm));
    if (norm->b) return 0;
    return ERR(FORMAT, "%s: layer %u: the norm %s has no bias", m->what, layer, hf);
}

static int bind_conv(struct model *m, struct namer *n, uint32_t layer, const char *hf,
                     const char *gguf, uint32_t rows, uint32_t cols, struct dev_weight *w,
                     float **b)
{
    char h[64], g[64];
    snprintf(h, sizeof h, "%s.weight", hf);
    snprintf(g, sizeof g, "%s.weight", gguf);
    TRY(model_transposed(m, name(n, h), g, layer, rows, cols, w));
    snprintf(h, sizeof h, "%s.bias", hf);
    snprintf(g, sizeof g, "%s.bias", gguf);
    return model_vector(m, name(n, h), g, layer, rows, false, b);
}

static int gpt2_bind_layer(struct model *m, struct namer *n, uint32_t i, struct layer *l)
{
    uint32_t h = m->hidden;
    struct dev_weight qkv;
    TRY(bind_norm(m, n, i, "h.%u.ln_1", "blk.%u.attn_norm", &l->norm1));
    TRY(bind_norm(m, n, i, "h.%u.ln_2", "blk.%u.ffn_norm", &l->norm2));
    TRY(bind_conv(m, n, i, "h.%u.attn.c_attn", "blk.%u.attn_qkv", 3 * h, h, &qkv, &l->bqkv));
    TRY(bind_conv(m, n, i, "h.%u.attn.c_proj", "blk.%u.attn_output", h, h, &l->o, &l->bo));
    TRY(bind_conv(m, n, i, "h.%u.mlp.c_fc", "blk.%u.ffn_up", m->ffn, h, &l->up, &l->bup));
    TRY(bind_conv(m, n, i, "h.%u.mlp.c_proj", "blk.%u.ffn_down", h, m->ffn, &l->down, &l->bdown));
    l->q = model_rows(&qkv, 0, h);
    l->k = model_rows(&qkv, h, h);
    l->v = model_rows(&qkv, 2 * h, h);
    return 0;
}

static int gpt2_bind_ends(struct model *m, struct namer *n, struct gpt2 *w)
{
    const struct tensor *t = model_find(m, name(n, "wte.weight"), "token_embd.weight", 0);
    if (!t || t->n_dims != 2 || t->dim[0] < 1 || t->dim[0] > 1u << 24)
        return ERR(FORMAT, "%s: the token embedding is missing or not a matrix", m->what);
    m->vocab = (uint32_t)t->dim[0];
    TRY(model_u32(m, "vocab_size", "vocab_size", 1, 1u << 24, &m->vocab));
    TRY(model_matrix(m, name(n, "wte.weight"), "token_embd.weight", 0, m->vocab, m->hidden,
                     &m->embed));
    TRY(model_plain(m, name(n, "wpe.weight"), "position_embd.weight", 0, m->context, m->hidden,
                    &w->positions));
    m->tied = true;
    if (model_is_gguf(m))
        m->tied = !model_find(m, NULL, "output.weight", 0);
    else
        TRY(json_get_bool(m->config, m->config_file, "tie_word_embeddings", &m->tied));
    m->head = m->embed;
    if (!m->tied)
        TRY(model_matrix(m, "lm_head.weight", "output.weight", 0, m->vocab, m->hidden, &m->head));
    return bind_norm(m, n, 0, "ln_f", "output_norm", &m->final_norm);
}

/* Reads the scale of scores by scale_attn_weights and scale_attn_by_inverse_layer_idx. */
static int read_scale(struct model *m, struct gpt2 *w)
{
    const json_t *c = m->config;
    bool by_dim = true, by_layer = false;
    if (!model_is_gguf(m)) {
        TRY(json_get_bool(c, m->config_file, "scale_attn_weights", &by_dim));
        TRY(json_get_bool(c, m->config_file, "scale_attn_by_inverse_layer_idx", &by_layer));
    }
    for (uint32_t i = 0; i < m->n_layers; i++)
        w->layer[i].scale =
            (by_dim ? 1.0f / sqrtf((float)m->head_dim) : 1.0f) / (by_layer ? (float)(i + 1) : 1.0f);
    return 0;
}

static int gpt2_open(struct model *m)
{
    struct namer n = {"", ""};
    TRY(gpt2_read_config(m));
    if (model_find(m, "transformer.wte.weight", NULL, 0)) n.prefix = "transformer.";
    struct gpt2 *w = model_own(m, 1, sizeof *w + m->n_layers * sizeof w->layer[0]);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    TRY(gpt2_bind_ends(m, &n, w));
    TRY(read_scale(m, w));
    for (uint32_t i = 0; i < m->n_layers; i++)
        TRY(gpt2_bind_layer(m, &n, i, &w->layer[i]));
    return 0;
}

static int gpt2_graph(const struct model *m, struct graph *g)
{
    const struct gpt2 *w = m->arch_weights;
    uint32_t d = m->hidden;
    float *h = graph_h(g), *x = graph_buffer(g, d), *att = graph_buffer(g, d);
    float *q = graph_buffer(g, d), *k = graph_buffer(g, d), *v = graph_buffer(g, d);
    float *up = graph_buffer(g, m->ffn);
    mod_embed(g);
    mod_embed_positions(g, &w->positions, h);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct layer *l = &w->layer[i];
        const float *b = l->bqkv;
        mod_mark(g, i);
        mod_norm(g, &l->norm1, h, 1, d, x);
        mod_linear(g, x,
                   (struct mod_out[]){{&l->q, b, q}, {&l->k, b + d, k}, {&l->v, b + 2 * d, v}}, 3);
        mod_attention(g, &(struct mod_attention){.layer = i,
                                                 .site = i,
                                                 .heads = m->n_heads,
                                                 .q = q,
                                                 .k = k,
                                                 .v = v,
                                                 .out = att,
                                                 .scale = l->scale});
        mod_narrow(g, i, att, d);
        mod_linear(g, att, (struct mod_out[]){{&l->o, l->bo, x}}, 1);
        mod_add(g, h, x, d);
        mod_norm(g, &l->norm2, h, 1, d, x);
        mod_linear(g, x, (struct mod_out[]){{&l->up, l->bup, up}}, 1);
        mod_gelu(g, up, m->ffn);
        mod_linear(g, up, (struct mod_out[]){{&l->down, l->bdown, x}}, 1);
        mod_add(g, h, x, d);
    }
    return 0;
}

static const char *const names[] = {"gpt2", NULL};
static const struct arch gpt2_arch = {.names = names, .open = gpt2_open, .graph = gpt2_graph};
MODEL_ARCH(gpt2, &gpt2_arch);
