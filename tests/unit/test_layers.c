/* test_layers.c - models whose layers differ from each other, against an oracle without a cache.
 * The oracle recomputes every token of the text in doubles, from the definition. */
#include "test_layers.h"
#include "kvik_compat.h"

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

/* Returns the dot product of a query with a key at distance `apart`, which is what rotating both
 * gives. */
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

/* Computes attention of one head at token p over rows [0, n): out[dim]. */
static void attend(const struct kind *l, struct reach r, const double *q, const double *k,
                   const double *v, uint32_t p, uint32_t n, double *out)
{
    double score[TOKENS], sum = 0, scale = 1 / sqrt((double)l->dim);
    size_t ld = (size_t)l->kv_heads * l->dim;
    uint32_t lo = r.window && p + 1 > r.window ? p + 1 - r.window : 0;
    memset(out, 0, l->dim * sizeof *out);
    for (uint32_t j = 0; j < n; j++) {
        /* Sinks stand right before the window once the window has moved. */
        double at = j < lo ? MIN(p, r.sinks + r.window - 1) : p;
        score[j] = 0;
        if (j < lo && j >= r.sinks) continue;
        score[j] = exp(scale * dot(q, k + j * ld, l->dim, l->rope ? at - j : 0));
        sum += score[j];
    }
    for (uint32_t j = 0; j < n; j++)
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

enum { WIDE = HEADS * HIDDEN };
/* The residual stream of the decoder; that of the encoder. */
static double stream[TOKENS][HIDDEN], heard[HEARD][HIDDEN];
static double key[LAYERS][TOKENS * WIDE], value[LAYERS][TOKENS * WIDE];

/* Computes key[i] and value[i] of n rows of x. */
static void remember(const struct kind *l, float *const *w, uint32_t i, double (*from)[HIDDEN],
                     uint32_t n)
{
    double x[HIDDEN];
    uint32_t kv = l->kv_heads * l->dim;
    for (uint32_t t = 0; t < n; t++) {
        rmsnorm(from[t], w[NORM1], x);
        matmul(w[K], x, kv, HIDDEN, key[i] + t * kv);
        matmul(w[V], x, kv, HIDDEN, value[i] + t * kv);
    }
}

/* Computes the contribution of a recurrent layer at token t from the definition, over all tokens
 * before. */
static void sum_of(const struct kind *l, uint32_t i, uint32_t t, double *out)
{
    uint32_t width = l->kv_heads * l->dim;
    for (uint32_t d = 0; d < width; d++) {
        out[d] = t ? value[i][(t - 1) * width + d] : 0;
        for (uint32_t j = 0; j <= t; j++)
            out[d] += pow((double)decay, t - j) * value[i][j * width + d];
    }
}

static void layer(const struct spec *s, uint32_t i, struct reach r, float *const *w, uint32_t n)
{
    const struct kind *l = &s->layer[i];
    double x[HIDDEN], q[WIDE], out[WIDE];
    uint32_t wide = HEADS * l->dim, of = l->does == BORROWS ? l->of : i;
    if (l->does == HEARS) r = (struct reach){0, 0};
    if (l->does != BORROWS)
        remember(l, w, i, l->does == HEARS ? heard : stream, l->does == HEARS ? HEARD : n);
    for (uint32_t t = 0; t < n; t++) {
        uint32_t rows = l->does == HEARS ? HEARD : t + 1;
        rmsnorm(stream[t], w[NORM1], x);
        matmul(w[Q], x, wide, HIDDEN, q);
        if (l->does == SUMS) sum_of(l, i, t, out);
        for (uint32_t h = 0; h < HEADS && l->does != SUMS; h++) {
            uint32_t at = h / (HEADS / l->kv_heads) * l->dim;
            attend(l, r, q + h * l->dim, key[of] + at, value[of] + at, t, rows, out + h * l->dim);
        }
        matmul(w[O], out, HIDDEN, wide, x);
        for (uint32_t d = 0; d < HIDDEN; d++)
            stream[t][d] += x[d];
        mlp(w, stream[t]);
    }
}

static void embed(const struct weights *w, const int32_t *ids, uint32_t n, double (*out)[HIDDEN])
{
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; i < HIDDEN; i++)
            out[t][i] = (double)w->embed[(uint32_t)ids[t] * HIDDEN + i];
}

/* logits: [n][VOCAB] */
static void oracle(const struct spec *s, const struct weights *w, struct reach r,
                   const int32_t *ids, uint32_t n, double *logits)
{
    double x[HIDDEN];
    embed(w, ids, n, stream);
    embed(w, ids + 5, HEARD, heard);
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t from = s->layer[i].weights;
        layer(s, i, r, w->part[from ? from - 1 : i], n);
    }
    for (uint32_t t = 0; t < n; t++) {
        rmsnorm(stream[t], w->norm, x);
        matmul(w->embed, x, VOCAB, HIDDEN, logits + t * VOCAB);
    }
}

