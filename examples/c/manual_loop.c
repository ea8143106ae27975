/* manual_loop.c - generation without generate(): two prompts, padded on the left as in Transformers.  Each turn appends the
 * chosen tokens, adds a column of ones to the attention mask, and advances the positions.
 *     manual_loop MODEL [PROMPT PROMPT] */
#include <kvik_compat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, NEW = 12 };

static void die(const char *what)
{
    fprintf(stderr, "manual_loop: %s: %s\n", what, kvik_last_error());
    exit(1);
}

static int32_t argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (int32_t)best;
}

int main(int argc, char **argv)
{
    const char *prompt[ROWS] = {"The sea is", "Once upon a time there was a small"};
    kvik_model *model;
    kvik_cache *cache;
    kvik_batch *batch;
    int32_t *row[ROWS];
    size_t n[ROWS], width = 0;

    if (argc < 2) return fprintf(stderr, "usage: manual_loop MODEL [PROMPT PROMPT]\n"), 2;
    for (int i = 0; argc >= 4 && i < ROWS; i++)
        prompt[i] = argv[2 + i];
    if (kvik_model_open(argv[1], &model) < 0) die(argv[1]);
    if (kvik_cache_open(model, NULL, &cache) < 0) die("cache");
    if (kvik_batch_open(cache, ROWS, &batch) < 0) die("batch");
    const kvik_tokenizer *tok = kvik_model_tokenizer(model);
    for (int i = 0; i < ROWS; i++) {
        if (kvik_tokenizer_encode(tok, prompt[i], strlen(prompt[i]), true, &row[i], &n[i]) < 0)
            die("prompt");
        width = n[i] > width ? n[i] : width;
    }

    /* [ROWS][width], the shorter prompt on the right; positions count the tokens of each batch row */
    size_t most = width + NEW;
    int32_t *ids = calloc(ROWS * width, sizeof *ids), *pos = calloc(ROWS * width, sizeof *pos);
    uint8_t *mask = calloc(ROWS * most, 1);
    float *logits = malloc(ROWS * kvik_model_vocab(model) * sizeof *logits);
    if (!ids || !pos || !mask || !logits) return 1;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < n[i]; j++) {
            size_t at = i * width + width - n[i] + j;
            ids[at] = row[i][j];
            pos[at] = (int32_t)j;
            mask[at] = 1;
        }

    kvik_inputs in = {.size = sizeof in,
                      .ids = ids,
                      .n = (uint32_t)width,
                      .attention_mask = mask,
                      .width = (uint32_t)width,
                      .position_ids = pos,
                      .logits_to_keep = 1};
    kvik_outputs out = {.size = sizeof out, .logits = logits};
    int32_t chosen[NEW][ROWS], next[ROWS];
    for (int step = 0; step < NEW; step++) {
        if (kvik_batch_forward(batch, &in, &out) < 0) die("forward");
        for (size_t i = ROWS; i-- > 0;) {
            chosen[step][i] = argmax(logits + i * kvik_model_vocab(model), kvik_model_vocab(model));
            next[i] = (int32_t)n[i] + step;
            memmove(mask + i * (in.width + 1), mask + i * in.width, in.width);
            mask[i * (in.width + 1) + in.width] = 1; /* append one column */
        }
        in.ids = chosen[step];
        in.position_ids = next;
        in.n = 1;
        in.width++;
    }
    for (int i = 0; i < ROWS; i++) {
        int32_t line[NEW];
        char *text;
        for (int step = 0; step < NEW; step++)
            line[step] = chosen[step][i];
        if (kvik_tokenizer_decode(tok, line, NEW, true, &text, NULL) < 0) die("text");
        printf("%s%s\n", prompt[i], text);
        kvik_free(text);
        kvik_free(row[i]);
    }
    printf("(%u columns cached; the last token is not in the cache)\n", kvik_batch_length(batch));

    free(ids);
    free(pos);
    free(mask);
    free(logits);
    kvik_batch_close(batch);
    kvik_cache_close(cache);
    kvik_model_close(model);
    return 0;
}
