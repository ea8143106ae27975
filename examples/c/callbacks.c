/* callbacks.c - processors and stopping criteria of your own: the more often a token occurred, the lower its score; the text
 * ends with its third full stop.
 *     callbacks MODEL [TEXT] */
#include <kvik.h>
#include <stdio.h>
#include <string.h>

static bool dearer(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                   uint32_t vocab)
{
    (void)ctx, (void)row;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && (uint32_t)ids[i] < vocab) scores[ids[i]] -= 0.5f;
    return true;
}

static bool three_sentences(void *ctx, uint32_t row, const int32_t *ids, size_t n)
{
    const int32_t *stop = ctx;
    int found = 0;
    (void)row;
    for (size_t i = 0; i < n; i++)
        found += ids[i] == *stop;
    return found >= 3;
}

int main(int argc, char **argv)
{
    kvik_model *model = NULL;
    kvik_cache *cache = NULL;
    kvik_result *result = NULL;
    kvik_generation settings = {0};
    int32_t *ids = NULL, stop;
    size_t n = 0;
    int status = 1;
    kvik_cache_config config = {.size = sizeof config, .max_sequences = 1, .max_cache_len = 256};

    if (argc < 2) return fprintf(stderr, "usage: callbacks MODEL [TEXT]\n"), 2;
    const char *text = argc > 2 ? argv[2] : "The sea is";
    if (kvik_model_open(argv[1], &model) < 0 || kvik_generation_init(&settings, model) < 0 ||
        kvik_generation_set(&settings, "{\"max_new_tokens\": 24}") < 0 ||
        kvik_cache_open(model, &config, &cache) < 0 ||
        kvik_tokenizer_encode(kvik_model_tokenizer(model), text, strlen(text), true, &ids, &n) < 0)
        goto fail;
    stop = kvik_tokenizer_find(kvik_model_tokenizer(model), ".");
    kvik_prompt prompt = {.size = sizeof prompt, .ids = ids, .n = n};
    kvik_hooks hooks = {.size = sizeof hooks,
                        .ctx = &stop,
                        .logits_processor = dearer,
                        .stopping_criteria = three_sentences};
    if (kvik_generate(cache, &settings, &prompt, 1, &hooks, &result) < 0) goto fail;
    printf("%s%s\nended by %s\n", text, result->row[0]->text,
           kvik_finish_name(result->row[0]->finish));
    status = 0;
fail:
    if (status) fprintf(stderr, "callbacks: %s\n", kvik_last_error());
    kvik_result_free(result);
    kvik_free(ids);
    kvik_generation_done(&settings);
    kvik_cache_close(cache);
    kvik_model_close(model);
    return status;
}
