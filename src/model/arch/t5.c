/* t5.c - T5 and mT5 (Raffel et al. 2020; Xue et al. 2021): an encoder and a decoder of RMS-normed layers without biases.
 * Scores are not scaled; instead each head adds a bias by the distance of the two tokens, in buckets that grow with the
 * distance: to both sides in the encoder, backwards in the decoder.  Layer 0 holds the table of all layers.  The cross
 * sites follow the decoder's own. */
#include "model/seq2seq.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct t5 {
    struct dev_bias before, around; /* bias of the decoder; bias of the encoder */
    struct s2s_stack encoder, decoder;
};

/* Names of a layer's tensors in both kinds of file. */
struct tensor_names {
    const char *hf, *gguf; /* with one %u */
};

/* --- the configuration */
static int read_act(const struct model *m, struct s2s_stack *t)
{
    static const struct {
        const char *name;
        bool gated;
        enum s2s_act act;
    } forms[] = {
        {"relu", false, S2S_RELU},
        {"gelu", false, S2S_GELU_ERF},
        {"gelu_new", false, S2S_GELU_TANH},
        {"gated-gelu", true, S2S_GELU_TANH},
        {"gated-gelu_new", true, S2S_GELU_TANH},
        {"gated-relu", true, S2S_RELU},
        {"gated-silu", true, S2S_SILU},
    };
    const char *name = "relu";
    if (model_is_gguf(m)) { /* in GGUF files, as in llama.cpp, a gate means GELU */
        t->gated = model_find(m, NULL, "enc.blk.%u.ffn_gate.weight", 0);
        t->act = t->gated ? S2S_GELU_TANH : S2S_RELU;
        return 0;
    }
    TRY(json_get_str(m->config, m->config_file, "feed_forward_proj", &name));
    for (size_t i = 0; i < countof(forms); i++) {
        if (strcmp(forms[i].name, name) != 0) continue;
        t->gated = forms[i].gated;
        t->act = forms[i].act;
        return 0;
    }
    return ERR(UNSUPPORTED, "%s: feed_forward_proj \"%s\" is not supported by t5", m->config_file,
               name);
}

enum { MOST_BUCKETS = 4096, MOST_DISTANCE = 1 << 14 };

static int t5_read_config(struct model *m, struct t5 *t, uint32_t *buckets, uint32_t *distance)
{
    struct model_encoder *e = &m->encoder;
    TRY(model_need_u32(m, "num_layers", "block_count", 1, MODEL_LAYERS, &e->n_layers));
    m->n_layers = e->n_layers;
    TRY(model_u32(m, "num_decoder_layers", "decoder_block_count", 1, MODEL_LAYERS, &m->n_layers));
    TRY(model_need_u32(m, "d_model", "embedding_length", 1, 1u << 17, &m->hidden));
    TRY(model_need_u32(m, "d_ff", "feed_forward_length", 1, 1u << 20, &m->ffn));
    TRY(model_need_u32(m, "num_heads", "attention.head_count", 1, 1024, &m->n_heads));
    TRY(model_need_u32(m, "d_kv", "attention.key_length", 1, 1024, &m->head_dim));
    m->n_kv_heads = m->encoder.heads = m->n_heads;
    m->context = 512;
    TRY(model_u32(m, "n_positions", "context_length", 1, 1u << 24, &m->context));
    e->rows = m->context;
    e->stride = 1;
    TRY(s2s_start(m));
    TRY(model_read_eps(m, "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", 1e-6f));
    *buckets = 32;
    *distance = 128; /* llama.cpp's files do not name another */
    TRY(model_u32(m, "relative_attention_num_buckets", "attention.relative_buckets_count", 4,
                  MOST_BUCKETS, buckets));
    TRY(model_u32(m, "relative_attention_max_distance", "attention.relative_max_distance", 1,
                  MOST_DISTANCE, distance));
    if (*distance <= *buckets / 2)
        return ERR(FORMAT,
                   "%s: relative_attention_max_distance is %u; with %u buckets it must be above %u",
                   m->what, *distance, *buckets, *buckets / 2);
    m->no_sinks = "its attention adds a bias by distance, and rows would move";
    TRY(s2s_sites(m));
    t->encoder = (struct s2s_stack){.name = "encoder",
                                    .n_layers = e->n_layers,
                                    .heads = m->n_heads,
                                    .dim = m->head_dim,
                                    .ffn = m->ffn,
                                    .scale = 1};
    TRY(read_act(m, &t->encoder));
    t->decoder = t->encoder;
    t->decoder.name = "decoder";
    t->decoder.n_layers = m->n_layers;
    t->encoder.bias = &t->around;
    t->decoder.bias = &t->before;
    return 0;
}

