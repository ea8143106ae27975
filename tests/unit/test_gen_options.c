/* test_gen_options.c - the option table: every option is usable and documented; values and ranges
 * are checked; an option of Transformers that kvik lacks is accepted at its neutral value and else
 * refused by name; the nearest name is suggested; a failed application changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
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
    assert_true(g.typical_p == 1 && g.encoder_repetition_penalty == 1 && g.guidance_scale == 1);
    assert_true(g.length_penalty == 1 && g.assistant_confidence_threshold == 0.4);
    assert_int_equal(g.num_beams, 1);
    assert_int_equal(g.num_return_sequences, 1);
    assert_int_equal(g.num_beam_groups, 1);
    assert_int_equal(g.max_matching_ngram_size, 2);
    assert_int_equal(g.num_assistant_tokens, 20);
    assert_int_equal(g.bos_token_id, -1);
    assert_int_equal(g.forced_bos_token_id, -1);
    assert_int_equal(g.early_stopping, KVIK_EARLY_FALSE);
    assert_null(g.num_assistant_tokens_schedule);
    assert_null(g.cache_implementation);
    assert_int_equal(g.pad_token_id, -1);
    assert_int_equal(g.n_eos, 0);
    assert_int_equal(gen_validate(&g), 0);
    kvik_generation_done(&g);
}

static const struct {
    const char *json;
    int code;
    const char *says; /* a part of the error message */
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
    {"{\"cache_implementation\": \"paged\"}", ERR_UNSUPPORTED, "paged"},
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
    {"{\"num_beam_groups\": 4, \"diversity_penalty\": 1, \"penalty_alpha\": 0.6}", 0, ""},
    {"{\"penalty_alpha\": 1.5}", ERR_ARG, "penalty_alpha must be a number from 0 to 1, not 1.5"},
    {"{\"typical_p\": 0}", ERR_ARG, "typical_p must be a number from 1e-06 to 1, not 0"},
    {"{\"top_h\": 0.4, \"epsilon_cutoff\": 3e-4, \"eta-cutoff\": 0.001}", 0, ""},
    {"{\"top_h\": 2}", ERR_ARG, "top_h must be a number from 0 to 1"},
    {"{\"bad_words_ids\": []}", 0, ""},
    {"{\"bad_words_ids\": [[3], [4, 5]]}", 0, ""},
    {"{\"bad_words_ids\": [3]}", ERR_ARG, "bad_words_ids must be a list of lists of token ids"},
    {"{\"bad_words_ids\": [[]]}", ERR_ARG, "none empty"},
    {"{\"bad_words_ids\": [[-1]]}", ERR_ARG, "bad_words_ids"},
    {"{\"bad_words_ids\": {}}", ERR_ARG, "bad_words_ids"},
    {"{\"sequence_bias\": [[[3], -2], [[4, 5], 1.5]]}", 0, ""},
    {"{\"sequence_bias\": {\"(3,)\": -2.0, \"[4, 5]\": 1.5, \"7, 8\": 0}}", 0, ""},
    {"{\"sequence_bias\": []}", 0, ""},
    {"{\"sequence_bias\": {\"a\": 1}}", ERR_ARG, "sequence_bias must be"},
    {"{\"sequence_bias\": {\"\": 1}}", ERR_ARG, "sequence_bias must be"},
    {"{\"sequence_bias\": {\"3], [4\": 1}}", ERR_ARG, "sequence_bias must be"},
    {"{\"sequence_bias\": {\"[[3]]\": 1}}", ERR_ARG, "sequence_bias must be"},
    {"{\"sequence_bias\": [[[3], \"x\"]]}", ERR_ARG, "sequence_bias must be"},
    {"{\"sequence_bias\": [[[3], 1, 2]]}", ERR_ARG, "sequence_bias must be"},
    {"{\"sequence_bias\": [[3, 1.0]]}", ERR_ARG, "sequence_bias must be"},
    {"{\"sequence_bias\": 3}", ERR_ARG, "sequence_bias must be"},
    {"{\"suppress_tokens\": [1, -1, 2], \"begin_suppress_tokens\": 7}", 0, ""},
    {"{\"suppress_tokens\": [1.5]}", ERR_ARG, "suppress_tokens must be a token id or a list"},
    {"{\"forced_bos_token_id\": -2}", ERR_ARG, "forced_bos_token_id"},
    {"{\"forced_eos_token_id\": [2, 3]}", 0, ""},
    {"{\"exponential_decay_length_penalty\": [4, 1.6]}", 0, ""},
    {"{\"exponential_decay_length_penalty\": [4]}", ERR_ARG, "[START, FACTOR]"},
    {"{\"exponential_decay_length_penalty\": [-4, 1.6]}", ERR_ARG, "[START, FACTOR]"},
    {"{\"exponential_decay_length_penalty\": [4, 0]}", ERR_ARG, "a factor above 0"},
    {"{\"guidance_scale\": 1.5, \"negative_prompt_ids\": [[3, 4]]}", 0, ""},
    {"{\"negative_prompt_ids\": [3, -1]}", ERR_ARG, "negative_prompt_ids"},
    {"{\"negative_prompt_attention_mask\": [1]}", ERR_ARG, "needs negative_prompt_ids"},
    {"{\"negative_prompt_ids\": [3, 4], \"negative_prompt_attention_mask\": [1]}", ERR_ARG,
     "has 1 numbers for 2 tokens"},
    {"{\"negative_prompt_ids\": [3, 4], \"negative_prompt_attention_mask\": [0, 0]}", ERR_ARG,
     "hides every token"},
    {"{\"negative_prompt_ids\": [3, 4], \"negative_prompt_attention_mask\": [0, 2]}", ERR_ARG,
     "zeros and ones"},
    {"{\"max_time\": 0.5, \"renormalize_logits\": true, \"remove_invalid_values\": true}", 0, ""},
    {"{\"max_time\": -1}", ERR_ARG, "max_time must be a number from 0"},
    {"{\"num_assistant_tokens_schedule\": \"heuristic_transient\"}", 0, ""},
    {"{\"num_assistant_tokens_schedule\": \"heuristics\"}", ERR_ARG, "did you mean \"heuristic\"?"},
    {"{\"num_assistant_tokens_schedule\": \"\"}", ERR_ARG, "one of constant|heuristic"},
    {"{\"num_assistant_tokens\": 0}", ERR_ARG, "num_assistant_tokens must be an integer from 1"},
    {"{\"return_dict_in_generate\": true, \"disable_compile\": true, \"compile_config\": {}}", 0,
     ""},
    {"{\"compile_config\": [1]}", ERR_ARG, "compile_config must be a JSON object"},
    {"{\"cache_config\": {\"backend\": \"HQQ\", \"q-group-size\": 64}}", 0, ""},
    {"{\"cache_config\": {\"backend\": \"hqqq\"}}", ERR_ARG, "did you mean \"hqq\"?"},
    {"{\"force_words_ids\": [[3]]}", ERR_UNSUPPORTED, "force_words_ids=[[3]]"},
    {"{\"constraints\": [1]}", ERR_UNSUPPORTED, "leave it out"},
    {"{\"dola_layers\": \"high\"}", ERR_UNSUPPORTED, "leave it out"},
    {"{\"token-healing\": true}", ERR_UNSUPPORTED, "only false works"},
    {"{\"use_mtp\": true}", ERR_UNSUPPORTED, "only false works"},
    {"{\"watermarking_config\": {}}", ERR_UNSUPPORTED, "leave it out"},
    {"{\"custom_generate\": \"a/b\"}", ERR_UNSUPPORTED, "leave it out"},
    {"{\"assistant_early_exit\": 3}", ERR_UNSUPPORTED, "leave it out"},
    {"{\"output_attentions\": true}", ERR_UNSUPPORTED, "only false works"},
    {"{\"output_attentions\": false, \"dola_layers\": null, \"low_memory\": true}", 0, ""},
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
    /* A second application keeps the options that it does not name. */
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
    const char *set =
        "{\"stop_strings\": [\"x\"], \"cache_implementation\": \"static\", "
        "\"cache_config\": {\"max_cache_len\": 5}, \"top_k\": 3, \"bad_words_ids\": [[1, 2]], "
        "\"sequence_bias\": [[[1], 2]], \"suppress_tokens\": [1], \"negative_prompt_ids\": [5]}";
    assert_int_equal(kvik_generation_set(&g, set), 0);
    kvik_generation before = g;
    assert_true(kvik_generation_set(
                    &g, "{\"stop_strings\": [\"y\"], \"cache_implementation\": \"dynamic\", "
                        "\"cache_config\": {}, \"top_k\": 4, \"bad_words_ids\": [], "
                        "\"sequence_bias\": [[[1], 3], [[1], 4]], \"suppress_tokens\": [], "
                        "\"negative_prompt_ids\": [6], \"negative_prompt_attention_mask\": [1], "
                        "\"eos_token_id\": 1, \"bogus\": 1}") < 0);
    assert_memory_equal(&g, &before, sizeof g);
    assert_string_equal(g.stop_strings[0], "x");
    const char *next = "{\"stop_strings\": [\"y\", \"z\"], \"cache_implementation\": \"dynamic\", "
                       "\"cache_config\": {\"sliding_window\": 5}, \"compile_config\": {}, "
                       "\"bad_words_ids\": [[3], [4, 5]], \"sequence_bias\": {\"3, 4\": 1}, "
                       "\"suppress_tokens\": [7], \"begin_suppress_tokens\": [8], "
                       "\"negative_prompt_ids\": [6, 7], "
                       "\"negative_prompt_attention_mask\": [0, 1], "
                       "\"num_assistant_tokens_schedule\": \"heuristic\"}";
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
    assert_true(failures >= 15);
    assert_string_equal(g.stop_strings[1], "z");
    assert_int_equal(g.n_negative_prompt_ids, 1);
    assert_int_equal(g.negative_prompt_ids[0], 7);
    kvik_generation_done(&g);
}

