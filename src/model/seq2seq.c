/* seq2seq.c - the layers of encoder-decoder models (seq2seq.h): their configuration and tensor names as BART
 * spells them, and the words of both stacks. */
#include "model/seq2seq.h"

#include <math.h>
#include <stdio.h>

/* --- the configuration */
int s2s_sites(struct model *m)
{
    TRY(model_new_sites(m, 2 * m->n_layers));
    for (uint32_t i = 0; i < m->n_layers; i++) {
        m->site[m->n_layers + i].kind = KV_FROZEN;
        m->site[m->n_layers + i].layer = i;
    }
    return 0;
}

int s2s_start(struct model *m)
{
    static const char key[] = "decoder_start_token_id";
    uint32_t start = 0;
    m->encoder.start = -1;
    int found = model_u32(m, key, key, 0, INT32_MAX, &start);
    if (found > 0) m->encoder.start = (int32_t)start;
    return MIN(found, 0);
}

static int read_stack(const struct model *m, const char *name, struct s2s_stack *s)
{
    char layers[32], heads[40], ffn[32];
    snprintf(layers, sizeof layers, "%s_layers", name);
    snprintf(heads, sizeof heads, "%s_attention_heads", name);
    snprintf(ffn, sizeof ffn, "%s_ffn_dim", name);
    s->name = name;
    TRY(model_need_u32(m, layers, NULL, 1, MODEL_LAYERS, &s->n_layers));
    TRY(model_need_u32(m, heads, NULL, 1, 1024, &s->heads));
    TRY(model_need_u32(m, ffn, NULL, 1, 1u << 20, &s->ffn));
    if (m->hidden % s->heads)
        return ERR(FORMAT, "%s: d_model %u is not a multiple of the %u heads of the %s",
                   m->config_file, m->hidden, s->heads, name);
    s->dim = m->hidden / s->heads;
    s->scale = 1.0f / sqrtf((float)s->dim);
    return 0;
}

int s2s_config(struct model *m, struct s2s_stack *encoder, struct s2s_stack *decoder)
{
    bool scaled = false;
    TRY(model_need_u32(m, "d_model", NULL, 1, 1u << 17, &m->hidden));
    TRY(read_stack(m, "encoder", encoder));
    TRY(read_stack(m, "decoder", decoder));
    TRY(json_get_bool(m->config, m->config_file, "scale_embedding", &scaled));
    if (scaled) m->embed_scale = sqrtf((float)m->hidden);
    m->encoder.n_layers = encoder->n_layers;
    m->encoder.heads = encoder->heads;
    m->encoder.fixed = true;
    m->n_layers = decoder->n_layers;
    m->ffn = decoder->ffn;
    m->n_heads = m->n_kv_heads = decoder->heads;
    m->head_dim = decoder->dim;
    m->norm_eps = 1e-5f;
    m->learned_positions = true;
    m->no_sinks = "its positions are learned, so rows cannot move to other positions";
    TRY(s2s_start(m));
    return s2s_sites(m);
}

/* --- the weights */
static int bind_attn(struct model *m, const char *stack, const char *part, uint32_t layer,
                     struct s2s_attn *a)
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

static int bind_mlp(struct model *m, const struct s2s_stack *s, uint32_t layer, struct s2s_mlp *a)
{
    char up[64], down[64], norm[64];
    uint32_t d = m->hidden;
    snprintf(up, sizeof up, "model.%s.layers.%%u.fc1", s->name);
    snprintf(down, sizeof down, "model.%s.layers.%%u.fc2", s->name);
    snprintf(norm, sizeof norm, "model.%s.layers.%%u.final_layer_norm", s->name);
    TRY(model_norm(m, NORM_LAYER, norm, NULL, layer, d, false, &a->norm));
    return model_bind_projs(m, layer,
                            (struct model_proj[]){{up, NULL, s->ffn, d, &a->up, &a->bup},
                                                  {down, NULL, d, s->ffn, &a->down, &a->bdown},
                                                  {0}});
}

int s2s_bind(struct model *m, struct s2s_stack *s, bool cross)
{
    s->layer = model_own(m, s->n_layers, sizeof *s->layer);
    if (!s->layer) return ERR_NOMEM;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        struct s2s_layer *l = &s->layer[i];
        TRY(bind_attn(m, s->name, "self_attn", i, &l->self));
        TRY(bind_mlp(m, s, i, &l->mlp));
        if (cross) TRY(bind_attn(m, s->name, "encoder_attn", i, &l->cross));
    }
    return 0;
}

/* --- the graphs */
struct buffers {
    float *x, *q, *k, *v, *att, *gate, *up;
};

static struct buffers buffers_new(const struct model *m, struct graph *g, const struct s2s_stack *s)
{
    uint32_t inner = s->heads * s->dim;
    return (struct buffers){.x = graph_buffer(g, m->hidden),
                            .q = graph_buffer(g, inner),
                            .k = graph_buffer(g, inner),
                            .v = graph_buffer(g, inner),
                            .att = graph_buffer(g, inner),
                            .gate = s->gated ? graph_buffer(g, s->ffn) : NULL,
                            .up = graph_buffer(g, s->ffn)};
}

