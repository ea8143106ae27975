/* test_layers.h - an architecture whose layers are listed in config.json, and a checkpoint of
 * random weights for it. The architecture is built from the words that a file in src/model/arch
 * uses. */
#pragma once
#include "base/file.h"
#include "fmt/fmt.h"
#include "generate/handle.h"
#include "model/block.h"
#include "testing.h"

#include <math.h>

enum { HIDDEN = 32, HEADS = 4, FFN = 40, VOCAB = 48, LAYERS = 4, TOKENS = 60, HEARD = 21 };

/* The kinds of layers before their MLP. ATTENDS writes its own keys and values. BORROWS reads those
 * of another layer. SUMS adds a decaying sum over the text (a recurrent state). HEARS attends to
 * the rows that an encoder wrote. */
enum does { ATTENDS, BORROWS, SUMS, HEARS };
struct kind { /* the kind of one layer */
    bool rope;
    uint32_t kv_heads, dim;
    enum does does;
    uint32_t of;      /* BORROWS: the layer whose keys and values it reads */
    uint32_t weights; /* 1 + the layer whose weights this layer shares; 0: its own */
};
struct spec {
    uint32_t n;
    struct kind layer[LAYERS];
};

/* --- the architecture, whose layers config.json lists */
static const float decay = 0.8f;
/* 1 + the layer whose mod_narrow is told that it is the last; 0: none */
static uint32_t narrow_after;
static bool narrow_twice; /* another mod_narrow stands behind all layers */

static struct kind kind_of(const struct model *m, uint32_t layer)
{
    const json_t *o = json_array_get(json_object_get(m->config, "test_layers"), layer);
    uint32_t v[6] = {0};
    for (uint32_t i = 0; i < 6; i++)
        v[i] = (uint32_t)json_integer_value(json_array_get(o, i));
    return (struct kind){v[0] != 0, v[1], v[2], (enum does)v[3], v[4], v[5]};
}

/* Declares the sites: keys and values of layers that attend, two planes of a state, rows of the
 * encoder. */
static int declare(struct model *m)
{
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct kind k = kind_of(m, i);
        m->site[i] = kv_site_rows(k.kv_heads, k.dim, k.dim);
        if (k.does == HEARS) m->site[i].kind = KV_FROZEN;
        if (k.does == SUMS)
            m->site[i] =
                (struct kv_site){.kind = KV_STATE,
                                 .n_planes = 2,
                                 .plane = {{"last", 1, HEADS * k.dim}, {"sum", HEADS, k.dim}}};
        m->site[i].layer = i;
    }
    return 0;
}

static int layers_open(struct model *m)
{
    TRY(model_read_decoder(m));
    TRY(declare(m));
    TRY(model_bind_ends(m));
    struct block_layer *l = model_own(m, m->n_layers, sizeof *l);
    if (!l) return ERR_NOMEM;
    m->arch_weights = l;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct kind k = kind_of(m, i);
        uint32_t from = k.weights ? k.weights - 1 : i;
        struct kv_site as = kv_site_rows(k.kv_heads, k.dim, k.dim);
        TRY(block_attn_bind(m, from, &as, &l[i].attn));
        TRY(block_mlp_bind(m, from, m->ffn, &l[i].mlp));
        uint32_t rope = k.dim != m->head_dim;
        TRY(model_read_rope(m, rope, NULL));
        m->rope[rope].rot = k.dim;
    }
    for (uint32_t i = 0; i < m->n_ropes; i++)
        TRY(rope_prepare(&m->rope[i]));
    return 0;
}

/* The word of a recurrent state: sum = decay * sum + x; out = sum + the x of the step before. */
struct sum {
    uint32_t number, width;
    const float *x;
    float *out, *state; /* state: last, sum: [2][width] of the sequence at hand */
};

static int sum_run(struct pass *p, const void *arg)
{
    const struct sum *a = arg;
    struct kv_view v;
    size_t bytes = a->width * sizeof(float);
    int e;
    while ((e = kv_next(p->step, a->number, &v)) > 0)
        for (uint32_t t = 0; t < p->n; t++) {
            uint32_t lane = v.lane[t];
            float *last = a->state, *sum = last + a->width;
            if (t == 0 || v.lane[t - 1] != lane) {
                const unsigned char *from = v.raw.base + v.from[lane] * v.raw.grain;
                memset(last, 0, 2 * bytes);
                if (v.from[lane]) memcpy(last, from + v.raw.offset[0], bytes);
                if (v.from[lane]) memcpy(sum, from + v.raw.offset[1], bytes);
            }
            for (uint32_t i = 0; i < a->width; i++) {
                float x = a->x[t * a->width + i];
                sum[i] = decay * sum[i] + x;
                a->out[t * a->width + i] = sum[i] + last[i];
                last[i] = x;
            }
            unsigned char *to = v.raw.base + v.dst[t] * v.raw.grain;
            if (v.dst[t]) memcpy(to + v.raw.offset[0], last, bytes);
            if (v.dst[t]) memcpy(to + v.raw.offset[1], sum, bytes);
        }
    return e;
}