static void test_model_file(void **state)
{
    (void)state;
    kvik_generation g;
    json_t *o;
    const char *file =
        "{\"_from_model_config\": true, \"bos_token_id\": 1, \"eos_token_id\": [2, 7], \"pad_token_id\": "
        "null, \"do_sample\": true, \"token_healing\": true, \"some_future_key\": [1], \"temperature\": 0.6, "
        "\"dola_layers\": \"low\", \"transformers_version\": \"4.47.1\"}";
    assert_int_equal(json_parse(file, strlen(file), "file", &o), 0);
    gen_defaults(&g);
    assert_int_equal(gen_apply(&g, o, "generation_config.json", false), 0);
    json_decref(o);
    assert_int_equal(g.n_eos, 2);
    assert_int_equal(g.bos_token_id, 1);
    assert_true(g.temperature == 0.6 && g.do_sample);
    /* An option of the file that this version does not support is refused until the caller resets
     * it. */
    assert_int_equal(gen_validate(&g), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "\"token_healing\":true"));
    assert_int_equal(kvik_generation_set(&g, "{\"token_healing\": false}"), 0);
    assert_int_equal(gen_validate(&g), ERR_UNSUPPORTED);
    assert_null(strstr(err_last(), "token_healing"));
    assert_int_equal(kvik_generation_set(&g, "{\"dola_layers\": null}"), 0);
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
    assert_int_equal(gen_validate(&g), 0); /* greedy decoding ignores the option */
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

