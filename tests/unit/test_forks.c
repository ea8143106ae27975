/* test_forks.c - the promise of the store on the real model: 64 forks of a prefix decode together,
 * hold the prefix once, and give the tokens of 64 separate runs. With one byte less memory a step
 * fails and changes nothing.
 *
 * By default the prefix has 272 tokens (one border of attention atoms), four forks are decoded
 * alone, one of them is computed without the cached prefix, and 16 forks run out of memory.
 * KVIK_TEST_LONG=1 takes 4 000 tokens and all 64 forks, each time. */
#include "budgets.h"

enum { PREFIX = 4000, FORKS = 64, NEW = 32, BLOCK = 16 };
static uint32_t n_prefix = 272, n_short = 112, n_forks = 16, every = 21, from_nothing = FORKS;

static kvik_model *m;
static uint32_t vocab;
static int32_t prefix[PREFIX], first[FORKS], tokens[FORKS][NEW];
static float *logits;

static int32_t argmax(const float *x)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (x[i] > x[best]) best = i;
    return (int32_t)best;
}

/* Returns the bytes of one block of 16 rows over all layers, from the model's own description. */
static uint64_t block_bytes(void)
{
    char *json;
    assert_int_equal(kvik_model_describe(m, &json), 0);
    const char *at = strstr(json, "\"f16\":");
    uint64_t row = at ? strtoull(at + 6, NULL, 10) : 0;
    kvik_free(json);
    assert_true(row > 0);
    return row * BLOCK;
}

static kvik_cache_config config_of(uint32_t n, uint64_t memory)
{
    return (kvik_cache_config){.size = sizeof(kvik_cache_config),
                               .max_sequences = n,
                               .max_cache_len = n_prefix + NEW,
                               .cache_memory = memory};
}

static kvik_cache *open_cache(uint32_t n, uint64_t memory)
{
    kvik_cache *c;
    kvik_cache_config config = config_of(n, memory);
    if (kvik_cache_open(m, &config, &c) < 0) fail_msg("%s", kvik_last_error());
    return c;
}

static void feed(kvik_cache *c, kvik_seq s, const int32_t *ids, uint32_t n, float *out)
{
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = n};
    if (kvik_forward(c, &span, 1, false, out) < 0) fail_msg("%s", kvik_last_error());
}

/* Runs step `step` of all forks: fork i computes first[i] and then its own greedy tokens. */
static int step_all(kvik_cache *c, const kvik_seq *s, uint32_t n, uint32_t step, float *out)
{
    kvik_span span[FORKS];
    for (uint32_t i = 0; i < n; i++)
        span[i] = (kvik_span){.size = sizeof(kvik_span),
                              .seq = s[i],
                              .ids = step ? &tokens[i][step - 1] : &first[i],
                              .n = 1};
    return kvik_forward(c, span, n, false, out);
}

static void share_and_agree(void **state)
{
    (void)state;
    if (!m) skip();
    kvik_cache *c = open_cache(FORKS + 1, 0);
    kvik_seq root, s[FORKS];
    kvik_usage u = {.size = sizeof u};
    uint64_t block = block_bytes();
    assert_int_equal(kvik_cache_new(c, &root), 0);
    feed(c, root, prefix, n_prefix, NULL);
    kvik_cache_usage(c, &u);
    uint64_t prefix_bytes = u.bytes;
    assert_int_equal(prefix_bytes, n_prefix / BLOCK * block);
    for (int i = 0; i < FORKS; i++)
        assert_int_equal(kvik_cache_fork(c, root, &s[i]), 0);
    kvik_cache_usage(c, &u);
    assert_int_equal(u.bytes, prefix_bytes); /* forks own no pages yet */
    for (uint32_t step = 0; step < NEW; step++) {
        assert_int_equal(step_all(c, s, FORKS, step, logits), 0);
        for (int i = 0; i < FORKS; i++)
            tokens[i][step] = argmax(logits + (size_t)i * vocab);
    }
    kvik_cache_usage(c, &u);
    printf("prefix %llu bytes, 64 forks x 2 blocks of %llu: peak %llu, rows copied %llu\n",
           (unsigned long long)prefix_bytes, (unsigned long long)block,
           (unsigned long long)u.peak_bytes, (unsigned long long)u.rows_copied);
    assert_true(u.peak_bytes <= prefix_bytes + FORKS * (NEW / BLOCK) * block);
    assert_int_equal(u.rows_copied, 0);
    int distinct = 0;
    for (int i = 1; i < FORKS; i++)
        distinct += memcmp(tokens[i], tokens[0], sizeof tokens[0]) != 0;
    assert_true(distinct > FORKS / 2); /* the runs differ, otherwise equality would prove little */
    /* Each fork is decoded by itself ... */
    for (uint32_t i = 0; i < FORKS; i++)
        assert_int_equal(kvik_cache_drop(c, s[i]), 0);
    for (uint32_t i = 0; i < FORKS; i += every) {
        kvik_seq alone;
        assert_int_equal(kvik_cache_fork(c, root, &alone), 0);
        for (uint32_t step = 0; step < NEW; step++) {
            feed(c, alone, step ? &tokens[i][step - 1] : &first[i], 1, logits);
            assert_int_equal(argmax(logits), tokens[i][step]);
        }
        kvik_cache_drop(c, alone);
    }
    kvik_cache_close(c);
    /* ... and once more without the prefix, in a cache of its own. */
    for (uint32_t i = FORKS - 1; i < FORKS; i -= from_nothing) { /* ends by wrapping past fork 0 */
        kvik_cache *own = open_cache(1, 0);
        kvik_seq q;
        assert_int_equal(kvik_cache_new(own, &q), 0);
        feed(own, q, prefix, n_prefix, NULL);
        for (uint32_t step = 0; step < NEW; step++) {
            feed(own, q, step ? &tokens[i][step - 1] : &first[i], 1, logits);
            assert_int_equal(argmax(logits), tokens[i][step]);
        }
        kvik_cache_close(own);
    }
}

