/* test_interchange.c - export and import of KV rows. The imported sequence continues with the bits
 * of the original, under windows, sinks and forks. Codecs export the values they hold. Wrong rows
 * are refused and change nothing. */
#include "base/base.h"
#include "kvik_compat.h"
#include "planes.h"
#include "testing.h"

#define LLAMA "tests/golden/models/llama-gqa-l3"
#define PHI3  "tests/golden/models/phi3"
#define GEMMA "tests/golden/models/gemma2"
enum { N = 90, MORE = 3, VOCAB = 1024 };

static int32_t ids[N + MORE];
static float want[MORE * VOCAB], got[MORE * VOCAB];

static kvik_cache *open_cache(kvik_model *m, const char *impl, const char *config)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = impl,
                           .cache_config = config,
                           .max_cache_len = N + MORE,
                           .max_sequences = 4,
                           .step_tokens = 32};
    kvik_cache *c;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s %s: %s", impl, config, kvik_last_error());
    return c;
}

static void forward(kvik_cache *c, kvik_seq s, const int32_t *t, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = t, .n = n};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

static void go_on(kvik_cache *c, kvik_seq s, uint32_t vocab, float *logits)
{
    for (int i = 0; i < MORE; i++)
        forward(c, s, ids + N + i, 1, logits + (size_t)i * vocab);
}

static void round_trip(const char *path, const char *impl, const char *config, bool exact)
{
    kvik_model *m;
    kvik_export *a, *b;
    kvik_seq s, t;
    assert_int_equal(kvik_model_open(path, &m), 0);
    uint32_t vocab = kvik_model_vocab(m);
    assert_true(vocab <= VOCAB);
    for (uint32_t i = 0; i < N + MORE; i++)
        ids[i] = (int32_t)(5 + i * 37 % (vocab - 5));
    kvik_cache *from = open_cache(m, impl, config), *to = open_cache(m, "dynamic", config);
    assert_int_equal(kvik_cache_new(from, &s), 0);
    forward(from, s, ids, 50, NULL);
    forward(from, s, ids + 50, N - 50, NULL);
    if (kvik_cache_export(from, s, &a) < 0) fail_msg("%s %s: %s", impl, config, kvik_last_error());
    assert_int_equal(kvik_cache_length(from, s), N);
    assert_int_equal(a->length, N);
    assert_memory_equal(a->ids, ids, N * sizeof *ids);
    if (kvik_cache_import(to, a, &t) < 0) fail_msg("%s %s: %s", impl, config, kvik_last_error());
    assert_int_equal(kvik_cache_length(to, t), N);
    assert_int_equal(kvik_cache_export(to, t, &b), 0);
    for (uint32_t i = 0; exact && i < a->n_layers; i++) {
        const kvik_layer_rows *l = &a->layer[i];
        assert_int_equal(l->rows, b->layer[i].rows);
        assert_int_equal(l->n_planes, 2);
        for (uint32_t k = 0; k < l->n_planes; k++)
            assert_memory_equal(l->plane[k].data,
                                kvik_layer_plane(&b->layer[i], l->plane[k].name)->data,
                                sizeof(float) * plane_values(&l->plane[k]));
    }
    kvik_export_free(b);
    if (exact) {
        go_on(from, s, vocab, want);
        go_on(to, t, vocab, got);
        assert_memory_equal(got, want, sizeof(float) * MORE * vocab);
    }
    int32_t *known = a->ids;
    a->ids = NULL; /* rows without token ids continue the same way */
    assert_int_equal(kvik_cache_import(to, a, &t), 0);
    if (exact) {
        go_on(to, t, vocab, got);
        assert_memory_equal(got, want, sizeof(float) * MORE * vocab);
    }
    a->ids = known;
    kvik_export_free(a);
    kvik_cache_close(from);
    kvik_cache_close(to);
    kvik_model_close(m);
}

static void test_round_trip(void **state)
{
    (void)state;
    round_trip(LLAMA, "dynamic", NULL, true);
    round_trip(LLAMA, "static", NULL, true);
    round_trip(LLAMA, "dynamic", "{\"backend\": \"shuffle\", \"test_block_rows\": 32}", true);
    round_trip(LLAMA, "sliding_window", "{\"sliding_window\": 20}", true);
    round_trip(LLAMA, "sink", "{\"window_length\": 24, \"num_sink_tokens\": 3}", true);
    round_trip(LLAMA, "quantized",
               "{\"backend\": \"quanto\", \"q_group_size\": 16, \"residual_length\": 16}", false);
    round_trip(GEMMA, "dynamic", NULL, true);
    round_trip(GEMMA, "hybrid", NULL, true);
    /* Beyond the length at which the model's frequencies change. */
    round_trip(PHI3, "dynamic", NULL, true);
}

/* Rows under the window are imported without contents, also those that share a block with rows that
 * have contents. A crop recomputes them. */
