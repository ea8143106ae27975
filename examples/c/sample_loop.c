/* sample_loop.c - a loop of the program's own: it computes logits, chooses tokens as kvik_generate does, and prints text in
 * whole characters as it comes.
 *     sample_loop MODEL [TEXT] */
#include <kvik_loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEW = 32 };

static void die(const char *what)
{
    fprintf(stderr, "sample_loop: %s: %s\n", what, kvik_last_error());
    exit(1);
}

/* Prints what n more ids make whole; without ids, what the decoder has held back. */
static void show(kvik_decoder *decoder, const int32_t *ids, size_t n)
{
    const char *text;
    int64_t bytes =
        ids ? kvik_decoder_put(decoder, ids, n, &text) : kvik_decoder_flush(decoder, &text);
    if (bytes < 0) die("decode");
    fwrite(text, 1, (size_t)bytes, stdout);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *text = argc > 2 ? argv[2] : "Once upon a time";
    kvik_model *model;
    kvik_cache *cache;
    kvik_generation options;
    kvik_sampler *sampler;
    kvik_decoder *decoder;
    kvik_cache_config config = {.size = sizeof config, .max_sequences = 1, .max_cache_len = 512};
    kvik_span span = {.size = sizeof span};
    int32_t *prompt;
    size_t n_prompt;

    if (argc < 2) return fprintf(stderr, "usage: sample_loop MODEL [TEXT]\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0) die(argv[1]);
    if (kvik_cache_open(model, &config, &cache) < 0) die("cache");
    if (kvik_cache_new(cache, &span.seq) < 0) die("sequence");
    if (kvik_generation_init(&options, model) < 0) die("options");
    if (kvik_generation_set(&options, "{\"do_sample\": true, \"temperature\": 0.7, \"top_p\": 0.9,"
                                      " \"repetition_penalty\": 1.1, \"seed\": 1}") < 0)
        die("options");
    const kvik_tokenizer *tokenizer = kvik_model_tokenizer(model);
    uint32_t vocab = kvik_model_vocab(model);
    if (kvik_sampler_open(&options, vocab, NULL, &sampler) < 0) die("sampler");
    if (kvik_decoder_open(tokenizer, true, &decoder) < 0) die("decoder");
    if (kvik_tokenizer_encode(tokenizer, text, strlen(text), true, &prompt, &n_prompt) < 0)
        die("text");

    float *logits = malloc(vocab * sizeof *logits);
    int32_t *ids = malloc((n_prompt + NEW) * sizeof *ids);
    if (!logits || !ids) return 1;
    memcpy(ids, prompt, n_prompt * sizeof *ids);
    fputs(text, stdout);
    size_t n = n_prompt, computed = 0;
    for (int end = 0; !end && n < n_prompt + NEW; n++) {
        span.ids = ids + computed; /* the prompt, then one token at a time */
        span.n = (uint32_t)(n - computed);
        if (kvik_forward(cache, &span, 1, false, logits) < 0) die("forward");
        computed = n;
        kvik_choice choice = {
            .size = sizeof choice, .logits = logits, .ids = ids, .n = n, .n_prompt = n_prompt};
        end = kvik_sample(sampler, &choice, &ids[n]); /* 1: an end-of-sequence token */
        if (end < 0) die("sample");
        show(decoder, &ids[n], 1);
    }
    show(decoder, NULL, 0);
    printf("\n(%zu new tokens)\n", n - n_prompt);

    free(ids);
    free(logits);
    kvik_free(prompt);
    kvik_decoder_close(decoder);
    kvik_sampler_close(sampler);
    kvik_generation_done(&options);
    kvik_cache_close(cache);
    kvik_model_close(model);
    return 0;
}
