/* test_draft_lookup.c - prompt lookup proposes the draft tokens of Transformers' candidate
 * generator (5.23): its answers for short texts over few tokens, with eos tokens and forbidden
 * tokens among them. */
#include "generate/handle.h"
#include "testing.h"

static const struct {
    int32_t ids[16];
    uint32_t n, most, size;
    int32_t eos, suppressed, want[8];
    uint32_t n_want;
} rows[] = {
    {{5, 4, 5, 5, 5, 5, 3, 4, 3, 5}, 10, 1, 2, -1, 3, {4}, 1},
    {{4, 3, 3, 3, 3, 4, 4, 3}, 8, 4, 2, -1, -1, {3, 3, 3, 4}, 4},
    {{6, 4, 4, 3, 3, 4, 4, 4, 4, 5}, 10, 3, 2, -1, -1, {}, 0},
    {{4, 4, 3, 4, 4, 3, 3, 4, 3, 4, 4, 3}, 12, 5, 3, -1, 3, {4, 4}, 2},
    {{4, 5, 4, 3, 4, 4}, 6, 6, 2, -1, 3, {5, 4}, 2},
    {{5}, 1, 4, 1, 4, 3, {}, 0},
    {{3, 6, 3, 4, 4, 3, 4}, 7, 4, 3, 3, 3, {4}, 1},
    {{3, 5, 5, 4, 4, 3, 4, 3, 3, 4, 5, 5, 4}, 13, 2, 3, 3, -1, {4}, 1},
    {{4, 3, 3, 4, 5}, 5, 2, 4, 3, -1, {}, 0},
    {{4, 5}, 2, 5, 3, -1, 3, {}, 0},
    {{3, 5, 5, 5, 6, 5, 5, 5, 4, 3, 6, 5}, 12, 3, 3, 4, 3, {5, 5}, 2},
    {{6, 5, 5, 3, 4, 4, 6, 4, 4, 4, 3, 6, 4}, 13, 2, 1, -1, -1, {4, 6}, 2},
    {{5, 5, 4, 6, 6, 5}, 6, 4, 2, -1, 5, {4, 6, 6}, 3},
    {{4, 4, 5, 4}, 4, 4, 2, 3, 3, {4, 5, 4}, 3},
    {{5, 6, 6, 4, 5, 5, 6, 5, 3, 4}, 10, 6, 2, 4, -1, {5, 5, 6, 5, 3}, 5},
    {{3, 3}, 2, 2, 2, -1, 5, {3}, 1},
};

static void as_the_reference(void **state)
{
    (void)state;
    kvik_model *m;
    kvik_cache *c;
    kvik_cache_config cc = {
        .size = sizeof cc, .max_sequences = 1, .max_cache_len = 32, .threads = 1};
    assert_int_equal(kvik_model_open("tests/golden/models/qwen3-mixed", &m), 0);
    assert_int_equal(kvik_cache_open(m, &cc, &c), 0);
    for (size_t i = 0; i < countof(rows); i++) {
        kvik_generation g;
        struct drafter d;
        int32_t ids[32];
        gen_defaults(&g);
        g.prompt_lookup_num_tokens = rows[i].most;
        g.max_matching_ngram_size = rows[i].size;
        if (rows[i].eos >= 0) g.eos_token_id[g.n_eos++] = rows[i].eos;
        if (rows[i].suppressed >= 0) {
            g.suppress_tokens = mem_array(1, sizeof *g.suppress_tokens);
            g.suppress_tokens[g.n_suppress_tokens++] = rows[i].suppressed;
        }
        struct run r = {.x = c->x, .g = &g};
        memcpy(ids, rows[i].ids, sizeof rows[i].ids);
        struct draft_row w = {.text = {.ids = ids, .n = rows[i].n, .n_prompt = rows[i].n},
                              .ids = ids,
                              .n = rows[i].n,
                              .max = rows[i].most};
        assert_int_equal(draft_lookup_open(&r, &d), 0);
        assert_int_equal(d.propose(d.ctx, &w, 1), 0);
        if (w.got != rows[i].n_want || memcmp(ids + w.n, rows[i].want, w.got * sizeof *ids))
            fail_msg("text %zu: %u draft tokens, the first %d", i, w.got, ids[w.n]);
        d.close(d.ctx);
        kvik_generation_done(&g);
    }
    kvik_cache_close(c);
    kvik_model_close(m);
}

/* A search compares each place of the text once, however long the n-grams may be. */
static void long_ngrams(void **state)
{
    (void)state;
    enum { LONG = 60000 };
    static int32_t ids[LONG + 8];
    kvik_model *m;
    kvik_cache *c;
    kvik_generation g;
    struct drafter d;
    kvik_cache_config cc = {
        .size = sizeof cc, .max_sequences = 1, .max_cache_len = 32, .threads = 1};
    assert_int_equal(kvik_model_open("tests/golden/models/qwen3-mixed", &m), 0);
    assert_int_equal(kvik_cache_open(m, &cc, &c), 0);
    for (int i = 0; i < LONG; i++)
        ids[i] = 5;
    ids[7] = ids[LONG - 1] = 6;
    gen_defaults(&g);
    g.prompt_lookup_num_tokens = 3;
    g.max_matching_ngram_size = 65536;
    struct run r = {.x = c->x, .g = &g};
    struct draft_row w = {
        .text = {.ids = ids, .n = LONG, .n_prompt = LONG}, .ids = ids, .n = LONG, .max = 3};
    assert_int_equal(draft_lookup_open(&r, &d), 0);
    assert_int_equal(d.propose(d.ctx, &w, 1), 0);
    assert_int_equal(w.got, 3);
    assert_int_equal(ids[LONG], 5);
    d.close(d.ctx);
    kvik_generation_done(&g);
    kvik_cache_close(c);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_reference),
                                       cmocka_unit_test(long_ngrams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