static void crop_after(const char *path, const char *impl, const char *config)
{
    kvik_model *m;
    kvik_export *a;
    assert_int_equal(kvik_model_open(path, &m), 0);
    uint32_t vocab = kvik_model_vocab(m);
    kvik_cache *c = open_cache(m, impl, config);
    for (uint32_t i = 0; i < N; i++)
        ids[i] = (int32_t)(5 + i * 37 % (vocab - 5));
    for (uint32_t len = 2; len < N; len += len < 80 ? 7 : 1) {
        kvik_seq s, t;
        assert_int_equal(kvik_cache_new(c, &s), 0);
        forward(c, s, ids, N, NULL);
        assert_int_equal(kvik_cache_export(c, s, &a), 0);
        assert_int_equal(kvik_cache_import(c, a, &t), 0);
        kvik_export_free(a);
        if (kvik_cache_crop(c, t, len) < 0) fail_msg("%s", kvik_last_error());
        assert_int_equal(kvik_cache_reset(c, s), 0);
        forward(c, s, ids, len + 1, want);
        forward(c, t, ids + len, 1, got);
        assert_memory_equal(got, want, vocab * sizeof *got);
        assert_int_equal(kvik_cache_drop(c, s), 0);
        assert_int_equal(kvik_cache_drop(c, t), 0);
    }
    kvik_cache_close(c);
    kvik_model_close(m);
}

static void test_crop(void **state)
{
    (void)state;
    crop_after(LLAMA, "sliding_window", "{\"sliding_window\": 20}");
    crop_after(LLAMA, "sink", "{\"window_length\": 24, \"num_sink_tokens\": 3}");
    crop_after(GEMMA, "dynamic", "{\"test_block_rows\": 64}");
    crop_after("tests/golden/models/llama4", "hybrid_chunked", NULL);
}

/* A sequence as long as the cache allows can still be exported. */
static void test_full_length(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_export *a;
    kvik_seq s;
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = "static",
                           .max_cache_len = 32,
                           .max_sequences = 1};
    kvik_cache *c;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    assert_int_equal(kvik_cache_open(m, &k, &c), 0);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    forward(c, s, ids, 32, NULL);
    assert_int_equal(
        kvik_forward(c, &(kvik_span){.size = sizeof(kvik_span), .seq = s, .ids = ids, .n = 1}, 1,
                     false, NULL),
        KVIK_LIMIT);
    if (kvik_cache_export(c, s, &a) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(a->layer[0].rows, 32);
    kvik_export_free(a);
    assert_int_equal(kvik_cache_reset(c, s), 0);
    assert_int_equal(kvik_cache_length(c, s), 0);
    forward(c, s, ids, 32, NULL);
    kvik_cache_close(c);
    kvik_model_close(m);
}

static void refuse(kvik_cache *c, const kvik_export *a, int code, const char *words)
{
    kvik_seq t;
    assert_int_equal(kvik_cache_import(c, a, &t), code);
    if (!strstr(kvik_last_error(), words))
        fail_msg("\"%s\" is not in: %s", words, kvik_last_error());
}

/* Planes are found by name, in any order, and must be what the model has. */
static void refuse_planes(kvik_cache *c, const kvik_export *a, kvik_layer_rows *l)
{
    kvik_plane *k = plane_of(l, "keys"), was = *k, *planes = l->plane;
    kvik_seq t;
    assert_null(kvik_layer_plane(l, "conv"));
    k->dim[2]++;
    refuse(c, a, KVIK_ARG,
           "layer 1: the plane \"keys\" has 2 x 40 x 17 values, the model has 2 x 40 x 16");
    *k = was;
    k->n_dims = 9;
    refuse(c, a, KVIK_ARG, "the plane \"keys\" has");
    *k = was;
    k->dtype = 7;
    refuse(c, a, KVIK_UNSUPPORTED, "values of type 7");
    *k = was;
    k->name = "ssm";
    refuse(c, a, KVIK_ARG, "has no plane \"ssm\"");
    k->name = "values";
    refuse(c, a, KVIK_ARG, "two planes are named \"values\"");
    k->name = NULL;
    refuse(c, a, KVIK_ARG, "has no name");
    *k = was;
    k->data = NULL;
    refuse(c, a, KVIK_ARG, "\"keys\" is missing");
    *k = was;
    l->n_planes--;
    refuse(c, a, KVIK_ARG, "\"values\" is missing");
    l->n_planes++;
    l->plane = NULL;
    refuse(c, a, KVIK_ARG, "the planes are missing");
    l->plane = planes;
    kvik_plane turned[] = {planes[1], planes[0]};
    l->plane = turned;
    assert_int_equal(kvik_cache_import(c, a, &t), 0);
    assert_int_equal(kvik_cache_drop(c, t), 0);
    l->plane = planes;
}

