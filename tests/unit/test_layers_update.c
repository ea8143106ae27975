/* test_layers_update.c - caches without a model. Every update of tests/fixtures/unbound (made with the
 * caches of Transformers) is equal bit for bit. Kinds of caches that Transformers lacks (sinks,
 * codecs on windows, streaming) are compared with rows kept flat. Errors change nothing. */
#include "base/base.h"
#include "base/json.h"
#include "kv/codec.h"
#include "kvik_compat.h"
#include "testing.h"

#include <math.h>

static uint32_t mix(uint64_t i, uint64_t seed)
{
    uint32_t x = (uint32_t)(i * 2654435761u + seed * 97531u + 1);
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

static float *values_of(uint64_t seed, size_t n)
{
    float *v = malloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)((double)mix(i, seed) / 2147483648.0 - 1);
    return v;
}

static void hash_is(const char *what, const float *v, size_t n, const json_t *want)
{
    uint64_t h = 0xCBF29CE484222325u;
    char text[17];
    for (size_t i = 0; i < n * sizeof *v; i++)
        h = (h ^ ((const unsigned char *)v)[i]) * 0x100000001B3u;
    snprintf(text, sizeof text, "%016llx", (unsigned long long)h);
    if (strcmp(text, json_string_value(want)) != 0) fail_msg("%s: other values", what);
}

static uint32_t num(const json_t *o, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(o, key));
}

static void update(kvik_layers *c, const char *name, const json_t *o, kvik_shape s)
{
    char what[128];
    kvik_rows r = {.size = sizeof r};
    uint32_t layer = num(o, "layer"), length, offset;
    const json_t *mask = json_object_get(o, "mask");
    s.n = num(o, "n");
    snprintf(what, sizeof what, "%s, layer %u, %u rows after %lld", name, layer, s.n,
             (long long)kvik_layers_length(c, layer));
    assert_int_equal(kvik_layers_mask_sizes(c, layer, s.n, &length, &offset), 0);
    float *k = values_of(num(o, "seed"), (size_t)s.batch * s.heads * s.n * s.dim_k),
          *v = values_of(num(o, "seed") + 1, (size_t)s.batch * s.heads * s.n * s.dim_v);
    if (kvik_layers_update(c, layer, k, v, &s, &r) < 0) fail_msg("%s: %s", what, kvik_last_error());
    free(k);
    free(v);
    if (r.rows != num(o, "rows")) fail_msg("%s: %u rows, not %u", what, r.rows, num(o, "rows"));
    if (length != (uint32_t)json_integer_value(json_array_get(mask, 0)) ||
        offset != (uint32_t)json_integer_value(json_array_get(mask, 1)))
        fail_msg("%s: mask of %u at %u", what, length, offset);
    assert_int_equal(kvik_layers_length(c, layer), num(o, "length"));
    hash_is(what, r.keys, (size_t)r.batch * r.heads * r.rows * r.dim_k, json_object_get(o, "keys"));
    hash_is(what, r.values, (size_t)r.batch * r.heads * r.rows * r.dim_v,
            json_object_get(o, "values"));
    for (uint32_t i = 0; i < r.rows; i++)
        assert_true(r.position[i] == (int32_t)(offset + i) ||
                    (r.position[i] == -1 && offset + i >= num(o, "length")));
}

static uint32_t list(const json_t *o, uint32_t *out)
{
    const json_t *a = json_object_get(o, "from");
    for (size_t i = 0; i < json_array_size(a); i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(a, i));
    return (uint32_t)json_array_size(a);
}

