/* bart.c - BART and mBART (Lewis et al. 2019; Liu et al. 2020): an encoder and a decoder with LayerNorm and biases
 * everywhere.  BART norms after each half of a layer, mBART before it and once more at the end of each stack; both norm
 * the embeddings.  Positions of both stacks are tables whose first two rows are not used; masked columns before an
 * input count in the encoder's.  The cross sites follow the decoder's own. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIRST 2u /* row of position 0 in the tables */

struct attn {
    struct mod_norm norm;
    struct dev_weight q, k, v, o;
    float *bq, *bk, *bv, *bo;
};
struct layer {
    struct attn self, cross; /* cross: of the decoder */
    struct mod_norm norm;    /* of the MLP */
    struct dev_weight up, down;
    float *bup, *bdown;
};
struct stack {
    const char *name;
    uint32_t n_layers, heads, ffn;
    struct dev_weight positions;
    struct mod_norm embed_norm, last_norm; /* last_norm: of mBART */
    struct layer *layer;                   /* [n_layers] */
};
struct bart {
    bool before; /* norms come before each half */
    void (*act)(struct graph *g, float *x, uint32_t width);
    float embed_scale;
    struct stack encoder, decoder;
};

/* --- the configuration */
static int read_act(const struct model *m, struct bart *w)
{
    static const struct {
        const char *name;
        void (*run)(struct graph *g, float *x, uint32_t width);
    } acts[] = {{"gelu", mod_gelu_erf}, {"gelu_new", mod_gelu}, {"relu", mod_relu}};
    const char *name = "gelu";
    TRY(json_get_str(m->config, m->config_file, "activation_function", &name));
    for (size_t i = 0; i < countof(acts); i++)
        if (strcmp(acts[i].name, name) == 0) w->act = acts[i].run;
    if (w->act) return 0;
    return ERR(UNSUPPORTED, "%s: activation_function \"%s\" is not supported by %s", m->config_file,
               name, m->arch_name);
}

static int read_stack(const struct model *m, const char *name, struct stack *s)
{
    char layers[32], heads[40], ffn[32];
    snprintf(layers, sizeof layers, "%s_layers", name);
    snprintf(heads, sizeof heads, "%s_attention_heads", name);
    snprintf(ffn, sizeof ffn, "%s_ffn_dim", name);
    s->name = name;
    TRY(model_need_u32(m, layers, NULL, 1, 512, &s->n_layers));
    TRY(model_need_u32(m, heads, NULL, 1, 1024, &s->heads));
    TRY(model_need_u32(m, ffn, NULL, 1, 1u << 20, &s->ffn));
    if (m->hidden % s->heads)
        return ERR(FORMAT, "%s: d_model %u is not a multiple of the %u heads of the %s",
                   m->config_file, m->hidden, s->heads, name);
    return 0;
}