/* --- the bias */

/* Returns the bucket of a distance, in the arithmetic of Transformers: exact up to half of the buckets, then by its
 * logarithm up to `most`. */
static uint32_t bucket(uint32_t apart, uint32_t buckets, uint32_t most)
{
    uint32_t exact = buckets / 2;
    if (apart < exact) return apart;
    float by = (float)log((double)most / exact);
    float at = logf((float)apart / (float)exact) / by * (float)(buckets - exact);
    return MIN(exact + (uint32_t)at, buckets - 1);
}

/* Makes the table of a stack from its weights, [buckets][heads].  both: rows before and after the query have half of the
 * buckets each, those after it the second half. */
static int bind_bias(struct model *m, const struct tensor_names *n, uint32_t buckets,
                     uint32_t distance, bool both, struct dev_bias *out)
{
    float *w;
    uint32_t half = both ? buckets / 2 : buckets, ahead = both ? distance : 0,
             width = distance + 1 + ahead;
    TRY(model_array(m, n->hf, n->gguf, 0, (uint32_t[]){buckets, m->n_heads}, 2, &w));
    float *table = model_own(m, (size_t)m->n_heads * width, sizeof *table);
    if (!table) return ERR_NOMEM;
    for (uint32_t i = 0; i < width; i++) {
        bool after = i > distance;
        uint32_t b = bucket(after ? i - distance : distance - i, half, distance);
        b += after ? half : 0;
        for (uint32_t h = 0; h < m->n_heads; h++)
            table[(size_t)h * width + i] = w[(size_t)b * m->n_heads + h];
    }
    *out = (struct dev_bias){table, distance, ahead};
    return 0;
}

/* --- the weights */
static int bind_attn(struct model *m, uint32_t layer, const struct tensor_names *n,
                     const struct tensor_names *norm, struct s2s_attn *a)
{
    static const char *const hf[] = {"q", "k", "v", "o"};
    struct dev_weight *w[] = {&a->q, &a->k, &a->v, &a->o};
    char h[96], g[96];
    uint32_t inner = m->n_heads * m->head_dim;
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(h, sizeof h, "%s.%s.weight", n->hf, hf[i]);
        snprintf(g, sizeof g, "%s_%s.weight", n->gguf, hf[i]);
        TRY(model_matrix(m, h, g, layer, i < 3 ? inner : m->hidden, i < 3 ? m->hidden : inner,
                         w[i]));
    }
    return model_norm(m, NORM_RMS, norm->hf, norm->gguf, layer, m->hidden, false, &a->norm);
}

static int bind_mlp(struct model *m, bool gated, uint32_t layer, const struct tensor_names *n,
                    const struct tensor_names *norm, struct s2s_mlp *a)
{
    char h[96], g[96];
    uint32_t d = m->hidden, f = m->ffn;
    const struct {
        const char *hf, *gguf;
        uint32_t rows, cols;
        struct dev_weight *w;
    } part[] = {{gated ? "wi_1" : "wi", "up", f, d, &a->up},
                {"wo", "down", d, f, &a->down},
                {"wi_0", "gate", f, d, &a->gate}};
    for (uint32_t i = 0; i < (gated ? 3u : 2u); i++) {
        snprintf(h, sizeof h, "%s.%s.weight", n->hf, part[i].hf);
        snprintf(g, sizeof g, "%s_%s.weight", n->gguf, part[i].gguf);
        TRY(model_matrix(m, h, g, layer, part[i].rows, part[i].cols, part[i].w));
    }
    return model_norm(m, NORM_RMS, norm->hf, norm->gguf, layer, d, false, &a->norm);
}

#define ENC "encoder.block.%u.layer."
#define DEC "decoder.block.%u.layer."

static int bind_encoder(struct model *m, const struct t5 *t, uint32_t i, struct s2s_layer *l)
{
    TRY(bind_attn(m, i, &(struct tensor_names){ENC "0.SelfAttention", "enc.blk.%u.attn"},
                  &(struct tensor_names){ENC "0.layer_norm", "enc.blk.%u.attn_norm"}, &l->self));
    return bind_mlp(m, t->encoder.gated, i,
                    &(struct tensor_names){ENC "1.DenseReluDense", "enc.blk.%u.ffn"},
                    &(struct tensor_names){ENC "1.layer_norm", "enc.blk.%u.ffn_norm"}, &l->mlp);
}

