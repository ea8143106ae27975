/* whisper.c - Whisper (Radford et al. 2022): an encoder of log-mel features and a decoder of text, both with LayerNorm
 * before each half, an exact GELU, and no bias of keys.  Two convolutions with a width of three make a row of every two
 * frames.  Positions of the encoder and of the decoder are tables.  The cross sites follow the decoder's own. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TAPS 3u /* width of both convolutions */

struct attn {
    struct mod_norm norm;
    struct dev_weight q, k, v, o;
    float *bq, *bk, *bv, *bo;
};
struct layer {
    struct attn self, cross; /* cross: of the decoder */
    struct mod_norm norm;    /* before the MLP */
    struct dev_weight up, down;
    float *bup, *bdown;
};
struct whisper {
    struct dev_weight conv[2]; /* [hidden][channels][TAPS] as [hidden][channels * TAPS] */
    float *conv_bias[2];
    struct dev_weight encoder_positions, positions;
    struct mod_norm encoder_norm;
    struct layer *encoder, *decoder; /* [n_layers] each */
    uint32_t encoder_heads, encoder_ffn;
    float embed_scale;
};

static int read_config(struct model *m, struct whisper *w)
{
    struct model_encoder *e = &m->encoder;
    const char *act = "gelu";
    bool scaled = false;
    uint32_t start = 0;
    TRY(model_need_u32(m, "encoder_layers", NULL, 1, 512, &e->n_layers));
    TRY(model_need_u32(m, "decoder_layers", NULL, 1, 512, &m->n_layers));
    TRY(model_need_u32(m, "d_model", NULL, 1, 1u << 17, &m->hidden));
    TRY(model_need_u32(m, "encoder_attention_heads", NULL, 1, 1024, &w->encoder_heads));
    TRY(model_need_u32(m, "decoder_attention_heads", NULL, 1, 1024, &m->n_heads));
    TRY(model_need_u32(m, "encoder_ffn_dim", NULL, 1, 1u << 20, &w->encoder_ffn));
    TRY(model_need_u32(m, "decoder_ffn_dim", NULL, 1, 1u << 20, &m->ffn));
    TRY(model_need_u32(m, "max_source_positions", NULL, 1, 1u << 16, &e->rows));
    TRY(model_need_u32(m, "max_target_positions", NULL, 1, 1u << 16, &m->context));
    TRY(model_need_u32(m, "num_mel_bins", NULL, 1, 512, &e->bins));
    TRY(json_get_str(m->config, m->config_file, "activation_function", &act));
    if (strcmp(act, "gelu") != 0)
        return ERR(UNSUPPORTED, "%s: activation_function is \"%s\", but whisper supports only gelu",
                   m->config_file, act);
    if (m->hidden % m->n_heads || m->hidden % w->encoder_heads)
        return ERR(FORMAT, "%s: d_model %u is not a multiple of %u and %u heads", m->config_file,
                   m->hidden, w->encoder_heads, m->n_heads);
    TRY(json_get_bool(m->config, m->config_file, "scale_embedding", &scaled));
    w->embed_scale = scaled ? sqrtf((float)m->hidden) : 1;
    e->fixed = e->whole = true;
    e->stride = 2;
    e->start = -1;
    int found = model_u32(m, "decoder_start_token_id", NULL, 0, INT32_MAX, &start);
    if (found < 0) return found;
    if (found) e->start = (int32_t)start;
    m->n_kv_heads = m->n_heads;
    m->head_dim = m->hidden / m->n_heads;
    m->norm_eps = 1e-5f;
    m->learned_positions = true;
    m->no_sinks = "its positions are learned, so rows cannot move to other positions";
    TRY(model_new_sites(m, 2 * m->n_layers));
    for (uint32_t i = 0; i < m->n_layers; i++) {
        m->site[m->n_layers + i].kind = KV_FROZEN;
        m->site[m->n_layers + i].layer = i;
    }
    return 0;
}

/* --- the weights */

