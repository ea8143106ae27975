/* test_padded.h - three batch rows of nine columns under masks of every kind, shared by the tests
 * of padded batches. */
#pragma once
#include "budgets.h"
#include "kvik_compat.h"

#define MODELS "tests/golden/models/"
enum { ROWS = 3, WIDE = 9, STEPS = 6, MOST = 64 };

__attribute__((unused)) static const uint8_t LEFT[ROWS * WIDE] = {
    0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1};
__attribute__((unused)) static const uint8_t RIGHT[ROWS * WIDE] = {
    1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
__attribute__((unused)) static const uint8_t HOLES[ROWS * WIDE] = {
    1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1};

struct bench {
    kvik_model *m;
    kvik_cache *c;
    kvik_batch *b;
    uint32_t vocab;
    int32_t ids[ROWS * MOST];
    uint8_t mask[ROWS * MOST];
    int32_t pos[ROWS * MOST];
};

static inline void must(int e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
}

static inline void refused(int e, int code, const char *words)
{
    if (e != code) fail_msg("%d instead of %d (%s)", e, code, words);
    if (!strstr(kvik_last_error(), words)) fail_msg("%s: no \"%s\"", kvik_last_error(), words);
}

static inline void bench_open(struct bench *t, const char *model, const kvik_cache_config *config)
{
    char path[200];
    memset(t, 0, sizeof *t);
    snprintf(path, sizeof path, MODELS "%s", model);
    must(kvik_model_open(path, &t->m));
    must(kvik_cache_open(t->m, config, &t->c));
    must(kvik_batch_open(t->c, ROWS, &t->b));
    t->vocab = kvik_model_vocab(t->m);
    for (uint32_t i = 0; i < ROWS * WIDE; i++)
        t->ids[i] = (int32_t)(5 + i * 131 % (t->vocab - 5));
}

static inline void bench_close(struct bench *t)
{
    kvik_batch_close(t->b);
    kvik_cache_close(t->c);
    kvik_model_close(t->m);
}

static const kvik_cache_config SMALL = {.size = sizeof SMALL,
                                        .compute = "exact",
                                        .max_sequences = 8,
                                        .max_cache_len = MOST,
                                        .step_tokens = 16};

/* Computes position_ids as generate() does. */
static inline void count(const uint8_t *mask, uint32_t width, uint32_t n, int32_t *pos)
{
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0, k = 0; j < width; j++) {
            k += mask[i * width + j];
            if (j + n >= width)
                pos[i * n + j + n - width] = mask[i * width + j] ? (int32_t)k - 1 : 0;
        }
}

static inline void feed(struct bench *t, const uint8_t *mask)
{
    float *logits = malloc((size_t)ROWS * t->vocab * sizeof *logits);
    memcpy(t->mask, mask, ROWS * WIDE);
    count(t->mask, WIDE, WIDE, t->pos);
    kvik_inputs in = {.size = sizeof in,
                      .ids = t->ids,
                      .n = WIDE,
                      .attention_mask = t->mask,
                      .width = WIDE,
                      .position_ids = t->pos,
                      .logits_to_keep = 1};
    must(kvik_batch_forward(t->b, &in,
                            &(kvik_outputs){.size = sizeof(kvik_outputs), .logits = logits}));
    free(logits);
}
