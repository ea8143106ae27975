/* test_layer_bits.c - layers with bits of their own: the bits of caches that have these bits throughout, what is refused and how it
 * is said, bytes, and saved rows, which only a cache with the same bits in the same layers takes. */
#include "base/base.h"
#include "base/json.h"
#include "kvik.h"
#include "testing.h"

#define TINY    "tests/golden/models/llama-gqa-l3" /* three layers */
#define FILE_OF "build/test_layer_bits.session"
enum { N = 300, MORE = 8 };

static kvik_model *model(void)
{
    kvik_model *m;
    assert_int_equal(kvik_model_open(TINY, &m), 0);
    return m;
}

static kvik_cache *opened(kvik_model *m, const char *config)
{
    kvik_cache *c;
    kvik_cache_config k = {.size = sizeof k, .cache_config = config, .max_cache_len = 400};
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s: %s", config, kvik_last_error());
    return c;
}

/* Feeds the text in pieces of n tokens, and returns the logits after MORE further tokens. */
static float *logits_of(kvik_model *m, const char *config, uint32_t piece, uint64_t *bytes,
                        const char *save)
{
    kvik_cache *c = opened(m, config);
    uint32_t vocab = kvik_model_vocab(m);
    float *out = calloc((size_t)MORE * vocab, sizeof *out);
    int32_t ids[N + MORE];
    kvik_usage u = {.size = sizeof u};
    kvik_seq s;
    draw_ids(ids, N + MORE, vocab, 7);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    for (uint32_t at = 0, n; at < N; at += n) {
        n = MIN(piece, N - at);
        kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + at, .n = n};
        assert_int_equal(kvik_forward(c, &span, 1, false, NULL), 0);
    }
    if (save) assert_int_equal(kvik_cache_save(c, save, &s, 1, NULL), 0);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + N, .n = MORE};
    assert_int_equal(kvik_forward(c, &span, 1, true, out), 0);
    assert_int_equal(kvik_cache_usage(c, &u), 0);
    if (bytes) *bytes = u.live;
    kvik_cache_close(c);
    return out;
}

static bool same(kvik_model *m, const char *a, const char *b)
{
    uint64_t x = 0, y = 0;
    float *l = logits_of(m, a, N, &x, NULL), *r = logits_of(m, b, 37, &y, NULL);
    bool equal = memcmp(l, r, (size_t)MORE * kvik_model_vocab(m) * sizeof *l) == 0;
    free(l);
    free(r);
    return equal;
}

static void test_bits(void **state)
{
    (void)state;
    kvik_model *m = model();
    static const char *const equal[][2] = {
        {"{\"backend\":\"kvik\",\"nbits\":4,\"layers\":{\"0\":{\"nbits\":8},\"1\":{\"nbits\":8},\"-1\":{\"nbits\":8}}}",
         "{\"backend\":\"kvik\",\"nbits\":8}"},
        {"{\"backend\":\"kvik\",\"nbits\":4,\"layers\":{\"1\":{\"k_bits\":8,\"v_bits\":2}}}",
         "{\"backend\":\"kvik\",\"k_bits\":8,\"v_bits\":2,\"layers\":{\"0\":{\"nbits\":4},\"2\":{\"nbits_key\":4,\"nbits_value\":4}}}"},
        {"{\"backend\":\"kvik\",\"nbits\":3,\"layers\":{\"0\":{},\"1\":null_,\"2\":{\"k_bits\":null}}}",
         "{\"backend\":\"kvik\",\"nbits\":3}"},
        {"{\"backend\":\"quanto\",\"nbits\":4,\"q_group_size\":16,\"layers\":{\"0\":{\"nbits\":2},\"-2\":{\"nbits\":2},\"2\":{\"nbits\":2}}}",
         "{\"backend\":\"quanto\",\"nbits\":2,\"q_group_size\":16}"},
    };
    for (size_t i = 0; i < countof(equal); i++) {
        char a[256];
        snprintf(a, sizeof a, "%s", equal[i][0]);
        char *hole = strstr(a, "null_");
        if (hole) memcpy(hole, "{   }", 5);
        uint32_t piece = i == 3 ? N : 37; /* quanto's rows depend on turns */
        float *l = logits_of(m, a, N, NULL, NULL),
              *r = logits_of(m, equal[i][1], piece, NULL, NULL);
        assert_memory_equal(l, r, (size_t)MORE * kvik_model_vocab(m) * sizeof *l);
        free(l);
        free(r);
    }
    /* which layer it is matters */
    assert_false(same(m, "{\"backend\":\"kvik\",\"nbits\":2,\"layers\":{\"1\":{\"nbits\":8}}}",
                      "{\"backend\":\"kvik\",\"nbits\":2,\"layers\":{\"2\":{\"nbits\":8}}}"));
    kvik_model_close(m);
}

