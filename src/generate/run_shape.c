/* run_shape.c - decides from the options how a run decodes, and how many rows and sequences it needs. */
#include "generate/run.h"

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
    if (asked && !r->mode->drafts && r->hooks && r->hooks->on_notice)
        r->hooks->on_notice(r->hooks->ctx,
                            "prompt lookup and assistants are for greedy decoding and sampling "
                            "without guidance; ignored");
}

uint64_t run_width(const struct run *r)
{
    return r->g->num_return_sequences;
}

/* Sets the number of rows and of sequences: for rows, beams or candidates, and for negative texts. */
static int set_rows(struct run *r)
{
    bool search = r->mode->search, guided = r->g->guidance_scale != 1;
    uint64_t each = r->mode->width(r), rows = search ? each : run_width(r),
             sequences = r->n_prompts * (each + (guided ? rows : 0));
    if (sequences > r->x->max_seqs)
        return ERR(LIMIT,
                   "%u prompts with %llu %s each%s need %llu sequences, the cache was opened for "
                   "%u; raise max_sequences",
                   r->n_prompts, (unsigned long long)each, r->mode->sequences,
                   guided ? " and their negative texts" : "", (unsigned long long)sequences,
                   r->x->max_seqs);
    r->width = (uint32_t)(r->n_prompts * rows);
    r->lanes = (uint32_t)sequences;
    r->per = search ? 1 : (uint32_t)rows;
    r->n = r->n_prompts * r->per;
    return 0;
}

int run_shape(struct run *r)
{
    r->mode = mode_of(r);
    if (r->mode->check) TRY(r->mode->check(r));
    return set_rows(r);
}