/* Binds a tensor [hidden][channels][TAPS] as a matrix.  Its columns are those of a row that `unfold` makes. */
static int bind_conv(struct model *m, uint32_t i, uint32_t channels, struct dev_weight *out,
                     float **bias)
{
    char name[64];
    snprintf(name, sizeof name, "model.encoder.conv%u.weight", i + 1);
    const struct tensor *t = model_find(m, name, NULL, 0);
    if (!t || t->n_dims != 3 || t->dim[0] != m->hidden || t->dim[1] != channels ||
        t->dim[2] != TAPS)
        return ERR(FORMAT, "%s: %s is missing or not [%u, %u, %u]", m->what, name, m->hidden,
                   channels, TAPS);
    if (!dev_weight_supported(t->dtype))
        return ERR(UNSUPPORTED, "%s: %s has a type that is not supported", m->what, name);
    *out = (struct dev_weight){t->data, m->hidden, channels * TAPS, t->dtype};
    snprintf(name, sizeof name, "model.encoder.conv%u.bias", i + 1);
    return model_vector(m, name, NULL, 0, m->hidden, false, bias);
}

static int bind_attn(struct model *m, const char *stack, const char *part, uint32_t layer,
                     struct attn *a)
{
    char q[96], k[96], v[96], o[96], norm[96];
    uint32_t d = m->hidden;
    snprintf(q, sizeof q, "model.%s.layers.%%u.%s.q_proj", stack, part);
    snprintf(k, sizeof k, "model.%s.layers.%%u.%s.k_proj", stack, part);
    snprintf(v, sizeof v, "model.%s.layers.%%u.%s.v_proj", stack, part);
    snprintf(o, sizeof o, "model.%s.layers.%%u.%s.out_proj", stack, part);
    snprintf(norm, sizeof norm, "model.%s.layers.%%u.%s_layer_norm", stack, part);
    TRY(model_norm(m, NORM_LAYER, norm, NULL, layer, d, false, &a->norm));
    return model_bind_projs(m, layer,
                            (struct model_proj[]){{q, NULL, d, d, &a->q, &a->bq},
                                                  {k, NULL, d, d, &a->k, &a->bk},
                                                  {v, NULL, d, d, &a->v, &a->bv},
                                                  {o, NULL, d, d, &a->o, &a->bo},
                                                  {0}});
}

static int bind_layer(struct model *m, const char *stack, uint32_t i, uint32_t ffn, struct layer *l)
{
    char up[64], down[64], norm[64];
    uint32_t d = m->hidden;
    snprintf(up, sizeof up, "model.%s.layers.%%u.fc1", stack);
    snprintf(down, sizeof down, "model.%s.layers.%%u.fc2", stack);
    snprintf(norm, sizeof norm, "model.%s.layers.%%u.final_layer_norm", stack);
    TRY(bind_attn(m, stack, "self_attn", i, &l->self));
    TRY(model_norm(m, NORM_LAYER, norm, NULL, i, d, false, &l->norm));
    return model_bind_projs(m, i,
                            (struct model_proj[]){{up, NULL, ffn, d, &l->up, &l->bup},
                                                  {down, NULL, d, ffn, &l->down, &l->bdown},
                                                  {0}});
}

static int bind_ends(struct model *m, struct whisper *w)
{
    uint32_t d = m->hidden;
    TRY(model_need_u32(m, "vocab_size", NULL, 1, 1u << 24, &m->vocab));
    TRY(model_matrix(m, "model.decoder.embed_tokens.weight", NULL, 0, m->vocab, d, &m->embed));
    m->tied = true;
    TRY(json_get_bool(m->config, m->config_file, "tie_word_embeddings", &m->tied));
    m->head = m->embed;
    if (!m->tied) TRY(model_matrix(m, "proj_out.weight", NULL, 0, m->vocab, d, &m->head));
    TRY(model_plain(m, "model.encoder.embed_positions.weight", NULL, 0, m->encoder.rows, d,
                    &w->encoder_positions));
    TRY(model_plain(m, "model.decoder.embed_positions.weight", NULL, 0, m->context, d,
                    &w->positions));
    TRY(bind_conv(m, 0, m->encoder.bins, &w->conv[0], &w->conv_bias[0]));
    TRY(bind_conv(m, 1, d, &w->conv[1], &w->conv_bias[1]));
    TRY(model_norm(m, NORM_LAYER, "model.encoder.layer_norm", NULL, 0, d, false, &w->encoder_norm));
    return model_norm(m, NORM_LAYER, "model.decoder.layer_norm", NULL, 0, d, false, &m->final_norm);
}

