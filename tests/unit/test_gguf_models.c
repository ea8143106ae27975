/* test_gguf_models.c - a model is the same from GGUF and from safetensors: logits within 1e-4.  The .gguf files are
 * made from the golden models next to them by tests/fixtures/convert_gguf.py; their weights are the same f32 numbers,
 * stored under other names, in another order of rotary pairs, norms with 1 added. */
#include "base/base.h"
#include "kvik.h"
#include "testing.h"

#include <math.h>

enum { STEPS = 6, PROMPT = 120 };

static const struct {
    const char *hf, *gguf;
} pairs[] = {
    {"tests/golden/models/mistral", "tests/golden/models/mistral.gguf"},
    {"tests/golden/models/qwen2", "tests/golden/models/qwen2.gguf"},
    {"tests/golden/models/qwen3", "tests/golden/models/qwen3.gguf"},
    {"tests/golden/models/gemma2", "tests/golden/models/gemma2.gguf"},
    {"tests/golden/models/gemma3", "tests/golden/models/gemma3.gguf"},
    {"tests/golden/models/gpt2", "tests/golden/models/gpt2.gguf"},
    {"tests/golden/models/phi3", "tests/golden/models/phi3.gguf"},
};
static const uint32_t depths[] = {1, 9, 40, PROMPT}; /* windows of these models: 8 to 12 */

/* Logits of all rows and steps, [STEPS][rows][vocab]; the caller frees the result. */
static kvik_result *run(const char *path, uint32_t *vocab)
{
    static int32_t ids[countof(depths)][PROMPT];
    kvik_prompt p[countof(depths)];
    kvik_generation g;
    kvik_model *m;
    kvik_cache *c;
    kvik_result *r;
    if (kvik_model_open(path, &m) < 0) fail_msg("%s", kvik_last_error());
    *vocab = kvik_model_vocab(m);
    uint32_t seed = 5;
    for (uint32_t i = 0; i < countof(depths); i++) {
        for (uint32_t j = 0; j < depths[i]; j++) {
            seed = seed * 1664525u + 1013904223u;
            ids[i][j] = (int32_t)(3 + (seed >> 8) % (*vocab - 3));
        }
        p[i] = (kvik_prompt){.ids = ids[i], .n = depths[i]};
    }
    assert_int_equal(kvik_generation_init(&g, NULL), 0);
    g.max_new_tokens = STEPS;
    g.n_eos = 0;
    g.output_logits = true;
    kvik_cache_config config = {.max_sequences = countof(depths), .compute = "exact"};
    if (kvik_cache_open(m, &config, &c) < 0 ||
        kvik_generate(c, &g, p, countof(depths), NULL, &r) < 0)
        fail_msg("%s: %s", path, kvik_last_error());
    kvik_cache_close(c);
    kvik_generation_done(&g);
    kvik_model_close(m);
    return r;
}

static void same_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(pairs); i++) {
        uint32_t vocab, other;
        kvik_result *a = run(pairs[i].hf, &vocab), *b = run(pairs[i].gguf, &other);
        assert_int_equal(vocab, other);
        double worst = 0, size = 0;
        for (size_t k = 0; k < (size_t)STEPS * countof(depths) * vocab; k++) {
            double d = fabs((double)a->logits[k] - (double)b->logits[k]);
            if (!(d <= 1e-4 * fmax(1, fabs((double)a->logits[k]))))
                fail_msg("%s: logit %zu is %.9g, from safetensors %.9g", pairs[i].gguf, k,
                         (double)b->logits[k], (double)a->logits[k]);
            worst = fmax(worst, d);
            size = fmax(size, fabs((double)a->logits[k]));
        }
        assert_true(size > 0.1);
        printf("%s: largest difference %.3g of logits up to %.3g\n", pairs[i].gguf, worst, size);
        kvik_result_free(a);
        kvik_result_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
