/* fork.c - compute a prompt once, continue it many times.  Every fork shares the blocks of the prompt, so N continuations need
 * the memory of one prompt and N short tails.
 *     fork MODEL [N] */
#include <kvik.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FORKS 64

static void die(const char *what)
{
    fprintf(stderr, "fork: %s: %s\n", what, kvik_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    const char *text =
        "The old lighthouse keeper climbed the ninety-nine stairs, as he had done every evening for forty years, "
        "lit the great lamp and looked out at the sea. The wind had turned to the north, the gulls were silent, "
        "and far away, where the fishing boats should have been, a green light went on and off, on and off. He "
        "put down his tea, opened the heavy logbook and wrote the hour and the weather into it. Then he";
    int wanted = argc > 2 ? atoi(argv[2]) : 4;
    uint32_t n = wanted < 1 ? 1 : wanted > MAX_FORKS ? MAX_FORKS : (uint32_t)wanted;
    kvik_model *model;
    kvik_cache *cache;
    kvik_generation settings;
    kvik_seq first;
    kvik_prompt prompt[MAX_FORKS] = {{0}};
    kvik_result *result;
    kvik_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    int32_t *ids;
    size_t count;

    if (argc < 2) return fprintf(stderr, "usage: fork MODEL [N]\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0) die(argv[1]);
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 2 * n + 1, .max_cache_len = 256};
    if (kvik_cache_open(model, &config, &cache) < 0) die("cache");
    if (kvik_tokenizer_encode(kvik_model_tokenizer(model), text, strlen(text), true, &ids, &count) <
        0)
        die("text");

    /* Prefill all of the prompt but its last token, because generating computes at least one token. */
    if (kvik_cache_new(cache, &first) < 0) die("sequence");
    kvik_span span = {.size = sizeof span, .seq = first, .ids = ids, .n = (uint32_t)count - 1};
    if (kvik_forward(cache, &span, 1, false, NULL) < 0) die("forward");
    kvik_cache_usage(cache, &before);

    for (uint32_t i = 0; i < n; i++) {
        prompt[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .ids = ids, .n = count};
        if (kvik_cache_fork(cache, first, &prompt[i].seq) < 0) die("fork");
    }
    if (kvik_generation_init(&settings, model) < 0) die("settings");
    if (kvik_generation_set(
            &settings,
            "{\"do_sample\": true, \"temperature\": 0.9, \"seed\": 7, \"max_new_tokens\": 24}") < 0)
        die("settings");
    if (kvik_generate(cache, &settings, prompt, n, NULL, &result) < 0) die("generate");
    kvik_cache_usage(cache, &after);

    for (uint32_t i = 0; i < n; i++)
        printf("%u: ...%s\n", i + 1, result->row[i]->text);
    printf("one prompt: %.1f MiB; with %u continuations: %.1f MiB, of which %.1f MiB are shared\n",
           (double)before.bytes / 1048576, n, (double)after.bytes / 1048576,
           (double)after.shared / 1048576);
    kvik_result_free(result);
    kvik_free(ids);
    kvik_generation_done(&settings);
    kvik_cache_close(cache);
    kvik_model_close(model);
    return 0;
}