static int whisper_open(struct model *m)
{
    if (model_is_gguf(m))
        return ERR(UNSUPPORTED, "%s: whisper is read from Hugging Face directories only", m->what);
    struct whisper *w = model_own(m, 1, sizeof *w);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    TRY(read_config(m, w));
    TRY(bind_ends(m, w));
    w->encoder = model_own(m, m->encoder.n_layers, sizeof *w->encoder);
    w->decoder = model_own(m, m->n_layers, sizeof *w->decoder);
    if (!w->encoder || !w->decoder) return ERR_NOMEM;
    for (uint32_t i = 0; i < m->encoder.n_layers; i++)
        TRY(bind_layer(m, "encoder", i, w->encoder_ffn, &w->encoder[i]));
    for (uint32_t i = 0; i < m->n_layers; i++) {
        TRY(bind_layer(m, "decoder", i, m->ffn, &w->decoder[i]));
        TRY(bind_attn(m, "decoder", "encoder_attn", i, &w->decoder[i].cross));
    }
    return 0;
}

/* --- the front of the encoder */
struct front {
    const struct whisper *w;
    uint32_t bins, hidden;
    /* Per row: the columns of its two frames [2][bins * TAPS], the frames [2][hidden], and its own columns
     * [hidden * TAPS]. */
    float *frame_columns, *frames, *columns;
};

/* Writes for each of n frames its channels with the frame before and after: [channel][TAPS].  Frames outside are zeros. */
static void unfold_features(const struct front *f, const struct exec_source *s, float *out)
{
    for (uint32_t t = 0; t < s->frames; t++)
        for (uint32_t c = 0; c < f->bins; c++)
            for (uint32_t j = 0; j < TAPS; j++) {
                bool inside = t + j >= 1 && t + j <= s->frames;
                *out++ = inside ? s->features[(size_t)c * s->frames + t + j - 1] : 0;
            }
}

/* The same for n rows, each two frames after the one before; x: [2 n][hidden]. */
static void unfold_frames(const struct front *f, const float *x, uint32_t n, float *out)
{
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t c = 0; c < f->hidden; c++)
            for (uint32_t j = 0; j < TAPS; j++) {
                bool inside = 2 * r + j >= 1 && 2 * r + j <= 2 * n;
                *out++ = inside ? x[(size_t)(2 * r + j - 1) * f->hidden + c] : 0;
            }
}

static void convolve(struct pass *p, const struct front *f, uint32_t i, const float *x, uint32_t n,
                     float *y)
{
    struct dev_mm mm = {&f->w->conv[i], f->w->conv_bias[i], y, f->hidden};
    dev_matmul(p->dev, p->x->compute, x, f->w->conv[i].cols, n, &mm, 1);
    dev_gelu_erf(p->dev, y, n, f->hidden);
}

static int front_run(struct pass *p, const void *arg)
{
    const struct front *f = arg;
    float *h = p->h;
    for (uint32_t i = 0; i < p->n_fed; i++) {
        const struct exec_source *s = p->fed[i].source;
        uint32_t n = p->fed[i].rows.n;
        unfold_features(f, s, f->frame_columns);
        /* A product has at most as many rows as the step, so the frames take two. */
        for (uint32_t half = 0; half < 2; half++)
            convolve(p, f, 0, f->frame_columns + (size_t)half * n * f->bins * TAPS, n,
                     f->frames + (size_t)half * n * f->hidden);
        unfold_frames(f, f->frames, n, f->columns);
        convolve(p, f, 1, f->columns, n, h);
        h += (size_t)n * f->hidden;
    }
    return 0;
}

static void front(const struct model *m, struct graph *g)
{
    struct front *f = graph_own(g, 1, sizeof *f);
    if (!f) return;
    *f = (struct front){.w = m->arch_weights,
                        .bins = m->encoder.bins,
                        .hidden = m->hidden,
                        .frame_columns = graph_buffer(g, (size_t)2 * m->encoder.bins * TAPS),
                        .frames = graph_buffer(g, (size_t)2 * m->hidden),
                        .columns = graph_buffer(g, (size_t)m->hidden * TAPS)};
    graph_needs(g, MAX(m->encoder.bins, m->hidden) * TAPS, m->hidden);
    graph_op(g, front_run, f);
}

/* --- the graphs */
struct buffers {
    float *x, *q, *k, *v, *att, *up;
};

