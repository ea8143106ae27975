/* forward.c - the loop by hand: append tokens, read the logits, choose the next token, for programs that choose tokens
 * themselves.
 *     forward MODEL [TEXT] */
#include <kvik.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what)
{
    fprintf(stderr, "forward: %s: %s\n", what, kvik_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    const char *text = argc > 2 ? argv[2] : "One, two, three,";
    kvik_model *model;
    kvik_cache *cache;
    kvik_cache_config config = {.size = sizeof config, .max_sequences = 1, .max_cache_len = 512};
    kvik_seq seq;
    int32_t *ids, next[16];
    size_t n;
    char *said;

    if (argc < 2) return fprintf(stderr, "usage: forward MODEL [TEXT]\n"), 2;
    if (kvik_model_open(argv[1], &model) < 0) die(argv[1]);
    if (kvik_cache_open(model, &config, &cache) < 0) die("cache");
    const kvik_tokenizer *tokenizer = kvik_model_tokenizer(model);
    if (kvik_tokenizer_encode(tokenizer, text, strlen(text), true, &ids, &n) < 0) die("text");
    if (kvik_cache_new(cache, &seq) < 0) die("sequence");

    uint32_t vocab = kvik_model_vocab(model);
    float *logits = malloc(vocab * sizeof *logits);
    if (!logits) return 1;
    kvik_span span = {.size = sizeof span, .seq = seq, .ids = ids, .n = (uint32_t)n};
    for (int step = 0; step < 16; step++) {
        if (kvik_forward(cache, &span, 1, false, logits) < 0) die("forward");
        uint32_t best = 0;
        for (uint32_t i = 1; i < vocab; i++)
            if (logits[i] > logits[best]) best = i;
        next[step] = (int32_t)best;
        span = (kvik_span){.size = sizeof(kvik_span),
                           .seq = seq,
                           .ids = &next[step],
                           .n = 1}; /* the cache holds the tokens before */
    }
    if (kvik_tokenizer_decode(tokenizer, next, 16, true, &said, NULL) < 0) die("decode");
    printf("%s%s\n", text, said);
    printf("the cache holds %lld tokens\n", (long long)kvik_cache_length(cache, seq));

    kvik_free(said);
    kvik_free(ids);
    free(logits);
    kvik_cache_close(cache);
    kvik_model_close(model);
    return 0;
}
