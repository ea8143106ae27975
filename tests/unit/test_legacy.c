/* test_legacy.c - the legacy form of the cache. After an export, a trip through a file and an
 * import, the batch continues with the same bits. Windows and chunks; tuples of other programs;
 * files and arrays that are wrong in every way. */
#include "base/base.h"
#include "fmt/fmt.h"
#include "kvik_compat.h"
#include "testing.h"

#include <math.h>

#define MODELS "tests/golden/models/"
enum { ROWS = 3, WIDE = 24, MOST = 64 };

static int32_t ids[ROWS * MOST];
static uint8_t mask[ROWS * MOST];
static char file[64], other[80];

static void must(int e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
}

static void refused(int e, int code, const char *words)
{
    if (e != code) fail_msg("%d instead of %d (%s)", e, code, words);
    if (!strstr(kvik_last_error(), words)) fail_msg("%s: no \"%s\"", kvik_last_error(), words);
}

static kvik_cache *open_cache(kvik_model *m, const char *implementation, const char *config)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = implementation,
                           .cache_config = config,
                           .compute = "exact",
                           .max_sequences = 8,
                           .max_cache_len = MOST,
                           .step_tokens = 16};
    kvik_cache *c;
    must(kvik_cache_open(m, &k, &c));
    return c;
}

/* Fills the mask. pattern: 0 nothing masked, 1 padding on the left, 2 holes and masked columns at
 * the end. */
static void fill(uint32_t vocab, int pattern)
{
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0; j < WIDE; j++) {
            ids[i * WIDE + j] = (int32_t)(5 + (i * 31 + j * 17) % (vocab - 5));
            mask[i * WIDE + j] = pattern == 0   ? 1
                                 : pattern == 1 ? j >= 7 * i
                                                : j % (i + 3) != 1 && j < WIDE - 3 * i;
        }
}

static void feed(kvik_batch *b)
{
    kvik_inputs in = {
        .size = sizeof in, .ids = ids, .n = WIDE, .attention_mask = mask, .width = WIDE};
    int32_t pos[ROWS * WIDE];
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0, k = 0; j < WIDE; j++) {
            pos[i * WIDE + j] = (int32_t)k;
            k += mask[i * WIDE + j];
        }
    in.position_ids = pos;
    must(kvik_batch_forward(b, &in, NULL));
}

/* Computes the logits of three more columns. */
static void go_on(kvik_batch *b, uint32_t vocab, float *logits)
{
    for (uint32_t step = 0; step < 3; step++) {
        uint32_t n = kvik_batch_length(b), rows = kvik_batch_rows(b);
        uint8_t old[ROWS * MOST], now[ROWS * MOST];
        int32_t id[ROWS], pos[ROWS];
        must(kvik_batch_mask(b, old));
        for (uint32_t i = 0; i < rows; i++) {
            memcpy(now + i * (n + 1), old + i * n, n);
            now[i * (n + 1) + n] = 1;
            id[i] = (int32_t)(9 + i + step);
            pos[i] = 0;
            for (uint32_t j = 0; j < n; j++)
                pos[i] += old[i * n + j];
        }
        kvik_inputs in = {.size = sizeof in,
                          .ids = id,
                          .n = 1,
                          .attention_mask = now,
                          .width = n + 1,
                          .position_ids = pos};
        kvik_outputs out = {.size = sizeof out, .logits = logits + (size_t)step * rows * vocab};
        must(kvik_batch_forward(b, &in, &out));
    }
}

static void same_form(const kvik_legacy *a, const kvik_legacy *b)
{
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->batch, b->batch);
    assert_int_equal(a->length, b->length);
    size_t cells = (size_t)a->batch * a->length;
    assert_memory_equal(a->attention_mask, b->attention_mask, cells);
    assert_memory_equal(a->ids, b->ids, cells * sizeof *a->ids);
    for (uint32_t i = 0; i < a->n_layers; i++) {
        const kvik_legacy_layer *x = &a->layer[i], *y = &b->layer[i];
        assert_int_equal(x->tokens, y->tokens);
        size_t n = (size_t)a->batch * x->heads * x->tokens * sizeof(float);
        assert_memory_equal(x->keys, y->keys, n * x->dim_k);
        assert_memory_equal(x->values, y->values, n * x->dim_v);
    }
}

/* Exports and imports. tokens: the number the first layer holds; with holes it may be more, since
 * windows count tokens. */
