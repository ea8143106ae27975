/* whisper.c - Whisper (Radford et al. 2022): an encoder of log-mel features and a decoder of text, both with LayerNorm
 * before each half, an exact GELU, and no bias of keys.  Two convolutions with a width of three make a row of every two
 * frames.  Positions of the encoder and of the decoder are tables.  The cross sites follow the decoder's own. */
#include "model/seq2seq.h"

#include <stdio.h>
#include <string.h>

#define TAPS 3u /* width of both convolutions */

struct whisper {
    struct dev_weight conv[2]; /* [hidden][channels][TAPS] as [hidden][channels * TAPS] */
    float *conv_bias[2];
    struct dev_weight encoder_positions, positions;
    struct s2s_stack encoder, decoder;
};

static int whisper_read_config(struct model *m, struct whisper *w)
{
    struct model_encoder *e = &m->encoder;
    const char *act = "gelu";
    TRY(s2s_config(m, &w->encoder, &w->decoder));
    TRY(model_need_u32(m, "max_source_positions", NULL, 1, 1u << 16, &e->rows));
    TRY(model_need_u32(m, "max_target_positions", NULL, 1, 1u << 16, &m->context));
    TRY(model_need_u32(m, "num_mel_bins", NULL, 1, 512, &e->bins));
    TRY(json_get_str(m->config, m->config_file, "activation_function", &act));
    if (strcmp(act, "gelu") != 0)
        return ERR(UNSUPPORTED, "%s: activation_function is \"%s\", but whisper supports only gelu",
                   m->config_file, act);
    w->encoder.act = w->decoder.act = S2S_GELU_ERF;
    e->whole = true;
    e->stride = 2;
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

static int whisper_bind_ends(struct model *m, struct whisper *w)
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
    TRY(model_norm(m, NORM_LAYER, "model.encoder.layer_norm", NULL, 0, d, false,
                   &w->encoder.last_norm));
    return model_norm(m, NORM_LAYER, "model.decoder.layer_norm", NULL, 0, d, false, &m->final_norm);
}

static int whisper_open(struct model *m)
{
    if (model_is_gguf(m))
        return ERR(UNSUPPORTED, "%s: whisper is read from Hugging Face directories only", m->what);
    struct whisper *w = model_own(m, 1, sizeof *w);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    TRY(whisper_read_config(m, w));
    TRY(whisper_bind_ends(m, w));
    TRY(s2s_bind(m, &w->encoder, false));
    return s2s_bind(m, &w->decoder, true);
}

/* --- the front of the encoder */
struct conv_front {
    struct dev_weight conv[2];
    const float *bias[2];
    uint32_t bins, hidden;
    /* Of each row: frame_columns [2][bins * TAPS], the input of the first convolution for its two frames; frames
     * [2][hidden], the result; columns [hidden * TAPS], the input of the second convolution. */
    struct graph_table frame_columns;
    float *frames, *columns;
};

/* Writes for each of n frames its channels with the frame before and after: [channel][TAPS].  Frames outside are zeros. */
static void unfold_features(const struct conv_front *f, const struct exec_source *s, float *out)
{
    for (uint32_t t = 0; t < s->frames; t++)
        for (uint32_t c = 0; c < f->bins; c++)
            for (uint32_t j = 0; j < TAPS; j++) {
                bool inside = t + j >= 1 && t + j <= s->frames;
                *out++ = inside ? s->features[(size_t)c * s->frames + t + j - 1] : 0;
            }
}

static void convolve(struct pass *p, const struct conv_front *f, uint32_t i, const float *x,
                     uint32_t n, float *y)
{
    struct dev_mm mm = {&f->conv[i], f->bias[i], y, f->hidden};
    dev_matmul(p->queue, p->x->compute, x, f->conv[i].cols, n, &mm, 1);
    dev_gelu_erf(p->queue, y, n, f->hidden);
}

static int front_run(struct pass *p, const void *arg)
{
    const struct conv_front *f = arg;
    float *h = p->h;
    for (uint32_t i = 0; i < p->n_fed; i++) {
        const struct exec_source *s = p->fed[i].source;
        uint32_t n = p->fed[i].rows.n;
        const float *columns = f->frame_columns.at;
        unfold_features(f, s, f->frame_columns.host);
        dev_put(p->queue, f->frame_columns.at, f->frame_columns.host,
                (size_t)s->frames * f->bins * TAPS * sizeof(float));
        /* A product has no more rows than a step has tokens, so the frames take two products. */
        for (uint32_t half = 0; half < 2; half++)
            convolve(p, f, 0, columns + (size_t)half * n * f->bins * TAPS, n,
                     f->frames + (size_t)half * n * f->hidden);
        dev_unfold(p->queue, f->frames, 2 * n, f->hidden, TAPS, 2, n, f->columns);
        convolve(p, f, 1, f->columns, n, h);
        h += (size_t)n * f->hidden;
    }
    return 0;
}

static void front(const struct model *m, struct graph *g)
{
    const struct whisper *w = m->arch_weights;
    struct conv_front *f = graph_own(g, 1, sizeof *f);
    size_t row = (size_t)2 * m->encoder.bins * TAPS * sizeof(float);
    if (!f) return;
    *f = (struct conv_front){.bins = m->encoder.bins,
                             .hidden = m->hidden,
                             .frame_columns = graph_table(g, graph_step_tokens(g) * row),
                             .frames = graph_buffer(g, (size_t)2 * m->hidden),
                             .columns = graph_buffer(g, (size_t)m->hidden * TAPS)};
    for (uint32_t i = 0; i < 2; i++) {
        f->conv[i] = graph_matrix(g, &w->conv[i]);
        f->bias[i] = graph_weights(g, w->conv_bias[i], m->hidden * sizeof(float));
    }
    graph_needs(g, MAX(m->encoder.bins, m->hidden) * TAPS, m->hidden);
    graph_op(g, front_run, f);
}

/* --- the graphs */
static int whisper_encode(const struct model *m, struct graph *g)
{
    const struct whisper *w = m->arch_weights;
    front(m, g);
    mod_embed_positions(g, &w->encoder_positions, graph_h(g));
    s2s_encode(m, g, &w->encoder, &w->decoder);
    return 0;
}

static int whisper_graph(const struct model *m, struct graph *g)
{
    const struct whisper *w = m->arch_weights;
    mod_embed(g);
    mod_embed_positions(g, &w->positions, graph_h(g));
    s2s_decode(m, g, &w->decoder);
    return 0;
}

static const char *const names[] = {"whisper", NULL};
static const struct arch whisper = {
    .names = names, .open = whisper_open, .graph = whisper_graph, .encode = whisper_encode};
MODEL_ARCH(whisper, &whisper);