static void run_case(const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "name")), *kind[8];
    const json_t *kinds = json_object_get(o, "kinds");
    char *config = NULL;
    uint32_t from[16];
    kvik_layers *c;
    json_t *op;
    size_t i;
    if (json_object_get(o, "cache_config"))
        assert_int_equal(json_text(json_object_get(o, "cache_config"), &config), 0);
    for (i = 0; i < json_array_size(kinds); i++)
        kind[i] = json_string_value(json_array_get(kinds, i));
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation =
                               json_string_value(json_object_get(o, "implementation")),
                           .cache_config = config,
                           .max_cache_len = num(o, "max_cache_len")};
    if (kvik_layers_open(&k, num(o, "layers"), kinds ? kind : NULL, &c) < 0)
        fail_msg("%s: %s", name, kvik_last_error());
    kvik_shape s = {.size = sizeof s,
                    num(o, "batch"),
                    num(o, "heads"),
                    0,
                    num(o, "dim_k"),
                    num(o, "dim_v"),
                    json_string_value(json_object_get(o, "dtype"))};
    json_array_foreach(json_object_get(o, "ops"), i, op)
    {
        const char *what = json_string_value(json_object_get(op, "op"));
        uint32_t n = list(op, from);
        int e = 0;
        if (!strcmp(what, "update")) {
            update(c, name, op, s);
        } else if (!strcmp(what, "reorder")) {
            e = kvik_layers_reorder(c, from, n);
        } else if (!strcmp(what, "select")) {
            e = kvik_layers_select(c, from, s.batch = n);
        } else if (!strcmp(what, "repeat")) {
            e = kvik_layers_repeat(c, num(op, "times"));
            s.batch *= num(op, "times");
        } else if (!strcmp(what, "crop")) {
            e = kvik_layers_crop(c, json_integer_value(json_object_get(op, "len")));
        } else {
            e = kvik_layers_reset(c);
        }
        if (e < 0) fail_msg("%s: %s: %s", name, what, kvik_last_error());
    }
    kvik_layers_close(c);
    mem_free(config);
}

static void test_reference(void **state)
{
    (void)state;
    json_t *all, *o;
    size_t i;
    assert_int_equal(json_read("tests/fixtures/unbound/cases.json", 1 << 20, &all), 0);
    assert_true(json_array_size(all) >= 14);
    json_array_foreach(all, i, o) run_case(o);
    json_decref(all);
}

enum { HEADS = 2, DIM = 64, LONG = 700 };

static uint64_t metadata; /* of the last cache that drive() closed */

/* Runs updates of `sizes` (0 ends) through one cache and compares with rows kept flat. Each
 * returned row must be the row at its position, exactly or within `off`; the positions must be
 * those of `first` and `window`. Returns the largest difference. */
static double drive(const char *name, const kvik_cache_config *k, const uint32_t *sizes,
                    uint32_t sinks, uint32_t window, double off)
{
    float *all[2] = {values_of(7, (size_t)HEADS * LONG * DIM),
                     values_of(8, (size_t)HEADS * LONG * DIM)};
    float *in[2] = {malloc(sizeof(float) * HEADS * LONG * DIM),
                    malloc(sizeof(float) * HEADS * LONG * DIM)};
    double most = 0;
    kvik_layers *c;
    kvik_rows r = {.size = sizeof r};
    uint32_t len = 0;
    if (kvik_layers_open(k, 1, NULL, &c) < 0) fail_msg("%s: %s", name, kvik_last_error());
    for (; *sizes; len += *sizes++) {
        kvik_shape s = {.size = sizeof s, 1, HEADS, *sizes, DIM, DIM, NULL};
        for (uint32_t h = 0; h < HEADS; h++)
            for (int p = 0; p < 2; p++)
                memcpy(in[p] + (size_t)h * *sizes * DIM, all[p] + ((size_t)h * LONG + len) * DIM,
                       *sizes * DIM * sizeof(float));
        if (kvik_layers_update(c, 0, in[0], in[1], &s, &r) < 0)
            fail_msg("%s at %u: %s", name, len, kvik_last_error());
        uint32_t lo = window && len + 1 > window ? len + 1 - window : 0;
        uint32_t head = lo > sinks ? sinks : 0;
        if (lo <= sinks) lo = 0;
        if (r.rows != head + len + *sizes - lo) fail_msg("%s at %u: %u rows", name, len, r.rows);
        for (uint32_t i = 0; i < r.rows; i++) {
            int32_t at = i < head ? (int32_t)i : (int32_t)(lo + i - head);
            if (r.position[i] != at)
                fail_msg("%s at %u: row %u is %d", name, len, i, r.position[i]);
            for (uint32_t h = 0; h < HEADS; h++)
                for (uint32_t d = 0; d < DIM; d++) {
                    size_t to = ((size_t)h * r.rows + i) * DIM + d,
                           from = ((size_t)h * LONG + (uint32_t)at) * DIM + d;
                    double e = MAX(fabs((double)r.keys[to] - all[0][from]),
                                   fabs((double)r.values[to] - all[1][from]));
                    if (e > off) fail_msg("%s at %u: position %d is off by %g", name, len, at, e);
                    most = MAX(most, e);
                }
        }
    }
    kvik_usage u = {.size = sizeof u};
    kvik_layers_usage(c, &u);
    assert_true(!k->cache_memory || u.peak_bytes <= k->cache_memory);
    assert_true(u.metadata > 0 && u.index == 0);
    if (k->cache_memory && k->cache_memory < 1 << 20 && !window)
        assert_true(u.streaming && u.tier_read > 0);
    metadata = u.metadata;
    kvik_layers_close(c);
    for (int p = 0; p < 2; p++) {
        free(all[p]);
        free(in[p]);
    }
    return most;
}

