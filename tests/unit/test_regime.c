/* test_regime.c - longrope: a sequence longer than the length the model was first trained for has
 * other rotary frequencies in all its rows. The next logits are, bit for bit, those of the same
 * tokens in a new sequence, however the sequence came to its tokens: decoded across the threshold,
 * in turns, cropped, forked, or rolled back after a failure. The golden model changes at 33 tokens. */
#include "budgets.h"
#include "kvik_compat.h"

#define MODEL "tests/golden/models/phi3"
enum { LONGEST = 96 };

static kvik_model *model;
static uint32_t vocab;
static int32_t text[LONGEST];

static int open_model(void **state)
{
    (void)state;
    assert_int_equal(kvik_model_open(MODEL, &model), 0);
    vocab = kvik_model_vocab(model);
    draw_ids(text, LONGEST, vocab, 9);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    kvik_model_close(model);
    return 0;
}

static kvik_cache *open_cache(const char *impl, const char *config, uint32_t step, uint64_t memory)
{
    kvik_cache *c;
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = impl,
                           .cache_config = config,
                           .max_cache_len = 128,
                           .max_sequences = 4,
                           .step_tokens = step,
                           .cache_memory = memory,
                           .threads = 1};
    if (kvik_cache_open(model, &k, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static kvik_seq fresh(kvik_cache *c)
{
    kvik_seq s;
    if (kvik_cache_new(c, &s) < 0) fail_msg("%s", kvik_last_error());
    return s;
}

static void feed(kvik_cache *c, kvik_seq s, uint32_t from, uint32_t to, float *logits)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = text + from, .n = to - from};
    if (kvik_forward(c, &span, 1, false, logits) < 0) fail_msg("%s", kvik_last_error());
    assert_int_equal(kvik_cache_length(c, s), to);
}

/* Returns the logits after text[0..n), from a sequence that never held anything else. */
static const float *want(uint32_t n)
{
    static float *known[LONGEST + 1];
    if (known[n]) return known[n];
    kvik_cache *c = open_cache(NULL, NULL, 0, 0);
    known[n] = malloc(vocab * sizeof(float));
    feed(c, fresh(c), 0, n, known[n]);
    kvik_cache_close(c);
    return known[n];
}

static void check(const char *how, const float *got, uint32_t n)
{
    if (memcmp(got, want(n), vocab * sizeof *got) != 0)
        fail_msg("%s: the logits after %u tokens are not those of a new sequence", how, n);
}

struct way {
    const char *name, *impl, *config;
    uint32_t step;
};
static const struct way ways[] = {
    {"dynamic", NULL, NULL, 0},
    {"static", "static", NULL, 0},
    {"steps of 5", NULL, NULL, 5},
    {"static, steps of 5", "static", NULL, 5},
    {"codec hook", NULL, "{\"backend\": \"shuffle\"}", 0},
    {"offloaded", "offloaded", NULL, 0},
    {"offloaded_static, steps of 5", "offloaded_static", NULL, 5},
};

/* Computes the text in turns of `n` tokens; 1 is decoding. */
static void turns(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 3, 20, 32, 33};
    float *got = malloc(vocab * sizeof *got);
    for (size_t w = 0; w < countof(ways); w++)
        for (size_t k = 0; k < countof(sizes); k++) {
            kvik_cache *c = open_cache(ways[w].impl, ways[w].config, ways[w].step, 0);
            kvik_seq s = fresh(c);
            for (uint32_t n = 0; n + sizes[k] <= 60; n += sizes[k]) {
                feed(c, s, n, n + sizes[k], got);
                check(ways[w].name, got, n + sizes[k]);
            }
            kvik_cache_close(c);
        }
    free(got);
}

/* Logits of all positions are those of the regime in which the forward ends. */
static void all_logits(void **state)
{
    (void)state;
    size_t n = 40, size = n * vocab * sizeof(float);
    float *got = malloc(size), *whole = malloc(size);
    kvik_cache *c = open_cache(NULL, NULL, 0, 0), *small = open_cache(NULL, NULL, 7, 0);
    kvik_span span = {.size = sizeof span, .seq = fresh(c), .ids = text, .n = 40};
    assert_int_equal(kvik_forward(c, &span, 1, true, whole), 0);
    kvik_seq s = fresh(small);
    feed(small, s, 0, 30, NULL);
    span = (kvik_span){.size = sizeof(kvik_span), .seq = s, .ids = text + 30, .n = 10};
    assert_int_equal(kvik_forward(small, &span, 1, true, got), 0);
    assert_memory_equal(got, whole + 30 * (size_t)vocab, 10 * (size_t)vocab * sizeof *got);
    kvik_cache_close(c);
    kvik_cache_close(small);
    free(got);
    free(whole);
}