/* Begins one half of a layer: returns its input. */
static const float *half_begin(const struct model *m, struct graph *g, const struct s2s_stack *s,
                               const struct mod_norm *norm, const struct buffers *b)
{
    if (s->after) return graph_h(g);
    mod_norm(g, norm, graph_h(g), 1, m->hidden, b->x);
    return b->x;
}

/* Ends one half of a layer: adds its result, which is in b->x. */
static void half_end(const struct model *m, struct graph *g, const struct s2s_stack *s,
                     const struct mod_norm *norm, const struct buffers *b)
{
    mod_add(g, graph_h(g), b->x, m->hidden);
    if (s->after) mod_norm(g, norm, graph_h(g), 1, m->hidden, graph_h(g));
}

static void project(const struct model *m, struct graph *g, const struct s2s_stack *s,
                    const struct s2s_attn *a, const struct buffers *b)
{
    const float *x = half_begin(m, g, s, &a->norm, b);
    mod_linear(g, x,
               (struct mod_out[]){{&a->q, a->bq, b->q}, {&a->k, a->bk, b->k}, {&a->v, a->bv, b->v}},
               3);
}

static void add_attention(const struct model *m, struct graph *g, const struct s2s_stack *s,
                          const struct s2s_attn *a, const struct buffers *b)
{
    mod_linear(g, b->att, (struct mod_out[]){{&a->o, a->bo, b->x}}, 1);
    half_end(m, g, s, &a->norm, b);
}

/* x = act(x), multiplied by `by` if the MLP has a gate */
static void activate(struct graph *g, enum s2s_act act, float *x, const float *by, uint32_t width)
{
    if (act == S2S_SILU && by) {
        mod_silu_mul(g, x, by, width);
    } else if (act == S2S_GELU_TANH && by) {
        mod_gelu_mul(g, x, by, width);
    } else {
        if (act == S2S_RELU) mod_relu(g, x, width);
        if (act == S2S_GELU_TANH) mod_gelu(g, x, width);
        if (act == S2S_GELU_ERF) mod_gelu_erf(g, x, width);
        if (by) mod_mul(g, x, by, width);
    }
}

static void mlp(const struct model *m, struct graph *g, const struct s2s_stack *s,
                const struct s2s_mlp *a, const struct buffers *b)
{
    const float *x = half_begin(m, g, s, &a->norm, b);
    float *y = s->gated ? b->gate : b->up;
    const struct mod_out up = {&a->up, a->bup, b->up};
    if (s->gated)
        mod_linear(g, x, (struct mod_out[]){{&a->gate, NULL, b->gate}, up}, 2);
    else
        mod_linear(g, x, &up, 1);
    activate(g, s->act, y, s->gated ? b->up : NULL, s->ffn);
    mod_linear(g, y, (struct mod_out[]){{&a->down, a->bdown, b->x}}, 1);
    half_end(m, g, s, &a->norm, b);
}

void s2s_encode(const struct model *m, struct graph *g, const struct s2s_stack *encoder,
                const struct s2s_stack *decoder)
{
    struct buffers b = buffers_new(m, g, encoder);
    for (uint32_t i = 0; i < encoder->n_layers; i++) {
        const struct s2s_layer *l = &encoder->layer[i];
        mod_mark(g, i);
        project(m, g, encoder, &l->self, &b);
        mod_attend(g, &(struct mod_attend){.layer = i,
                                           .heads = encoder->heads,
                                           .dim = encoder->dim,
                                           .q = b.q,
                                           .k = b.k,
                                           .v = b.v,
                                           .out = b.att,
                                           .scale = encoder->scale,
                                           .bias = encoder->bias});
        add_attention(m, g, encoder, &l->self, &b);
        mlp(m, g, encoder, &l->mlp, &b);
    }
    const float *x = half_begin(m, g, encoder, &encoder->last_norm, &b);
    mod_mark_end(g, encoder->n_layers, x);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct s2s_attn *a = &decoder->layer[i].cross;
        mod_linear(g, x, (struct mod_out[]){{&a->k, a->bk, b.k}, {&a->v, a->bv, b.v}}, 2);
        mod_attention(
            g, &(struct mod_attention){
                   .layer = i, .site = m->n_layers + i, .heads = m->n_heads, .k = b.k, .v = b.v});
    }
}

void s2s_decode(const struct model *m, struct graph *g, const struct s2s_stack *decoder)
{
    struct buffers b = buffers_new(m, g, decoder);
    struct mod_attention at = {
        .heads = decoder->heads, .q = b.q, .out = b.att, .scale = decoder->scale};
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct s2s_layer *l = &decoder->layer[i];
        mod_mark(g, i);
        project(m, g, decoder, &l->self, &b);
        at.layer = at.site = i;
        at.k = b.k;
        at.v = b.v;
        at.bias = decoder->bias;
        mod_attention(g, &at);
        add_attention(m, g, decoder, &l->self, &b);
        const float *x = half_begin(m, g, decoder, &l->cross.norm, &b);
        mod_linear(g, x, (struct mod_out[]){{&l->cross.q, l->cross.bq, b.q}}, 1);
        at.site = m->n_layers + i;
        at.k = at.v = NULL;
        at.bias = NULL;
        mod_attention(g, &at);
        add_attention(m, g, decoder, &l->cross, &b);
        mlp(m, g, decoder, &l->mlp, &b);
    }
}
