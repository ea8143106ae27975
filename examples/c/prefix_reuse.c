/* prefix_reuse.c - a prefix is computed once and forked for every continuation, where the
 * Transformers guide makes a deep copy per prompt.  Then the same through the prefix index: prompts that begin alike share their rows by themselves.
 *     prefix_reuse MODEL */
#include <kvik.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what)
{
    fprintf(stderr, "prefix_reuse: %s: %s\n", what, kvik_last_error());
    exit(1);
}

static const char prefix[] =
    "You are a helpful assistant who answers the questions of travellers politely and in "
    "whole sentences, with an example where one helps. ";
static const char *const question[] = {"Help me to write a blogpost about travelling.",
                                       "What is the capital of France?"};

static int32_t *encode(const kvik_model *m, const char *a, const char *b, size_t *n)
{
    char text[512];
    int32_t *ids;
    snprintf(text, sizeof text, "%s%s", a, b);
    if (kvik_tokenizer_encode(kvik_model_tokenizer(m), text, strlen(text), true, &ids, n) < 0)
        die("text");
    return ids;
}

static kvik_row generate(kvik_cache *c, const kvik_generation *g, kvik_prompt p)
{
    kvik_result *r;
    if (kvik_generate(c, g, &p, 1, NULL, &r) < 0) die("generate");
    kvik_row row = *r->row[0];
    printf("  %zu of %zu tokens reused%s%s:%s\n", row.reused, row.n_prompt,
           row.prefix_miss ? ", " : "", row.prefix_miss ? row.prefix_miss : "",
           row.text ? row.text : "");
    kvik_result_free(r);
    return row;
}

int main(int argc, char **argv)
{
    kvik_model *model;
    kvik_cache *cache;
    kvik_generation settings;
    kvik_usage usage = {.size = sizeof usage};
    kvik_seq first, fork;
    size_t n;

    if (argc < 2) return fprintf(stderr, "usage: prefix_reuse MODEL\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0) die(argv[1]);
    if (kvik_cache_open(model,
                        &(kvik_cache_config){.size = sizeof(kvik_cache_config), .max_sequences = 4},
                        &cache) < 0)
        die("cache");
    if (kvik_generation_init(&settings, model) < 0) die("settings");
    if (kvik_generation_set(&settings, "{\"do_sample\": false, \"max_new_tokens\": 16}") < 0)
        die("settings");

    /* Computes the prefix once, then forks it for each question. The prefix ends in a space, and
     * the last token may change when text follows. Therefore the fork's tokens are compared with
     * the tokens of the whole text. */
    int32_t *ids = encode(model, prefix, "", &n);
    if (kvik_cache_new(cache, &first) < 0) die("sequence");
    if (kvik_forward(
            cache,
            &(kvik_span){.size = sizeof(kvik_span), .seq = first, .ids = ids, .n = (uint32_t)n}, 1,
            false, NULL) < 0)
        die("prefill");
    kvik_free(ids);
    printf("forks of a prefix of %zu tokens\n", n);
    for (int i = 0; i < 2; i++) {
        if (kvik_cache_fork(cache, first, &fork) < 0) die("fork");
        ids = encode(model, prefix, question[i], &n);
        generate(cache, &settings,
                 (kvik_prompt){.size = sizeof(kvik_prompt), .ids = ids, .n = n, .seq = fork});
        kvik_free(ids);
        if (kvik_cache_drop(cache, fork) < 0) die("drop");
    }

    /* Only whole prompts: the second time nearly all tokens are reused. The same holds for any
     * prompt that begins alike. */
    printf("whole prompts, twice\n");
    for (int i = 0; i < 4; i++) {
        ids = encode(model, prefix, question[i % 2], &n);
        generate(cache, &settings, (kvik_prompt){.size = sizeof(kvik_prompt), .ids = ids, .n = n});
        kvik_free(ids);
    }
    kvik_cache_usage(cache, &usage);
    printf("in use %llu bytes, kept to be reused %llu, of a budget of %llu\n",
           (unsigned long long)usage.bytes, (unsigned long long)usage.index,
           (unsigned long long)usage.budget);
    kvik_generation_done(&settings);
    kvik_cache_close(cache);
    kvik_model_close(model);
    return 0;
}
