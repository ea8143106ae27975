/* beams.c - beam search: the beams of a prompt share its blocks, so 4 beams need little more memory than one.
 *     beams MODEL [TEXT] */
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
    kvik_cache_config config = {.size = sizeof config, .max_sequences = 8, .max_cache_len = 256};

    if (argc < 2) return fprintf(stderr, "usage: beams MODEL [TEXT]\n"), 2;
    const char *text = argc > 2 ? argv[2] : "The sea is";
    if (kvik_model_open(argv[1], &model) < 0 || kvik_generation_init(&settings, model) < 0 ||
        kvik_generation_set(&settings, "{\"num_beams\": 4, \"num_return_sequences\": 2,"
                                       " \"max_new_tokens\": 12}") < 0 ||
        kvik_cache_open(model, &config, &cache) < 0 ||
        kvik_generate_text(cache, &settings, text, &result) < 0) {
        fprintf(stderr, "beams: %s\n", kvik_last_error());
    } else {
        for (uint32_t i = 0; i < result->n_rows; i++)
            printf("%.3f  %s%s\n", result->row[i]->score, text, result->row[i]->text);
        kvik_cache_usage(cache, &usage);
        printf("rows copied: %llu\n", (unsigned long long)usage.rows_copied);
        status = 0;
    }
    kvik_result_free(result);
    kvik_cache_close(cache);
    kvik_generation_done(&settings);
    kvik_model_close(model);
    return status;
}
