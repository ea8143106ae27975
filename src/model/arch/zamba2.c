/* zamba2.c - Zamba 2 (Glorioso et al. 2024): layers with the mixer of Mamba 2.  In hybrid layers a transformer block
 * runs first, on the stream and the embeddings side by side.  Its result is added to the mixer's input.  A few
 * blocks serve all hybrid layers in turn, but each hybrid layer has its own KV rows, its own low-rank changes of the
 * block's projections, and its own state. */
#include "model/block.h"
#include "model/mixer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A low-rank change of a projection: up(down(in)). */
struct adapter {
    struct dev_weight down, up;
};
struct layer {
    struct mod_norm norm; /* before the mixer */
    struct mixer2 mixer;
    bool hybrid;
    uint32_t site;           /* of its KV rows */
    struct block_attn attn;  /* of the block: its norm is of [2 * hidden] */
    struct mod_norm ff_norm; /* of [hidden] */
    struct dev_weight gate, up, down;
    float *b_gate, *b_up, *b_down;              /* or NULL */
    struct adapter a_gate, a_up, a_q, a_k, a_v; /* those of gate and up share `down` */
    struct dev_weight linear;                   /* of the block's result */
};
struct zamba2 {
    struct mixer2_shape s;
    uint32_t blocks, hybrids, rank; /* rank: of the adapters */
    /* adapts: attention has adapters, too; rotates: attention has rotary positions */
    bool adapts, rotates;
    struct layer layer[];
};

static int read_sizes(struct model *m, struct mixer2_shape *s)
{
    static const struct mixer2_keys keys = {"mamba_expand", "n_mamba_heads", "mamba_ngroups",
                                            "mamba_d_state", "mamba_d_conv"};
    float dt_min = 1e-3f;
    if (model_is_gguf(m)) /* llama.cpp has no names for it */
        return ERR(UNSUPPORTED, "%s: zamba2 is supported from Hugging Face directories only",
                   m->what);
    TRY(model_need_u32(m, "num_hidden_layers", NULL, 1, MODEL_LAYERS, &m->n_layers));
    TRY(model_need_u32(m, "hidden_size", NULL, 1, 1u << 17, &m->hidden));
    m->ffn = 4 * m->hidden;
    TRY(model_u32(m, "intermediate_size", NULL, 1, 1u << 20, &m->ffn));
    m->n_heads = 32;
    TRY(model_u32(m, "num_attention_heads", NULL, 1, 1024, &m->n_heads));
    m->n_kv_heads = m->n_heads;
    TRY(model_u32(m, "num_key_value_heads", NULL, 1, 1024, &m->n_kv_heads));
    m->head_dim = 2 * m->hidden / m->n_heads;
    if (m->head_dim == 0 || m->head_dim > 1024 || m->n_heads % m->n_kv_heads)
        return ERR(FORMAT, "%s: %u attention heads of %u values and %u key-value heads do not fit",
                   m->what, m->n_heads, m->head_dim, m->n_kv_heads);
    m->context = 4096;
    TRY(model_u32(m, "max_position_embeddings", NULL, 1, 1u << 28, &m->context));
    TRY(model_read_eps(m, "rms_norm_eps", NULL, 1e-5f));
    TRY(model_f32(m, "time_step_min", NULL, &dt_min));
    *s = (struct mixer2_shape){.heads = 8,
                               .groups = 1,
                               .states = 64,
                               .taps = 4,
                               .dt_min = dt_min,
                               .dt_max = INFINITY,
                               .eps = 1e-5f};
    return mixer2_read(m, &keys, s);
}

static int zamba2_read_options(struct model *m, struct zamba2 *w)
{
    w->blocks = 1;
    w->rank = 128;
    TRY(model_expect_str(m, "hidden_act", "gelu"));
    TRY(model_u32(m, "num_mem_blocks", NULL, 1, 64, &w->blocks));
    TRY(model_u32(m, "adapter_rank", NULL, 1, 1u << 16, &w->rank));
    TRY(json_get_bool(m->config, m->config_file, "use_shared_attention_adapter", &w->adapts));
    TRY(json_get_bool(m->config, m->config_file, "use_mem_rope", &w->rotates));
    if (!w->rotates) return 0;
    TRY(model_read_rope(m, 0, NULL));
    return rope_prepare(&m->rope[0]);
}

/* Marks the hybrid layers, and declares a state for every layer and rows for the hybrid ones. */
static int read_layers(struct model *m, struct zamba2 *w)
{
    const json_t *types = json_object_get(m->config, "layers_block_type");
    if (!json_is_array(types)) types = json_object_get(m->config, "layer_types");
    if (!json_is_array(types) || json_array_size(types) != m->n_layers)
        return ERR(FORMAT, "%s: layers_block_type must be a list of %u strings", m->config_file,
                   m->n_layers);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const char *s = json_string_value(json_array_get(types, i));
        bool plain = s && (strcmp(s, "mamba") == 0 || strcmp(s, "linear_attention") == 0);
        w->layer[i].hybrid = s && strcmp(s, "hybrid") == 0;
        if (!plain && !w->layer[i].hybrid)
            return ERR(UNSUPPORTED,
                       "%s: layers_block_type[%u] is \"%s\"; zamba2 has linear_attention (or "
                       "mamba) and hybrid",
                       m->what, i, s ? s : "no string");
        w->hybrids += w->layer[i].hybrid;
    }
    TRY(model_new_sites(m, m->n_layers + w->hybrids));
    for (uint32_t i = 0, next = m->n_layers; i < m->n_layers; i++) {
        mixer2_site(&w->s, i, &m->site[i]);
        if (!w->layer[i].hybrid) continue;
        w->layer[i].site = next;
        m->site[next++].layer = i;
    }
    return 0;
}