static struct buffers buffers_new(struct graph *g, uint32_t d, uint32_t ffn)
{
    return (struct buffers){.x = graph_buffer(g, d),
                            .q = graph_buffer(g, d),
                            .k = graph_buffer(g, d),
                            .v = graph_buffer(g, d),
                            .att = graph_buffer(g, d),
                            .up = graph_buffer(g, ffn)};
}

static void project(const struct model *m, struct graph *g, const struct attn *a,
                    const struct buffers *b)
{
    mod_norm(g, &a->norm, graph_h(g), 1, m->hidden, b->x);
    mod_linear(g, b->x,
               (struct mod_out[]){{&a->q, a->bq, b->q}, {&a->k, a->bk, b->k}, {&a->v, a->bv, b->v}},
               3);
}

/* h += o(att) */
static void add_attention(const struct model *m, struct graph *g, const struct attn *a,
                          const struct buffers *b)
{
    mod_linear(g, b->att, (struct mod_out[]){{&a->o, a->bo, b->x}}, 1);
    mod_add(g, graph_h(g), b->x, m->hidden);
}

static void mlp(const struct model *m, struct graph *g, const struct layer *l, uint32_t ffn,
                const struct buffers *b)
{
    mod_norm(g, &l->norm, graph_h(g), 1, m->hidden, b->x);
    mod_linear(g, b->x, (struct mod_out[]){{&l->up, l->bup, b->up}}, 1);
    mod_gelu_erf(g, b->up, ffn);
    mod_linear(g, b->up, (struct mod_out[]){{&l->down, l->bdown, b->x}}, 1);
    mod_add(g, graph_h(g), b->x, m->hidden);
}

static int whisper_encode(const struct model *m, struct graph *g)
{
    const struct whisper *w = m->arch_weights;
    uint32_t dim = m->hidden / w->encoder_heads;
    struct buffers b = buffers_new(g, m->hidden, w->encoder_ffn);
    front(m, g);
    mod_embed_positions(g, &w->encoder_positions, graph_h(g));
    for (uint32_t i = 0; i < m->encoder.n_layers; i++) {
        const struct layer *l = &w->encoder[i];
        project(m, g, &l->self, &b);
        mod_attend(g, &(struct mod_attend){.heads = w->encoder_heads,
                                           .dim = dim,
                                           .q = b.q,
                                           .k = b.k,
                                           .v = b.v,
                                           .out = b.att,
                                           .scale = 1.0f / sqrtf((float)dim)});
        add_attention(m, g, &l->self, &b);
        mlp(m, g, l, w->encoder_ffn, &b);
    }
    mod_norm(g, &w->encoder_norm, graph_h(g), 1, m->hidden, b.x);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct attn *a = &w->decoder[i].cross;
        mod_linear(g, b.x, (struct mod_out[]){{&a->k, a->bk, b.k}, {&a->v, a->bv, b.v}}, 2);
        mod_attention(
            g, &(struct mod_attention){
                   .layer = i, .site = m->n_layers + i, .heads = m->n_heads, .k = b.k, .v = b.v});
    }
    return 0;
}

static int whisper_graph(const struct model *m, struct graph *g)
{
    const struct whisper *w = m->arch_weights;
    struct buffers b = buffers_new(g, m->hidden, m->ffn);
    struct mod_attention at = {
        .heads = m->n_heads, .q = b.q, .out = b.att, .scale = 1.0f / sqrtf((float)m->head_dim)};
    mod_embed(g, &m->embed, w->embed_scale);
    mod_embed_positions(g, &w->positions, graph_h(g));
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct layer *l = &w->decoder[i];
        mod_mark(g, i);
        project(m, g, &l->self, &b);
        at.layer = at.site = i;
        at.k = b.k;
        at.v = b.v;
        mod_attention(g, &at);
        add_attention(m, g, &l->self, &b);
        mod_norm(g, &l->cross.norm, graph_h(g), 1, m->hidden, b.x);
        mod_linear(g, b.x, (struct mod_out[]){{&l->cross.q, l->cross.bq, b.q}}, 1);
        at.site = m->n_layers + i;
        at.k = at.v = NULL;
        mod_attention(g, &at);
        add_attention(m, g, &l->cross, &b);
        mlp(m, g, l, m->ffn, &b);
    }
    return 0;
}

static const char *const names[] = {"whisper", NULL};
static const struct arch whisper = {
    .names = names, .open = whisper_open, .graph = whisper_graph, .encode = whisper_encode};
MODEL_ARCH(whisper, &whisper);