/* --- comparing model and oracle */
static void compare(const char *what, const double *want, const float *got, uint32_t n)
{
    double most = 0, off = 0;
    for (uint32_t i = 0; i < n * VOCAB; i++) {
        most = fmax(most, fabs(want[i]));
        off = fmax(off, fabs(want[i] - (double)got[i]));
    }
    if (!(off <= 2e-5 * most)) fail_msg("%s: logits are %g off, of %g", what, off, most);
}

static bool has(const struct spec *s, enum does does)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->layer[i].does == does) return true;
    return false;
}

/* Makes a sequence; if a layer attends to the encoder, with the encoder's tokens. */
static int sequence(kvik_cache *c, const struct spec *s, const int32_t *ids, kvik_seq *out)
{
    TRY(kvik_cache_new(c, out));
    struct exec_span span = {.rows = {.seq = *out, .tok = ids, .n = HEARD, .cross = true}};
    return has(s, HEARS) ? exec_step(c->x, &span, 1, NULL) : 0;
}

static void run(const struct spec *s, const char *what, struct reach r, const char *impl,
                const char *config)
{
    /* Another sequence in the same steps; the rows that a crop keeps. */
    enum { SHORT = 17, CROPPED = 38 };
    static const uint32_t chunks[] = {TOKENS, 23, 7};
    static double want[TOKENS * VOCAB], other[TOKENS * VOCAB];
    static float got[(TOKENS + SHORT) * VOCAB];
    int32_t ids[TOKENS];
    kvik_model *m;
    struct weights w = weights_new(s);
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)((7 + i * 31 + i * i) % VOCAB);
    save_weights(s, &w);
    save_config(s);
    oracle(s, &w, r, ids, TOKENS, want);
    oracle(s, &w, r, ids, SHORT, other);
    if (kvik_model_open(dir, &m) < 0) fail_msg("%s: %s", what, kvik_last_error());
    for (size_t i = 0; i < countof(chunks); i++) {
        kvik_cache *c;
        kvik_seq seq[2];
        kvik_cache_config k = {.size = sizeof k,
                               .cache_implementation = impl,
                               .cache_config = config,
                               .max_sequences = 2,
                               .max_cache_len = TOKENS,
                               .step_tokens = has(s, HEARS) ? MAX(chunks[i], HEARD) : chunks[i],
                               .no_prefix_cache = true,
                               .threads = 1,
                               .compute = "exact"};
        if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s: %s", what, kvik_last_error());
        for (int q = 0; q < 2; q++)
            if (sequence(c, s, ids + 5, &seq[q]) < 0) fail_msg("%s: %s", what, kvik_last_error());
        kvik_span span[2] = {{.size = sizeof *span, .seq = seq[0], .ids = ids, .n = TOKENS},
                             {.size = sizeof *span, .seq = seq[1], .ids = ids, .n = SHORT}};
        if (kvik_forward(c, span, 2, true, got) < 0) fail_msg("%s: %s", what, kvik_last_error());
        compare(what, want, got, TOKENS);
        compare(what, other, got + TOKENS * VOCAB, SHORT);
        span[0] = (kvik_span){
            .size = sizeof *span, .seq = seq[0], .ids = ids + CROPPED, .n = TOKENS - CROPPED};
        if (kvik_cache_crop(c, seq[0], CROPPED) < 0 || kvik_forward(c, span, 1, true, got) < 0)
            fail_msg("%s: %s", what, kvik_last_error());
        compare(what, want + CROPPED * VOCAB, got, TOKENS - CROPPED);
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

/* Layers without rotation beside rotated ones (SmolLM3, Cohere 2): first, in the middle and last. */
static void rotations(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 8; bits++) {
        struct spec s = {.n = 3};
        char name[32];
        for (uint32_t i = 0; i < s.n; i++)
            s.layer[i] = (struct kind){.rope = bits >> i & 1, .kv_heads = 2, .dim = 8};
        snprintf(name, sizeof name, "rotations %u%u%u", bits & 1, bits >> 1 & 1, bits >> 2);
        every_cache(&s, name);
    }
}

static void one_kind(const char *what, struct kind a, struct kind b, struct kind c)
{
    every_cache(&(struct spec){3, {a, b, c}}, what);
    every_cache(&(struct spec){4, {a, c, b, a}}, what);
}

/* Key-value heads and head dimensions differ by layer; each dimension has its own rotation. */
static void shapes(void **state)
{
    (void)state;
    const struct kind wide = {.rope = true, .kv_heads = 1, .dim = 16};
    const struct kind narrow = {.rope = true, .kv_heads = 4, .dim = 8};
    const struct kind middle = {.rope = true, .kv_heads = 2, .dim = 8};
    every_cache(&(struct spec){3, {wide, narrow, middle}}, "wide, narrow, middle");
    every_cache(&(struct spec){3, {narrow, middle, wide}}, "narrow, middle, wide");
    every_cache(&(struct spec){4, {narrow, wide, wide, middle}}, "narrow, wide, wide, middle");
}

/* Layers that share keys and values, and layers that share weights but not keys and values (Zamba
 * 2). */