static void mod_sum(struct graph *g, const struct model *m, uint32_t site, const float *x,
                    float *out)
{
    uint32_t width = m->site[site].plane[0].dim;
    struct sum *a = graph_own(g, 1, sizeof *a);
    if (!a) return;
    *a = (struct sum){graph_number(g, site), width, x, out,
                      graph_own(g, 2 * (size_t)width, sizeof(float))};
    graph_op(g, sum_run, a);
}

/* Adds queries over a site that another layer or the encoder writes. */
static void attend_only(struct graph *g, uint32_t i, uint32_t site, const struct block_attn *a,
                        const struct block_form *f, const struct block_buffers *b)
{
    uint32_t dim = graph_site(g, site)->plane[0].dim;
    struct mod_attention w = {
        .layer = i, .site = site, .heads = HEADS, .q = b->q, .out = b->att, .scale = f->scale};
    mod_linear(g, b->norm, (struct mod_out[]){{&a->q, NULL, b->q}}, 1);
    if (f->rope >= 0) w.q_sink = mod_rope_query(g, site, (uint32_t)f->rope, b->q, HEADS, dim);
    mod_attention(g, &w);
}

static int layers_graph(const struct model *m, struct graph *g)
{
    const struct block_layer *l = m->arch_weights;
    struct block_buffers b = block_buffers_new(g, m, m->ffn);
    float *h = graph_h(g), *x = graph_buffer(g, HEADS * HIDDEN),
          *y = graph_buffer(g, HEADS * HIDDEN);
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct kind k = kind_of(m, i);
        const struct block_attn *a = &l[i].attn;
        int rope = k.dim == m->head_dim ? 0 : 1;
        const struct block_form form = {.rope = k.rope ? rope : -1,
                                        .scale = 1 / sqrtf((float)k.dim)};
        mod_mark(g, i);
        if (k.does == ATTENDS) {
            block_attn_graph(g, i, i, a, &form, &b);
        } else {
            mod_norm(g, &a->norm, h, 1, HIDDEN, b.norm);
            if (k.does == SUMS) {
                mod_linear(g, b.norm, (struct mod_out[]){{&a->v, NULL, x}}, 1);
                mod_sum(g, m, i, x, y);
            } else {
                attend_only(g, i, k.does == BORROWS ? k.of : i, a, &form, &b);
            }
            mod_linear(g, k.does == SUMS ? y : b.att, (struct mod_out[]){{&a->o, NULL, b.norm}}, 1);
            mod_add(g, h, b.norm, HIDDEN);
        }
        if (i + 1 == narrow_after) mod_narrow(g, m->n_layers - 1, b.norm, HIDDEN);
        block_mlp_graph(g, &l[i].mlp, &b);
    }
    if (narrow_twice) mod_narrow(g, m->n_layers - 1, b.norm, HIDDEN);
    return 0;
}

/* Runs the encoder: computes keys and values of its tokens' embeddings for every layer that attends to them. */
static int layers_encode(const struct model *m, struct graph *g)
{
    const struct block_layer *l = m->arch_weights;
    struct block_buffers b = block_buffers_new(g, m, m->ffn);
    mod_embed(g);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct block_attn *a = &l[i].attn;
        if (kind_of(m, i).does != HEARS) continue;
        mod_norm(g, &a->norm, graph_h(g), 1, HIDDEN, b.norm);
        mod_linear(g, b.norm, (struct mod_out[]){{&a->k, NULL, b.k}, {&a->v, NULL, b.v}}, 2);
        mod_attention(g, &(struct mod_attention){.site = i, .k = b.k, .v = b.v});
    }
    return 0;
}

static const char *const names[] = {"test_layers", NULL};
static const struct arch layers_arch = {
    .names = names, .open = layers_open, .graph = layers_graph, .encode = layers_encode};
MODEL_ARCH(test_layers, &layers_arch);