static const struct {
    const char *json;
    int code;
    enum gen_mode mode;
    const char *says;
} whole[] = {
    {"{}", 0, GEN_GREEDY, ""},
    {"{\"do_sample\": true, \"penalty_alpha\": 0.6}", 0, GEN_SAMPLE, ""},
    {"{\"penalty_alpha\": 0.6}", 0, GEN_CONTRASTIVE, ""},
    {"{\"penalty_alpha\": 0.6, \"num_beams\": 2}", 0, GEN_BEAM, ""},
    {"{\"num_beams\": 2, \"do_sample\": true}", 0, GEN_BEAM_SAMPLE, ""},
    {"{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 1}", 0, GEN_GROUP_BEAM, ""},
    {"{\"num_beams\": 40, \"num_beam_groups\": 40, \"diversity_penalty\": 1, "
     "\"num_return_sequences\": 40}",
     0, GEN_GROUP_BEAM, ""},
    {"{\"num_beams\": 5, \"num_beam_groups\": 2, \"diversity_penalty\": 1}", ERR_ARG, GEN_GREEDY,
     "num_beams is 5, which cannot be divided into 2 groups"},
    {"{\"num_beam_groups\": 2, \"diversity_penalty\": 1}", ERR_ARG, GEN_GREEDY, "a multiple"},
    {"{\"num_beams\": 4, \"num_beam_groups\": 2}", ERR_ARG, GEN_GREEDY,
     "needs a diversity_penalty above 0"},
    {"{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 1, \"do_sample\": true}",
     ERR_ARG, GEN_GREEDY, "do_sample"},
    {"{\"num_beams\": 2, \"num_return_sequences\": 3}", ERR_ARG, GEN_GREEDY, "more than num_beams"},
    {"{\"num_return_sequences\": 3}", ERR_ARG, GEN_GREEDY, "greedy decoding"},
    {"{\"num_return_sequences\": 3, \"do_sample\": true}", 0, GEN_SAMPLE, ""},
    {"{\"penalty_alpha\": 0.6, \"top_k\": 1}", ERR_ARG, GEN_GREEDY, "top_k is 1"},
    {"{\"forced_eos_token_id\": [3, 4], \"suppress_tokens\": [4, 3]}", ERR_ARG, GEN_GREEDY,
     "every forced_eos_token_id is in suppress_tokens"},
    {"{\"forced_eos_token_id\": [3, 4], \"suppress_tokens\": [4]}", 0, GEN_GREEDY, ""},
    {"{\"forced_bos_token_id\": 3, \"suppress_tokens\": [3]}", ERR_ARG, GEN_GREEDY,
     "forced_bos_token_id 3 is in"},
    {"{\"min_new_tokens\": 50, \"max_new_tokens\": 5}", 0, GEN_GREEDY, ""},
    {"{\"temperature\": 0, \"do_sample\": true}", ERR_ARG, GEN_GREEDY, "do_sample=false"},
};

