/* processor_tokens.c - processors for tokens and sequences that the caller names: biases, bad words, and
 * suppressed tokens. */
#include "generate/chain.h"

#include <math.h>
#include <string.h>

static int check_sequences(const struct gen_chain *c, const char *option, const kvik_bias *b,
                           uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        TRY(gen_check_ids(c, option, b[i].ids, b[i].n));
    return 0;
}

/* True if the next token can complete the sequence: the row ends in all tokens of the sequence but the last. */
static bool completes(const struct gen_row *row, const kvik_bias *b)
{
    uint32_t n = b->n - 1;
    return n <= row->n && (!n || memcmp(row->ids + row->n - n, b->ids, n * sizeof *b->ids) == 0);
}

static int32_t last_of(const kvik_bias *b)
{
    return b->ids[b->n - 1];
}

/* --- sequence_bias: added to the score of the token that would complete a sequence.  Biases of sequences that end in the
 * same token are summed, single tokens first; the sum is added once. */

static bool wanted_bias(const kvik_generation *g)
{
    return g->n_sequence_bias > 0;
}

static int open_bias(struct gen_chain *c)
{
    return check_sequences(c, "sequence_bias", c->g.sequence_bias, c->g.n_sequence_bias);
}

/* Adds up the biases in c->value: of sequences of one token, or of longer ones. */
static void sum_biases(struct gen_chain *c, const struct gen_row *row, bool single)
{
    for (uint32_t i = 0; i < c->g.n_sequence_bias; i++) {
        const kvik_bias *b = &c->g.sequence_bias[i];
        int32_t last = last_of(b);
        if ((b->n == 1) != single || !completes(row, b)) continue;
        if (gen_seen_set(c, last)) c->value[last] = 0;
        c->value[last] += (float)b->bias;
    }
}

static void apply_bias(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    sum_biases(c, row, true);
    sum_biases(c, row, false);
    for (uint32_t i = 0; i < c->g.n_sequence_bias; i++) {
        int32_t last = last_of(&c->g.sequence_bias[i]);
        if (!gen_seen_get(c, last)) continue;
        scores[last] += c->value[last];
        c->value[last] = 0; /* another sequence with this last token must not add the sum again */
    }
    for (uint32_t i = 0; i < c->g.n_sequence_bias; i++)
        gen_seen_clear(c, last_of(&c->g.sequence_bias[i]));
}

/* --- bad_words_ids: bans the token that would complete one of the sequences.  A sequence that is one end-of-sequence
 * token is ignored. */

static bool wanted_bad_words(const kvik_generation *g)
{
    return g->n_bad_words_ids > 0;
}

static int open_bad_words(struct gen_chain *c)
{
    return check_sequences(c, "bad_words_ids", c->g.bad_words_ids, c->g.n_bad_words_ids);
}

static bool is_eos(const kvik_generation *g, int32_t id)
{
    for (uint32_t i = 0; i < g->n_eos; i++)
        if (g->eos_token_id[i] == id) return true;
    return false;
}

static void apply_bad_words(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    for (uint32_t i = 0; i < c->g.n_bad_words_ids; i++) {
        const kvik_bias *b = &c->g.bad_words_ids[i];
        if (b->n == 1 && is_eos(&c->g, b->ids[0])) continue;
        if (completes(row, b)) scores[last_of(b)] = -INFINITY;
    }
}

/* --- suppress_tokens are never chosen; begin_suppress_tokens are not chosen as the first generated token.  Where
 * forced_bos_token_id forces the first token (after a prompt of one token), the second token counts as the first. */

static bool wanted_suppress(const kvik_generation *g)
{
    return g->n_suppress_tokens > 0;
}

static void apply_suppress(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    (void)row;
    gen_remove(c, c->g.suppress_tokens, c->g.n_suppress_tokens, scores);
}

static bool wanted_begin(const kvik_generation *g)
{
    return g->n_begin_suppress_tokens > 0;
}

static void apply_begin(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    size_t first = c->g.forced_bos_token_id >= 0 && row->n_prompt + row->pad <= 1;
    if (row->n - row->n_prompt == first)
        gen_remove(c, c->g.begin_suppress_tokens, c->g.n_begin_suppress_tokens, scores);
}

GEN_PROCESSOR(sequencebias, 200, false, wanted_bias, apply_bias, .open = open_bias);
GEN_PROCESSOR(badwords, 800, false, wanted_bad_words, apply_bad_words, .open = open_bad_words);
GEN_PROCESSOR(suppress, 1600, false, wanted_suppress, apply_suppress);
GEN_PROCESSOR(suppressbegin, 1700, false, wanted_begin, apply_begin);
