/* test_feed.c - forwards of several steps that fail: every sequence of the call is unchanged. */
#include "kvik.h"
#include "testing.h"

enum { VOCAB = 1024, N = 61, MOST = 120 };
static int32_t ids[2 * MOST];
static float want[VOCAB], got[VOCAB];
static kvik_model *m;

static kvik_cache *open_cache(const char *path, const char *impl, const char *config,
                              uint64_t memory)
{
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = impl,
                           .cache_config = config,
                           .max_cache_len = MOST,
                           .max_sequences = 2,
                           .step_tokens = 8,
                           .cache_memory = memory,
                           .compute = "exact"};
    kvik_cache *c;
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    if (kvik_cache_open(m, &k, &c) < 0) c = NULL; /* the memory limit is too small */
    for (uint32_t i = 0; i < 2 * MOST; i++)
        ids[i] = (int32_t)(5 + i * 37 % (kvik_model_vocab(m) - 5));
    return c;
}

static void close_cache(kvik_cache *c)
{
    kvik_cache_close(c); /* or NULL */
    kvik_model_close(m);
}

static void forward(kvik_cache *c, kvik_seq s, const int32_t *t, uint32_t n, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = t, .n = n};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
}

/* A wrong token in the last step; the same sequence twice (in different steps). */
static void test_wrong(void **state)
{
    static const struct {
        const char *model, *impl, *config;
    } cache[] = {{"tests/golden/models/llama-mha", "dynamic", NULL},
                 {"tests/golden/models/llama-mha", "sliding_window", "{\"sliding_window\": 9}"},
                 {"tests/golden/models/gpt-oss", "static", NULL},
                 {"tests/golden/models/phi3", "static", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof cache / sizeof *cache; i++) {
        kvik_cache *c = open_cache(cache[i].model, cache[i].impl, cache[i].config, 0);
        kvik_seq s, t;
        assert_int_equal(kvik_cache_new(c, &s), 0);
        assert_int_equal(kvik_cache_new(c, &t), 0);
        forward(c, s, ids, 29, NULL);
        forward(c, t, ids, 29, NULL);
        forward(c, t, ids + 29, 1, want);
        int32_t bad[40];
        memcpy(bad, ids + 29, sizeof bad);
        bad[39] = (int32_t)kvik_model_vocab(m);
        assert_int_equal(
            kvik_forward(c, &(kvik_span){.size = sizeof(kvik_span), .seq = s, .ids = bad, .n = 40},
                         1, false, NULL),
            KVIK_ARG);
        assert_int_equal(kvik_cache_length(c, s), 29);
        kvik_span twice[2] = {{.size = sizeof(kvik_span), .seq = s, .ids = ids, .n = 8},
                              {.size = sizeof(kvik_span), .seq = s, .ids = ids, .n = 8}};
        assert_int_equal(kvik_forward(c, twice, 2, false, NULL), KVIK_ARG);
        assert_int_equal(kvik_cache_length(c, s), 29);
        forward(c, s, ids + 29, 1, got);
        assert_memory_equal(got, want, kvik_model_vocab(m) * sizeof *got);
        close_cache(c);
    }
}

/* A fork has no reserve. When it runs out of memory, the window of the reserved sequence in the
 * same call has already moved. */
static void test_reserved(void **state)
{
    (void)state;
    kvik_cache *c = open_cache("tests/golden/models/gpt-oss", "hybrid", NULL, 0);
    kvik_usage u = {.size = sizeof u};
    kvik_seq s, f;
    assert_int_equal(kvik_cache_new(c, &s), 0);
    forward(c, s, ids, N, NULL);
    forward(c, s, ids + N, 1, want);
    kvik_cache_usage(c, &u);
    uint64_t one = u.bytes + u.reserved;
    close_cache(c);
    uint32_t refused = 0;
    for (uint64_t memory = one; memory < 3 * one; memory += one / 16) {
        c = open_cache("tests/golden/models/gpt-oss", "hybrid", NULL, memory);
        int e = c ? kvik_cache_new(c, &s) : KVIK_FULL;
        if (e >= 0) {
            forward(c, s, ids, N, NULL);
            e = kvik_cache_fork(c, s, &f);
        }
        if (e >= 0) {
            kvik_span span[2] = {{.size = sizeof(kvik_span), .seq = s, .ids = ids + MOST, .n = 50},
                                 {.size = sizeof(kvik_span), .seq = f, .ids = ids, .n = 50}};
            e = kvik_forward(c, span, 2, false, NULL);
            if (e < 0) {
                assert_int_equal(e, KVIK_FULL);
                refused++;
                assert_int_equal(kvik_cache_length(c, s), N);
                assert_int_equal(kvik_cache_length(c, f), N);
                forward(c, s, ids + N, 1, got);
                assert_memory_equal(got, want, kvik_model_vocab(m) * sizeof *got);
            }
        }
        close_cache(c);
    }
    assert_true(refused > 0);
}

struct stopper {
    uint32_t calls, stop;
};

static bool stops(void *ctx, uint64_t done, uint64_t total)
{
    struct stopper *x = ctx;
    (void)done;
    (void)total;
    return ++x->calls < x->stop;
}

/* A generation with another prompt on a reserved sequence is cancelled or runs out of memory: every
 * row of the sequence is restored. */
static void test_cancelled(void **state)
{
    static const char *const cache[][2] = {{"tests/golden/models/llama-mha", "static"},
                                           {"tests/golden/models/gpt-oss", "hybrid"}};
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (uint32_t stop = 1; stop < 5; stop++) {
            kvik_cache *c = open_cache(cache[i][0], cache[i][1], NULL, 0);
            kvik_seq s, f;
            kvik_generation g;
            kvik_result *r = NULL;
            struct stopper x = {.stop = stop};
            kvik_hooks hooks = {.size = sizeof hooks, .on_progress = stops, .ctx = &x};
            int32_t other[50];
            assert_int_equal(kvik_cache_new(c, &s), 0);
            forward(c, s, ids, N, NULL);
            assert_int_equal(kvik_cache_fork(c, s, &f), 0);
            forward(c, f, ids + N, 1, want);
            memcpy(other, ids, sizeof other);
            for (uint32_t k = 10; k < 50; k++)
                other[k] = ids[k + 7];
            kvik_generation_init(&g, NULL);
            kvik_prompt p = {.size = sizeof p, .ids = other, .n = 50, .seq = s};
            assert_int_equal(kvik_generate(c, &g, &p, 1, &hooks, &r), KVIK_CANCELLED);
            assert_null(r);
            kvik_generation_done(&g);
            assert_int_equal(kvik_cache_length(c, s), N);
            forward(c, s, ids + N, 1, got);
            assert_memory_equal(got, want, kvik_model_vocab(m) * sizeof *got);
            close_cache(c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrong),
                                       cmocka_unit_test(test_reserved),
                                       cmocka_unit_test(test_cancelled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
