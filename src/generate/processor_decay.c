/* processor_decay.c - exponential_decay_length_penalty (start, factor): from `start` generated tokens on, the score of
 * what ends the text grows by its own size times factor^(tokens since) - 1. */
#include "generate/chain.h"

#include <math.h>

static bool wanted(const kvik_generation *g)
{
    return g->decay_factor > 0 && g->n_eos;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    size_t fresh = row->n - row->n_prompt;
    if (fresh <= c->g.decay_start) return;
    float grow = (float)(pow(c->g.decay_factor, (double)(fresh - c->g.decay_start)) - 1);
    for (uint32_t i = 0; i < c->g.n_eos; i++) {
        int32_t id = c->g.eos_token_id[i];
        if (!gen_seen_set(c, id) || !isfinite(scores[id]) || scores[id] == 0) continue;
        scores[id] += fabsf(scores[id]) * grow;
    }
    for (uint32_t i = 0; i < c->g.n_eos; i++)
        gen_seen_clear(c, c->g.eos_token_id[i]);
}

GEN_PROCESSOR(decay, 1500, false, wanted, apply);