/* A layer with other bits changes the bytes by what these bits are; a reserve and a streamed cache hold. */
static void test_bytes(void **state)
{
    (void)state;
    kvik_model *m = model();
    uint64_t four, eight, one;
    free(logits_of(m, "{\"backend\":\"kvik\",\"nbits\":4}", N, &four, NULL));
    free(logits_of(m, "{\"backend\":\"kvik\",\"nbits\":8}", N, &eight, NULL));
    free(logits_of(m, "{\"backend\":\"kvik\",\"nbits\":4,\"layers\":{\"1\":{\"nbits\":8}}}", N,
                   &one, NULL));
    assert_true(four < one && one < eight);
    assert_int_equal(3 * (one - four), eight - four);
    assert_true(same(
        m, "{\"backend\":\"kvik\",\"nbits\":4,\"layers\":{\"1\":{\"nbits\":8}}}",
        "{\"backend\":\"kvik\",\"nbits\":4,\"layers\":{\"1\":{\"nbits\":8}},\"offloading\":true}"));
    kvik_model_close(m);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const lines[][2] = {
        {"{\"3\":{\"nbits\":8}}", "layers \"3\": there are layers 0 to 2"},
        {"{\"-4\":{\"nbits\":8}}", "layers \"-4\": there are layers 0 to 2"},
        {"{\"2\":{\"nbits\":8},\"-1\":{\"nbits\":4}}", "\"-1\" and \"2\" are the same layer"},
        {"{\"1\":{\"nbits\":8},\"01\":{\"nbits\":4}}", "layer 1 is given twice"},
        {"{\"first\":{\"nbits\":8}}", "\"first\" is no number of a layer"},
        {"{\"99999999999\":{\"nbits\":8}}", "is no number of a layer"},
        {"{\"1\":{\"nbits\":5}}",
         "layers \"1\": k_bits 5: backend \"kvik\" has 2, 3, 4 and 8 bits"},
        {"{\"1\":{\"v_bits\":7}}", "layers \"1\": v_bits 7"},
        {"{\"1\":{\"nbits\":9}}", "layers \"1\": nbits must be an integer from 2 to 8"},
        {"{\"1\":{\"nbits\":true}}", "layers \"1\": nbits must be a number of bits"},
        {"{\"1\":{\"axis_key\":1}}", "layers \"1\": unknown key \"axis_key\""},
        {"{\"1\":{\"k_bits\":4,\"nbits_key\":8}}", "layers \"1\": nbits_key is given twice"},
        {"{\" 1\":{\"nbits\":8}}", "layers: \" 1\" is no number of a layer"},
        {"{\"+1\":{\"nbits\":8}}", "layers: \"+1\" is no number of a layer"},
        {"{\"1\":8}", "layers \"1\" must be an object"},
        {"[8,4,4]", "layers must be an object"},
    };
    kvik_model *m = model();
    kvik_cache *c = NULL;
    char config[256];
    kvik_cache_config k = {.size = sizeof k, .cache_config = config, .max_cache_len = 64};
    for (size_t i = 0; i < countof(lines); i++) {
        snprintf(config, sizeof config, "{\"backend\":\"kvik\",\"layers\":%s}", lines[i][0]);
        if (kvik_cache_open(m, &k, &c) >= 0 || !strstr(kvik_last_error(), lines[i][1]))
            fail_msg("%s: %s", config, kvik_last_error());
    }
    static const char *const whole[][2] = {
        {"{\"layers\":{\"0\":{\"nbits\":4}}}", "layers needs a backend"},
        {"{\"backend\":\"kvik\",\"nbits\":\"auto\"}", "the model has no tokenizer"},
        {"{\"backend\":\"fp8\",\"layers\":{\"0\":{\"nbits\":4}}}",
         "layers \"0\": backend \"fp8\" has no option nbits"},
        {"{\"backend\":\"hqq\",\"layers\":{\"0\":{\"k_bits\":4}}}",
         "layers \"0\": keys have backend \"hqq\", without the option k_bits"},
        {"{\"backend\":\"kvik\",\"layer\":{\"0\":{\"k_bits\":4}}}", "did you mean \"layers\""},
    };
    for (size_t i = 0; i < countof(whole); i++) {
        snprintf(config, sizeof config, "%s", whole[i][0]);
        if (kvik_cache_open(m, &k, &c) >= 0 || !strstr(kvik_last_error(), whole[i][1]))
            fail_msg("%s: %s", config, kvik_last_error());
    }
    kvik_model_close(m);
}