static int bind_decoder(struct model *m, const struct t5 *t, uint32_t i, struct s2s_layer *l)
{
    TRY(bind_attn(m, i, &(struct tensor_names){DEC "0.SelfAttention", "dec.blk.%u.attn"},
                  &(struct tensor_names){DEC "0.layer_norm", "dec.blk.%u.attn_norm"}, &l->self));
    TRY(bind_attn(m, i, &(struct tensor_names){DEC "1.EncDecAttention", "dec.blk.%u.cross_attn"},
                  &(struct tensor_names){DEC "1.layer_norm", "dec.blk.%u.cross_attn_norm"},
                  &l->cross));
    return bind_mlp(m, t->encoder.gated, i,
                    &(struct tensor_names){DEC "2.DenseReluDense", "dec.blk.%u.ffn"},
                    &(struct tensor_names){DEC "2.layer_norm", "dec.blk.%u.ffn_norm"}, &l->mlp);
}

static int t5_bind_ends(struct model *m, struct t5 *t)
{
    static const char *const embed[] = {"shared.weight", "decoder.embed_tokens.weight",
                                        "encoder.embed_tokens.weight"};
    const struct tensor *e = NULL;
    uint32_t i = 0;
    while (i < countof(embed) && !(e = model_find(m, embed[i], "token_embd.weight", 0)))
        i++;
    if (!e || e->n_dims != 2 || e->dim[0] < 1 || e->dim[0] > 1u << 24)
        return ERR(FORMAT, "%s: the token embedding is missing or not a matrix", m->what);
    m->vocab = (uint32_t)e->dim[0];
    TRY(model_u32(m, "vocab_size", "vocab_size", 1, 1u << 24, &m->vocab));
    TRY(model_matrix(m, embed[i], "token_embd.weight", 0, m->vocab, m->hidden, &m->embed));
    bool head = model_find(m, "lm_head.weight", "output.weight", 0);
    m->tied = true;
    if (model_is_gguf(m))
        m->tied = !head;
    else
        TRY(json_get_bool(m->config, m->config_file, "tie_word_embeddings", &m->tied));
    m->head = m->embed;
    if (!m->tied && head)
        TRY(model_matrix(m, "lm_head.weight", "output.weight", 0, m->vocab, m->hidden, &m->head));
    m->head_scale = m->tied ? 1.0f / sqrtf((float)m->hidden) : 0;
    TRY(model_norm(m, NORM_RMS, "encoder.final_layer_norm", "enc.output_norm", 0, m->hidden, false,
                   &t->encoder.last_norm));
    return model_norm(m, NORM_RMS, "decoder.final_layer_norm", "dec.output_norm", 0, m->hidden,
                      false, &m->final_norm);
}

static int t5_open(struct model *m)
{
    uint32_t buckets, distance;
    struct t5 *t = model_own(m, 1, sizeof *t);
    if (!t) return ERR_NOMEM;
    m->arch_weights = t;
    TRY(t5_read_config(m, t, &buckets, &distance));
    TRY(t5_bind_ends(m, t));
    static const struct tensor_names enc = {ENC "0.SelfAttention.relative_attention_bias.weight",
                                            "enc.blk.%u.attn_rel_b.weight"},
                                     dec = {DEC "0.SelfAttention.relative_attention_bias.weight",
                                            "dec.blk.%u.attn_rel_b.weight"};
    TRY(bind_bias(m, &enc, buckets, distance, true, &t->around));
    TRY(bind_bias(m, &dec, buckets, distance, false, &t->before));
    t->encoder.layer = model_own(m, m->encoder.n_layers, sizeof *t->encoder.layer);
    t->decoder.layer = model_own(m, m->n_layers, sizeof *t->decoder.layer);
    if (!t->encoder.layer || !t->decoder.layer) return ERR_NOMEM;
    for (uint32_t i = 0; i < m->encoder.n_layers; i++)
        TRY(bind_encoder(m, t, i, &t->encoder.layer[i]));
    for (uint32_t i = 0; i < m->n_layers; i++)
        TRY(bind_decoder(m, t, i, &t->decoder.layer[i]));
    return 0;
}

/* --- the graphs */
static int t5_encode(const struct model *m, struct graph *g)
{
    const struct t5 *t = m->arch_weights;
    mod_embed(g);
    s2s_encode(m, g, &t->encoder, &t->decoder);
    return 0;
}

static int t5_graph(const struct model *m, struct graph *g)
{
    const struct t5 *t = m->arch_weights;
    mod_embed(g);
    s2s_decode(m, g, &t->decoder);
    return 0;
}

static const char *const names[] = {"t5", "mt5", NULL};
static const struct arch t5 = {
    .names = names, .open = t5_open, .graph = t5_graph, .encode = t5_encode};
MODEL_ARCH(t5, &t5);
