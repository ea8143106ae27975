/* llama4.c - Llama 4, text (Meta 2025).  Most layers see only their chunk of the text, with rotary positions in adjacent
 * pairs and L2-normalized queries and keys.  Every fourth layer sees everything and has no positions; its queries are
 * scaled by a factor that grows with the position.  Every layer or every second one has a shared expert and routed
 * experts, whose input the router scales.  "llama4" is the model of text and images; its text part runs here. */
#include "model/block.h"
#include "model/moe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct layer {
    struct block_attn attn;
    struct block_mlp mlp; /* dense, or the shared expert */
    struct moe moe;       /* n 0: none */
    bool rope;
};
struct llama4 {
    uint32_t ffn_dense, n, top; /* n, top: experts and how many a token gets */
    bool qk_norm, tuned;
    float floor_scale, attn_scale;
    struct layer layer[];
};

/* Reads a list of config.json; *out is NULL if the key is absent or null. */
static int list_of(const struct model *m, const char *key, const json_t **out)
{
    char found[JSON_FOUND];
    *out = json_object_get(m->config, key);
    if (json_is_null(*out)) *out = NULL;
    if (*out && !json_is_array(*out))
        return ERR(FORMAT, "%s: %s must be a list, not %s", m->config_file, key,
                   json_found(*out, found));
    return 0;
}

static int read_rope_layers(struct model *m, struct llama4 *w)
{
    const json_t *list;
    uint32_t every = 4;
    TRY(model_u32(m, "no_rope_layer_interval", NULL, 1, 1u << 16, &every));
    TRY(list_of(m, "no_rope_layers", &list));
    if (json_array_size(list) && json_array_size(list) < m->n_layers)
        return ERR(FORMAT, "%s: no_rope_layers must have %u entries, not %zu", m->config_file,
                   m->n_layers, json_array_size(list));
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const json_t *one = json_array_get(list, i);
        char found[JSON_FOUND];
        if (one && !json_is_integer(one))
            return ERR(FORMAT, "%s: no_rope_layers[%u] must be 0 or 1, not %s", m->config_file, i,
                       json_found(one, found));
        w->layer[i].rope = one ? json_integer_value(one) != 0 : (i + 1) % every != 0;
    }
    return 0;
}

/* Reads which layers see only their chunk: those of layer_types, else those with rotary positions. */
static int read_chunks(struct model *m, const struct llama4 *w)
{
    bool chunked[MODEL_LAYERS];
    uint32_t chunk = model_is_null(m, "attention_chunk_size") ? 0 : 8192;
    TRY(model_u32(m, "attention_chunk_size", NULL, 1, 1u << 30, &chunk));
    int given = model_layer_types(m, "chunked_attention", chunked);
    TRY(given);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        if (!given) chunked[i] = w->layer[i].rope;
        if (chunked[i] && !chunk)
            return ERR(FORMAT, "%s: layer %u is chunked, but attention_chunk_size is null", m->what,
                       i);
        m->site[i].chunk = chunked[i] ? chunk : 0;
    }
    return 0;
}

/* Sets moe.n of the layers that have experts. */
static int read_moe_layers(struct model *m, struct llama4 *w)
{
    const json_t *list;
    uint32_t step = 1;
    TRY(model_u32(m, "interleave_moe_layer_step", NULL, 1, 1u << 16, &step));
    TRY(list_of(m, "moe_layers", &list));
    for (uint32_t i = 0; i < m->n_layers; i++)
        if (!list && (i + 1) % step == 0) w->layer[i].moe.n = w->n;
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *one = json_array_get(list, k);
        json_int_t i = json_integer_value(one);
        if (!json_is_integer(one) || i < 0 || i >= m->n_layers)
            return ERR(FORMAT, "%s: moe_layers[%zu] must be the number of a layer, below %u",
                       m->config_file, k, m->n_layers);
        w->layer[i].moe.n = w->n;
    }
    return 0;
}