/* Binds adapter number j under the layer that holds the block. */
static int bind_adapter(struct model *m, uint32_t home, const char *list, uint32_t j, uint32_t rows,
                        uint32_t cols, const struct zamba2 *w, struct adapter *a)
{
    char name[2][160];
    for (int k = 0; k < 2; k++)
        snprintf(name[k], sizeof name[k],
                 "model.layers.%%u.shared_transformer.%s_adapter_list.%u.%d.weight", list, j, k);
    TRY(model_matrix(m, name[0], NULL, home, w->rank, cols, &a->down));
    return model_matrix(m, name[1], NULL, home, rows, w->rank, &a->up);
}

/* Binds the block of layer i, whose tensors the file has under layer `home`, and the layer's own tensors.  j: number
 * of the layer among the hybrid layers. */
static int bind_block(struct model *m, uint32_t i, uint32_t home, uint32_t j,
                      const struct zamba2 *w, struct layer *l)
{
#define BLOCK "model.layers.%u.shared_transformer."
    uint32_t h = m->hidden, wide = 2 * h, q = m->n_heads * m->head_dim, f = m->ffn,
             kv = m->n_kv_heads * m->head_dim;
    struct dev_weight gate_up;
    struct adapter a;
    float *bias;
    const struct model_proj p[] = {
        {BLOCK "self_attn.q_proj", NULL, q, wide, &l->attn.q, NULL},
        {BLOCK "self_attn.k_proj", NULL, kv, wide, &l->attn.k, NULL},
        {BLOCK "self_attn.v_proj", NULL, kv, wide, &l->attn.v, NULL},
        {BLOCK "self_attn.o_proj", NULL, h, q, &l->attn.o, NULL},
        {BLOCK "feed_forward.gate_up_proj", NULL, 2 * f, h, &gate_up, &bias},
        {BLOCK "feed_forward.down_proj", NULL, h, f, &l->down, &l->b_down},
        {NULL, NULL, 0, 0, NULL, NULL},
    };
    TRY(model_bind_projs(m, home, p));
    TRY(model_norm(m, NORM_RMS, BLOCK "input_layernorm", NULL, home, wide, false, &l->attn.norm));
    TRY(model_norm(m, NORM_RMS, BLOCK "pre_ff_layernorm", NULL, home, h, false, &l->ff_norm));
    TRY(bind_adapter(m, home, "feed_forward.gate_up_proj", j, 2 * f, h, w, &a));
    l->gate = model_rows(&gate_up, 0, f);
    l->up = model_rows(&gate_up, f, f);
    l->b_gate = bias;
    l->b_up = bias ? bias + f : NULL;
    l->a_gate = (struct adapter){a.down, model_rows(&a.up, 0, f)};
    l->a_up = (struct adapter){a.down, model_rows(&a.up, f, f)};
    if (w->adapts) {
        TRY(bind_adapter(m, home, "self_attn.linear_q", j, q, wide, w, &l->a_q));
        TRY(bind_adapter(m, home, "self_attn.linear_k", j, kv, wide, w, &l->a_k));
        TRY(bind_adapter(m, home, "self_attn.linear_v", j, kv, wide, w, &l->a_v));
    }
    return model_matrix(m, "model.layers.%u.linear.weight", NULL, i, h, h, &l->linear);
#undef BLOCK
}

static int bind_layers(struct model *m, struct zamba2 *w)
{
    uint32_t home[64] = {0}, j = 0;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct layer *l = &w->layer[i];
        const char *at =
            l->hybrid ? "model.layers.%u.mamba_decoder.mamba" : "model.layers.%u.mamba";
        const char *norm = l->hybrid ? "model.layers.%u.mamba_decoder.input_layernorm"
                                     : "model.layers.%u.input_layernorm";
        TRY(model_norm(m, NORM_RMS, norm, NULL, i, m->hidden, false, &l->norm));
        TRY(mixer2_bind(m, i, at, &w->s, &l->mixer));
        if (!l->hybrid) continue;
        if (j < w->blocks) home[j] = i; /* the first layer of a block holds its tensors */
        TRY(bind_block(m, i, home[j % w->blocks], j, w, l));
        j++;
    }
    return 0;
}

