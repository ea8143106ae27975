/* test_gen_options.c - the option table: every row usable and documented, values and ranges checked, names of
 * the reference accepted at their neutral value and refused by name otherwise, suggestions, and nothing changed by a
 * failed application. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/near.h"
#include "generate/options.h"

static void test_defaults(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    assert_int_equal(g.max_new_tokens, 0);
    assert_int_equal(g.max_length, 0);
    assert_false(g.do_sample);
    assert_true(g.temperature == 1 && g.top_p == 1 && g.min_p == 0 && g.repetition_penalty == 1);
    assert_int_equal(g.top_k, 50);
    assert_true(g.use_cache);
    assert_int_equal(g.pad_token_id, -1);
    assert_int_equal(g.n_eos, 0);
    assert_int_equal(gen_validate(&g), 0);
    kvik_generation_done(&g);
}

static const struct {
    const char *json;
    int code;
    const char *says; /* part of the sentence */
} rows[] = {
    {"{}", 0, ""},
    {"{\"max_new_tokens\": 20, \"max-length\": 30}", 0, ""},
    {"{\"max_new_tokens\": null}", 0, ""},
    {"{\"max_new_tokens\": 0}", ERR_ARG,
     "max_new_tokens must be an integer from 1 to 4294967295, not 0"},
    {"{\"max_new_tokens\": -1}", ERR_ARG, "not -1"},
    {"{\"max_new_tokens\": 4294967296}", ERR_ARG, "not 4294967296"},
    {"{\"max_new_tokens\": 1.5}", ERR_ARG, "not 1.5"},
    {"{\"max_new_tokens\": \"20\"}", ERR_ARG, "not \"20\""},
    {"{\"max_new_token\": 1}", ERR_ARG,
     "unknown option \"max_new_token\"; did you mean \"max_new_tokens\"?"},
    {"{\"max_tokens\": 1}", ERR_ARG, "did you mean \"max_new_tokens\"?"},
    {"{\"temprature\": 1}", ERR_ARG, "did you mean \"temperature\"?"},
    {"{\"quux_flag\": 1}", ERR_ARG, "unknown option \"quux_flag\""},
    {"{\"temperature\": 0}", 0, ""},
    {"{\"temperature\": -0.1}", ERR_ARG, "temperature must be a number from 0"},
    {"{\"top_p\": 1.01}", ERR_ARG, "top_p must be a number from 0 to 1, not 1.01"},
    {"{\"top_p\": true}", ERR_ARG, "top_p"},
    {"{\"min_p\": 1}", 0, ""},
    {"{\"repetition_penalty\": 0}", ERR_ARG, "repetition_penalty"},
    {"{\"do_sample\": 1}", ERR_ARG, "do_sample must be true or false, not 1"},
    {"{\"seed\": 9223372036854775807}", 0, ""},
    {"{\"seed\": -1}", ERR_ARG, "seed must be an integer from 0 to 2^63-1"},
    {"{\"eos_token_id\": 2}", 0, ""},
    {"{\"eos_token_id\": [2, 3]}", 0, ""},
    {"{\"eos_token_id\": []}", 0, ""},
    {"{\"eos_token_id\": -1}", 0, ""},
    {"{\"eos_token_id\": [2, -3]}", ERR_ARG, "a token id or a list of token ids"},
    {"{\"eos_token_id\": \"</s>\"}", ERR_ARG, "eos_token_id"},
    {"{\"pad_token_id\": -1}", 0, ""},
    {"{\"pad_token_id\": -2}", ERR_ARG, "pad_token_id"},
    {"{\"stop_strings\": \"\\n\"}", 0, ""},
    {"{\"stop_strings\": [\"a\", \"b\"]}", 0, ""},
    {"{\"stop_strings\": [\"a\", \"\"]}", ERR_ARG, "empty text"},
    {"{\"stop_strings\": [\"a\\u0000b\"]}", ERR_ARG, "zero byte"},
    {"{\"stop_strings\": [1]}", ERR_ARG, "a text or a list of texts"},
    {"{\"cache_implementation\": \"static\"}", 0, ""},
    {"{\"cache_implementation\": \"statc\"}", ERR_ARG, "did you mean \"static\"?"},
    {"{\"cache_implementation\": \"quantized\"}", 0, ""},
    {"{\"cache_implementation\": \"mamba\"}", ERR_UNSUPPORTED, "mamba"},
    {"{\"cache_implementation\": 1}", ERR_ARG, "cache_implementation"},
    {"{\"cache_config\": {\"max_cache_len\": 64, \"batch_size\": 2, \"offloading\": false}}", 0,
     ""},
    {"{\"cache_config\": {\"max_cache_len\": 0}}", ERR_ARG,
     "max_cache_len must be an integer from 1"},
    {"{\"cache_config\": {\"nbits\": 4}}", 0, ""},
    {"{\"cache_config\": {\"nbits\": 9}}", ERR_ARG, "nbits must be an integer from 1 to 8"},
    {"{\"cache_config\": {\"offloading\": 1}}", ERR_ARG, "offloading must be true or false"},
    {"{\"cache_config\": {\"max_cache_length\": 4}}", ERR_ARG, "did you mean \"max_cache_len\"?"},
    {"{\"cache_config\": [1]}", ERR_ARG, "cache_config must be an object"},
    {"{\"num_beams\": 1, \"num-return-sequences\": 1, \"typical_p\": 1.0, \"no_repeat_ngram_size\": 0}",
     0, ""},
    {"{\"num_beams\": 4, \"num_return_sequences\": 4, \"length_penalty\": -0.5}", 0, ""},
    {"{\"num_beams\": 0}", ERR_ARG, "num_beams must be an integer from 1 to 65536"},
    {"{\"num_return_sequences\": 2.0}", ERR_ARG, "num_return_sequences must be an integer"},
    {"{\"length_penalty\": \"1\"}", ERR_ARG, "length_penalty must be a number"},
    {"{\"num_beam_groups\": 4}", ERR_UNSUPPORTED,
     "num_beam_groups=4 is not supported in this version; only 1 works"},
    {"{\"typical_p\": 0.9}", ERR_UNSUPPORTED, "only 1 works"},
    {"{\"bad_words_ids\": []}", 0, ""},
    {"{\"bad_words_ids\": [[3]]}", ERR_UNSUPPORTED, "bad_words_ids=[[3]]"},
    {"{\"renormalize_logits\": true}", ERR_UNSUPPORTED, "only false works"},
    {"{\"forced_eos_token_id\": 2}", ERR_UNSUPPORTED, "leave it out"},
    {"{\"return_dict_in_generate\": true, \"disable_compile\": true, \"compile_config\": {}}", 0,
     ""},
    {"{\"early_stopping\": \"never\", \"length_penalty\": 2.0}", 0, ""},
    {"{\"early_stopping\": true}", 0, ""},
    {"{\"early_stopping\": \"always\"}", ERR_ARG,
     "early_stopping must be true, false or \"never\", not \"always\""},
    {"[1]", ERR_ARG, "must be a JSON object"},
    {"{\"a\": 1", ERR_FORMAT, "generation options: line 1"},
    {"{\"top_k\": 1, \"top_k\": 2}", ERR_FORMAT, "duplicate"},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(rows); i++) {
        kvik_generation g;
        gen_defaults(&g);
        int e = kvik_generation_set(&g, rows[i].json);
        if (e != rows[i].code || (e && !strstr(err_last(), rows[i].says)))
            fail_msg("%s: code %d, \"%s\"; want %d, \"%s\"", rows[i].json, e, err_last(),
                     rows[i].code, rows[i].says);
        kvik_generation_done(&g);
    }
}