static int read_config(struct model *m, struct bart *w)
{
    struct model_encoder *e = &m->encoder;
    bool scaled = false;
    uint32_t start = 0;
    w->before = strcmp(m->arch_name, "mbart") == 0;
    TRY(model_need_u32(m, "d_model", NULL, 1, 1u << 17, &m->hidden));
    TRY(read_stack(m, "encoder", &w->encoder));
    TRY(read_stack(m, "decoder", &w->decoder));
    TRY(model_need_u32(m, "max_position_embeddings", NULL, 1, 1u << 20, &m->context));
    TRY(read_act(m, w));
    TRY(json_get_bool(m->config, m->config_file, "scale_embedding", &scaled));
    w->embed_scale = scaled ? sqrtf((float)m->hidden) : 1;
    e->n_layers = w->encoder.n_layers;
    e->rows = m->context;
    e->fixed = e->counts_padding = true;
    e->stride = 1;
    e->start = -1;
    int found = model_u32(m, "decoder_start_token_id", NULL, 0, INT32_MAX, &start);
    if (found < 0) return found;
    if (found) e->start = (int32_t)start;
    m->n_layers = w->decoder.n_layers;
    m->ffn = w->decoder.ffn;
    m->n_heads = m->n_kv_heads = w->decoder.heads;
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

static int bind_layer(struct model *m, const struct stack *s, uint32_t i)
{
    char up[64], down[64], norm[64];
    uint32_t d = m->hidden;
    struct layer *l = &s->layer[i];
    snprintf(up, sizeof up, "model.%s.layers.%%u.fc1", s->name);
    snprintf(down, sizeof down, "model.%s.layers.%%u.fc2", s->name);
    snprintf(norm, sizeof norm, "model.%s.layers.%%u.final_layer_norm", s->name);
    TRY(bind_attn(m, s->name, "self_attn", i, &l->self));
    TRY(model_norm(m, NORM_LAYER, norm, NULL, i, d, false, &l->norm));
    return model_bind_projs(m, i,
                            (struct model_proj[]){{up, NULL, s->ffn, d, &l->up, &l->bup},
                                                  {down, NULL, d, s->ffn, &l->down, &l->bdown},
                                                  {0}});
}

static int bind_stack(struct model *m, const struct bart *w, struct stack *s)
{
    char name[80];
    struct dev_weight table;
    snprintf(name, sizeof name, "model.%s.embed_positions.weight", s->name);
    TRY(model_plain(m, name, NULL, 0, m->context + FIRST, m->hidden, &table));
    s->positions = model_rows(&table, FIRST, m->context);
    snprintf(name, sizeof name, "model.%s.layernorm_embedding", s->name);
    TRY(model_norm(m, NORM_LAYER, name, NULL, 0, m->hidden, false, &s->embed_norm));
    snprintf(name, sizeof name, "model.%s.layer_norm", s->name);
    if (w->before) TRY(model_norm(m, NORM_LAYER, name, NULL, 0, m->hidden, false, &s->last_norm));
    s->layer = model_own(m, s->n_layers, sizeof *s->layer);
    if (!s->layer) return ERR_NOMEM;
    for (uint32_t i = 0; i < s->n_layers; i++)
        TRY(bind_layer(m, s, i));
    return 0;
}

static int bind_ends(struct model *m)
{
    static const char *const embed[] = {"model.shared.weight", "model.decoder.embed_tokens.weight",
                                        "model.encoder.embed_tokens.weight", "lm_head.weight"};
    uint32_t d = m->hidden, i = 0;
    TRY(model_need_u32(m, "vocab_size", NULL, 1, 1u << 24, &m->vocab));
    while (i + 1 < countof(embed) && !model_find(m, embed[i], NULL, 0))
        i++;
    TRY(model_matrix(m, embed[i], NULL, 0, m->vocab, d, &m->embed));
    m->tied = true;
    TRY(json_get_bool(m->config, m->config_file, "tie_word_embeddings", &m->tied));
    m->head = m->embed;
    if (!m->tied) TRY(model_matrix(m, "lm_head.weight", NULL, 0, m->vocab, d, &m->head));
    if (!model_find(m, "final_logits_bias", NULL, 0)) return 0;
    return model_array(m, "final_logits_bias", NULL, 0, (uint32_t[]){1, m->vocab}, 2,
                       &m->head_bias);
}

static int bart_open(struct model *m)
{
    if (model_is_gguf(m))
        return ERR(UNSUPPORTED, "%s: %s is read from Hugging Face directories only", m->what,
                   m->arch_name);
    struct bart *w = model_own(m, 1, sizeof *w);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    TRY(read_config(m, w));
    TRY(bind_ends(m));
    TRY(bind_stack(m, w, &w->encoder));
    TRY(bind_stack(m, w, &w->decoder));
    for (uint32_t i = 0; i < m->n_layers; i++)
        TRY(bind_attn(m, "decoder", "encoder_attn", i, &w->decoder.layer[i].cross));
    m->final_norm = w->decoder.last_norm;
    return 0;
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

static void embed(const struct model *m, struct graph *g, const struct stack *s)
{
    const struct bart *w = m->arch_weights;
    mod_embed(g, &m->embed, w->embed_scale);
    mod_embed_positions(g, &s->positions, graph_h(g));
    mod_norm(g, &s->embed_norm, graph_h(g), 1, m->hidden, graph_h(g));
}

/* Returns the input of half a layer. */
static const float *half_begin(const struct model *m, struct graph *g, const struct mod_norm *norm,
                               const struct buffers *b)
{
    const struct bart *w = m->arch_weights;
    if (!w->before) return graph_h(g);
    mod_norm(g, norm, graph_h(g), 1, m->hidden, b->x);
    return b->x;
}

/* Adds the result of half a layer, in b->x. */
static void half_end(const struct model *m, struct graph *g, const struct mod_norm *norm,
                     const struct buffers *b)
{
    const struct bart *w = m->arch_weights;
    mod_add(g, graph_h(g), b->x, m->hidden);
    if (!w->before) mod_norm(g, norm, graph_h(g), 1, m->hidden, graph_h(g));
}

static void project(const struct model *m, struct graph *g, const struct attn *a,
                    const struct buffers *b)
{
    const float *x = half_begin(m, g, &a->norm, b);
    mod_linear(g, x,
               (struct mod_out[]){{&a->q, a->bq, b->q}, {&a->k, a->bk, b->k}, {&a->v, a->bv, b->v}},
               3);
}

static void add_attention(const struct model *m, struct graph *g, const struct attn *a,
                          const struct buffers *b)
{
    mod_linear(g, b->att, (struct mod_out[]){{&a->o, a->bo, b->x}}, 1);
    half_end(m, g, &a->norm, b);
}

static void mlp(const struct model *m, struct graph *g, const struct layer *l, uint32_t ffn,
                const struct buffers *b)
{
    const struct bart *w = m->arch_weights;
    const float *x = half_begin(m, g, &l->norm, b);
    mod_linear(g, x, (struct mod_out[]){{&l->up, l->bup, b->up}}, 1);
    w->act(g, b->up, ffn);
    mod_linear(g, b->up, (struct mod_out[]){{&l->down, l->bdown, b->x}}, 1);
    half_end(m, g, &l->norm, b);
}

static int bart_encode(const struct model *m, struct graph *g)
{
    const struct bart *w = m->arch_weights;
    const struct stack *s = &w->encoder;
    uint32_t dim = m->hidden / s->heads;
    struct buffers b = buffers_new(g, m->hidden, s->ffn);
    embed(m, g, s);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const struct layer *l = &s->layer[i];
        project(m, g, &l->self, &b);
        mod_attend(g, &(struct mod_attend){.heads = s->heads,
                                           .dim = dim,
                                           .q = b.q,
                                           .k = b.k,
                                           .v = b.v,
                                           .out = b.att,
                                           .scale = 1.0f / sqrtf((float)dim)});
        add_attention(m, g, &l->self, &b);
        mlp(m, g, l, s->ffn, &b);
    }
    const float *x = half_begin(m, g, &s->last_norm, &b);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct attn *a = &w->decoder.layer[i].cross;
        mod_linear(g, x, (struct mod_out[]){{&a->k, a->bk, b.k}, {&a->v, a->bv, b.v}}, 2);
        mod_attention(
            g, &(struct mod_attention){
                   .layer = i, .site = m->n_layers + i, .heads = m->n_heads, .k = b.k, .v = b.v});
    }
    return 0;
}