static const uint32_t walk[] = {5, 1, 1, 30, 1, 200, 1, 1, 1, 17, 3, 1, 1, 128, 1, 0};

static void test_policies(void **state)
{
    (void)state;
    static const struct {
        const char *impl, *config;
        uint32_t sinks, window;
    } c[] = {
        {"dynamic", NULL, 0, 0},
        {"offloaded", NULL, 0, 0},
        {"dynamic", "{\"backend\": \"shuffle\"}", 0, 0},
        {"dynamic", "{\"sliding_window\": 40}", 0, 40},
        {"dynamic", "{\"sliding_window\": 1}", 0, 1},
        {"dynamic", "{\"sliding_window\": 300, \"backend\": \"shuffle\"}", 0, 300},
        {"sink", "{\"window_length\": 20, \"num_sink_tokens\": 4}", 4, 16},
        {"sink", "{\"window_length\": 200, \"num_sink_tokens\": 20}", 20, 180},
        {"sink", "{\"window_length\": 333, \"num_sink_tokens\": 3, \"backend\": \"shuffle\"}", 3,
         330},
    };
    for (size_t i = 0; i < countof(c); i++) {
        const char *name = c[i].config ? c[i].config : c[i].impl;
        kvik_cache_config k = {
            .size = sizeof k, .cache_implementation = c[i].impl, .cache_config = c[i].config};
        (void)drive(name, &k, walk, c[i].sinks, c[i].window, 0);
        k.on_full = "offload"; /* once more with pages on disk */
        k.max_sequences = 1;
        (void)drive(name, &k, walk, c[i].sinks, c[i].window, 0); /* in memory, for its metadata */
        k.cache_memory = metadata + (strstr(name, "shuffle") ? 2 << 20 : 800 << 10);
        (void)drive(name, &k, walk, c[i].sinks, c[i].window, 0);
    }
}

/* Dequantized rows are near the originals. The first update is exact, and so are the rows of an
 * update in its own result. */
static void test_quantized(void **state)
{
    (void)state;
    static const uint32_t prompt[] = {200, 0}, one[] = {40, 1, 1, 1, 0};
    static const struct {
        const char *config;
        double off;
    } c[] = {{"{\"nbits\": 4}", 0.13},
             {"{\"nbits\": 2, \"residual_length\": 8}", 0.6},
             {"{\"backend\": \"hqq\", \"nbits\": 8, \"axis_key\": 1, \"axis_value\": 1}", 0.02},
             {"{\"nbits\": 4, \"window_length\": 60, \"num_sink_tokens\": 4}", 0.13},
             {"{\"nbits\": 4, \"sliding_window\": 60}", 0.13}};
    for (size_t i = 0; i < countof(c); i++) {
        kvik_cache_config k = {
            .size = sizeof k, .cache_implementation = "quantized", .cache_config = c[i].config};
        uint32_t sinks = strstr(c[i].config, "sink") ? 4 : 0,
                 window = sinks                            ? 56
                          : strstr(c[i].config, "sliding") ? 60
                                                           : 0;
        (void)drive(c[i].config, &k, prompt, sinks, window, 0);
        assert_true(drive(c[i].config, &k, one, sinks, window, c[i].off) > 0);
        (void)drive(c[i].config, &k, walk, sinks, window, c[i].off);
    }
}