static void test_values(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    assert_int_equal(kvik_generation_set(
                         &g, "{\"max_new_tokens\": 7, \"do_sample\": true, \"temperature\": 2, "
                             "\"top_k\": 0, \"seed\": 9007199254740993, \"eos_token_id\": [5, 6], "
                             "\"pad_token_id\": 0, \"stop_strings\": [\"a\", \"bc\"], "
                             "\"cache_implementation\": \"static\", \"use_cache\": false, "
                             "\"cache_config\": {\"max_cache_len\": 64, \"batch_size\": 2}}"),
                     0);
    assert_int_equal(g.max_new_tokens, 7);
    assert_true(g.do_sample && g.temperature == 2 && g.top_k == 0 && !g.use_cache);
    assert_true(g.seed == 9007199254740993u);
    assert_int_equal(g.n_eos, 2);
    assert_int_equal(g.eos_token_id[1], 6);
    assert_int_equal(g.pad_token_id, 0);
    assert_string_equal(g.cache_implementation, "static");
    assert_string_equal(g.cache_config, "{\"max_cache_len\":64}");
    assert_int_equal(g.n_stop_strings, 2);
    assert_string_equal(g.stop_strings[1], "bc");
    /* a second application keeps what it does not name */
    assert_int_equal(kvik_generation_set(&g, "{\"stop_strings\": [], \"eos_token_id\": 9}"), 0);
    assert_int_equal(g.n_stop_strings, 0);
    assert_int_equal(g.n_eos, 1);
    assert_int_equal(g.eos_token_id[0], 9);
    assert_int_equal(g.eos_token_id[1], 0);
    assert_string_equal(g.cache_implementation, "static");
    kvik_generation_done(&g);
}