static int bart_graph(const struct model *m, struct graph *g)
{
    const struct bart *w = m->arch_weights;
    struct buffers b = buffers_new(g, m->hidden, m->ffn);
    struct mod_attention at = {
        .heads = m->n_heads, .q = b.q, .out = b.att, .scale = 1.0f / sqrtf((float)m->head_dim)};
    embed(m, g, &w->decoder);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct layer *l = &w->decoder.layer[i];
        mod_mark(g, i);
        project(m, g, &l->self, &b);
        at.layer = at.site = i;
        at.k = b.k;
        at.v = b.v;
        mod_attention(g, &at);
        add_attention(m, g, &l->self, &b);
        const float *x = half_begin(m, g, &l->cross.norm, &b);
        mod_linear(g, x, (struct mod_out[]){{&l->cross.q, l->cross.bq, b.q}}, 1);
        at.site = m->n_layers + i;
        at.k = at.v = NULL;
        mod_attention(g, &at);
        add_attention(m, g, &l->cross, &b);
        mlp(m, g, l, m->ffn, &b);
    }
    return 0;
}

static const char *const names[] = {"bart", "mbart", NULL};
static const struct arch bart = {
    .names = names, .open = bart_open, .graph = bart_graph, .encode = bart_encode};
MODEL_ARCH(bart, &bart);