/* The fields of C say what JSON says. */
static void test_fields(void **state)
{
    (void)state;
    static const kvik_layer_bits ends[] = {{0, 8, 4}, {-1, 0, 8}}, twice[] = {{1, 8, 8}, {1, 4, 4}};
    kvik_codec codec = {.size = sizeof codec,
                        .backend = "kvik",
                        .k_bits = 4,
                        .v_bits = 3,
                        .layers = ends,
                        .n_layers = 2};
    kvik_cache_config k = {.size = sizeof k, .codec = &codec, .max_cache_len = 64};
    kvik_model *m = model();
    kvik_cache *c;
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    kvik_cache_close(c);
    k.cache_config =
        "{\"k_bits\":4,\"layers\":{\"-1\":{\"v_bits\":8},\"0\":{\"k_bits\":8,\"v_bits\":4}}}";
    if (kvik_cache_open(m, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    kvik_cache_close(c);
    k.cache_config = "{\"layers\":{\"-1\":{\"v_bits\":4}}}";
    assert_true(kvik_cache_open(m, &k, &c) < 0);
    assert_non_null(strstr(kvik_last_error(), "different values of layers"));
    k.cache_config = NULL;
    codec.layers = twice;
    assert_true(kvik_cache_open(m, &k, &c) < 0);
    assert_non_null(strstr(kvik_last_error(), "twice"));
    kvik_model_close(m);
}

static void test_saved(void **state)
{
    (void)state;
    static const char config[] =
        "{\"backend\":\"kvik\",\"nbits\":4,\"layers\":{\"1\":{\"nbits\":8}}}";
    static const char *const others[][2] = {
        {"{\"backend\":\"kvik\",\"nbits\":4,\"layers\":{\"2\":{\"nbits\":8}}}",
         "the file has [2 layers of rows (0 2), "},
        {"{\"backend\":\"kvik\",\"nbits\":4}", "the file has "},
        {"{\"backend\":\"kvik\",\"nbits\":4,\"layers\":{\"1\":{\"k_bits\":8}}}",
         "the file has [1 layers of rows (1), "},
    };
    kvik_model *m = model();
    kvik_seq s;
    unlink(FILE_OF);
    free(logits_of(m, config, N, NULL, FILE_OF));
    kvik_cache *c = opened(m, config);
    if (kvik_cache_load(c, FILE_OF, 1, &s, NULL) < 1) fail_msg("%s", kvik_last_error());
    kvik_cache_close(c);
    for (size_t i = 0; i < countof(others); i++) {
        c = opened(m, others[i][0]);
        assert_true(kvik_cache_load(c, FILE_OF, 1, &s, NULL) < 0);
        if (!strstr(kvik_last_error(), others[i][1])) fail_msg("%s", kvik_last_error());
        kvik_cache_close(c);
    }
    unlink(FILE_OF);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),   cmocka_unit_test(test_bytes), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_fields), cmocka_unit_test(test_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