static void round_trip(const char *model, const char *implementation, int pattern, uint32_t tokens)
{
    char path[200];
    kvik_model *m;
    kvik_batch *b, *d;
    kvik_legacy *l, *back, *again;
    snprintf(path, sizeof path, MODELS "%s", model);
    must(kvik_model_open(path, &m));
    uint32_t vocab = kvik_model_vocab(m);
    size_t bytes = (size_t)3 * ROWS * vocab * sizeof(float);
    float *want = malloc(bytes), *got = malloc(bytes);
    kvik_cache *c = open_cache(m, implementation, NULL), *fresh = open_cache(m, NULL, NULL);
    fill(vocab, pattern);
    must(kvik_batch_open(c, ROWS, &b));
    feed(b);
    if (kvik_batch_to_legacy(b, &l) < 0) fail_msg("%s: %s", model, kvik_last_error());
    if (pattern < 2 && l->layer[0].tokens != tokens)
        fail_msg("%s: %u tokens in layer 0, not %u", model, l->layer[0].tokens, tokens);
    for (uint32_t i = 0; i < ROWS * WIDE; i++) {
        assert_int_equal(l->attention_mask[i], mask[i]);
        assert_int_equal(l->ids[i], mask[i] ? ids[i] : -1);
    }
    must(kvik_legacy_save(l, m, file));
    must(kvik_legacy_load(file, m, &back));
    same_form(l, back);
    must(kvik_batch_from_legacy(fresh, back, &d));
    must(kvik_batch_to_legacy(d, &again));
    same_form(l, again);
    kvik_legacy_free(again);
    go_on(b, vocab, want);
    go_on(d, vocab, got);
    if (memcmp(want, got, bytes) != 0) fail_msg("%s %s: bits", model, implementation);
    if (pattern ==
        0) { /* as other programs write it: keys and values, and for a longer text its length */
        free(back->ids);
        free(back->attention_mask);
        back->ids = NULL;
        back->attention_mask = NULL;
        if (tokens == WIDE) back->length = 0;
        kvik_batch_close(d);
        must(kvik_batch_from_legacy(fresh, back, &d));
        assert_int_equal(kvik_batch_length(d), WIDE);
        go_on(d, vocab, got);
        assert_memory_equal(want, got, bytes);
    }
    kvik_batch_close(b);
    kvik_batch_close(d);
    kvik_legacy_free(l);
    kvik_legacy_free(back);
    kvik_cache_close(c);
    kvik_cache_close(fresh);
    kvik_model_close(m);
    free(want);
    free(got);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        uint32_t tokens; /* of layer 0 */
    } cases[] = {{"llama-mha", WIDE}, {"gpt2", WIDE}, {"mistral", 11}, {"gemma2", 9},
                 {"llama4", 15},      {"gpt-oss", 8}, {"phi3", 23},    {"gemma3", 7}};
    for (size_t i = 0; i < countof(cases); i++)
        for (int p = 0; p < 3; p++)
            round_trip(cases[i].model, "dynamic", p, cases[i].tokens);
    round_trip("llama-mha", "static", 1, WIDE);
    round_trip("llama-mha", "offloaded", 1, WIDE);
}

/* Quantized rows are exported dequantized. A plain cache that imports them continues as the
 * quantized cache does. */
static void test_encoded(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"backend\": \"quanto\", \"nbits\": 2, \"q_group_size\": 16, \"residual_length\": 8}",
        "{\"backend\": \"hqq\", \"axis_key\": 1, \"axis_value\": 1, \"q_group_size\": 16}"};
    kvik_model *m;
    must(kvik_model_open(MODELS "llama-mha", &m));
    uint32_t vocab = kvik_model_vocab(m);
    float *want = malloc((size_t)3 * ROWS * vocab * sizeof *want),
          *got = malloc((size_t)3 * ROWS * vocab * sizeof *got);
    for (size_t k = 0; k < countof(configs); k++) {
        kvik_cache *from = open_cache(m, "quantized", configs[k]), *to = open_cache(m, NULL, NULL);
        kvik_batch *b, *d;
        kvik_legacy *l;
        kvik_usage u = {.size = sizeof u};
        fill(vocab, 1);
        must(kvik_batch_open(from, ROWS, &b));
        feed(b);
        must(kvik_batch_to_legacy(b, &l));
        must(kvik_batch_from_legacy(to, l, &d));
        kvik_legacy_free(l);
        kvik_cache_usage(from, &u);
        assert_true(u.seals > 0);
        go_on(b, vocab, want);
        go_on(d, vocab, got);
        /* The first column is equal; after it the tiles differ. */
        for (uint32_t i = 0; i < ROWS * vocab; i++)
            if (!(fabsf(got[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i]))))
                fail_msg("%s: logit %u is %g, not %g", configs[k], i, got[i], want[i]);
        kvik_batch_close(b);
        kvik_batch_close(d);
        kvik_cache_close(from);
        kvik_cache_close(to);
    }
    free(want);
    free(got);
    kvik_model_close(m);
}