static void refused(kvik_layers *c, uint32_t layer, kvik_shape s, int code, const char *word)
{
    float *x = calloc((size_t)s.batch * s.heads * s.n * MAX(s.dim_k, s.dim_v) + 1, sizeof *x);
    kvik_rows r = {.size = sizeof r};
    int64_t before = kvik_layers_length(c, 0);
    assert_int_equal(kvik_layers_update(c, layer, x, x, &s, &r), code);
    if (!strstr(kvik_last_error(), word)) fail_msg("no %s in: %s", word, kvik_last_error());
    assert_int_equal(kvik_layers_length(c, 0), before);
    free(x);
}

static void test_errors(void **state)
{
    (void)state;
    static const char *const kinds[] = {"sliding_attention"}, *const odd[] = {"round_attention"};
    kvik_cache_config k = {.size = sizeof k, .cache_implementation = "static"};
    kvik_layers *c;
    kvik_rows r = {.size = sizeof r};
    float x[64] = {0};
    assert_int_equal(kvik_layers_open(&k, 1, NULL, &c), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "max_cache_len"));
    assert_int_equal(kvik_layers_open(NULL, 1, kinds, &c), KVIK_ARG);
    assert_non_null(strstr(kvik_last_error(), "sliding_window"));
    assert_int_equal(kvik_layers_open(NULL, 1, odd, &c), KVIK_ARG);
    assert_int_equal(kvik_layers_open(NULL, 0, NULL, &c), KVIK_ARG);
    k.max_cache_len = 8;
    k.max_sequences = 3;
    assert_int_equal(kvik_layers_open(&k, 2, NULL, &c), 0);
    kvik_shape one = {.size = sizeof one, 2, 1, 4, 4, 4, NULL};
    refused(c, 2, one, KVIK_ARG, "layer 2");
    refused(c, 0, (kvik_shape){.size = sizeof(kvik_shape), 4, 1, 1, 4, 4, NULL}, KVIK_LIMIT,
            "max_sequences 3");
    refused(c, 0, (kvik_shape){.size = sizeof(kvik_shape), 2, 1, 1, 4, 4, "q4"}, KVIK_ARG, "dtype");
    refused(c, 0, (kvik_shape){.size = sizeof(kvik_shape), 2, 1, 0, 4, 4, NULL}, KVIK_ARG, "n 0");
    refused(c, 0, (kvik_shape){.size = sizeof(kvik_shape), 2, 1, 9, 4, 4, NULL}, KVIK_LIMIT,
            "max_cache_len 8");
    assert_int_equal(kvik_layers_update(c, 0, x, x, &one, &r), 0);
    refused(c, 0, (kvik_shape){.size = sizeof(kvik_shape), 1, 1, 1, 4, 4, NULL}, KVIK_ARG,
            "a batch of 1");
    refused(c, 0, (kvik_shape){.size = sizeof(kvik_shape), 2, 2, 1, 4, 4, NULL}, KVIK_ARG,
            "its first update had");
    refused(c, 0, (kvik_shape){.size = sizeof(kvik_shape), 2, 1, 5, 4, 4, NULL}, KVIK_LIMIT,
            "max_cache_len 8");
    assert_int_equal(kvik_layers_select(c, (uint32_t[]){0, 2}, 2), KVIK_ARG);
    assert_int_equal(kvik_layers_repeat(c, 2), KVIK_LIMIT);
    assert_int_equal(kvik_layers_reorder(c, (uint32_t[]){0}, 1), KVIK_ARG);
    assert_int_equal(kvik_layers_crop(c, -5), KVIK_ARG);
    assert_int_equal(kvik_layers_length(c, 0), 4);
    uint32_t columns;
    assert_int_equal(kvik_layers_mask_sizes(c, 0, 4, &columns, NULL), 0);
    assert_int_equal(columns, 8);
    assert_int_equal(kvik_layers_mask_sizes(c, 0, UINT32_MAX - 1, &columns, NULL), KVIK_LIMIT);
    assert_int_equal(columns, 8);
    kvik_layers_close(c);
    k = (kvik_cache_config){.size = sizeof(kvik_cache_config),
                            .cache_config = "{\"sliding_window\": 4}"};
    assert_int_equal(kvik_layers_open(&k, 1, NULL, &c), 0);
    one = (kvik_shape){.size = sizeof(kvik_shape), 1, 1, 40, 1, 1, NULL};
    assert_int_equal(kvik_layers_update(c, 0, x, x, &one, &r), 0);
    assert_int_equal(kvik_layers_crop(c, -30), KVIK_LOST);
    assert_int_equal(kvik_layers_length(c, 0), 40);
    kvik_layers_close(c);
}

