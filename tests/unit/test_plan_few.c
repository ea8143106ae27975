/* test_plan_few.c - sequences that kvik plan measures behind: the rows of a few tokens, repeated.  They hold what a computed
 * sequence of their length holds, decode, and are refused when they do not fit. */
#include "testing.h"

#include "base/json.h"
#include "cli/plan.h"
#include "kvik_compat.h"
#include "models.h"
#include "share.h"

enum { LENGTH = 150, SHARE = 3 };

static const char *const configs[] = {
    "{}",
    "{\"backend\":\"quanto\",\"q_group_size\":8}",
    "{\"backend\":\"hqq\",\"nbits\":2,\"q_group_size\":16,\"axis_key\":0,\"residual_length\":7}",
    "{\"backend\":\"kvik\",\"nbits\":4}",
    "{\"sliding_window\":21}",
    "{\"window_length\":40,\"num_sink_tokens\":4}",
    "{\"offloading\":true}",
};

static kvik_model *opened(const char *name)
{
    char path[300];
    kvik_model *m;
    snprintf(path, sizeof path, GOLDEN_MODELS "/%s", name);
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    return m;
}

static kvik_cache_config config_of(const char *text, uint32_t tokens)
{
    return (kvik_cache_config){.size = sizeof(kvik_cache_config),
                               .cache_config = text,
                               .max_sequences = 2,
                               .max_cache_len = tokens,
                               .threads = 1,
                               .no_prefix_cache = true,
                               .snapshots = KVIK_TURN_ENDS};
}

static struct plan_few few_of(kvik_model *m)
{
    kvik_cache_config c = config_of(NULL, MIN(2 * PLAN_FEW, kvik_model_context(m)));
    struct plan_few f;
    if (plan_few_open(&f, m, &c) < 0) fail_msg("%s", kvik_last_error());
    return f;
}

static uint64_t held(const kvik_cache *c)
{
    kvik_usage u = {.size = sizeof u};
    assert_int_equal(kvik_cache_usage(c, &u), 0);
    return u.live + u.states + u.spilled;
}

static uint64_t planned(const kvik_cache *c, uint32_t n)
{
    char *text;
    json_t *o;
    assert_int_equal(kvik_cache_plan(c, n, n, &text), 0);
    assert_int_equal(json_parse(text, strlen(text), "plan", &o), 0);
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(o, "bytes"));
    kvik_free(text);
    json_decref(o);
    return bytes;
}

/* Makes a sequence, checks its bytes, and decodes a token behind it. */
static void decodes(struct plan_few *f, kvik_cache *c, const char *name, const char *config,
                    uint32_t n, float *logits, uint32_t vocab)
{
    kvik_seq s;
    const int32_t id = 3;
    if (plan_few_repeat(f, c, n, &s) < 0)
        fail_msg("%s %s, %u tokens: %s", name, config, n, kvik_last_error());
    if (held(c) != planned(c, n))
        fail_msg("%s %s, %u tokens: %llu bytes, a computed sequence has %llu", name, config, n,
                 (unsigned long long)held(c), (unsigned long long)planned(c, n));
    kvik_span span = {.size = sizeof span, .seq = s, .ids = &id, .n = 1};
    if (kvik_forward(c, &span, 1, false, logits) < 0)
        fail_msg("%s %s: %s", name, config, kvik_last_error());
    for (uint32_t i = 0; i < vocab; i++)
        assert_true(logits[i] == logits[i]);
    assert_int_equal(kvik_cache_drop(c, s), 0);
    assert_int_equal(held(c), 0);
}

