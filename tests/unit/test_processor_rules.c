/* test_processor_rules.c - properties of logits processors that recorded vectors do not show: the first
 * token, padding, ids outside the vocabulary, values that are not finite, n-grams of any size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generate/chain.h"

enum { VOCAB = 12 };
/* Applies a configuration once to scores 1, 2, 3, ... */
static void run(const char *config, struct gen_row row, float scores[VOCAB])
{
    kvik_generation g;
    struct gen_chain *c;
    gen_defaults(&g);
    if (kvik_generation_set(&g, config) < 0) fail_msg("%s: %s", config, err_last());
    assert_int_equal(gen_validate(&g), 0);
    assert_int_equal(gen_chain_new(&g, VOCAB, NULL, &c), 0);
    for (int again = 0; again < 2; again++) { /* the scratch is clean after each call */
        for (int i = 0; i < VOCAB; i++)
            scores[i] = (float)(i + 1);
        assert_int_equal(gen_chain_apply(c, &row, scores), 0);
    }
    for (size_t i = 0; i <= VOCAB / 64; i++)
        assert_true(c->seen[i] == 0);
    gen_chain_drop(c);
    kvik_generation_done(&g);
}

/* Compares n-grams of every size with a search by comparing each place, over texts of few tokens. */
static void test_ngrams(void **state)
{
    (void)state;
    int32_t ids[48];
    uint32_t x = 1, banned = 0;
    for (uint32_t k = 0; k < 6000; k++) {
        char config[80];
        float scores[VOCAB];
        uint32_t n = 1 + k % countof(ids), kinds = 1 + k % 3;
        for (uint32_t i = 0; i < n; i++) {
            x = x * 1664525u + 1013904223u;
            uint32_t back = 1 + k / 48 % 7; /* most tokens repeat the one `back` places before */
            ids[i] = i >= back && x >> 28 ? ids[i - back] : (int32_t)((x >> 8) % kinds) + 2;
        }
        uint32_t size = 1 + (x >> 8) % (n + 1), prompt = k % 2 ? 0 : 1 + (x >> 16) % n;
        struct gen_row row = {.ids = ids, .n = n, .n_prompt = prompt ? prompt : n};
        snprintf(config, sizeof config, "{\"%sno_repeat_ngram_size\": %u}",
                 prompt ? "encoder_" : "", size);
        run(config, row, scores);
        bool want[VOCAB] = {false};
        for (uint32_t i = size - 1; i < row.n_prompt && size <= n; i++)
            want[ids[i]] |=
                memcmp(ids + i + 1 - size, ids + n + 1 - size, (size - 1) * sizeof *ids) == 0;
        for (uint32_t i = 0; i < VOCAB; i++) {
            if ((scores[i] == -INFINITY) != want[i]) fail_msg("case %u: token %u", k, i);
            banned += want[i] && size > 2;
        }
    }
    assert_true(banned > 1000);
}

/* A huge size on a repetitive text takes a time that is linear in the length.  Comparing the words of all places would
 * take many minutes. */
static void test_ngrams_large(void **state)
{
    (void)state;
    enum { LENGTH = 1200000 };
    static int32_t ids[LENGTH];
    float scores[VOCAB];
    for (uint32_t period = 1; period < 4; period++) {
        for (uint32_t i = 0; i < LENGTH; i++)
            ids[i] = (int32_t)(i % period);
        struct gen_row row = {.ids = ids, .n = LENGTH, .n_prompt = LENGTH - 1};
        run("{\"no_repeat_ngram_size\": 600000, \"encoder_no_repeat_ngram_size\": 500000}", row,
            scores);
        for (uint32_t i = 0; i < VOCAB; i++)
            assert_true((scores[i] == -INFINITY) == (i == LENGTH % period));
    }
}