/* --- Wrong arrays and files. */

static void test_wrong_arrays(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_batch *b, *none = NULL;
    kvik_legacy *l;
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    must(kvik_model_open(MODELS "mistral", &m));
    kvik_cache *c = open_cache(m, NULL, NULL),
               *sink = open_cache(m, "sink", "{\"window_length\": 8, \"num_sink_tokens\": 2}");
    fill(kvik_model_vocab(m), 1);
    must(kvik_batch_open(c, ROWS, &b));
    feed(b);
    must(kvik_batch_to_legacy(b, &l));
    kvik_cache_usage(c, &before);
    kvik_legacy w = *l;
    kvik_legacy_layer layer[8];
    memcpy(layer, l->layer, l->n_layers * sizeof *layer);
    w.n_layers--;
    refused(kvik_batch_from_legacy(c, &w, &none), KVIK_ARG, "the model has");
    w = *l;
    w.batch = 9;
    refused(kvik_batch_from_legacy(c, &w, &none), KVIK_LIMIT, "max_sequences 8");
    w = *l;
    w.layer = layer;
    layer[1].heads++;
    refused(kvik_batch_from_legacy(c, &w, &none), KVIK_ARG, "layer 1: keys and values of 3 heads");
    layer[1].heads--;
    layer[1].values = NULL;
    refused(kvik_batch_from_legacy(c, &w, &none), KVIK_ARG, "layer 1: no keys or no values");
    layer[1].values = l->layer[1].values;
    layer[1].tokens = 10;
    refused(kvik_batch_from_legacy(c, &w, &none), KVIK_ARG,
            "layer 1 has the last 10 of 24 columns; the next token of row 0 sees the last 11");
    layer[1].tokens = 25;
    refused(kvik_batch_from_legacy(c, &w, &none), KVIK_ARG, "layer 1 has 25 tokens");
    layer[1].tokens = 11;
    w.length = 0;
    w.attention_mask = NULL;
    w.ids = NULL;
    refused(kvik_batch_from_legacy(c, &w, &none), KVIK_ARG, "say how many the text has");
    w.length = 100;
    refused(kvik_batch_from_legacy(c, &w, &none), KVIK_LIMIT, "max_cache_len 64");
    l->ids[9] = 1 << 30;
    refused(kvik_batch_from_legacy(c, l, &none), KVIK_ARG, "vocabulary");
    refused(kvik_batch_from_legacy(sink, l, &none), KVIK_UNSUPPORTED, "sink");
    kvik_cache_usage(c, &after);
    assert_int_equal(after.tokens, before.tokens);
    assert_int_equal(after.live, before.live);
    assert_null(none);
    kvik_legacy_free(l);
    kvik_batch_close(b);
    kvik_cache_close(c);
    kvik_cache_close(sink);
    kvik_model_close(m);
}

/* Writes the file again with one tensor or note changed. */
static void rewrite(const char *skip, const struct tensor *add, const char *length)
{
    struct safetensors *s;
    struct tensor t[64];
    uint32_t n = 0;
    must(safetensors_open(file, &s));
    for (uint32_t i = 0; i < safetensors_count(s); i++)
        if (!skip || strcmp(safetensors_at(s, i)->name, skip)) t[n++] = *safetensors_at(s, i);
    if (add) t[n++] = *add;
    struct safetensors_note note = {"length", length};
    must(safetensors_write_noted(other, t, n, &note, length != NULL));
    safetensors_close(s);
}