static int llama4_read_config(struct model *m, struct llama4 **out)
{
    if (model_is_gguf(m))
        return ERR(UNSUPPORTED, "%s: Llama 4 is read from Hugging Face directories", m->what);
    TRY(model_enter_text(m));
    m->context = 131072;
    m->norm_eps = 1e-5f;
    m->n_kv_heads = 8;
    if (!model_is_null(m, "head_dim")) m->head_dim = 128;
    TRY(model_read_decoder(m));
    TRY(model_expect_str(m, "hidden_act", "silu"));
    m->rope[0].theta = 500000;
    TRY(model_read_rope(m, 0, NULL));
    m->rope[0].interleaved = true;
    m->counts_padding = true;
    m->no_sinks = "its chunks and the scale of its queries go by true positions";
    struct llama4 *w = model_own(m, 1, sizeof *w + m->n_layers * sizeof w->layer[0]);
    if (!w) return ERR_NOMEM;
    m->arch_weights = w;
    w->ffn_dense = 16384;
    w->qk_norm = w->tuned = true;
    w->floor_scale = 8192;
    w->attn_scale = 0.1f;
    TRY(moe_read_counts(m, &w->n, &w->top));
    TRY(model_u32(m, "intermediate_size_mlp", NULL, 1, 1u << 20, &w->ffn_dense));
    TRY(json_get_bool(m->config, m->config_file, "use_qk_norm", &w->qk_norm));
    const json_t *tuned = json_object_get(m->config, "attn_temperature_tuning");
    if (json_is_integer(tuned)) /* published models say 4 */
        w->tuned = json_integer_value(tuned) != 0;
    else
        TRY(json_get_bool(m->config, m->config_file, "attn_temperature_tuning", &w->tuned));
    TRY(model_f32(m, "floor_scale", NULL, &w->floor_scale));
    TRY(model_f32(m, "attn_scale", NULL, &w->attn_scale));
    if (!(w->floor_scale > 0))
        return ERR(FORMAT, "%s: floor_scale must be above 0, not %g", m->config_file,
                   (double)w->floor_scale);
    TRY(read_rope_layers(m, w));
    TRY(read_chunks(m, w));
    TRY(read_moe_layers(m, w));
    *out = w;
    return 0;
}

static int bind_mlp(struct model *m, uint32_t i, const char *where, uint32_t ffn,
                    struct block_mlp *b)
{
    TRY(block_mlp_bind_at(m, i, where, "", ffn, b));
    return model_norm(m, NORM_RMS, "model.layers.%u.post_attention_layernorm", NULL, i, m->hidden,
                      false, &b->norm);
}

static int bind_moe(struct model *m, uint32_t i, const struct llama4 *w, struct moe *moe,
                    struct dev_weight *tmp)
{
    uint32_t h = m->hidden, f = m->ffn;
    TRY(moe_new(m, w->n, w->top, f, moe));
    moe->route = MOE_SIGMOID_IN;
    TRY(model_plain(m, "model.layers.%u.feed_forward.router.weight", NULL, i, w->n, h,
                    &moe->router));
    TRY(model_experts(m, "model.layers.%u.feed_forward.experts.gate_up_proj", NULL, i, w->n, 2 * f,
                      h, true, tmp));
    for (uint32_t e = 0; e < w->n; e++) {
        moe->expert[e].gate = model_rows(&tmp[e], 0, f);
        moe->expert[e].up = model_rows(&tmp[e], f, f);
    }
    TRY(model_experts(m, "model.layers.%u.feed_forward.experts.down_proj", NULL, i, w->n, h, f,
                      true, tmp));
    for (uint32_t e = 0; e < w->n; e++)
        moe->expert[e].down = tmp[e];
    return 0;
}

static int llama4_open(struct model *m)
{
    struct llama4 *w = NULL;
    TRY(llama4_read_config(m, &w));
    TRY(model_bind_ends(m));
    TRY(rope_prepare(&m->rope[0]));
    struct dev_weight *tmp = model_own(m, w->n, sizeof *tmp);
    if (!tmp) return ERR_NOMEM;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct layer *l = &w->layer[i];
        bool routed = l->moe.n;
        TRY(block_attn_bind(m, i, &m->site[i], &l->attn));
        TRY(bind_mlp(m, i,
                     routed ? "model.layers.%u.feed_forward.shared_expert"
                            : "model.layers.%u.feed_forward",
                     routed ? m->ffn : w->ffn_dense, &l->mlp));
        if (routed) TRY(bind_moe(m, i, w, &l->moe, tmp));
    }
    return 0;
}