/* A budget that runs out in the middle of an update of several steps leaves the earlier rows
 * unchanged. */
static void test_full(void **state)
{
    (void)state;
    enum { N = 20000, TRIES = 2 };
    kvik_cache_config k = {.size = sizeof k, .cache_memory = 3 << 20, .max_sequences = 2};
    kvik_shape s = {.size = sizeof s, 1, 1, 100, 16, 16, NULL};
    float *x = values_of(3, (size_t)N * 32);
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    kvik_rows r = {.size = sizeof r};
    kvik_layers *c;
    assert_int_equal(kvik_layers_open(&k, 1, NULL, &c), 0);
    assert_int_equal(kvik_layers_update(c, 0, x, x, &s, &r), 0);
    kvik_layers_usage(c, &before);
    for (int i = 0; i < TRIES; i++) {
        s.n = 2 * N;
        assert_int_equal(kvik_layers_update(c, 0, x, x, &s, &r), KVIK_FULL);
        kvik_layers_usage(c, &after);
        assert_int_equal(after.live, before.live);
        assert_int_equal(kvik_layers_length(c, 0), 100);
    }
    s.n = 1;
    assert_int_equal(kvik_layers_update(c, 0, x + 7, x + 9, &s, &r), 0);
    assert_memory_equal(r.keys, x, 100 * 16 * sizeof *x);
    assert_memory_equal(r.keys + 1600, x + 7, 16 * sizeof *x);
    assert_memory_equal(r.values + 1600, x + 9, 16 * sizeof *x);
    kvik_layers_close(c);
    free(x);
}

/* Repeats one row of a static cache of two layers, and crops all rows.  Returns the code of the crop, or KVIK_LIMIT if
 * the budget is too small to come to it. */
static int shared_crop(uint64_t memory, const float *x)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = "static",
                           .max_cache_len = 64,
                           .max_sequences = 4,
                           .cache_memory = memory};
    kvik_shape s = {.size = sizeof s, .batch = 1, .heads = 2, .n = 48, .dim_k = 64, .dim_v = 64};
    kvik_rows r = {.size = sizeof r};
    kvik_layers *c;
    assert_int_equal(kvik_layers_open(&k, 2, NULL, &c), 0);
    int e = kvik_layers_update(c, 0, x, x, &s, &r);
    s.n = 33;
    if (e >= 0) e = kvik_layers_update(c, 1, x, x, &s, &r);
    if (e >= 0) e = kvik_layers_repeat(c, 4);
    if (e < 0) {
        kvik_layers_close(c);
        return KVIK_LIMIT;
    }
    e = kvik_layers_crop(c, 3);
    for (uint32_t layer = 0; layer < 2; layer++) {
        uint32_t n = e >= 0 ? 3 : layer ? 33 : 48;
        assert_int_equal(kvik_layers_length(c, layer), n);
        assert_int_equal(kvik_layers_rows(c, layer, &r), 0);
        assert_int_equal(r.rows, n);
        for (uint32_t h = 0; h < 4 * 2; h++)
            assert_memory_equal(r.keys + (size_t)h * n * 64,
                                x + (size_t)(h % 2) * (layer ? 33 : 48) * 64, n * 64 * sizeof *x);
    }
    kvik_layers_close(c);
    return e;
}

/* A crop that finds no room for the reserves of all rows changes no row of any layer. */
static void test_crop_all_or_none(void **state)
{
    (void)state;
    uint32_t full = 0, done = 0;
    float *x = values_of(5, 2 * 48 * 64);
    for (uint64_t kb = 300; kb < 4000 && done < 3; kb += 12) {
        int e = shared_crop(kb << 10, x);
        full += e == KVIK_FULL;
        done += e >= 0;
        if (e < 0 && e != KVIK_FULL && e != KVIK_LIMIT) fail_msg("%s", kvik_last_error());
    }
    assert_true(full > 5 && done);
    free(x);
}

