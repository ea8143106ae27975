/* processor_sequencebias.c - sequence_bias: a number added to the score of the token that would complete a sequence.
 * Several that end in the same token add up, single tokens first, before the sum is added once. */
#include "generate/chain.h"

static bool wanted(const kvik_generation *g)
{
    return g->n_sequence_bias > 0;
}

static int open(struct gen_chain *c)
{
    return gen_check_sequences(c, "sequence_bias", c->g.sequence_bias, c->g.n_sequence_bias);
}

/* The biases of sequences of one token, or of longer ones, into the scratch. */
static void add(struct gen_chain *c, const struct gen_row *row, bool single)
{
    for (uint32_t i = 0; i < c->g.n_sequence_bias; i++) {
        const kvik_bias *b = &c->g.sequence_bias[i];
        int32_t last = b->ids[b->n - 1];
        if ((b->n == 1) != single || !gen_row_ends(row, b->ids, b->n - 1)) continue;
        if (gen_seen_set(c, last)) c->value[last] = 0;
        c->value[last] += (float)b->bias;
    }
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    add(c, row, true);
    add(c, row, false);
    for (uint32_t i = 0; i < c->g.n_sequence_bias; i++) {
        const kvik_bias *b = &c->g.sequence_bias[i];
        int32_t last = b->ids[b->n - 1];
        if (!gen_seen_get(c, last)) continue;
        scores[last] += c->value[last];
        c->value[last] = 0; /* once */
    }
    for (uint32_t i = 0; i < c->g.n_sequence_bias; i++)
        gen_seen_clear(c, c->g.sequence_bias[i].ids[c->g.sequence_bias[i].n - 1]);
}

GEN_PROCESSOR(sequencebias, 200, false, wanted, apply, .open = open);