/* --- A word that scales the queries of layers without positions, by a factor that grows with the column.  Masked columns
 * before the text count, as in Transformers. */
struct tune {
    const struct llama4 *w;
    float *q;
    struct graph_table by; /* float [tokens] */
};

static int tune_run(struct pass *p, const void *arg)
{
    const struct tune *a = arg;
    const struct model *m = p->x->m;
    float *by = a->by.host;
    for (uint32_t t = 0; t < p->n; t++) {
        float steps = floorf(((float)p->column[t] + 1.0f) / a->w->floor_scale);
        by[t] = (float)log1p((double)steps) * a->w->attn_scale + 1.0f;
    }
    dev_put(p->queue, a->by.at, by, p->n * sizeof *by);
    dev_scale_rows(p->queue, a->q, a->by.at, p->n, m->n_heads * m->head_dim);
    return 0;
}

static void mod_tune(struct graph *g, const struct llama4 *w, float *q)
{
    struct tune *a = graph_own(g, 1, sizeof *a);
    if (!a) return;
    *a = (struct tune){w, q, graph_table(g, graph_step_tokens(g) * sizeof(float))};
    graph_op(g, tune_run, a);
}

static void attend(struct graph *g, const struct model *m, uint32_t i,
                   const struct block_buffers *b)
{
    const struct llama4 *w = m->arch_weights;
    const struct block_attn *a = &w->layer[i].attn;
    const struct mod_norm l2 = {.kind = NORM_RMS, .eps = m->norm_eps};
    mod_linear(g, b->norm,
               (struct mod_out[]){{&a->q, a->bq, b->q}, {&a->k, a->bk, b->k}, {&a->v, a->bv, b->v}},
               3);
    if (w->layer[i].rope) {
        mod_rope(g, 0, b->q, m->n_heads, m->head_dim);
        mod_rope(g, 0, b->k, m->n_kv_heads, m->head_dim);
        if (w->qk_norm) mod_norm(g, &l2, b->q, m->n_heads, m->head_dim, b->q);
        if (w->qk_norm) mod_norm(g, &l2, b->k, m->n_kv_heads, m->head_dim, b->k);
    } else if (w->tuned) {
        mod_tune(g, w, b->q);
    }
    mod_attention(g, &(struct mod_attention){.layer = i,
                                             .site = i,
                                             .heads = m->n_heads,
                                             .q = b->q,
                                             .k = b->k,
                                             .v = b->v,
                                             .out = b->att,
                                             .scale = 1.0f / sqrtf((float)m->head_dim)});
    mod_narrow(g, i, b->att, a->o.cols);
    mod_linear(g, b->att, (struct mod_out[]){{&a->o, a->bo, b->norm}}, 1);
    mod_add(g, graph_h(g), b->norm, m->hidden);
}

static int llama4_graph(const struct model *m, struct graph *g)
{
    const struct llama4 *w = m->arch_weights;
    float *h = graph_h(g), *y = graph_buffer(g, m->hidden);
    struct block_buffers b = block_buffers_new(g, m, MAX(m->ffn, w->ffn_dense));
    struct moe_buffers *mb = moe_buffers_new(g, m->hidden, w->n, w->top, m->ffn);
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct layer *l = &w->layer[i];
        mod_mark(g, i);
        mod_norm(g, &l->attn.norm, h, 1, m->hidden, b.norm);
        attend(g, m, i, &b);
        mod_norm(g, &l->mlp.norm, h, 1, m->hidden, b.norm);
        if (l->moe.n) mod_moe(g, &l->moe, mb, b.norm, y);
        mod_linear(g, b.norm,
                   (struct mod_out[]){{&l->mlp.gate, NULL, b.gate}, {&l->mlp.up, NULL, b.up}}, 2);
        mod_silu_mul(g, b.gate, b.up, l->mlp.gate.rows);
        mod_linear(g, b.gate, (struct mod_out[]){{&l->mlp.down, NULL, b.norm}}, 1);
        if (l->moe.n) mod_add(g, b.norm, y, m->hidden);
        mod_add(g, h, b.norm, m->hidden);
    }
    return 0;
}

static const char *const names[] = {"llama4_text", "llama4", NULL};
static const struct arch llama4_arch = {.names = names, .open = llama4_open, .graph = llama4_graph};
MODEL_ARCH(llama4, &llama4_arch);