static void shared(void **state)
{
    (void)state;
    const struct kind own = {.rope = true, .kv_heads = 2, .dim = 8};
    const struct kind borrows = {.rope = true, .kv_heads = 2, .dim = 8, .does = BORROWS, .of = 0};
    const struct kind same = {.rope = true, .kv_heads = 2, .dim = 8, .weights = 1};
    one_kind("keys and values shared", own, borrows, borrows);
    one_kind("weights shared", own, own, same);
    one_kind("both shared", own, same, borrows);
}

/* Recurrent states beside attention and alone. */
static void states(void **state)
{
    (void)state;
    const struct kind attends = {.rope = true, .kv_heads = 2, .dim = 8};
    const struct kind sums = {.kv_heads = HEADS, .dim = 8, .does = SUMS};
    one_kind("states after attention", attends, sums, sums);
    one_kind("states before attention", sums, sums, attends);
    run(&(struct spec){2, {sums, sums}}, "states alone", (struct reach){0, 0}, "dynamic", NULL);
}

/* Cross attention to the rows that the encoder wrote, beside attention to the text. */
static void phases(void **state)
{
    (void)state;
    const struct kind attends = {.rope = true, .kv_heads = 2, .dim = 8};
    const struct kind hears = {.kv_heads = 2, .dim = 8, .does = HEARS};
    const struct kind sums = {.kv_heads = HEADS, .dim = 8, .does = SUMS};
    one_kind("an encoder", attends, hears, attends);
    one_kind("an encoder and states", sums, attends, hears);
}

/* Reports that describe layers describe every kind of site, and exports have all of them. */
static void reports(void **state)
{
    (void)state;
    static const char *const words[] = {"full_attention", "recurrent_state", "cross_attention"};
    const struct spec s = {3,
                           {{.rope = true, .kv_heads = 2, .dim = 8},
                            {.kv_heads = HEADS, .dim = 8, .does = SUMS},
                            {.kv_heads = 2, .dim = 8, .does = HEARS}}};
    struct weights w = weights_new(&s);
    int32_t ids[HEARD] = {1};
    kvik_export *rows = NULL;
    kvik_model *m;
    kvik_cache *c;
    kvik_seq seq;
    char *text;
    save_weights(&s, &w);
    save_config(&s);
    assert_int_equal(kvik_model_open(dir, &m), 0);
    assert_int_equal(kvik_model_describe(m, &text), 0);
    for (size_t i = 0; i < countof(words); i++)
        if (!strstr(text, words[i])) fail_msg("%s does not say %s", text, words[i]);
    kvik_free(text);
    assert_int_equal(kvik_model_describe_caches(m, &text), 0);
    assert_null(strstr(text, "\"reason\": \"cache:"));
    kvik_free(text);
    assert_int_equal(
        kvik_cache_open(
            m, &(kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 1}, &c),
        0);
    assert_true(sequence(c, &s, ids, &seq) >= 0);
    assert_int_equal(
        kvik_forward(c, &(kvik_span){.size = sizeof(kvik_span), .seq = seq, .ids = ids, .n = HEARD},
                     1, false, NULL),
        0);
    assert_int_equal(kvik_cache_export(c, seq, &rows), 0);
    const kvik_plane *plane = kvik_layer_plane(&rows->layer[2], "cross_keys");
    assert_true(plane && plane->dim[1] == HEARD);
    kvik_export_free(rows);
    assert_int_equal(kvik_cache_map(c, seq, &text), 0);
    assert_non_null(strstr(text, "\"frozen\""));
    kvik_free(text);
    kvik_cache_close(c);
    kvik_model_close(m);
    weights_free(&w, &s);
}

/* Where a word behind mod_narrow reads other tokens, or is another mod_narrow, the model is refused: its tokens would be
 * wrong. */
static void narrowed_early(void **state)
{
    (void)state;
    const struct kind attends = {.rope = true, .kv_heads = 2, .dim = 8},
                      sums = {.kv_heads = HEADS, .dim = 8, .does = SUMS};
    for (int i = 0; i < 3; i++) {
        const struct spec s = {.n = 2, .layer = {attends, i == 1 ? sums : attends}};
        const kvik_cache_config config = {.size = sizeof config, .max_sequences = 1};
        struct weights w = weights_new(&s);
        kvik_model *m;
        kvik_cache *c = NULL;
        save_weights(&s, &w);
        save_config(&s);
        assert_int_equal(kvik_model_open(dir, &m), 0);
        narrow_after = i < 2;
        narrow_twice = i == 2;
        assert_int_equal(kvik_cache_open(m, &config, &c), KVIK_UNSUPPORTED);
        narrow_after = 0;
        narrow_twice = false;
        assert_non_null(strstr(kvik_last_error(), "mod_narrow"));
        kvik_model_close(m);
        weights_free(&w, &s);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotations),     cmocka_unit_test(shapes),
                                       cmocka_unit_test(shared),        cmocka_unit_test(states),
                                       cmocka_unit_test(phases),        cmocka_unit_test(reports),
                                       cmocka_unit_test(narrowed_early)};
    return cmocka_run_group_tests(tests, start, stop);
}
