/* stream_text.c - one call that continues a text and prints the new text as it comes.
 *     stream_text MODEL [TEXT] */
#include <kvik.h>
#include <stdio.h>

static bool print(void *ctx, const char *text)
{
    (void)ctx;
    fputs(text, stdout);
    return fflush(stdout) == 0; /* false stops the text */
}

int main(int argc, char **argv)
{
    const char *text = argc > 2 ? argv[2] : "The sea is";
    kvik_model *model = NULL;
    kvik_cache *cache = NULL;
    kvik_generation options;
    kvik_cache_config config = {.size = sizeof config, .max_sequences = 1, .max_cache_len = 512};
    int status = 1;

    if (argc < 2) return fprintf(stderr, "usage: stream_text MODEL [TEXT]\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0 || kvik_generation_init(&options, model) < 0) {
        fprintf(stderr, "stream_text: %s\n", kvik_last_error());
        kvik_model_close(model);
        return 1;
    }
    options.max_new_tokens = 24;
    fputs(text, stdout);
    if (kvik_cache_open(model, &config, &cache) < 0 ||
        kvik_generate_stream(cache, &options, text, print, NULL, NULL) < 0)
        fprintf(stderr, "\nstream_text: %s\n", kvik_last_error());
    else
        status = puts("") < 0;

    kvik_cache_close(cache);
    kvik_generation_done(&options);
    kvik_model_close(model);
    return status;
}
