/* hqq.c - old rows quantized to 4 bits by hqq; axes 1 are recommended.
 *     hqq MODEL [TEXT] */
#include <kvik.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    kvik_model *model = NULL;
    kvik_cache *cache = NULL;
    kvik_result *result = NULL;
    kvik_generation settings = {0};
    kvik_usage usage = {.size = sizeof usage};
    int status = 1;
    kvik_cache_config config = {
        .size = sizeof config,
        .cache_implementation = "quantized",
        /* keys may be spelled with '-' as in the Transformers guide */
        .cache_config = "{\"backend\": \"HQQ\", \"nbits\": 4, \"axis-key\": 1, \"axis-value\": 1}",
        .max_sequences = 1,
        .max_cache_len = 256,
    };

    if (argc < 2) return fprintf(stderr, "usage: hqq MODEL [TEXT]\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0 || kvik_generation_init(&settings, model) < 0 ||
        kvik_cache_open(model, &config, &cache) < 0) {
        fprintf(stderr, "hqq: %s\n", kvik_last_error());
    } else {
        settings.max_new_tokens = 16;
        const char *text = argc > 2 ? argv[2] : "The sea is";
        if (kvik_generate_text(cache, &settings, text, &result) < 0) {
            fprintf(stderr, "hqq: %s\n", kvik_last_error());
        } else {
            kvik_cache_usage(cache, &usage);
            printf("%s%s\n", text, result->row[0]->text);
            printf("groups of rows quantized: %llu\n", (unsigned long long)usage.seals);
            status = 0;
        }
    }
    kvik_result_free(result);
    kvik_cache_close(cache);
    kvik_generation_done(&settings);
    kvik_model_close(model);
    return status;
}