static void test_bytes(void **state)
{
    const char *name[GOLDEN_MOST];
    uint32_t n = golden_models(name), done = 0;
    (void)state;
    for (uint32_t i = 0; i < n; i++) {
        if (strstr(name[i], ".gguf")) continue; /* these have the geometry of their directories */
        kvik_model *m = opened(name[i]);
        struct plan_few f = few_of(m);
        uint32_t vocab = kvik_model_vocab(m), most = MIN(LENGTH, kvik_model_context(m) - 1);
        float *logits = mem_array(vocab, sizeof *logits);
        for (size_t k = 0; k < countof(configs); k++) {
            kvik_cache *c;
            kvik_cache_config config = config_of(configs[k], most + 1);
            if (!getenv("KVIK_TEST_LONG") && (i + k) % (SHARE * MIN(test_share(), 3))) continue;
            if (kvik_cache_open(m, &config, &c) < 0) continue; /* a shape that a codec refuses */
            decodes(&f, c, name[i], configs[k], most, logits, vocab);
            decodes(&f, c, name[i], configs[k], 5, logits, vocab);
            done++;
            kvik_cache_close(c);
        }
        mem_free(logits);
        plan_few_close(&f);
        kvik_model_close(m);
    }
    assert_true(done > n / 2);
}

/* The rows of native caches are those of the few, again and again. */
static void test_rows(void **state)
{
    kvik_model *m = opened("llama-gqa-l3");
    struct plan_few f = few_of(m);
    kvik_cache_config config = config_of(NULL, LENGTH);
    kvik_cache *c;
    kvik_seq s;
    kvik_export *out;
    (void)state;
    assert_int_equal(kvik_cache_open(m, &config, &c), 0);
    assert_int_equal(plan_few_repeat(&f, c, LENGTH, &s), 0);
    assert_int_equal(kvik_cache_export(c, s, &out), 0);
    assert_int_equal(out->length, LENGTH);
    for (uint32_t i = 0; i < out->n_layers; i++) {
        const kvik_plane *got = kvik_layer_plane(&out->layer[i], "values");
        const kvik_plane *few = kvik_layer_plane(&f.rows->layer[0], "keys");
        size_t dim = few->dim[2];
        assert_int_equal(out->layer[i].rows, LENGTH);
        for (size_t h = 0; h < few->dim[0]; h++)
            for (size_t r = 0; r < LENGTH; r++)
                assert_memory_equal((float *)got->data + (h * LENGTH + r) * dim,
                                    (float *)few->data + (h * few->dim[1] + r % few->dim[1]) * dim,
                                    dim * sizeof(float));
    }
    kvik_export_free(out);
    kvik_cache_close(c);
    plan_few_close(&f);
    kvik_model_close(m);
}

/* What does not fit is ERR_FULL, leaves nothing, and half of it can fit. */
static void test_full(void **state)
{
    kvik_model *m = opened("llama-bf16-long");
    struct plan_few f = few_of(m);
    kvik_cache_config config = config_of(NULL, 2000);
    kvik_cache *c;
    kvik_seq s;
    uint32_t n = 2000;
    (void)state;
    config.cache_memory = 300 << 10;
    assert_int_equal(kvik_cache_open(m, &config, &c), 0);
    while (plan_few_repeat(&f, c, n, &s) == KVIK_FULL) {
        assert_int_equal(held(c), 0);
        n /= 2;
    }
    assert_int_equal(n, 1000);
    assert_int_equal(held(c), planned(c, n));
    kvik_cache_close(c);
    plan_few_close(&f);
    kvik_model_close(m);
}

static void test_steps(void **state)
{
    kvik_model *m = opened("llama-gqa-l3");
    struct plan_few f = few_of(m);
    float *logits = mem_array(kvik_model_vocab(m), sizeof *logits);
    double seconds[PLAN_FEW];
    (void)state;
    uint64_t before = held(f.cache);
    for (int run = 0; run < 3; run++) {
        assert_int_equal(plan_few_steps(&f, PLAN_FEW, logits, seconds), 0);
        for (uint32_t i = 0; i < PLAN_FEW; i++)
            assert_true(seconds[i] > 0);
        assert_int_equal(held(f.cache), before);
    }
    mem_free(logits);
    plan_few_close(&f);
    assert_null(f.cache);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