static void test_failure_changes_nothing(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    const char *set = "{\"stop_strings\": [\"x\"], \"cache_implementation\": \"static\", "
                      "\"cache_config\": {\"max_cache_len\": 5}, \"top_k\": 3}";
    assert_int_equal(kvik_generation_set(&g, set), 0);
    kvik_generation before = g;
    assert_true(kvik_generation_set(
                    &g,
                    "{\"stop_strings\": [\"y\"], \"cache_implementation\": \"dynamic\", "
                    "\"cache_config\": {}, \"top_k\": 4, \"eos_token_id\": 1, \"bogus\": 1}") < 0);
    assert_memory_equal(&g, &before, sizeof g);
    assert_string_equal(g.stop_strings[0], "x");
    const char *next = "{\"stop_strings\": [\"y\", \"z\"], \"cache_implementation\": \"dynamic\", "
                       "\"cache_config\": {\"sliding_window\": 5}}";
    int failures = 0;
    for (int k = 0; k < 64; k++) {
        mem_fail_at(k, false);
        int e = kvik_generation_set(&g, next);
        mem_fail_at(-1, false);
        if (!e) break;
        failures++;
        assert_int_equal(e, ERR_NOMEM);
        assert_memory_equal(&g, &before, sizeof g);
    }
    assert_true(failures >= 5);
    assert_string_equal(g.stop_strings[1], "z");
    kvik_generation_done(&g);
}

static void test_model_file(void **state)
{
    (void)state;
    kvik_generation g;
    json_t *o;
    const char *file =
        "{\"_from_model_config\": true, \"bos_token_id\": 1, \"eos_token_id\": [2, 7], \"pad_token_id\": "
        "null, \"do_sample\": true, \"num_beam_groups\": 4, \"some_future_key\": [1], \"temperature\": 0.6, "
        "\"no_repeat_ngram_size\": 3, \"transformers_version\": \"4.47.1\"}";
    assert_int_equal(json_parse(file, strlen(file), "file", &o), 0);
    gen_defaults(&g);
    assert_int_equal(gen_apply(&g, o, "generation_config.json", false), 0);
    json_decref(o);
    assert_int_equal(g.n_eos, 2);
    assert_int_equal(g.bos_token_id, 1);
    assert_true(g.temperature == 0.6 && g.do_sample);
    /* what the file wants and this version cannot do is refused until the caller gives it up */
    assert_int_equal(gen_validate(&g), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "\"num_beam_groups\":4"));
    assert_int_equal(kvik_generation_set(&g, "{\"num_beam_groups\": 1}"), 0);
    assert_int_equal(gen_validate(&g), ERR_UNSUPPORTED);
    assert_null(strstr(err_last(), "num_beam"));
    assert_int_equal(kvik_generation_set(&g, "{\"no_repeat_ngram_size\": 0}"), 0);
    assert_null(g.unmet);
    assert_int_equal(gen_validate(&g), 0);
    assert_int_equal(json_parse("{\"top_p\": 7}", 12, "file", &o), 0);
    assert_int_equal(gen_apply(&g, o, "generation_config.json", false), ERR_ARG);
    assert_non_null(strstr(err_last(), "generation_config.json: top_p"));
    json_decref(o);
    kvik_generation_done(&g);
}