static const struct {
    const char *config;
    struct gen_row row;
    const char *removed; /* the removed scores, as hex digits of ids */
} removals[] = {
#define ROW(count, prompt, ...)                                                                    \
    {                                                                                              \
        .ids = (const int32_t[]){__VA_ARGS__}, .n = (count), .n_prompt = (prompt)                  \
    }
    {"{\"no_repeat_ngram_size\": 1}", ROW(3, 3, 1, 4, 1), "14"},
    {"{\"no_repeat_ngram_size\": 2}", ROW(5, 3, 1, 4, 1, 5, 1), "45"},
    {"{\"no_repeat_ngram_size\": 3}", ROW(5, 3, 1, 4, 6, 1, 4), "6"},
    {"{\"no_repeat_ngram_size\": 3}", ROW(2, 2, 1, 4), ""},
    {"{\"no_repeat_ngram_size\": 4294967295}", ROW(2, 2, 1, 4), ""},
    {"{\"no_repeat_ngram_size\": 1}", ROW(3, 3, -1, 12, 2147483647), ""},
    {"{\"encoder_no_repeat_ngram_size\": 1}", ROW(4, 2, 1, 4, 5, 6), "14"},
    {"{\"encoder_no_repeat_ngram_size\": 2}", ROW(5, 3, 1, 4, 6, 7, 4), "6"},
    {"{\"encoder_no_repeat_ngram_size\": 2}", ROW(5, 3, 1, 4, 6, 7, 6), ""},
    {"{\"bad_words_ids\": [[2], [3]], \"eos_token_id\": 3}", ROW(1, 1, 1), "2"},
    {"{\"bad_words_ids\": [[1, 2, 5], [2, 6], [7, 2, 7]]}", ROW(2, 1, 1, 2), "56"},
    {"{\"bad_words_ids\": [[1, 3], [1, 1, 3]]}", ROW(1, 1, 1), "3"},
    {"{\"suppress_tokens\": [0, 3, 11, 12, 99]}", ROW(1, 1, 1), "03b"},
    {"{\"begin_suppress_tokens\": [3]}", ROW(1, 1, 1), "3"},
    {"{\"begin_suppress_tokens\": [3]}", ROW(2, 1, 1, 1), ""},
    {"{\"begin_suppress_tokens\": [3], \"forced_bos_token_id\": 2}", ROW(2, 1, 1, 1), "3"},
    {"{\"begin_suppress_tokens\": [3], \"forced_bos_token_id\": 2}", ROW(2, 2, 1, 1), "3"},
    {"{\"begin_suppress_tokens\": [3], \"forced_bos_token_id\": 2}", ROW(1, 1, 1), "013456789ab"},
    {"{\"begin_suppress_tokens\": [3], \"forced_bos_token_id\": 2}",
     {.ids = (const int32_t[]){1}, .n = 1, .n_prompt = 1, .pad = 1},
     "3"},
    {"{\"min_length\": 5, \"eos_token_id\": [2, 99]}", ROW(2, 2, 1, 1), "2"},
    {"{\"min_length\": 5, \"eos_token_id\": 2}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 2, .pad = 3},
     ""},
    {"{\"min_length\": 5, \"min_new_tokens\": 1, \"eos_token_id\": 2}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 2, .pad = 3},
     "2"},
    {"{\"forced_eos_token_id\": [4, 5]}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 1, .max_length = 3},
     "01236789ab"},
    {"{\"forced_eos_token_id\": [4, 5]}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 1, .max_length = 4},
     ""},
    /* A later processor sees the changes of earlier ones. */
    {"{\"forced_eos_token_id\": [4, 5], \"suppress_tokens\": [4]}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 1, .max_length = 3},
     "012346789ab"},
    {"{\"forced_eos_token_id\": 4, \"remove_invalid_values\": true}",
     {.ids = (const int32_t[]){1, 1}, .n = 2, .n_prompt = 1, .max_length = 3},
     ""},
};

static void test_removals(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(removals); i++) {
        float s[VOCAB];
        char gone[VOCAB + 1] = "", *at = gone;
        run(removals[i].config, removals[i].row, s);
        for (int k = 0; k < VOCAB; k++)
            if (s[k] == -INFINITY) *at++ = "0123456789ab"[k];
        *at = 0;
        if (strcmp(gone, removals[i].removed) != 0)
            fail_msg("row %zu, %s: removed \"%s\", want \"%s\"", i, removals[i].config, gone,
                     removals[i].removed);
    }
}