static void test_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(whole); i++) {
        kvik_generation g;
        gen_defaults(&g);
        assert_int_equal(kvik_generation_set(&g, whole[i].json), 0);
        int e = gen_validate(&g);
        if (e != whole[i].code || (e && !strstr(err_last(), whole[i].says)))
            fail_msg("%s: code %d, \"%s\"; want %d, \"%s\"", whole[i].json, e, err_last(),
                     whole[i].code, whole[i].says);
        if (!e && gen_mode(&g) != whole[i].mode)
            fail_msg("%s: mode %d, want %d", whole[i].json, gen_mode(&g), whole[i].mode);
        kvik_generation_done(&g);
    }
}

/* Errors that a struct filled in by hand can have and an option cannot. */
static void test_by_hand(void **state)
{
    (void)state;
    kvik_generation g;
    kvik_bias bias = {.ids = (int32_t[]){-4}, .n = 1, .bias = 1};
    gen_defaults(&g);
    assert_false(gen_assisted(&g, false));
    assert_true(gen_assisted(&g, true));
    g.prompt_lookup_num_tokens = 3;
    assert_true(gen_assisted(&g, false));
    g.num_beams = 2;
    assert_false(gen_assisted(&g, true));
#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        gen_defaults(&g);                                                                          \
        g.field = value;                                                                           \
        assert_int_equal(gen_validate(&g), ERR_ARG);                                               \
    } while (0)
    REFUSED(typical_p, 0);
    REFUSED(top_p, NAN);
    REFUSED(length_penalty, INFINITY);
    REFUSED(decay_factor, -1);
    REFUSED(num_beam_groups, 0);
    REFUSED(num_beams, 0);
    REFUSED(num_assistant_tokens, 0);
    REFUSED(n_suppress_tokens, 1);
    REFUSED(n_sequence_bias, 1);
    REFUSED(n_bad_words_ids, 1);
    REFUSED(n_negative_prompt_ids, 1);
    REFUSED(n_forced_eos, KVIK_MAX_EOS + 1);
    gen_defaults(&g);
    g.bad_words_ids = &bias;
    g.n_bad_words_ids = 1;
    assert_int_equal(gen_validate(&g), ERR_ARG);
    bias.ids[0] = 4;
    assert_int_equal(gen_validate(&g), 0);
    bias.n = 0;
    assert_int_equal(gen_validate(&g), ERR_ARG);
}