static void test_validate(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    g.temperature = 0;
    assert_int_equal(gen_validate(&g), 0); /* greedy does not look at it */
    g.do_sample = true;
    assert_int_equal(gen_validate(&g), ERR_ARG);
    assert_non_null(strstr(err_last(), "do_sample=false"));
    g.temperature = 1;
    g.n_eos = KVIK_MAX_EOS + 1;
    assert_int_equal(gen_validate(&g), ERR_ARG);
    g.n_eos = 0;
    g.repetition_penalty = 0;
    assert_int_equal(gen_validate(&g), ERR_ARG);
    g.repetition_penalty = 1;
    g.cache_implementation = "paged";
    assert_int_equal(gen_validate(&g), ERR_UNSUPPORTED);
}

/* Each row of the table can be set to its own default and refuses a wrong type. */
static void test_table(void **state)
{
    (void)state;
    uint32_t n;
    const kvik_option *o = kvik_options(&n);
    assert_true(n >= 20);
    for (uint32_t i = 0; i < n; i++) {
        kvik_generation g;
        char json[256];
        gen_defaults(&g);
        assert_true(o[i].help && strlen(o[i].help) > 10 && o[i].name && o[i].type && o[i].fallback);
        assert_int_equal(option_find(o[i].name), i);
        assert_null(option_neutral_find(o[i].name));
        assert_string_equal(kvik_option_nearest(o[i].name), o[i].name);
        if (*o[i].fallback) {
            bool quoted = !strcmp(o[i].type, "string");
            snprintf(json, sizeof json, quoted ? "{\"%s\": \"%s\"}" : "{\"%s\": %s}", o[i].name,
                     o[i].fallback);
            assert_int_equal(kvik_generation_set(&g, json), 0);
        }
        snprintf(json, sizeof json, "{\"%s\": [[{}]]}", o[i].name);
        assert_int_equal(kvik_generation_set(&g, json), ERR_ARG);
        assert_non_null(strstr(err_last(), o[i].name));
        kvik_generation_done(&g);
    }
}

static void test_near(void **state)
{
    (void)state;
    assert_int_equal(near_distance("abc", "acb"), 1);
    assert_int_equal(near_distance("", "abc"), 3);
    assert_int_equal(near_distance("top-k", "TOP_K"), 0);
    assert_int_equal(near_distance("kitten", "sitting"), 3);
    assert_string_equal(kvik_option_nearest("top-pp"), "top_p");
    assert_string_equal(kvik_option_nearest("stop"), "stop_strings");
    assert_string_equal(kvik_option_nearest("eos"), "eos_token_id");
    assert_null(kvik_option_nearest("zzzzzzzzzz"));
    assert_null(kvik_option_nearest(""));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(kvik_option_nearest(longest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),   cmocka_unit_test(test_rows),
        cmocka_unit_test(test_values),     cmocka_unit_test(test_failure_changes_nothing),
        cmocka_unit_test(test_model_file), cmocka_unit_test(test_validate),
        cmocka_unit_test(test_table),      cmocka_unit_test(test_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
