/* test_beam_every.c - beam search on every architecture and under every policy, codec and tier gives the
 * same bits whatever the strategy, the prefill chunk size, and where pages are. */
#include "test_beam_cache.h"

/* --- every architecture: windows, chunks, regimes of longrope, experts; two prompts of different lengths */
static const char *const models[] = {
    "llama-yarn", "llama-dynamic", "llama-bf16", "mistral", "mixtral", "phi3",   "qwen2",
    "qwen3",      "gemma2",        "gemma3",     "llama4",  "gpt2",    "gpt-oss"};

static void every_architecture(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *more;
    } way[] = {{"dynamic", "{\"prefill_chunk_size\": 5}"},
               {"offloaded", "{}"},
               {"static", "{}"},
               {"dynamic", "{\"use_cache\": false}"}};
    int32_t text[26];
    uint32_t done = 0;
    for (int32_t i = 0; i < 26; i++)
        text[i] = 3 + i * i % 101;
    kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = text, .n = 26},
                        {.size = sizeof(kvik_prompt), .ids = ids, .n = 4}};
    for (size_t i = 0; i < countof(models); i++) {
        char path[100];
        kvik_model *m;
        kvik_result *first = NULL, *r;
        snprintf(path, sizeof path, "tests/golden/models/%s", models[i]);
        if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
        for (size_t k = 0; k < countof(way); k++) {
            kvik_cache *c = cache_of(m, (kvik_cache_config){.size = sizeof(kvik_cache_config),
                                                            .max_sequences = 6,
                                                            .max_cache_len = 64,
                                                            .cache_implementation = way[k].preset});
            kvik_generation g = config(m, "{\"num_beams\": 3, \"num_return_sequences\": 3, "
                                          "\"max_new_tokens\": 14, \"eos_token_id\": [], "
                                          "\"output_logits\": true}");
            assert_int_equal(kvik_generation_set(&g, way[k].more), 0);
            if (kvik_generate(c, &g, p, 2, NULL, &r) < 0)
                fail_msg("%s: %s", models[i], kvik_last_error());
            if (first) same_run(first, r);
            if (first)
                kvik_result_free(r);
            else
                first = r;
            kvik_generation_done(&g);
            kvik_cache_close(c);
        }
        kvik_result_free(first);
        kvik_model_close(m);
        done++;
    }
    assert_int_equal(done, countof(models));
}

/* --- every policy, codec and tier: another prefill chunk size and pages on disk must not change a
 * bit */
static void every_strategy(void **state)
{
    (void)state;
    static const char *const config_of[] = {
        "{}",
        "{\"sliding_window\": 40}",
        "{\"window_length\": 48, \"num_sink_tokens\": 4}",
        "{\"backend\": \"quanto\", \"nbits\": 4}",
        "{\"backend\": \"hqq\", \"nbits\": 8, \"axis_key\": 1, \"axis_value\": 1}",
        "{\"backend\": \"quanto\", \"nbits\": 2, \"window_length\": 48, \"num_sink_tokens\": 4}",
    };
    static const struct {
        const char *preset, *json;
    } way[] = {{NULL, "{}"}, {NULL, "{\"prefill_chunk_size\": 7}"}, {"offloaded", "{}"}};
    kvik_model *m;
    int32_t text[150];
    kvik_prompt p[2] = {{.size = sizeof(kvik_prompt), .ids = text, .n = 150},
                        {.size = sizeof(kvik_prompt), .ids = ids, .n = 4}};
    for (int32_t i = 0; i < 150; i++)
        text[i] = 3 + i * i % 101;
    assert_int_equal(kvik_model_open("tests/golden/models/llama-d64", &m), 0);
    for (size_t i = 0; i < countof(config_of); i++) {
        kvik_result *first = NULL, *r;
        for (size_t k = 0; k < countof(way); k++) {
            bool quantized = strstr(config_of[i], "backend") != NULL;
            kvik_cache_config cc = {.size = sizeof cc,
                                    .max_sequences = 6,
                                    .max_cache_len = 200,
                                    .cache_implementation =
                                        quantized && !way[k].preset ? "quantized" : way[k].preset,
                                    .cache_config = config_of[i]};
            kvik_cache *c = cache_of(m, cc);
            kvik_generation g = config(m, "{\"num_beams\": 3, \"num_return_sequences\": 3, "
                                          "\"max_new_tokens\": 20, \"eos_token_id\": [], "
                                          "\"output_logits\": true}");
            assert_int_equal(kvik_generation_set(&g, way[k].json), 0);
            if (kvik_generate(c, &g, p, 2, NULL, &r) < 0)
                fail_msg("%s %zu: %s", config_of[i], k, kvik_last_error());
            if (first) same_run(first, r);
            if (first)
                kvik_result_free(r);
            else
                first = r;
            kvik_generation_done(&g);
            kvik_cache_close(c);
        }
        kvik_result_free(first);
    }
    kvik_model_close(m);
}

/* --- a budget that ends in the middle: the search continues from disk */
static void full_goes_on(void **state)
{
    (void)state;
    kvik_model *m;
    static int32_t text[760];
    kvik_prompt p = {.size = sizeof p, .ids = text, .n = countof(text)};
    kvik_result *first = NULL, *r;
    kvik_usage u = {.size = sizeof u};
    for (uint32_t i = 0; i < countof(text); i++)
        text[i] = (int32_t)(3 + i * i % 373);
    assert_int_equal(kvik_model_open(BEAM_LONG, &m), 0);
    for (int k = 0; k < 2; k++) {
        kvik_cache_config cc = {.size = sizeof cc,
                                .max_sequences = 8,
                                .max_cache_len = 800,
                                .on_full = k ? "offload" : NULL};
        if (k) cc.cache_memory = budget_for(m, cc, u.peak_bytes * 9 / 10, 8, 800);
        kvik_cache *c = cache_of(m, cc);
        r = generate(c,
                     "{\"num_beams\": 8, \"num_return_sequences\": 8, \"max_new_tokens\": 40, "
                     "\"eos_token_id\": [], \"output_logits\": true}",
                     &p, 1);
        kvik_cache_usage(c, &u);
        if (k) {
            assert_true(u.peak_bytes <= u.budget && u.streaming);
            same_run(first, r);
            kvik_result_free(r);
        } else {
            first = r;
        }
        kvik_cache_close(c);
    }
    kvik_result_free(first);
    kvik_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_architecture),
                                       cmocka_unit_test(every_strategy),
                                       cmocka_unit_test(full_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
