/* processor_repetition.c - processors against repetition: penalties for tokens of the text, of the prompt and of
 * other beams, and n-grams that must not occur again. */
#include "generate/chain.h"
#include "generate/search.h"

#include <math.h>

/* --- diversity_penalty: subtracted from a token's score once for every beam of an earlier group that chose the token in
 * this step (Hamming diversity). */

static bool wanted_diversity(const kvik_generation *g)
{
    return g->num_beam_groups > 1 && g->diversity_penalty > 0;
}

static void apply_diversity(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    for (uint32_t i = 0; i < row->n_chosen; i++) {
        int32_t id = row->chosen[i];
        uint32_t times = 0;
        if (!gen_seen_set(c, id)) continue;
        for (uint32_t k = i; k < row->n_chosen; k++)
            times += row->chosen[k] == id;
        scores[id] -= (float)c->g.diversity_penalty * (float)times;
    }
    for (uint32_t i = 0; i < row->n_chosen; i++)
        gen_seen_clear(c, row->chosen[i]);
}

/* --- repetition_penalty p: the score of every distinct token of the text is divided by p when positive and multiplied
 * by p when negative, once each (Keskar et al. 2019, CTRL, section 4.1).  encoder_repetition_penalty is the same over
 * the prompt with 1/p, so that an answer keeps to its prompt. */

static void penalize(struct gen_chain *c, const int32_t *ids, size_t n, float p, float *scores)
{
    for (size_t i = 0; i < n; i++)
        if (gen_seen_set(c, ids[i]))
            scores[ids[i]] = scores[ids[i]] < 0 ? scores[ids[i]] * p : scores[ids[i]] / p;
    for (size_t i = 0; i < n; i++)
        gen_seen_clear(c, ids[i]);
}

/* Returns the ids that processors of the encoder look at. */
static const int32_t *heard(const struct gen_row *row, size_t *n)
{
    *n = row->heard ? row->n_heard : row->n_prompt;
    return row->heard ? row->heard : row->ids;
}

static bool wanted_encoder(const kvik_generation *g)
{
    return g->encoder_repetition_penalty != 1.0;
}

static void apply_encoder(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    size_t n;
    const int32_t *ids = heard(row, &n);
    penalize(c, ids, n, (float)(1.0 / c->g.encoder_repetition_penalty), scores);
}

static bool wanted_repetition(const kvik_generation *g)
{
    return g->repetition_penalty != 1.0;
}

static void apply_repetition(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    penalize(c, row->ids, row->n, (float)c->g.repetition_penalty, scores);
}

/* --- no_repeat_ngram_size n: bans every token that would complete n tokens which the text already has in a row.
 * encoder_no_repeat_ngram_size looks in the prompt instead.  With n = 1 every token of the text is banned. */

/* Bans the tokens of ids[0, n) that follow an occurrence of the row's last size - 1 tokens. */
static void ban(const struct gen_chain *c, const struct gen_row *row, const int32_t *ids, size_t n,
                uint32_t size, float *scores)
{
    size_t before = size - 1;
    if (row->n < before) return;
    if (!before) gen_remove(c, ids, (uint32_t)n, scores);
    if (!before || n <= before) return;
    struct gen_search s;
    size_t at;
    gen_search_begin(&s, ids, n - 1, row->ids + row->n - before, before);
    while (gen_search_next(&s, &at))
        gen_remove(c, &ids[at + before], 1, scores);
}

static bool wanted_ngram(const kvik_generation *g)
{
    return g->no_repeat_ngram_size > 0;
}

static void apply_ngram(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    ban(c, row, row->ids, row->n, c->g.no_repeat_ngram_size, scores);
}

static bool wanted_encoder_ngram(const kvik_generation *g)
{
    return g->encoder_no_repeat_ngram_size > 0;
}

static void apply_encoder_ngram(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    size_t n;
    const int32_t *ids = heard(row, &n);
    ban(c, row, ids, n, c->g.encoder_no_repeat_ngram_size, scores);
}

GEN_PROCESSOR(diversity, 300, false, wanted_diversity, apply_diversity);
GEN_PROCESSOR(encoderrepetition, 400, false, wanted_encoder, apply_encoder);
GEN_PROCESSOR(repetition, 500, false, wanted_repetition, apply_repetition);
GEN_PROCESSOR(ngram, 600, false, wanted_ngram, apply_ngram);
GEN_PROCESSOR(encoderngram, 700, false, wanted_encoder_ngram, apply_encoder_ngram);
