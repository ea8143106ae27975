/* run_shape.c - what a run will be, from its options: the way of decoding, and how many rows and sequences it needs. */
#include "generate/run.h"

static int check_mode(const kvik_generation *g, const struct run_mode *mode)
{
    if (g->use_cache) return 0;
    if (mode == &contrastive_mode)
        return ERR(ARG,
                   "penalty_alpha=%g (contrastive search) forks the cache for its candidates; set "
                   "use_cache",
                   g->penalty_alpha);
    if (mode == &speculate_mode)
        return ERR(ARG, "%s needs use_cache: draft tokens are checked on top of the cached tokens",
                   g->prompt_lookup_num_tokens ? "prompt_lookup_num_tokens" : "assistant_model");
    return 0;
}

static const struct run_mode *mode_of(const struct run *r)
{
    const kvik_generation *g = r->g;
    const struct run_mode *mode = g->num_beams > 1                 ? &beam_mode
                                  : gen_mode(g) == GEN_CONTRASTIVE ? &contrastive_mode
                                                                   : &plain_mode;
    if (!g->prompt_lookup_num_tokens && !r->assist) return mode;
    bool drafts = gen_assisted(g, r->assist != NULL) && g->guidance_scale == 1;
    return drafts ? &speculate_mode : mode;
}

void run_tell_mode(const struct run *r)
{
    bool asked = r->g->prompt_lookup_num_tokens || r->assist;
    if (asked && r->mode != &speculate_mode && r->hooks && r->hooks->on_notice)
        r->hooks->on_notice(r->hooks->ctx,
                            "prompt lookup and assistants are for greedy decoding and sampling "
                            "without guidance; ignored");
}

/* Sets the number of rows and of sequences: rows or beams or candidates, and negative texts. */
static int set_rows(struct run *r)
{
    const kvik_generation *g = r->g;
    bool beams = g->num_beams > 1, contrasts = gen_mode(g) == GEN_CONTRASTIVE,
         guided = g->guidance_scale != 1;
    uint64_t rows = beams ? g->num_beams : g->num_return_sequences,
             each = contrasts ? contrastive_width(r) : rows,
             sequences = r->n_prompts * (each + (guided ? rows : 0));
    if (sequences > r->x->max_seqs)
        return ERR(LIMIT,
                   "%u prompts with %llu %s each%s need %llu sequences, the cache was opened for "
                   "%u; raise max_sequences",
                   r->n_prompts, (unsigned long long)each,
                   beams       ? "beams"
                   : contrasts ? "candidates (top_k)"
                               : "rows",
                   guided ? " and their negative texts" : "", (unsigned long long)sequences,
                   r->x->max_seqs);
    if (beams && r->hooks && r->hooks->on_token)
        return ERR(ARG,
                   "on_token cannot be used with num_beams=%u: which text is the best is not known "
                   "before the end",
                   g->num_beams);
    r->width = (uint32_t)(r->n_prompts * rows);
    r->lanes = (uint32_t)sequences;
    r->per = beams ? 1 : (uint32_t)rows;
    r->n = r->n_prompts * r->per;
    return 0;
}

int run_shape(struct run *r)
{
    r->mode = mode_of(r);
    TRY(check_mode(r->g, r->mode));
    return set_rows(r);
}