static void test_owned_values(void **state)
{
    (void)state;
    kvik_generation g;
    gen_defaults(&g);
    assert_int_equal(kvik_generation_set(
                         &g,
                         "{\"sequence_bias\": {\"(3,)\": -2.0, \"[4, 5]\": 1.5, \"3\": 7}, "
                         "\"bad_words_ids\": [[9, 8], [7]], \"suppress_tokens\": 5, "
                         "\"exponential_decay_length_penalty\": [4, 1.5], "
                         "\"forced_eos_token_id\": [6, 7], \"negative_prompt_ids\": [[1, 2, 3]], "
                         "\"negative_prompt_attention_mask\": [[0, 1, 1]]}"),
                     0);
    assert_int_equal(g.n_sequence_bias, 2); /* the same sequence twice: the last value counts */
    assert_true(g.sequence_bias[0].n == 1 && g.sequence_bias[0].bias == 7);
    assert_true(g.sequence_bias[1].n == 2 && g.sequence_bias[1].ids[1] == 5);
    assert_true(g.sequence_bias[1].bias == 1.5);
    assert_int_equal(g.n_bad_words_ids, 2);
    assert_int_equal(g.bad_words_ids[0].ids[1], 8);
    assert_int_equal(g.n_suppress_tokens, 1);
    assert_true(g.decay_start == 4 && g.decay_factor == 1.5);
    assert_true(g.n_forced_eos == 2 && g.forced_eos_token_id[1] == 7 && g.n_eos == 0);
    assert_int_equal(g.n_negative_prompt_ids, 2);
    assert_int_equal(g.negative_prompt_ids[0], 2);
    assert_int_equal(kvik_generation_set(&g, "{\"sequence_bias\": [], \"suppress_tokens\": []}"),
                     0);
    assert_true(!g.sequence_bias && !g.n_sequence_bias && !g.suppress_tokens);
    assert_int_equal(g.n_bad_words_ids, 2);
    kvik_generation_done(&g);
    assert_true(!g.bad_words_ids && !g.negative_prompt_ids && g.forced_bos_token_id == -1);
}

/* Every option of the table can be set to its own default and refuses a wrong type. */
static void test_table(void **state)
{
    (void)state;
    const kvik_option *o;
    uint32_t n = 0;
    for (; (o = kvik_option_at(n)); n++) {
        kvik_generation g;
        char json[256];
        gen_defaults(&g);
        assert_true(o->group && *o->group);
        assert_true(o->help && strlen(o->help) > 10 && o->name && o->type && o->fallback);
        assert_int_equal(option_find(o->name), n);
        assert_null(option_neutral_find(o->name));
        assert_string_equal(kvik_option_nearest(o->name), o->name);
        static const char *const numbers[] = {"bool", "uint", "int", "float"};
        double value = -7;
        bool number = false;
        for (size_t i = 0; i < countof(numbers); i++)
            number |= !strcmp(o->type, numbers[i]);
        assert_int_equal(kvik_generation_number(&g, o->name, &value), number ? 0 : ERR_ARG);
        if (!number)
            assert_true(value == -7);
        else if (!strcmp(o->type, "bool"))
            assert_true(value == !strcmp(o->fallback, "true"));
        else
            assert_true(value == strtod(o->fallback, NULL));
        if (*o->fallback) {
            bool quoted = !strcmp(o->type, "string");
            snprintf(json, sizeof json, quoted ? "{\"%s\": \"%s\"}" : "{\"%s\": %s}", o->name,
                     o->fallback);
            assert_int_equal(kvik_generation_set(&g, json), 0);
        }
        snprintf(json, sizeof json, "{\"%s\": [[{}]]}", o->name);
        assert_int_equal(kvik_generation_set(&g, json), ERR_ARG);
        assert_non_null(strstr(err_last(), o->name));
        kvik_generation_done(&g);
    }
    assert_true(n >= 20);
    kvik_generation g;
    double value = 0;
    gen_defaults(&g);
    assert_int_equal(
        kvik_generation_set(&g, "{\"seed\": 77, \"top_h\": 0.25, \"pad_token_id\": 3}"), 0);
    assert_true(!kvik_generation_number(&g, "seed", &value) && value == 77);
    assert_true(!kvik_generation_number(&g, "top_h", &value) && value == 0.25);
    assert_true(!kvik_generation_number(&g, "pad_token_id", &value) && value == 3);
    assert_int_equal(kvik_generation_number(&g, "nothing", &value), ERR_ARG);
    kvik_generation_done(&g);
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
        cmocka_unit_test(test_defaults),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_values),       cmocka_unit_test(test_failure_changes_nothing),
        cmocka_unit_test(test_model_file),   cmocka_unit_test(test_validate),
        cmocka_unit_test(test_whole),        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_owned_values), cmocka_unit_test(test_table),
        cmocka_unit_test(test_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
