/* test_hidden_cache.c - caches of a model on the device of tests/hidden: weights are brought there once, an operation that fails is
 * an error at the end of its step and nothing is lost, and a codec that the device cannot read is refused. */
#include "../hidden/hidden.h"
#include "generate/handle.h"
#include "kv/kv.h"
#include "testing.h"

#define MODEL "tests/golden/models/llama-gqa-l3"
enum { PROMPT = 5, NEXT = 3, VOCAB = 8192 };

static const kvik_cache_config one_thread = {
    .size = sizeof one_thread, .threads = 1, .cache_memory = (size_t)64 << 20};

static int feed(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t n, float *logits)
{
    static const int32_t ids[] = {5, 17, 9, 42, 3, 71, 8, 29};
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + from, .n = n};
    return kvik_forward(c, &span, 1, true, logits);
}

/* Two caches of a model share its weights on the device. */
static void weights(void **state)
{
    (void)state;
    static float x[PROMPT * VOCAB], y[PROMPT * VOCAB];
    kvik_model *m;
    kvik_cache *a, *b;
    kvik_seq s;
    uint32_t before = hidden_uploads();
    assert_int_equal(kvik_model_open(MODEL, &m), 0);
    size_t bytes = PROMPT * kvik_model_vocab(m) * sizeof *x;
    assert_true(bytes <= sizeof x);
    assert_int_equal(kvik_cache_open(m, &one_thread, &a), 0);
    uint32_t uploads = hidden_uploads();
    assert_true(uploads > before + kvik_model_layers(m));
    assert_int_equal(kvik_cache_new(a, &s), 0);
    assert_int_equal(feed(a, s, 0, PROMPT, x), 0);
    assert_int_equal(kvik_cache_open(m, &one_thread, &b), 0);
    assert_int_equal(hidden_uploads(), uploads);
    kvik_cache_close(a); /* the weights stay for the other */
    assert_int_equal(kvik_cache_new(b, &s), 0);
    assert_int_equal(feed(b, s, 0, PROMPT, y), 0);
    assert_memory_equal(x, y, bytes);
    kvik_cache_close(b);
    assert_true(hidden_bytes() > 0);
    assert_int_equal(hidden_range_bytes(), 0);
    kvik_model_close(m);
    assert_int_equal(hidden_bytes(), 0);
}

/* Each operation of a step fails in turn.  The step is an error that says so, the sequence is as before, and the step that is
 * tried again has the logits of one that never failed. */
static void failing_steps(void **state)
{
    (void)state;
    static float want[NEXT * VOCAB], got[NEXT * VOCAB];
    kvik_model *m;
    kvik_cache *c;
    kvik_seq s, fork;
    assert_int_equal(kvik_model_open(MODEL, &m), 0);
    size_t bytes = NEXT * kvik_model_vocab(m) * sizeof *got;
    assert_int_equal(kvik_cache_open(m, &one_thread, &c), 0);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    assert_int_equal(feed(c, s, 0, PROMPT, NULL), 0);
    assert_int_equal(kvik_cache_fork(c, s, &fork), 0); /* so steps copy on write, too */
    assert_int_equal(feed(c, fork, PROMPT, NEXT, want), 0);
    assert_int_equal(kvik_cache_drop(c, fork), 0);
    uint32_t k = 1;
    for (;; k++) {
        assert_int_equal(kvik_cache_fork(c, s, &fork), 0);
        hidden_fail(k);
        int e = feed(c, fork, PROMPT, NEXT, got);
        bool never = hidden_failing();
        hidden_fail(0);
        assert_int_equal(e, never ? 0 : KVIK_IO);
        if (!never) {
            assert_non_null(strstr(kvik_last_error(), "the device failed in"));
            assert_int_equal(kvik_cache_length(c, fork), PROMPT);
            assert_int_equal(feed(c, fork, PROMPT, NEXT, got), 0);
        }
        assert_memory_equal(got, want, bytes);
        assert_true(kv_check(c->x->kv));
        assert_int_equal(kvik_cache_drop(c, fork), 0);
        if (never) break;
    }
    assert_true(k > 50); /* every layer has its operations */
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* A copy that fails while a session is saved or loaded is an error; no sequence is there that was not, and none is lost. */
static void failing_files(void **state)
{
    (void)state;
    static float want[NEXT * VOCAB], got[NEXT * VOCAB];
    char path[] = "/tmp/kvik-test-hidden-XXXXXX";
    kvik_model *m;
    kvik_cache *c;
    kvik_seq s, loaded;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0 && unlink(path) == 0);
    assert_int_equal(kvik_model_open(MODEL, &m), 0);
    size_t bytes = NEXT * kvik_model_vocab(m) * sizeof *got;
    assert_int_equal(kvik_cache_open(m, &one_thread, &c), 0);
    assert_int_equal(kvik_cache_new(c, &s), 0);
    assert_int_equal(feed(c, s, 0, PROMPT, NULL), 0);
    hidden_fail(1);
    assert_int_equal(kvik_cache_save(c, path, &s, 1, NULL), KVIK_IO);
    assert_false(hidden_failing());
    assert_int_equal(kvik_cache_save(c, path, &s, 1, NULL), 0);
    hidden_fail(1);
    assert_int_equal(kvik_cache_load(c, path, 1, &loaded, NULL), KVIK_IO);
    assert_false(hidden_failing());
    assert_true(kv_check(c->x->kv));
    assert_int_equal(kvik_cache_load(c, path, 1, &loaded, NULL), 1);
    assert_int_equal(feed(c, s, PROMPT, NEXT, want), 0);
    assert_int_equal(feed(c, loaded, PROMPT, NEXT, got), 0);
    assert_memory_equal(got, want, bytes);
    kvik_cache_close(c);
    kvik_model_close(m);
    unlink(path);
}

/* A device without kernels of a codec says so when a cache is opened. */
static void lacking(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_cache *c;
    kvik_cache_config config = one_thread;
    config.cache_implementation = "quantized";
    config.cache_config = "{\"backend\": \"hqq\", \"axis\": 1}";
    assert_int_equal(kvik_model_open(MODEL, &m), 0);
    hidden_lacks("hqq");
    assert_int_equal(kvik_cache_open(m, &config, &c), KVIK_UNSUPPORTED);
    assert_non_null(strstr(kvik_last_error(), "hidden"));
    assert_non_null(strstr(kvik_last_error(), "hqq"));
    config.cache_config = "{\"backend\": \"quanto\"}";
    assert_int_equal(kvik_cache_open(m, &config, &c), 0);
    kvik_cache_close(c);
    hidden_lacks(NULL);
    config.cache_config = "{\"backend\": \"hqq\", \"axis\": 1}";
    assert_int_equal(kvik_cache_open(m, &config, &c), 0);
    kvik_cache_close(c);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights), cmocka_unit_test(failing_steps),
                                       cmocka_unit_test(failing_files), cmocka_unit_test(lacking)};
    setenv("KVIK_DEVICE", "hidden", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