/* Reorders a quantized static batch of two layers, of which the second needs nearly all of its budget.  Returns the code
 * of the reorder, or KVIK_LIMIT if the budget is too small to come to it. */
static int shared_reorder(uint64_t memory, uint32_t rows, const float *x)
{
    enum { B = 4 };
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = "static",
                           .cache_config = "{\"backend\": \"quanto\", \"q_group_size\": 32}",
                           .max_cache_len = 256,
                           .max_sequences = B,
                           .cache_memory = memory};
    kvik_shape s[2] = {
        {.size = sizeof *s, .batch = B, .heads = 1, .n = rows, .dim_k = 32, .dim_v = 32},
        {.size = sizeof *s, .batch = B, .heads = 2, .n = rows, .dim_k = 64, .dim_v = 64}};
    kvik_rows r = {.size = sizeof r};
    float *before[2] = {NULL, NULL};
    kvik_layers *c;
    int e = 0;
    assert_int_equal(kvik_layers_open(&k, 2, NULL, &c), 0);
    for (int i = 0; i < 2 && e >= 0; i++) {
        e = kvik_layers_update(c, (uint32_t)i, x, x, &s[i], &r);
        s[i].n = 1;
        if (e >= 0) e = kvik_layers_update(c, (uint32_t)i, x + 7, x + 9, &s[i], &r);
        if (e >= 0) e = kvik_layers_rows(c, (uint32_t)i, &r);
        size_t n = (size_t)B * s[i].heads * r.rows * s[i].dim_k;
        before[i] = malloc(n * sizeof *x);
        if (e >= 0) memcpy(before[i], r.keys, n * sizeof *x);
    }
    if (e < 0) e = KVIK_LIMIT;
    if (e >= 0) e = kvik_layers_reorder(c, (uint32_t[B]){3, 3, 2, 2}, B);
    for (uint32_t i = 0; i < 2 && e != KVIK_LIMIT; i++) {
        assert_int_equal(kvik_layers_rows(c, i, &r), 0);
        size_t one = (size_t)s[i].heads * r.rows * s[i].dim_k;
        assert_memory_equal(r.keys, before[i] + (e < 0 ? 0 : 3) * one, one * sizeof *x);
    }
    free(before[0]);
    free(before[1]);
    kvik_layers_close(c);
    return e;
}

/* A reorder that finds no room in one layer changes none. */
static void test_reorder_all_or_none(void **state)
{
    (void)state;
    uint32_t full = 0, done = 0;
    float *x = values_of(8, 4 * 2 * 64 * 64);
    for (uint64_t kb = 3400; kb < 3700; kb += 25)
        for (uint32_t rows = 1; rows <= 53; rows += 13) {
            int e = shared_reorder(kb << 10, rows, x);
            full += e == KVIK_FULL;
            done += e >= 0;
            if (e < 0 && e != KVIK_FULL && e != KVIK_LIMIT) fail_msg("%s", kvik_last_error());
        }
    assert_true(full && done);
    free(x);
}

/* Rows that are selected have the reserve that all rows have. */
static void test_select_reserve(void **state)
{
    (void)state;
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = "static",
                           .max_cache_len = 64,
                           .max_sequences = 2};
    kvik_shape s = {.size = sizeof s, .batch = 2, .heads = 2, .n = 16, .dim_k = 8, .dim_v = 8};
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    kvik_rows r = {.size = sizeof r};
    kvik_layers *c;
    float *x = values_of(6, (size_t)2 * 2 * 16 * 8);
    assert_int_equal(kvik_layers_open(&k, 1, NULL, &c), 0);
    assert_int_equal(kvik_layers_update(c, 0, x, x, &s, &r), 0);
    assert_int_equal(kvik_layers_usage(c, &before), 0);
    assert_int_equal(kvik_layers_select(c, (uint32_t[]){1, 0}, 2), 0);
    assert_int_equal(kvik_layers_usage(c, &after), 0);
    assert_int_equal(after.reserved, before.reserved);
    kvik_layers_close(c);
    free(x);
}

