/* processor_diversity.c - diversity_penalty: taken from a token's score once for every beam of earlier groups that chose it in
 * this step (Hamming diversity).  It comes after sequence_bias and before the penalties of repetition. */
#include "generate/chain.h"

static bool wanted(const kvik_generation *g)
{
    return g->num_beam_groups > 1 && g->diversity_penalty > 0;
}

static void apply(struct gen_chain *c, const struct gen_row *row, float *scores)
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

GEN_PROCESSOR(diversity, 300, false, wanted, apply);