/* --- its checkpoint */
enum part { NORM1, Q, K, V, O, NORM2, GATE, UP, DOWN, PARTS };
static const char *const part_name[PARTS] = {
    "input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
    "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",
};
struct weights {
    float *embed, *norm; /* [VOCAB][HIDDEN], [HIDDEN] */
    float *part[LAYERS][PARTS];
};

static uint32_t seed;

static float *draw(size_t n, float around, float by)
{
    float *w = malloc(n * sizeof *w);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        w[i] = around + by * ((float)(seed >> 8) / (float)(1u << 23) - 1);
    }
    return w;
}

static void shape_of(const struct kind *k, int part, uint32_t *rows, uint32_t *cols)
{
    uint32_t q = HEADS * k->dim, kv = k->kv_heads * k->dim;
    const uint32_t shape[PARTS][2] = {
        [NORM1] = {HIDDEN, 1},  [Q] = {q, HIDDEN},    [K] = {kv, HIDDEN},
        [V] = {kv, HIDDEN},     [O] = {HIDDEN, q},    [NORM2] = {HIDDEN, 1},
        [GATE] = {FFN, HIDDEN}, [UP] = {FFN, HIDDEN}, [DOWN] = {HIDDEN, FFN},
    };
    *rows = shape[part][0];
    *cols = shape[part][1];
}

static struct weights weights_new(const struct spec *s)
{
    struct weights w;
    seed = 5;
    w.embed = draw(VOCAB * HIDDEN, 0, 1);
    w.norm = draw(HIDDEN, 1, 0.2f);
    for (uint32_t i = 0; i < s->n; i++)
        for (int p = 0; p < PARTS; p++) {
            uint32_t rows, cols;
            shape_of(&s->layer[i], p, &rows, &cols);
            bool norm = p == NORM1 || p == NORM2;
            w.part[i][p] = draw((size_t)rows * cols, norm, norm ? 0.2f : 0.5f);
        }
    return w;
}

static void weights_free(struct weights *w, const struct spec *s)
{
    free(w->embed);
    free(w->norm);
    for (uint32_t i = 0; i < s->n; i++)
        for (int p = 0; p < PARTS; p++)
            free(w->part[i][p]);
}

static char dir[64] = "/tmp/kvik-layers-XXXXXX";

static struct tensor tensor_of(const char *name, const float *data, uint32_t rows, uint32_t cols)
{
    return (struct tensor){.name = name,
                           .dtype = DT_F32,
                           .n_dims = cols > 1 ? 2 : 1,
                           .dim = {rows, cols},
                           .data = data,
                           .bytes = (size_t)rows * cols * sizeof *data};
}

static void save_weights(const struct spec *s, const struct weights *w)
{
    static char name[LAYERS * PARTS][80];
    struct tensor t[2 + LAYERS * PARTS];
    char path[128];
    uint32_t n = 0;
    t[n++] = tensor_of("model.embed_tokens.weight", w->embed, VOCAB, HIDDEN);
    t[n++] = tensor_of("model.norm.weight", w->norm, HIDDEN, 1);
    for (uint32_t i = 0; i < s->n; i++)
        for (int p = 0; p < PARTS; p++) {
            uint32_t rows, cols;
            shape_of(&s->layer[i], p, &rows, &cols);
            snprintf(name[n - 2], sizeof name[0], "model.layers.%u.%s.weight", i, part_name[p]);
            t[n] = tensor_of(name[n - 2], w->part[i][p], rows, cols);
            n++;
        }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(safetensors_write(path, t, n), 0);
}

static void save_config(const struct spec *s)
{
    char path[128], *text;
    json_t *layers = json_array();
    for (uint32_t i = 0; i < s->n; i++) {
        const struct kind *k = &s->layer[i];
        json_array_append_new(layers,
                              json_pack("[i, i, i, i, i, i]", k->rope, (int)k->kv_heads,
                                        (int)k->dim, (int)k->does, (int)k->of, (int)k->weights));
    }
    json_t *c = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:o}", "model_type",
                          "test_layers", "num_hidden_layers", (int)s->n, "hidden_size", HIDDEN,
                          "intermediate_size", FFN, "num_attention_heads", HEADS,
                          "num_key_value_heads", (int)s->layer[0].kv_heads, "head_dim",
                          (int)s->layer[0].dim, "tie_word_embeddings", true, "test_layers", layers);
    assert_int_equal(json_text(c, &text), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(file_write(path, text, strlen(text)), 0);
    mem_free(text);
    json_decref(c);
}