static int zamba2_open(struct model *m)
{
    struct mixer2_shape s;
    TRY(read_sizes(m, &s));
    struct zamba2 *w = model_own(m, 1, sizeof *w + m->n_layers * sizeof w->layer[0]);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    w->s = s;
    TRY(zamba2_read_options(m, w));
    TRY(read_layers(m, w));
    m->tied = true;
    TRY(model_bind_named_ends(m, "model.embed_tokens.weight", "model.final_layernorm"));
    return bind_layers(m, w);
}

struct buffers {
    struct block_buffers block;
    struct mixer2_buffers mixer;
    float *embedded, *joined, *low, *extra, *x;
};

/* y += the low-rank change of x. */
static void adapt(struct graph *g, const struct adapter *a, const float *x, float *y,
                  const struct buffers *b)
{
    mod_linear(g, x, (struct mod_out[]){{&a->down, NULL, b->low}}, 1);
    mod_linear(g, b->low, (struct mod_out[]){{&a->up, NULL, b->extra}}, 1);
    mod_add(g, y, b->extra, a->up.rows);
}

static void attend(const struct model *m, struct graph *g, uint32_t i, const struct layer *l,
                   const struct zamba2 *w, const struct buffers *b)
{
    const struct block_attn *a = &l->attn;
    const float *q_sink = NULL, *x = b->joined;
    const struct block_buffers *k = &b->block;
    mod_linear(
        g, x, (struct mod_out[]){{&a->q, NULL, k->q}, {&a->k, NULL, k->k}, {&a->v, NULL, k->v}}, 3);
    if (w->adapts) {
        adapt(g, &l->a_q, x, k->q, b);
        adapt(g, &l->a_k, x, k->k, b);
        adapt(g, &l->a_v, x, k->v, b);
    }
    if (w->rotates) {
        q_sink = mod_rope_query(g, l->site, 0, k->q, m->n_heads, m->head_dim);
        mod_rope(g, 0, k->k, m->n_kv_heads, m->head_dim);
    }
    mod_attention(g, &(struct mod_attention){.layer = i,
                                             .site = l->site,
                                             .heads = m->n_heads,
                                             .q = k->q,
                                             .k = k->k,
                                             .v = k->v,
                                             .q_sink = q_sink,
                                             .out = k->att,
                                             .scale = 1.0f / sqrtf((float)m->head_dim / 2)});
    mod_linear(g, k->att, (struct mod_out[]){{&a->o, NULL, b->x}}, 1);
}

/* Computes the block for this layer; the result is in b->block.norm. */
static void block(const struct model *m, struct graph *g, uint32_t i, const struct layer *l,
                  const struct zamba2 *w, const struct buffers *b)
{
    const struct block_buffers *k = &b->block;
    mod_join(g, graph_h(g), b->embedded, m->hidden, b->joined);
    mod_norm(g, &l->attn.norm, b->joined, 1, 2 * m->hidden, b->joined);
    attend(m, g, i, l, w, b);
    mod_norm(g, &l->ff_norm, b->x, 1, m->hidden, b->x);
    mod_linear(g, b->x,
               (struct mod_out[]){{&l->gate, l->b_gate, k->gate}, {&l->up, l->b_up, k->up}}, 2);
    adapt(g, &l->a_gate, b->x, k->gate, b);
    adapt(g, &l->a_up, b->x, k->up, b);
    mod_gelu_erf_mul(g, k->gate, k->up, m->ffn);
    mod_linear(g, k->gate, (struct mod_out[]){{&l->down, l->b_down, b->x}}, 1);
    mod_linear(g, b->x, (struct mod_out[]){{&l->linear, NULL, k->norm}}, 1);
}

static int zamba2_graph(const struct model *m, struct graph *g)
{
    const struct zamba2 *w = m->arch_weights;
    uint32_t d = m->hidden, most = MAX(m->ffn, m->n_heads * m->head_dim);
    struct buffers b = {.block = block_buffers_new(g, m, m->ffn),
                        .mixer = mixer2_buffers_new(g, &w->s),
                        .embedded = graph_buffer(g, d),
                        .joined = graph_buffer(g, (size_t)2 * d),
                        .low = graph_buffer(g, w->rank),
                        .extra = graph_buffer(g, most),
                        .x = graph_buffer(g, d)};
    float *h = graph_h(g);
    mod_embed(g);
    mod_copy(g, h, d, b.embedded);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct layer *l = &w->layer[i];
        mod_mark(g, i);
        if (l->hybrid) {
            block(m, g, i, l, w, &b);
            /* only the mixer reads the sum; the stream itself does not change */
            mod_add(g, b.block.norm, h, d);
            mod_norm(g, &l->norm, b.block.norm, 1, d, b.x);
        } else {
            mod_norm(g, &l->norm, h, 1, d, b.x);
        }
        mixer2_graph(g, i, &l->mixer, &b.mixer, b.x, b.x);
        mod_add(g, h, b.x, d);
    }
    return 0;
}

static const char *const names[] = {"zamba2", NULL};
static const struct arch zamba2_arch = {.names = names, .open = zamba2_open, .graph = zamba2_graph};
MODEL_ARCH(zamba2, &zamba2_arch);
