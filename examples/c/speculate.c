/* speculate.c - speculative decoding: draft tokens come from the text itself, or from a smaller model with the same
 * vocabulary.  The model checks several in one step.  The text is that of plain decoding, in fewer steps.
 *     speculate MODEL [ASSISTANT [TEXT]] */
#include <kvik.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    kvik_model *model = NULL, *small = NULL;
    kvik_cache *cache = NULL, *assistant = NULL;
    kvik_result *result = NULL;
    kvik_generation settings = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    int status = 1;
    kvik_cache_config config = {.size = sizeof config, .max_sequences = 1, .max_cache_len = 256};
    const char *text =
        argc > 3 ? argv[3] : "red, green, blue, red, green, blue, red, green, blue, red, ";
    const char *options = argc > 2 ? "{\"max_new_tokens\": 24}"
                                   : "{\"max_new_tokens\": 24, \"prompt_lookup_num_tokens\": 8}";

    if (argc < 2) return fprintf(stderr, "usage: speculate MODEL [ASSISTANT [TEXT]]\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0 || kvik_cache_open(model, &config, &cache) < 0 ||
        (argc > 2 && (kvik_model_open(argv[2], &small) < 0 ||
                      kvik_cache_open(small, &config, &assistant) < 0)) ||
        kvik_generation_init(&settings, model) < 0 || kvik_generation_set(&settings, options) < 0 ||
        kvik_tokenizer_encode(kvik_model_tokenizer(model), text, strlen(text), true, &ids, &n) < 0)
        goto fail;
    kvik_prompt prompt = {.size = sizeof prompt, .ids = ids, .n = n};
    kvik_hooks hooks = {.size = sizeof hooks, .assistant_model = assistant};
    if (kvik_generate(cache, &settings, &prompt, 1, &hooks, &result) < 0) goto fail;
    printf("%s%s\n%u tokens in %u steps; %llu of %llu draft tokens accepted\n", text,
           result->row[0]->text, (unsigned)result->new_tokens, result->steps,
           (unsigned long long)result->accepted, (unsigned long long)result->drafted);
    status = 0;
fail:
    if (status) fprintf(stderr, "speculate: %s\n", kvik_last_error());
    kvik_result_free(result);
    kvik_free(ids);
    kvik_generation_done(&settings);
    kvik_cache_close(assistant);
    kvik_cache_close(cache);
    kvik_model_close(small);
    kvik_model_close(model);
    return status;
}
