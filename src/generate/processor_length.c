/* processor_length.c - processors for the beginning and the end of a text: minimum lengths, end-of-sequence scores
 * that grow with the length, and tokens that are forced first or last. */
#include "generate/chain.h"

#include <math.h>

/* --- min_length and min_new_tokens: end-of-sequence tokens are banned until the text, or its generated part, has
 * this length. */

static bool wanted_minimum(const kvik_generation *g)
{
    return g->n_eos && (g->min_length || g->min_new_tokens);
}

static void apply_minimum(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    if (row->n + row->pad >= c->g.min_length && row->n - row->n_prompt >= c->g.min_new_tokens)
        return;
    gen_remove(c, c->g.eos_token_id, c->g.n_eos, scores);
}

/* --- exponential_decay_length_penalty (start, factor): after `start` generated tokens, each end-of-sequence score grows
 * by its own magnitude times factor^(tokens since start) - 1. */

static bool wanted_decay(const kvik_generation *g)
{
    return g->decay_factor > 0 && g->n_eos;
}

static void apply_decay(struct gen_chain *c, const struct gen_row *row, float *scores)
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

/* --- forced_bos_token_id is the token after a prompt of one token; forced_eos_token_id is the last token of a text that
 * reaches its maximum length.  The forced tokens get score 0, all others -inf. */

static void force(const struct gen_chain *c, const int32_t *id, uint32_t n, float *scores)
{
    for (uint32_t i = 0; i < c->vocab; i++)
        scores[i] = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        scores[id[i]] = 0;
}

static bool wanted_bos(const kvik_generation *g)
{
    return g->forced_bos_token_id >= 0;
}

static int open_bos(struct gen_chain *c)
{
    return gen_check_ids(c, "forced_bos_token_id", &c->g.forced_bos_token_id, 1);
}

static void apply_bos(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    if (row->n + row->pad == 1) force(c, &c->g.forced_bos_token_id, 1, scores);
}

static bool wanted_eos(const kvik_generation *g)
{
    return g->n_forced_eos > 0;
}

static int open_eos(struct gen_chain *c)
{
    return gen_check_ids(c, "forced_eos_token_id", c->g.forced_eos_token_id, c->g.n_forced_eos);
}

static void apply_eos(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    if (row->n + 1 == row->max_length)
        force(c, c->g.forced_eos_token_id, c->g.n_forced_eos, scores);
}

GEN_PROCESSOR(minlength, 900, false, wanted_minimum, apply_minimum);
GEN_PROCESSOR(forcedbos, 1200, false, wanted_bos, apply_bos, .open = open_bos);
GEN_PROCESSOR(forcedeos, 1300, false, wanted_eos, apply_eos, .open = open_eos);
GEN_PROCESSOR(decay, 1500, false, wanted_decay, apply_decay);
