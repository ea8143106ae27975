/* resilient.c - a memory limit too small for the text.  With on_full "offload" the run continues from disk with the same tokens,
 * and a notice says so once.
 *     resilient MODEL */
#include <kvik.h>
#include <stdio.h>
#include <string.h>

static void notice(void *ctx, const char *text)
{
    (void)ctx;
    puts(text);
}

int main(int argc, char **argv)
{
    kvik_model *model = NULL;
    kvik_cache *cache = NULL;
    kvik_result *result = NULL;
    kvik_generation settings = {0};
    kvik_hooks hooks = {.size = sizeof hooks, .on_notice = notice};
    kvik_cache_config config = {
        .size = sizeof config, .cache_memory = 3 << 20, .on_full = "offload", .max_sequences = 1};
    kvik_prompt prompt = {.size = sizeof prompt};
    int32_t *ids = NULL;
    char text[1024] = "Count with me:";
    int status = 1;

    if (argc < 2) return fprintf(stderr, "usage: resilient MODEL\n"), 2;
    for (int i = 1; i <= 90; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d", i);
    if (kvik_model_open(argv[1], &model) < 0 || kvik_generation_init(&settings, model) < 0 ||
        kvik_generation_set(&settings, "{\"max_new_tokens\": 12}") < 0 ||
        kvik_cache_open(model, &config, &cache) < 0 ||
        kvik_tokenizer_encode(kvik_model_tokenizer(model), text, strlen(text), true, &ids,
                              &prompt.n) < 0) {
        fprintf(stderr, "resilient: %s\n", kvik_last_error());
    } else {
        prompt.ids = ids;
        if (kvik_generate(cache, &settings, &prompt, 1, &hooks, &result) < 0)
            fprintf(stderr, "resilient: %s\n", kvik_last_error());
        else
            status = puts(result->row[0]->text) < 0;
    }
    kvik_free(ids);
    kvik_result_free(result);
    kvik_cache_close(cache);
    kvik_generation_done(&settings);
    kvik_model_close(model);
    return status;
}
