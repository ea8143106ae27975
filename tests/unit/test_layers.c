/* test_layers.c - models whose layers are not alike, against an oracle that knows no cache: it computes every token of
 * the text anew, in doubles, from the definition.  The architecture is registered here, with the words a file in
 * src/model/arch uses; its weights are random. */
#include "base/map.h"
#include "fmt/fmt.h"
#include "kvik.h"
#include "model/block.h"
#include "testing.h"

#include <math.h>

enum { HIDDEN = 32, HEADS = 4, FFN = 40, VOCAB = 48, LAYERS = 4, TOKENS = 60 };

struct kind { /* of one layer */
    bool rope;
    uint32_t kv_heads, dim;
};
struct spec {
    uint32_t n;
    struct kind layer[LAYERS];
};

/* --- the architecture, whose layers config.json lists */
static int layers_open(struct model *m)
{
    TRY(model_read_decoder(m));
    TRY(model_read_rope(m, 0, NULL));
    return block_stack_bind(m);
}

static bool has_rope(const struct model *m, uint32_t layer)
{
    return json_is_true(json_array_get(json_object_get(m->config, "test_rope"), layer));
}

static int layers_graph(const struct model *m, struct graph *g)
{
    const struct block_layer *l = m->arch_weights;
    struct block_buffers b = block_buffers_new(g, m, m->ffn);
    mod_embed(g, &m->embed, 1);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        struct block_form form = {.rope = has_rope(m, i) ? 0 : -1,
                                  .scale = 1.0f / sqrtf((float)m->head_dim)};
        mod_mark(g, i);
        block_attn_graph(g, m, i, &l[i].attn, &form, &b);
        block_mlp_graph(g, m, &l[i].mlp, &b);
    }
    return 0;
}

static const char *const names[] = {"test_layers", NULL};
static const struct arch layers_arch = {names, layers_open, layers_graph};
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
    json_t *rope = json_array();
    for (uint32_t i = 0; i < s->n; i++)
        json_array_append_new(rope, json_boolean(s->layer[i].rope));
    json_t *c =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:o}", "model_type", "test_layers",
                  "num_hidden_layers", (int)s->n, "hidden_size", HIDDEN, "intermediate_size", FFN,
                  "num_attention_heads", HEADS, "num_key_value_heads", (int)s->layer[0].kv_heads,
                  "head_dim", (int)s->layer[0].dim, "tie_word_embeddings", true, "test_rope", rope);
    assert_int_equal(json_text(c, &text), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(file_write(path, text, strlen(text)), 0);
    mem_free(text);
    json_decref(c);
}

/* --- the oracle */
struct reach { /* window 0: everything; else the first `sinks` tokens and the last `window` */
    uint32_t window, sinks;
};

static void matmul(const float *w, const double *x, uint32_t rows, uint32_t cols, double *y)
{
    for (uint32_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (uint32_t c = 0; c < cols; c++)
            y[r] += (double)w[r * cols + c] * x[c];
    }
}

static void rmsnorm(const double *x, const float *w, double *y)
{
    double ss = 0;
    for (uint32_t i = 0; i < HIDDEN; i++)
        ss += x[i] * x[i];
    for (uint32_t i = 0; i < HIDDEN; i++)
        y[i] = x[i] / sqrt(ss / HIDDEN + 1e-6) * (double)w[i];
}

/* The dot product of a query at distance `apart` with a key: what rotating both means. */
static double dot(const double *q, const double *k, uint32_t dim, double apart)
{
    double sum = 0;
    for (uint32_t i = 0; i < dim / 2; i++) {
        double angle = apart * pow(10000, -2.0 * i / dim), c = cos(angle), s = sin(angle);
        double a = q[i] * c - q[i + dim / 2] * s, b = q[i + dim / 2] * c + q[i] * s;
        sum += a * k[i] + b * k[i + dim / 2];
    }
    return sum;
}

/* Of one head at token p: out[dim]. */
static void attend(const struct kind *l, struct reach r, const double *q, const double *k,
                   const double *v, uint32_t p, double *out)
{
    double score[TOKENS], sum = 0, scale = 1 / sqrt((double)l->dim);
    size_t ld = (size_t)l->kv_heads * l->dim;
    uint32_t lo = r.window && p + 1 > r.window ? p + 1 - r.window : 0;
    memset(out, 0, l->dim * sizeof *out);
    for (uint32_t j = 0; j <= p; j++) {
        /* Sinks stand right before the window, once it has moved on. */
        double at = j < lo ? MIN(p, r.sinks + r.window - 1) : p;
        score[j] = 0;
        if (j < lo && j >= r.sinks) continue;
        score[j] = exp(scale * dot(q, k + j * ld, l->dim, l->rope ? at - j : 0));
        sum += score[j];
    }
    for (uint32_t j = 0; j <= p; j++)
        for (uint32_t d = 0; d < l->dim; d++)
            out[d] += score[j] / sum * v[j * ld + d];
}

