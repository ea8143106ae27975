/* complete.c - the shortest program: it opens a model, continues a text and prints the result.
 *     complete MODEL ["The sea is"] */
#include <kvik.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    kvik_model *model = NULL;
    kvik_cache *cache = NULL;
    kvik_result *result = NULL;
    kvik_generation settings;
    int status = 1;

    if (argc < 2) {
        fprintf(stderr, "usage: complete MODEL [TEXT]\n");
        return 2;
    }
    if (kvik_model_open(argv[1], &model) < 0 || kvik_generation_init(&settings, model) < 0) {
        fprintf(stderr, "complete: %s\n", kvik_last_error());
        kvik_model_close(model);
        return 1;
    }
    /* Every other option of generate() has a field too, or a name for kvik_generation_set. */
    settings.max_new_tokens = 24;

    kvik_cache_config config = {.size = sizeof config, .max_sequences = 1, .max_cache_len = 512};
    if (kvik_cache_open(model, &config, &cache) < 0 ||
        kvik_generate_text(cache, &settings, argc > 2 ? argv[2] : "The sea is", &result) < 0) {
        fprintf(stderr, "complete: %s\n", kvik_last_error());
    } else {
        puts(result->row[0]->text);
        status = 0;
    }

    kvik_result_free(result);
    kvik_cache_close(cache);
    kvik_generation_done(&settings);
    kvik_model_close(model);
    return status;
}
