/* processor_ngram.c - no_repeat_ngram_size and encoder_no_repeat_ngram_size n: a token that would make a sequence of n
 * tokens appear again, which the text, or the prompt, has already.  With n = 1 those are all its tokens. */
#include "generate/chain.h"

#include <math.h>
#include <string.h>

/* Every token that follows, among ids[0, n), what the row ends in. */
static void ban(const struct gen_chain *c, const struct gen_row *row, size_t n, uint32_t size,
                float *scores)
{
    size_t before = size - 1;
    if (row->n < before) return;
    const int32_t *end = row->ids + row->n - before;
    for (size_t i = before; i < n; i++) {
        int32_t id = row->ids[i];
        if ((uint32_t)id < c->vocab &&
            (!before || memcmp(row->ids + i - before, end, before * sizeof *end) == 0))
            scores[id] = -INFINITY;
    }
}

static bool wanted(const kvik_generation *g)
{
    return g->no_repeat_ngram_size > 0;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    ban(c, row, row->n, c->g.no_repeat_ngram_size, scores);
}

static bool wanted_encoder(const kvik_generation *g)
{
    return g->encoder_no_repeat_ngram_size > 0;
}

static void apply_encoder(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    ban(c, row, row->n_prompt, c->g.encoder_no_repeat_ngram_size, scores);
}

GEN_PROCESSOR(ngram, 600, false, wanted, apply);
GEN_PROCESSOR(encoderngram, 700, false, wanted_encoder, apply_encoder);