static void one_byte_short(void **state)
{
    (void)state;
    if (!m) skip();
    uint64_t block = block_bytes(), exact = (n_short / BLOCK + n_forks * (NEW / BLOCK)) * block;
    float *want = malloc((size_t)n_forks * vocab * sizeof *want);
    kvik_cache *any = open_cache(n_forks + 1, 0);
    exact += budget_tables(any, 1, n_short) + budget_tables(any, n_forks, n_short + BLOCK + 1);
    kvik_cache_close(any);
    exact = budget_for(m, config_of(n_forks + 1, 0), exact, 0, 0);
    for (int short_by = 0; short_by < 2; short_by++) {
        kvik_cache *c = open_cache(n_forks + 1, exact - (uint64_t)short_by);
        kvik_seq root, s[FORKS];
        kvik_usage u = {.size = sizeof u}, before = {.size = sizeof before};
        assert_int_equal(kvik_cache_new(c, &root), 0);
        feed(c, root, prefix, n_short, NULL);
        for (uint32_t i = 0; i < n_forks; i++)
            assert_int_equal(kvik_cache_fork(c, root, &s[i]), 0);
        for (uint32_t step = 0; step < BLOCK; step++)
            assert_int_equal(step_all(c, s, n_forks, step, logits), 0);
        kvik_cache_usage(c, &before);
        if (!short_by) { /* exactly enough: the 17th step takes the last block */
            assert_int_equal(step_all(c, s, n_forks, BLOCK, want), 0);
        } else {
            assert_int_equal(step_all(c, s, n_forks, BLOCK, logits), KVIK_FULL);
            kvik_cache_usage(c, &u);
            assert_true(u.need > 0 && u.need <= block);
            assert_int_equal(u.bytes, before.bytes);
            for (uint32_t i = 0; i < n_forks; i++)
                assert_int_equal(kvik_cache_length(c, s[i]), n_short + BLOCK);
            assert_int_equal(step_all(c, s, n_forks - 1, BLOCK, logits),
                             0); /* one fork fewer fits */
            assert_memory_equal(logits, want, (size_t)(n_forks - 1) * vocab * sizeof *want);
        }
        kvik_cache_close(c);
    }
    free(want);
}

int main(void)
{
    const char *path = getenv("KVIK_TEST_SHORT") ? NULL : test_model();
    if (getenv("KVIK_TEST_LONG"))
        n_prefix = PREFIX, n_short = 992, n_forks = FORKS, every = from_nothing = 1;
    if (path && kvik_model_open(path, &m) < 0) {
        fprintf(stderr, "%s\n", kvik_last_error());
        return 1;
    }
    if (m) {
        vocab = kvik_model_vocab(m);
        logits = malloc((size_t)FORKS * vocab * sizeof *logits);
        for (uint32_t i = 0, x = 1; i < PREFIX + FORKS; i++) {
            x = x * 1664525u + 1013904223u;
            int32_t id = (int32_t)(100 + (x >> 8) % (vocab - 100));
            if (i < PREFIX)
                prefix[i] = id;
            else
                first[i - PREFIX] = id;
        }
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(share_and_agree),
                                       cmocka_unit_test(one_byte_short)};
    int e = cmocka_run_group_tests(tests, NULL, NULL);
    free(logits);
    kvik_model_close(m);
    return e;
}
