/* save_load.c - a text that outlives its process: each run continues it, without recomputing what the session holds.
 *     save_load MODEL FILE [PROMPT] */
#include <kvik.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what)
{
    fprintf(stderr, "save_load: %s: %s\n", what, kvik_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    kvik_model *model;
    kvik_cache *cache;
    kvik_seq seq;
    kvik_generation settings;
    kvik_result *result;
    char *text = NULL; /* the text so far, stored as the session's note */

    if (argc < 3) return fprintf(stderr, "usage: save_load MODEL FILE [PROMPT]\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0) die(argv[1]);
    if (kvik_cache_open(model, NULL, &cache) < 0) die("cache");
    int n = kvik_cache_load(cache, argv[2], 1, &seq, &text);
    if (n == KVIK_NOTFOUND) { /* this is the first run */
        const char *prompt = argc > 3 ? argv[3] : "Once upon a time there was";
        if (kvik_cache_new(cache, &seq) < 0 || !(text = malloc(strlen(prompt) + 1))) die("start");
        strcpy(text, prompt);
    } else if (n < 0) {
        die(argv[2]);
    }

    int32_t *ids;
    size_t count;
    if (kvik_tokenizer_encode(kvik_model_tokenizer(model), text, strlen(text), true, &ids, &count) <
        0)
        die("text");
    kvik_prompt all = {.size = sizeof all, .ids = ids, .n = count, .seq = seq};
    kvik_generation_init(&settings, model);
    settings.max_new_tokens = 20;
    if (kvik_generate(cache, &settings, &all, 1, NULL, &result) < 0) die("generate");
    printf("%s%s\n(%zu of %zu tokens were in the session)\n", text, result->row[0]->text,
           result->row[0]->reused, count);

    char *more = malloc(strlen(text) + strlen(result->row[0]->text) + 1);
    if (!more) return 1;
    strcpy(more, text);
    strcat(more, result->row[0]->text);
    if (kvik_cache_save(cache, argv[2], &seq, 1, more) < 0) die(argv[2]);
    free(more);
    if (n == KVIK_NOTFOUND)
        free(text);
    else
        kvik_free(text);
    kvik_free(ids);
    kvik_result_free(result);
    kvik_generation_done(&settings);
    kvik_cache_close(cache);
    kvik_model_close(model);
    return 0;
}