static void cropped(void **state)
{
    (void)state;
    float *got = malloc(vocab * sizeof *got);
    for (size_t w = 0; w < countof(ways); w++) {
        kvik_cache *c = open_cache(ways[w].impl, ways[w].config, ways[w].step, 0);
        kvik_seq s = fresh(c);
        feed(c, s, 0, 50, NULL);
        static const uint32_t to[][2] = {{45, 46}, {20, 21}, {12, 32}, {32, 33}, {5, 50}, {31, 32}};
        for (size_t i = 0; i < countof(to); i++) {
            if (kvik_cache_crop(c, s, to[i][0]) < 0)
                fail_msg("%s: crop: %s", ways[w].name, kvik_last_error());
            assert_int_equal(kvik_cache_length(c, s), to[i][0]);
            feed(c, s, to[i][0], to[i][1], got);
            check(ways[w].name, got, to[i][1]);
            if (to[i][1] < 50) feed(c, s, to[i][1], 50, NULL);
        }
        kvik_cache_close(c);
    }
    free(got);
}

/* Rows of a batch cross the threshold by themselves; forks and reorders keep the regime. */
static void together(void **state)
{
    (void)state;
    float *got = malloc(3 * vocab * sizeof *got);
    for (size_t w = 0; w < countof(ways); w++) {
        /* Reserves leave no room for forks. */
        if (ways[w].impl && strstr(ways[w].impl, "static")) continue;
        kvik_cache *c = open_cache(ways[w].impl, ways[w].config, ways[w].step, 0);
        kvik_seq a = fresh(c), b = fresh(c), f;
        feed(c, a, 0, 30, NULL);
        feed(c, b, 0, 10, NULL);
        assert_int_equal(kvik_cache_fork(c, a, &f), 0);
        kvik_span span[] = {{.size = sizeof(kvik_span), .seq = a, .ids = text + 30, .n = 6},
                            {.size = sizeof(kvik_span), .seq = b, .ids = text + 10, .n = 1},
                            {.size = sizeof(kvik_span), .seq = f, .ids = text + 30, .n = 1}};
        assert_int_equal(kvik_forward(c, span, 3, false, got), 0);
        check("batch, crossing", got, 36);
        check("batch, far below", got + vocab, 11);
        check("batch, fork", got + 2 * (size_t)vocab, 31);
        assert_int_equal(kvik_cache_reorder(c, (kvik_seq[]){a, b}, (uint32_t[]){1, 0}, 2), 0);
        kvik_span swapped[] = {{.size = sizeof(kvik_span), .seq = b, .ids = text + 36, .n = 1},
                               {.size = sizeof(kvik_span), .seq = a, .ids = text + 11, .n = 1}};
        assert_int_equal(kvik_forward(c, swapped, 2, false, got), 0);
        check("reordered, long", got, 37);
        check("reordered, short", got + vocab, 12);
        kvik_cache_close(c);
    }
    free(got);
}

/* A forward that crosses the threshold and fails leaves the sequence unchanged. */
static void failed(void **state)
{
    (void)state;
    float *got = malloc(vocab * sizeof *got);
    int32_t bad[30];
    memcpy(bad, text + 20, sizeof bad);
    bad[29] = (int32_t)vocab;
    for (size_t w = 0; w < countof(ways); w++) {
        kvik_cache *c = open_cache(ways[w].impl, ways[w].config, ways[w].step, 0);
        kvik_seq s = fresh(c);
        feed(c, s, 0, 12, NULL);
        for (uint32_t n = 12; n < 20; n++)
            feed(c, s, n, n + 1, NULL);
        kvik_span span = {.size = sizeof span, .seq = s, .ids = bad, .n = 30};
        assert_true(kvik_forward(c, &span, 1, false, got) < 0);
        assert_int_equal(kvik_cache_length(c, s), 20);
        feed(c, s, 20, 21, got);
        check(ways[w].name, got, 21);
        feed(c, s, 21, 50, got);
        check(ways[w].name, got, 50);
        kvik_cache_close(c);
    }
    free(got);
}