static void mlp(float *const *w, double *h)
{
    double x[HIDDEN], gate[FFN], up[FFN];
    rmsnorm(h, w[NORM2], x);
    matmul(w[GATE], x, FFN, HIDDEN, gate);
    matmul(w[UP], x, FFN, HIDDEN, up);
    for (uint32_t i = 0; i < FFN; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    matmul(w[DOWN], gate, HIDDEN, FFN, x);
    for (uint32_t i = 0; i < HIDDEN; i++)
        h[i] += x[i];
}

static void layer(const struct kind *l, struct reach r, float *const *w, double (*h)[HIDDEN],
                  uint32_t n)
{
    enum { WIDE = HEADS * HIDDEN };
    static double q[TOKENS * WIDE], k[TOKENS * WIDE], v[TOKENS * WIDE];
    double x[HIDDEN], out[WIDE];
    uint32_t wide = HEADS * l->dim, kv = l->kv_heads * l->dim;
    for (uint32_t t = 0; t < n; t++) {
        rmsnorm(h[t], w[NORM1], x);
        matmul(w[Q], x, wide, HIDDEN, q + t * wide);
        matmul(w[K], x, kv, HIDDEN, k + t * kv);
        matmul(w[V], x, kv, HIDDEN, v + t * kv);
    }
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t i = 0; i < HEADS; i++) {
            uint32_t at = i / (HEADS / l->kv_heads) * l->dim;
            attend(l, r, q + t * wide + i * l->dim, k + at, v + at, t, out + i * l->dim);
        }
        matmul(w[O], out, HIDDEN, wide, x);
        for (uint32_t i = 0; i < HIDDEN; i++)
            h[t][i] += x[i];
        mlp(w, h[t]);
    }
}

/* logits: [n][VOCAB] */
static void oracle(const struct spec *s, const struct weights *w, struct reach r,
                   const int32_t *ids, uint32_t n, double *logits)
{
    static double h[TOKENS][HIDDEN];
    double x[HIDDEN];
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; i < HIDDEN; i++)
            h[t][i] = (double)w->embed[(uint32_t)ids[t] * HIDDEN + i];
    for (uint32_t i = 0; i < s->n; i++)
        layer(&s->layer[i], r, w->part[i], h, n);
    for (uint32_t t = 0; t < n; t++) {
        rmsnorm(h[t], w->norm, x);
        matmul(w->embed, x, VOCAB, HIDDEN, logits + t * VOCAB);
    }
}

/* --- the two compared */
static void compare(const char *what, const double *want, const float *got, uint32_t n)
{
    double most = 0, off = 0;
    for (uint32_t i = 0; i < n * VOCAB; i++) {
        most = fmax(most, fabs(want[i]));
        off = fmax(off, fabs(want[i] - (double)got[i]));
    }
    if (!(off <= 2e-5 * most)) fail_msg("%s: logits are %g off, of %g", what, off, most);
}

static void run(const struct spec *s, const char *what, struct reach r, const char *impl,
                const char *config)
{
    static const uint32_t chunks[] = {TOKENS, 7, 1};
    static double want[TOKENS * VOCAB];
    static float got[TOKENS * VOCAB];
    int32_t ids[TOKENS];
    kvik_model *m;
    struct weights w = weights_new(s);
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)((7 + i * 31 + i * i) % VOCAB);
    save_weights(s, &w);
    save_config(s);
    oracle(s, &w, r, ids, TOKENS, want);
    if (kvik_model_open(dir, &m) < 0) fail_msg("%s: %s", what, kvik_last_error());
    for (size_t i = 0; i < countof(chunks); i++) {
        kvik_cache *c;
        kvik_seq seq;
        kvik_cache_config k = {.cache_implementation = impl,
                               .cache_config = config,
                               .max_sequences = 1,
                               .max_cache_len = TOKENS,
                               .step_tokens = chunks[i],
                               .threads = 1,
                               .compute = "exact"};
        if (kvik_cache_open(m, &k, &c) < 0 || kvik_cache_new(c, &seq) < 0)
            fail_msg("%s: %s", what, kvik_last_error());
        kvik_span span = {seq, ids, TOKENS};
        if (kvik_forward(c, &span, 1, true, got) < 0) fail_msg("%s: %s", what, kvik_last_error());
        compare(what, want, got, TOKENS);
        kvik_cache_close(c);
    }
    kvik_model_close(m);
    weights_free(&w, s);
}

static void every_cache(const struct spec *s, const char *what)
{
    char name[128];
    const struct {
        const char *name, *impl, *config;
        struct reach reach;
    } way[] = {
        {"dynamic", "dynamic", NULL, {0, 0}},
        {"static", "static", NULL, {0, 0}},
        {"offloaded", "offloaded", NULL, {0, 0}},
        {"window", "dynamic", "{\"sliding_window\": 9}", {9, 0}},
        {"sinks", "sink", "{\"window_length\": 12, \"num_sink_tokens\": 4}", {8, 4}},
    };
    for (size_t i = 0; i < countof(way); i++) {
        snprintf(name, sizeof name, "%s, %s", what, way[i].name);
        run(s, name, way[i].reach, way[i].impl, way[i].config);
    }
}

/* Layers without rotation beside rotated ones (SmolLM3, Cohere 2), first, in the middle and last. */
static void rotations(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 8; bits++) {
        struct spec s = {.n = 3};
        char name[32];
        for (uint32_t i = 0; i < s.n; i++)
            s.layer[i] = (struct kind){bits >> i & 1, 2, 8};
        snprintf(name, sizeof name, "rotations %u%u%u", bits & 1, bits >> 1 & 1, bits >> 2);
        every_cache(&s, name);
    }
}

static int start(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[128];
    for (size_t i = 0; i < countof(files); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotations)};
    return cmocka_run_group_tests(tests, start, stop);
}