static const struct {
    const char *config;
    struct gen_row row;
    int id;
    float want; /* of scores 1, 2, 3, ... */
} values[] = {
    {"{\"sequence_bias\": [[[3], 0.5], [[1, 3], 0.25], [[2, 3], 8.0]]}", ROW(1, 1, 1), 3, 4.75f},
    {"{\"sequence_bias\": {\"1, 2, 3\": 0.5}}", ROW(2, 2, 1, 2), 3, 4.5f},
    {"{\"sequence_bias\": {\"1, 2, 3\": 0.5}}", ROW(1, 1, 2), 3, 4},
    {"{\"repetition_penalty\": 2}", ROW(3, 1, 3, 3, 4), 3, 2},
    {"{\"encoder_repetition_penalty\": 2}", ROW(3, 1, 3, 4, 4), 3, 8},
    {"{\"encoder_repetition_penalty\": 2}", ROW(3, 1, 3, 4, 4), 4, 5},
    {"{\"exponential_decay_length_penalty\": [1, 2], \"eos_token_id\": [3, 3]}",
     ROW(4, 1, 0, 0, 0, 0), 3, 16}, /* 4 + 4 * (2^2 - 1) */
    {"{\"exponential_decay_length_penalty\": [3, 2], \"eos_token_id\": 3}", ROW(4, 1, 0, 0, 0, 0),
     3, 4},
    {"{\"exponential_decay_length_penalty\": [1, 2], \"eos_token_id\": 3, \"suppress_tokens\": [4]}",
     ROW(4, 1, 0, 0, 0, 0), 4, -INFINITY},
    {"{\"forced_bos_token_id\": 5}", ROW(1, 1, 3), 5, 0},
    {"{\"renormalize_logits\": true, \"suppress_tokens\": [0,1,2,3,4,5,6,7,8,9,10]}", ROW(1, 1, 3),
     11, 0},
};

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(values); i++) {
        float s[VOCAB];
        run(values[i].config, values[i].row, s);
        if (s[values[i].id] != values[i].want)
            fail_msg("row %zu, %s: %g, want %g", i, values[i].config, (double)s[values[i].id],
                     (double)values[i].want);
    }
}

static void test_foreign_ids(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"sequence_bias\": [[[3, 12], 1]]}", "{\"bad_words_ids\": [[12, 3]]}",
        "{\"forced_bos_token_id\": 12}", "{\"forced_eos_token_id\": [3, 12]}"};
    for (size_t i = 0; i < countof(configs); i++) {
        kvik_generation g;
        struct gen_chain *c = NULL;
        gen_defaults(&g);
        assert_int_equal(kvik_generation_set(&g, configs[i]), 0);
        assert_int_equal(gen_chain_new(&g, VOCAB, NULL, &c), ERR_ARG);
        assert_null(c);
        assert_non_null(strstr(err_last(), "12, outside the vocabulary of 12"));
        kvik_generation_done(&g);
    }
}

static void test_invalid_values(void **state)
{
    (void)state;
    kvik_generation g;
    struct gen_chain *c;
    float s[4] = {NAN, INFINITY, -INFINITY, 3};
    gen_defaults(&g);
    g.remove_invalid_values = true;
    assert_int_equal(gen_chain_new(&g, 4, NULL, &c), 0);
    assert_int_equal(gen_chain_apply(c, &(struct gen_row){0}, s), 0);
    assert_true(s[0] == 0 && s[1] == FLT_MAX && s[2] == -FLT_MAX && s[3] == 3);
    gen_chain_drop(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_removals),     cmocka_unit_test(test_ngrams),
        cmocka_unit_test(test_ngrams_large), cmocka_unit_test(test_values),
        cmocka_unit_test(test_foreign_ids),  cmocka_unit_test(test_invalid_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
