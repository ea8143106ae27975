/* test_encoded.c - hidden states and attentions of encoders against those of Transformers for the same models
 * (tests/fixtures/make_encoders.py): whatever the cache holds, and nothing is kept. */
#include "fmt/fmt.h"
#include "generate/handle.h"
#include "kvik_compat.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS = 6, MASKS = 3 };
static const int32_t ids[IDS] = {5, 6, 7, 8, 9, 2};
static const uint8_t masks[MASKS][IDS] = {
    {1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 0, 0}, {0, 0, 1, 1, 1, 1}};
static const char *const models[] = {"t5", "bart", "mbart", "whisper"};
static struct safetensors *file;
static kvik_model *model;
static kvik_cache *cache;

static void need(int e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
}

static void refused(int e, int code, const char *says)
{
    if (e != code || !strstr(kvik_last_error(), says))
        fail_msg("%d, \"%s\": \"%s\" is expected", e, kvik_last_error(), says);
}

static void open_model(const char *name, const char *cross)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    need(kvik_model_open(path, &model));
    kvik_cache_config config = {.size = sizeof config,
                                .compute = "exact",
                                .threads = 2,
                                .max_sequences = 2,
                                .cross_cache_implementation = cross};
    need(kvik_cache_open(model, &config, &cache));
}

static void close_model(void)
{
    kvik_cache_close(cache);
    kvik_model_close(model);
}

/* Input i of the model. */
static kvik_source source(int i)
{
    kvik_encoder e = {.size = sizeof e};
    kvik_source s = {.size = sizeof s, .ids = ids, .n = IDS, .attention_mask = masks[i]};
    need(kvik_model_encoder(model, &e));
    if (!e.bins) return s;
    static float features[1 << 14];
    size_t n = (size_t)e.bins * e.rows * e.stride;
    assert_true(n <= sizeof features / sizeof *features);
    for (size_t k = 0; k < n; k++)
        features[k] = (float)(k * 37 % 200) / 100.0f - 1.0f;
    return (kvik_source){
        .size = sizeof s, .features = features, .n_frames = (size_t)e.rows * e.stride};
}

static void near(const char *name, int i, const char *what, const float *got, size_t n)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%d.%s", name, i, what);
    const struct tensor *t = safetensors_find(file, key);
    if (!t || t->bytes != n * sizeof *got) fail_msg("%s: the reference has another size", key);
    float *want = malloc(t->bytes), worst = 0;
    memcpy(want, t->data, t->bytes);
    for (size_t k = 0; k < n; k++)
        worst = fmaxf(worst, isfinite(got[k]) ? fabsf(want[k] - got[k]) : INFINITY);
    free(want);
    if (!(worst < 2e-5f)) fail_msg("%s: differs by %g", key, (double)worst);
}

/* Runs the encoder into new arrays; free both. */
static kvik_encoded encoded(const kvik_source *in)
{
    kvik_encoded out = {.size = sizeof out};
    need(kvik_encoder_forward(cache, in, &out));
    size_t n = (size_t)(out.layers + 1) * out.rows * out.hidden,
           w = (size_t)out.layers * out.heads * out.rows * out.rows;
    out.hidden_states = calloc(n, sizeof(float));
    out.attentions = calloc(w, sizeof(float));
    need(kvik_encoder_forward(cache, in, &out));
    return out;
}

static void done(const kvik_encoded *e)
{
    free(e->hidden_states);
    free(e->attentions);
}

static void test_reference(void **state)
{
    (void)state;
    for (size_t k = 0; k < countof(models); k++) {
        open_model(models[k], NULL);
        for (int i = 0; i < (strcmp(models[k], "whisper") ? MASKS : 1); i++) {
            kvik_source in = source(i);
            kvik_encoded e = encoded(&in);
            near(models[k], i, "hidden", e.hidden_states,
                 (size_t)(e.layers + 1) * e.rows * e.hidden);
            near(models[k], i, "attentions", e.attentions,
                 (size_t)e.layers * e.heads * e.rows * e.rows);
            done(&e);
        }
        close_model();
    }
}

/* A sequence has the same rows whether the encoder was shown before or after, and the cache holds nothing more. */
static void test_nothing_kept(void **state)
{
    static const char *const cross[] = {NULL, "static", "offloaded"};
    (void)state;
    for (size_t k = 0; k < countof(models); k++)
        for (size_t c = 0; c < countof(cross); c++) {
            open_model(models[k], cross[c]);
            kvik_usage before = {.size = sizeof before}, after = before;
            kvik_source in = source(0);
            kvik_seq s, t;
            need(kvik_cache_usage(cache, &before));
            kvik_encoded one = encoded(&in);
            need(kvik_cache_usage(cache, &after));
            assert_int_equal(after.live, before.live);
            assert_int_equal(after.index, before.index);
            assert_int_equal(after.tokens, before.tokens);
            need(kvik_cache_new(cache, &s));
            need(kvik_cache_encode(cache, s, &in));
            kvik_span span = {.size = sizeof span, .seq = s, .ids = (int32_t[]){0, 3}, .n = 2};
            uint32_t vocab = kvik_model_vocab(model);
            float *logits = calloc(vocab, sizeof *logits), *again = calloc(vocab, sizeof *again);
            need(kvik_forward(cache, &span, 1, false, logits));
            kvik_encoded two = encoded(&in); /* the rows are in the cache now */
            need(kvik_cache_new(cache, &t));
            need(kvik_cache_encode(cache, t, &in));
            span.seq = t;
            need(kvik_forward(cache, &span, 1, false, again));
            assert_memory_equal(logits, again, vocab * sizeof *logits);
            assert_memory_equal(one.hidden_states, two.hidden_states,
                                (size_t)(one.layers + 1) * one.rows * one.hidden * sizeof(float));
            assert_memory_equal(one.attentions, two.attentions,
                                (size_t)one.layers * one.heads * one.rows * one.rows *
                                    sizeof(float));
            done(&one);
            done(&two);
            free(logits);
            free(again);
            close_model();
        }
}

static void test_refused(void **state)
{
    (void)state;
    open_model("t5", NULL);
    kvik_source in = source(0);
    kvik_encoded out = {.size = sizeof out};
    refused(kvik_encoder_forward(cache, NULL, &out), KVIK_ARG, "needed");
    refused(kvik_encoder_forward(cache, &in, NULL), KVIK_ARG, "needed");
    in.attention_mask = (uint8_t[]){1, 0, 1, 1, 1, 1};
    refused(kvik_encoder_forward(cache, &in, &out), KVIK_UNSUPPORTED, "hides column 1");
    in.attention_mask = (uint8_t[]){0, 0, 0, 0, 0, 0};
    refused(kvik_encoder_forward(cache, &in, &out), KVIK_ARG, "hides every token");
    in.attention_mask = NULL;
    in.ids = (int32_t[]){5, 6, 7, 8, 9, 1 << 30};
    refused(kvik_encoder_forward(cache, &in, &out), KVIK_ARG, "outside the vocabulary");
    close_model();
    open_model("llama-mha", NULL);
    in = (kvik_source){.size = sizeof in, .ids = ids, .n = IDS};
    refused(kvik_encoder_forward(cache, &in, &out), KVIK_ARG, "has no encoder");
    assert_int_equal(out.rows, 0);
    close_model();
}

static int start(void **state)
{
    (void)state;
    return safetensors_open("tests/fixtures/encoders.safetensors", &file);
}

static int stop(void **state)
{
    (void)state;
    safetensors_close(file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_nothing_kept),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, start, stop);
}
