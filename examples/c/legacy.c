/* legacy.c - the cache as arrays: a prompt is computed, its keys and values are written to a safetensors file in the legacy form
 * of Transformers (layers.N.keys, layers.N.values: [batch][heads][tokens][dim]), read again, and continued.
 *     legacy MODEL [FILE] */
#include <kvik_compat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what)
{
    fprintf(stderr, "legacy: %s: %s\n", what, kvik_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    const char *prompt = "The sea is wide and the ship is", *path = argc > 2 ? argv[2] : NULL;
    kvik_model *model;
    kvik_cache *cache;
    kvik_batch *fed, *read;
    kvik_legacy *arrays;
    kvik_generation settings;
    kvik_result *result;
    int32_t *ids;
    size_t n;

    if (argc < 2) return fprintf(stderr, "usage: legacy MODEL [FILE]\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0) die(argv[1]);
    if (kvik_cache_open(model, NULL, &cache) < 0) die("cache");
    if (kvik_tokenizer_encode(kvik_model_tokenizer(model), prompt, strlen(prompt), true, &ids, &n) <
        0)
        die("prompt");

    if (kvik_batch_open(cache, 1, &fed) < 0) die("batch");
    kvik_inputs in = {.size = sizeof in, .ids = ids, .n = (uint32_t)n};
    if (kvik_batch_forward(fed, &in, NULL) < 0) die("forward");
    if (kvik_batch_to_legacy(fed, &arrays) < 0) die("to legacy");
    const kvik_legacy_layer *first = &arrays->layer[0];
    printf("%u layers, each key [%u][%u][%u][%u]\n", arrays->n_layers, arrays->batch, first->heads,
           first->tokens, first->dim_k);

    if (path) { /* the file names its model; the arrays of another model are refused */
        if (kvik_legacy_save(arrays, model, path) < 0) die(path);
        kvik_legacy_free(arrays);
        if (kvik_legacy_load(path, model, &arrays) < 0) die(path);
    }
    if (kvik_batch_from_legacy(cache, arrays, &read) < 0) die("from legacy");
    kvik_legacy_free(arrays);

    if (kvik_generation_init(&settings, model) < 0) die("settings");
    settings.max_new_tokens = 12;
    if (kvik_batch_generate(read, &settings, &in, NULL, &result) < 0) die("generate");
    printf("%s%s\n(%zu of %zu tokens came from the arrays)\n", prompt,
           result->row[0]->text ? result->row[0]->text : "", result->row[0]->reused, n);

    kvik_result_free(result);
    kvik_generation_done(&settings);
    kvik_free(ids);
    kvik_batch_close(fed);
    kvik_batch_close(read);
    kvik_cache_close(cache);
    kvik_model_close(model);
    return 0;
}