static void test_wrong_files(void **state)
{
    (void)state;
    static const float zeros[4096];
    static const struct {
        const char *skip, *length, *words;
        struct tensor add;
    } cases[] = {
        {"layers.1.values", "24", "layers.1.values: the tensor is missing", {0}},
        {"layers.0.keys", "24", "layers.0.keys: the tensor is missing", {0}},
        {NULL, "-3", "not a number", {0}},
        {NULL, "99999999999", "not a number", {0}},
        {NULL, "24x", "not a number", {0}},
        {NULL, "23", "attention_mask: u8 [3][23] is expected", {0}},
        {"layers.1.keys",
         "24",
         "batches of different sizes",
         {"layers.1.keys", DT_F32, 4, {1, 2, 11, 8}, zeros, 704}},
        {"layers.1.keys",
         "24",
         "four dimensions",
         {"layers.1.keys", DT_F32, 3, {3, 2, 11}, zeros, 264}},
        {"layers.1.keys",
         "24",
         "four dimensions",
         {"layers.1.keys", DT_F16, 4, {3, 2, 11, 8}, zeros, 1056}},
        {"layers.1.keys",
         "24",
         "differ in heads or tokens",
         {"layers.1.keys", DT_F32, 4, {3, 2, 10, 8}, zeros, 1920}},
        {"input_ids", "24", "input_ids: i32 [3][24]", {"input_ids", DT_I32, 1, {24}, zeros, 96}},
    };
    kvik_model *m, *llama;
    kvik_batch *b;
    kvik_legacy *l, *none = NULL;
    must(kvik_model_open(MODELS "mistral", &m));
    must(kvik_model_open(MODELS "llama-mha", &llama));
    kvik_cache *c = open_cache(m, NULL, NULL);
    fill(kvik_model_vocab(m), 1);
    must(kvik_batch_open(c, ROWS, &b));
    feed(b);
    must(kvik_batch_to_legacy(b, &l));
    must(kvik_legacy_save(l, m, file));
    refused(kvik_legacy_load(file, llama, &none), KVIK_ARG, "of another model (mistral");
    for (size_t i = 0; i < countof(cases); i++) {
        rewrite(cases[i].skip, cases[i].add.name ? &cases[i].add : NULL, cases[i].length);
        refused(kvik_legacy_load(other, m, &none), KVIK_FORMAT, cases[i].words);
    }
    rewrite(NULL, NULL, NULL); /* without a note the mask gives the length */
    must(kvik_legacy_load(other, m, &none));
    assert_int_equal(none->length, WIDE);
    kvik_legacy_free(none);
    none = NULL;
    refused(kvik_legacy_load("/nowhere/x", m, &none), KVIK_NOTFOUND, "/nowhere/x");
    refused(kvik_legacy_save(l, m, "/nowhere/x"), KVIK_IO, "/nowhere/x");
    float *keys = l->layer[1].keys;
    l->layer[1].keys = NULL;
    refused(kvik_legacy_save(l, m, other), KVIK_ARG, "layers.1.keys");
    l->layer[1].keys = keys;
    unlink(other);
    kvik_legacy_free(l);
    kvik_batch_close(b);
    kvik_cache_close(c);
    kvik_model_close(m);
    kvik_model_close(llama);
}

static void test_no_memory(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_batch *b, *d = NULL;
    kvik_legacy *l = NULL, *back = NULL;
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    must(kvik_model_open(MODELS "llama-mha", &m));
    kvik_cache *c = open_cache(m, NULL, NULL);
    fill(kvik_model_vocab(m), 2);
    must(kvik_batch_open(c, ROWS, &b));
    feed(b);
    kvik_cache_usage(c, &before);
    for (int what = 0; what < 4; what++) {
        int e = -1;
        for (int64_t k = 0; e < 0 && k < 600; k++) {
            mem_fail_at(k, false);
            e = what == 0   ? kvik_batch_to_legacy(b, &l)
                : what == 1 ? kvik_legacy_save(l, m, file)
                : what == 2 ? kvik_legacy_load(file, m, &back)
                            : kvik_batch_from_legacy(c, back, &d);
            mem_fail_at(-1, false);
            kvik_cache_usage(c, &after);
            if (e < 0) assert_int_equal(after.live, before.live);
        }
        must(e);
    }
    kvik_legacy_free(l);
    must(kvik_batch_to_legacy(d, &l));
    same_form(l, back);
    kvik_legacy_free(l);
    kvik_legacy_free(back);
    kvik_batch_close(b);
    kvik_batch_close(d);
    kvik_cache_close(c);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_encoded),
        cmocka_unit_test(test_wrong_arrays), cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_no_memory),
    };
    snprintf(file, sizeof file, "/tmp/kvik-legacy-%d", (int)getpid());
    snprintf(other, sizeof other, "%s-other", file);
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return e;
}