/* Every allocation fails once: an error, and the earlier rows are unchanged. */
static void test_no_memory(void **state)
{
    (void)state;
    static const char *const config[] = {NULL, "{\"sliding_window\": 8}",
                                         "{\"backend\": \"quanto\"}", "{\"offloading\": true}"};
    float *x = values_of(5, 64 * 100), first[64 * 3];
    kvik_rows r = {.size = sizeof r};
    for (size_t i = 0; i < countof(config); i++) {
        kvik_cache_config k = {
            .size = sizeof k, .cache_config = config[i], .max_sequences = 2, .max_cache_len = 200};
        kvik_shape s = {.size = sizeof s, 1, 1, 3, 64, 64, NULL};
        int done = 0, failures = 0;
        bool reached = true; /* the call may also survive the failure: then its result is right */
        for (int64_t at = 0; reached && at < 2000; at++) {
            kvik_layers *c = NULL;
            uint64_t calls = mem_calls();
            done = 0;
            mem_fail_at(at, false);
            if (kvik_layers_open(&k, 2, NULL, &c) >= 0 && ++done &&
                kvik_layers_update(c, 1, x, x, &s, &r) >= 0 && ++done &&
                kvik_layers_repeat(c, 2) >= 0 && ++done)
                done += kvik_layers_select(c, (uint32_t[]){1}, 1) >= 0;
            mem_fail_at(-1, false);
            reached = mem_calls() - calls > (uint64_t)at;
            failures += done < 4;
            if (done >= 2) { /* the rows are present and can be extended */
                kvik_shape more = {.size = sizeof more, done == 3 ? 2 : 1, 1, 1, 64, 64, NULL};
                if (kvik_layers_update(c, 1, x, x, &more, &r) < 0)
                    fail_msg("%s", kvik_last_error());
                assert_int_equal(r.rows, 4);
                memcpy(first, r.keys, sizeof first);
                if (!config[i] || !strstr(config[i], "quanto"))
                    assert_memory_equal(first, x, sizeof first);
            } else if (done == 1) {
                assert_int_equal(kvik_layers_length(c, 1), 0);
            }
            kvik_layers_close(c);
        }
        assert_int_equal(done, 4);
        if (failures <= 20)
            fail_msg("%s: %d failures", config[i] ? config[i] : "dynamic", failures);
    }
    free(x);
}

/* The default budget of a static cache has room for the reserves of all rows, in memory and on disk: no update within
 * max_cache_len is refused. */
static void test_static_defaults(void **state)
{
    (void)state;
    static const struct {
        const char *impl, *config;
    } of[] = {{"static", NULL},
              {"offloaded_static", NULL},
              {"offloaded_static", "{\"sliding_window\": 300}"},
              {"offloaded_static", "{\"backend\": \"quanto\", \"q_group_size\": 32}"},
              {"offloaded_hybrid", "{\"sliding_window\": 700}"}};
    for (size_t k = 0; k < countof(of); k++)
        for (uint32_t batch = 1; batch <= 16; batch *= 4) {
            kvik_cache_config config = {.size = sizeof config,
                                        .cache_implementation = of[k].impl,
                                        .cache_config = of[k].config,
                                        .max_cache_len = 2000,
                                        .max_sequences = batch,
                                        .threads = 1};
            kvik_shape s = {
                .size = sizeof s, .batch = batch, .heads = 2, .dim_k = 32, .dim_v = 32, .n = 256};
            kvik_rows out = {.size = sizeof out};
            kvik_layers *c;
            float *rows = values_of(batch, (size_t)batch * 2 * s.n * 32);
            if (kvik_layers_open(&config, 1, NULL, &c) < 0) fail_msg("%s", kvik_last_error());
            for (uint32_t n = 0; n < 4 * s.n; n += s.n)
                if (kvik_layers_update(c, 0, rows, rows, &s, &out) < 0)
                    fail_msg("%s %s, %u rows, after %u: %s", of[k].impl,
                             of[k].config ? of[k].config : "", batch, n, kvik_last_error());
            kvik_layers_close(c);
            free(rows);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_quantized),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_crop_all_or_none),
        cmocka_unit_test(test_reorder_all_or_none),
        cmocka_unit_test(test_select_reserve),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_static_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