/* Quantized rows depend on their turns. Crossing the threshold makes one turn of all tokens; a
 * failure restores the old turns. */
static void quantized(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"backend\": \"quanto\", \"nbits\": 4, \"residual_length\": 4, \"q_group_size\": 16}",
        "{\"backend\": \"hqq\", \"nbits\": 2, \"residual_length\": 3, \"q_group_size\": 16, "
        "\"axis_key\": 1, \"axis_value\": 1}",
    };
    float *got[2] = {malloc(vocab * sizeof(float)), malloc(vocab * sizeof(float))};
    for (size_t k = 0; k < countof(configs); k++) {
        kvik_cache *c = open_cache("quantized", configs[k], 7, 0);
        kvik_seq s = fresh(c), t = fresh(c), whole = fresh(c);
        int32_t bad[30];
        memcpy(bad, text + 24, sizeof bad);
        bad[29] = -1;
        for (int i = 0; i < 2; i++) {
            kvik_seq q = i ? t : s;
            feed(c, q, 0, 9, NULL);
            for (uint32_t n = 9; n < 15; n++)
                feed(c, q, n, n + 1, NULL);
            feed(c, q, 15, 23, NULL);
            feed(c, q, 23, 24, got[i]);
        }
        assert_memory_equal(got[0], got[1], vocab * sizeof(float));
        kvik_span span = {.size = sizeof span, .seq = s, .ids = bad, .n = 30};
        assert_true(kvik_forward(c, &span, 1, false, got[0]) < 0);
        for (uint32_t n = 24; n < 31; n++) {
            feed(c, s, n, n + 1, got[0]);
            feed(c, t, n, n + 1, got[1]);
            assert_memory_equal(got[0], got[1], vocab * sizeof(float));
        }
        feed(c, s, 31, 40, got[0]);
        feed(c, whole, 0, 40, got[1]);
        assert_memory_equal(got[0], got[1], vocab * sizeof(float));
        kvik_cache_close(c);
    }
    free(got[0]);
    free(got[1]);
}

/* Encoded rows take less room than the turn that made them.  Where another sequence has taken the rest, a crossing that is
 * refused leaves the old rows: computing them again would not fit. */
static void quantized_full(void **state)
{
    (void)state;
    static const char config[] =
        "{\"backend\": \"quanto\", \"nbits\": 2, \"residual_length\": 8, \"q_group_size\": 32}";
    float *got = malloc(vocab * sizeof *got), *same = malloc(vocab * sizeof *same);
    uint32_t refused = 0;
    kvik_cache *plain = open_cache("quantized", config, 0, 0);
    kvik_seq whole = fresh(plain);
    feed(plain, whole, 0, 31, NULL);
    feed(plain, whole, 31, 32, same);
    kvik_cache_close(plain);
    for (uint32_t i = 0; i < 32; i++) {
        kvik_cache *c;
        kvik_cache_config k = {.size = sizeof k,
                               .cache_implementation = "quantized",
                               .cache_config = config,
                               .max_cache_len = 128,
                               .max_sequences = 2,
                               .step_tokens = 32,
                               .threads = 1,
                               .no_prefix_cache = true};
        k.cache_memory = budget_for(model, k, 64 << 10, 2, 64);
        if (kvik_cache_open(model, &k, &c) < 0) fail_msg("%s", kvik_last_error());
        kvik_seq s = fresh(c), other = fresh(c);
        kvik_span first = {.size = sizeof first, .seq = s, .ids = text, .n = 31},
                  next = {.size = sizeof next, .seq = s, .ids = text + 31, .n = 9};
        int e = kvik_forward(c, &first, 1, false, NULL);
        if (e >= 0) e = kvik_cache_reserve(c, other, 1 + i);
        if (e >= 0 && kvik_forward(c, &next, 1, false, NULL) < 0) {
            refused++;
            assert_int_equal(kvik_cache_length(c, s), 31);
            kvik_cache_drop(c, other);
            feed(c, s, 31, 32, got);
            assert_memory_equal(got, same, vocab * sizeof *got);
        }
        kvik_cache_close(c);
    }
    assert_true(refused > 0);
    free(got);
    free(same);
}

