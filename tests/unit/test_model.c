/* test_model.c - wrong configurations and tensors: each gives one clear error before anything is
 * computed. The tests copy a tiny real checkpoint and change one thing. */
#include "base/base.h"
#include "base/file.h"
#include "kvik.h"
#include "testing.h"

#include <sys/stat.h>

#define TINY "tests/golden/models/llama-gqa-l3"

static char dir[64] = "/tmp/kvik-model-XXXXXX", path[160];

static void put(const char *name, const char *data, size_t n)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(file_write(path, data, n), 0);
}

/* Makes the tiny model with `from` in config.json replaced by `to`. */
static void with_config(const char *from, const char *to)
{
    char *text, *at;
    size_t n;
    assert_int_equal(file_read(TINY "/config.json", 1 << 20, &text, &n), 0);
    at = strstr(text, from);
    if (!at) fail_msg("the configuration has no %s", from);
    char *out = malloc(n + strlen(to) + 1);
    size_t head = (size_t)(at - text);
    int k = sprintf(out, "%.*s%s%s", (int)head, text, to, at + strlen(from));
    put("config.json", out, (size_t)k);
    free(out);
    mem_free(text);
}

static void refused(const char *from, const char *to, const char *word)
{
    kvik_model *m = NULL;
    with_config(from, to);
    int e = kvik_model_open(dir, &m);
    if (e >= 0) fail_msg("%s: accepted", to);
    if (!strstr(kvik_last_error(), word))
        fail_msg("%s: \"%s\" does not say \"%s\"", to, kvik_last_error(), word);
    assert_null(m);
}

/* class: #25821 #26051 - hyperparameters out of range; class: CVE-2025-0317 - divisors of zero */
static void hyperparameters(void **state)
{
    (void)state;
    refused("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 513", "num_hidden_layers");
    refused("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 0", "num_hidden_layers");
    refused("\"num_hidden_layers\": 3", "\"num_hidden_layers\": -1", "num_hidden_layers");
    refused("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4294967299", "num_hidden_layers");
    refused("\"num_hidden_layers\": 3", "\"num_hidden_layers\": \"3\"", "num_hidden_layers");
    refused("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2.5", "num_hidden_layers");
    refused("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4", "model.layers.3");
    refused("\"num_hidden_layers\": 3,", "", "num_hidden_layers");
    refused("\"num_attention_heads\": 6", "\"num_attention_heads\": 0", "num_attention_heads");
    refused("\"num_attention_heads\": 6", "\"num_attention_heads\": 7", "multiple");
    refused("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 0", "num_key_value_heads");
    refused("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "k_proj");
    refused("\"head_dim\": 16", "\"head_dim\": 0", "head_dim");
    refused("\"head_dim\": 16", "\"head_dim\": 14", "q_proj");
    refused("\"hidden_size\": 48", "\"hidden_size\": 49", "embed_tokens");
    refused("\"intermediate_size\": 80", "\"intermediate_size\": 81", "gate_proj");
    refused("\"vocab_size\": 384", "\"vocab_size\": 385", "embed_tokens");
    refused("\"max_position_embeddings\": 512", "\"max_position_embeddings\": 0", "max_position");
    refused("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": -1", "rms_norm_eps");
    refused("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": \"x\"", "rms_norm_eps");
    refused("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "gelu");
    refused("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", "lm_head");
    refused("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1", "tie_word");
    refused("\"model_type\": \"llama\"", "\"model_type\": \"gpt5\"", "gpt5");
    refused("\"model_type\": \"llama\"", "\"model_type\": 7", "model_type");
}

static void rope(void **state)
{
    (void)state;
    refused("\"rope_type\": \"llama3\"", "\"rope_type\": \"longrope\"", "longrope");
    refused("\"factor\": 32.0", "\"factor\": 0", "factor");
    refused("\"factor\": 32.0,", "", "factor");
    refused("\"factor\": 32.0", "\"factor\": -2", "factor");
    refused("\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0", "high_freq_factor");
    refused("\"rope_theta\": 500000.0", "\"rope_theta\": 0", "rope_theta");
    refused("\"original_max_position_embeddings\": 64", "\"original_max_position_embeddings\": 0",
            "original_max");
}

static void broken_text(void **state)
{
    (void)state;
    refused("{", "[", "config");
    refused("\"vocab_size\": 384", "\"vocab_size\": 384, \"vocab_size\": 384", "config.json");
}

static void unchanged_opens(void **state)
{
    (void)state;
    kvik_model *m;
    with_config("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 3");
    if (kvik_model_open(dir, &m) < 0) fail_msg("%s", kvik_last_error());
    kvik_model_close(m);
}

/* Every allocation of opening a model and a cache fails once; each failure is an error, and nothing
 * leaks. */
static void allocation_failures(void **state)
{
    (void)state;
    int64_t k;
    with_config("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 3");
    for (k = 0; k < 5000; k++) {
        kvik_model *m = NULL;
        kvik_cache *c = NULL;
        kvik_seq s;
        int32_t ids[] = {1, 2, 3};
        mem_fail_at(k, false);
        int e = kvik_model_open(dir, &m);
        if (e >= 0)
            e = kvik_cache_open(
                m, &(kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 2}, &c);
        if (e >= 0) e = kvik_cache_new(c, &s);
        kvik_span span = {.size = sizeof span, .seq = s, .ids = ids, .n = 3};
        if (e >= 0) e = kvik_forward(c, &span, 1, false, NULL);
        mem_fail_at(-1, false);
        kvik_cache_close(c);
        kvik_model_close(m);
        if (e >= 0) break;
        if (e != KVIK_NOMEM) fail_msg("allocation %lld: %s", (long long)k, kvik_last_error());
    }
    printf("  %lld allocations failed one by one\n", (long long)k);
    assert_true(k > 10 && k < 5000);
}

static int begin(void **state)
{
    (void)state;
    char *data;
    size_t n;
    if (!mkdtemp(dir)) return -1;
    if (file_read(TINY "/model.safetensors", 64 << 20, &data, &n) < 0) return -1;
    put("model.safetensors", data, n);
    mem_free(data);
    return 0;
}

static int end(void **state)
{
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < countof(files); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unchanged_opens),
        cmocka_unit_test(hyperparameters),
        cmocka_unit_test(rope),
        cmocka_unit_test(broken_text),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