static void test_refusals(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_export *a;
    kvik_seq s, t = 77;
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    kvik_cache *c = open_cache(m, "dynamic", NULL);
    assert_int_equal(kvik_cache_export(c, 12345, &a), KVIK_STALE);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    forward(c, s, ids, 40, NULL);
    assert_int_equal(kvik_cache_export(c, s, &a), 0);
    kvik_cache_usage(c, &before);
    a->n_layers--;
    assert_int_equal(kvik_cache_import(c, a, &t), KVIK_ARG);
    a->n_layers++;
    refuse_planes(c, a, &a->layer[1]);
    a->layer[1].position[3] = 2;
    assert_int_equal(kvik_cache_import(c, a, &t), KVIK_ARG);
    a->layer[1].position[3] = 3;
    a->layer[1].rows--;
    refuse(c, a, KVIK_ARG, "has 2 x 40 x 16 values, the model has 2 x 39 x 16");
    plane_of(&a->layer[1], "keys")->dim[1]--, plane_of(&a->layer[1], "values")->dim[1]--;
    refuse(c, a, KVIK_ARG, "39 of the 40");
    plane_of(&a->layer[1], "keys")->dim[1]++, plane_of(&a->layer[1], "values")->dim[1]++;
    a->layer[1].rows++;
    a->ids[4] = 1 << 28;
    assert_int_equal(kvik_cache_import(c, a, &t), KVIK_ARG);
    a->ids[4] = -1;
    a->length = 4000;
    assert_int_equal(kvik_cache_import(c, a, &t), KVIK_LIMIT);
    a->length = 40;
    assert_int_equal(t, 77);
    kvik_cache_usage(c, &after);
    assert_int_equal(after.live, before.live);
    assert_int_equal(after.tokens, before.tokens);
    assert_int_equal(kvik_cache_import(c, a, &t), 0);
    kvik_export_free(a);
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* Rows without ids agree with any id of a prompt, and are not computed again: ids that the model lacks are refused all the
 * same. */
static void test_unknown_ids(void **state)
{
    (void)state;
    enum { FEW = 24 };
    kvik_model *m;
    kvik_export *a;
    kvik_result *r;
    kvik_seq s, t;
    int32_t text[FEW];
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    kvik_cache *c = open_cache(m, "dynamic", NULL);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    forward(c, s, ids, FEW - 1, NULL);
    assert_int_equal(kvik_cache_export(c, s, &a), 0);
    kvik_export unknown = *a;
    unknown.ids = NULL;
    assert_int_equal(kvik_cache_import(c, &unknown, &t), 0);
    kvik_generation g;
    assert_int_equal(kvik_generation_init(&g, m), 0);
    assert_int_equal(kvik_generation_set(&g,
                                         "{\"prompt_lookup_num_tokens\": 3, \"max_new_tokens\": 4, "
                                         "\"no_repeat_ngram_size\": 2}"),
                     0);
    for (int i = 0; i < 3; i++) {
        memcpy(text, ids, sizeof text);
        if (i) text[3] = i == 1 ? 1000000000 : -1000000000;
        kvik_prompt p = {.size = sizeof p, .ids = text, .n = FEW, .seq = t};
        int e = kvik_generate(c, &g, &p, 1, NULL, &r);
        assert_int_equal(e, i ? KVIK_ARG : 0);
        if (i) continue;
        assert_int_equal(r->row[0]->reused, FEW - 1);
        kvik_result_free(r);
        assert_int_equal(kvik_cache_crop(c, t, FEW - 1), 0);
    }
    kvik_generation_done(&g);
    kvik_export_free(a);
    kvik_cache_close(c);
    kvik_model_close(m);
}

static void test_no_memory(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_export *a, *b;
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    kvik_seq s, t;
    int e = -1;
    assert_int_equal(kvik_model_open(LLAMA, &m), 0);
    kvik_cache *c = open_cache(m, "dynamic", NULL);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    forward(c, s, ids, 40, NULL);
    kvik_cache_usage(c, &before);
    for (int64_t k = 0; e < 0 && k < 200; k++) {
        mem_fail_at(k, false);
        e = kvik_cache_export(c, s, &a);
        mem_fail_at(-1, false);
        if (e < 0) assert_int_equal(e, KVIK_NOMEM);
    }
    assert_int_equal(e, 0);
    e = -1;
    for (int64_t k = 0; e < 0 && k < 200; k++) {
        mem_fail_at(k, false);
        e = kvik_cache_import(c, a, &t);
        mem_fail_at(-1, false);
        kvik_cache_usage(c, &after);
        if (e < 0) assert_int_equal(after.live, before.live);
    }
    assert_int_equal(e, 0);
    assert_int_equal(kvik_cache_export(c, t, &b), 0);
    const kvik_plane *keys = plane_of(&a->layer[0], "keys");
    assert_int_equal(keys->dim[1], 40);
    assert_memory_equal(plane_of(&b->layer[0], "keys")->data, keys->data,
                        sizeof(float) * plane_values(keys));
    kvik_export_free(a);
    kvik_export_free(b);
    kvik_cache_close(c);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_crop),
        cmocka_unit_test(test_full_length), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_unknown_ids), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