/* Imported rows have the regime of their number. */
static void moved(void **state)
{
    (void)state;
    float *got = malloc(vocab * sizeof *got);
    kvik_cache *c = open_cache(NULL, NULL, 0, 0);
    static const uint32_t lengths[] = {20, 32, 33, 50};
    for (size_t i = 0; i < countof(lengths); i++) {
        uint32_t n = lengths[i];
        kvik_export *rows;
        kvik_seq s = fresh(c), t;
        feed(c, s, 0, n, NULL);
        assert_int_equal(kvik_cache_export(c, s, &rows), 0);
        if (kvik_cache_import(c, rows, &t) < 0) fail_msg("%s", kvik_last_error());
        feed(c, t, n, n + 1, got);
        check("imported", got, n + 1);
        assert_int_equal(kvik_cache_crop(c, t, 16), 0);
        feed(c, t, 16, 17, got);
        check("imported and cropped", got, 17);
        /* A crop may leave the rows for the next forward to recompute; such rows cannot be
         * exported. */
        feed(c, t, 17, 40, NULL);
        assert_int_equal(kvik_cache_crop(c, t, 30), 0);
        kvik_export *after = NULL;
        kvik_seq u = 0;
        if (kvik_cache_export(c, t, &after) < 0) {
            assert_non_null(strstr(kvik_last_error(), "next forward"));
        } else {
            assert_int_equal(kvik_cache_import(c, after, &u), 0);
            feed(c, u, 30, 31, got);
            check("exported after a crop", got, 31);
            kvik_export_free(after);
            kvik_cache_drop(c, u);
        }
        kvik_export_free(rows);
        kvik_cache_drop(c, s);
        kvik_cache_drop(c, t);
    }
    kvik_cache_close(c);
    free(got);
}

/* The old rows stay until the new ones are computed.  A budget that holds the sequence once refuses
 * the crossing, changes nothing and names the bytes; with as many more the sequence crosses. */
static void budget(void **state)
{
    (void)state;
    float *got = malloc(vocab * sizeof *got);
    kvik_usage u = {.size = sizeof u};
    kvik_cache *c = open_cache(NULL, NULL, 0, 0);
    kvik_seq s = fresh(c);
    feed(c, s, 0, 40, NULL);
    kvik_cache_usage(c, &u);
    kvik_cache_close(c);
    kvik_cache_config k = {
        .size = sizeof k, .max_cache_len = 128, .max_sequences = 1, .threads = 1};
    k.cache_memory = u.peak_bytes;
    uint32_t refused = 0, done = 0;
    for (int tries = 0; tries < 8 && done < 40; tries++) {
        if (kvik_cache_open(model, &k, &c) < 0) { /* a cache has a least size */
            k.cache_memory += u.peak_bytes / 2;
            continue;
        }
        s = fresh(c);
        for (done = 0; done < 40; done++) {
            kvik_span span = {.size = sizeof span, .seq = s, .ids = text + done, .n = 1};
            int e = kvik_forward(c, &span, 1, false, got);
            if (e < 0) {
                assert_int_equal(e, KVIK_FULL);
                kvik_cache_usage(c, &u);
                k.cache_memory += u.need;
                assert_int_equal(done, 32);
                assert_int_equal(kvik_cache_length(c, s), 32);
                assert_int_equal(kvik_cache_crop(c, s, 31), 0);
                feed(c, s, 31, 32, got);
                check("refused", got, 32);
                refused++;
                break;
            }
            check("least budget", got, done + 1);
        }
        kvik_cache_close(c);
    }
    assert_int_equal(done, 40);
    assert_true(refused > 0);
    free(got);
}

static void sinks_refused(void **state)
{
    (void)state;
    kvik_cache *c = NULL;
    kvik_cache_config k = {.size = sizeof k,
                           .cache_implementation = "sink",
                           .cache_config = "{\"window_length\": 16, \"num_sink_tokens\": 2}"};
    assert_true(kvik_cache_open(model, &k, &c) < 0);
    assert_non_null(strstr(kvik_last_error(), "length of the sequence"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns),         cmocka_unit_test(all_logits),
        cmocka_unit_test(cropped),       cmocka_unit_test(together),
        cmocka_unit_test(failed),        cmocka_unit_test(budget),
        cmocka_unit_test(moved),         cmocka_unit_test(quantized),
        cmocka_unit_test(sinks_refused), cmocka_unit_test(quantized_full),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
