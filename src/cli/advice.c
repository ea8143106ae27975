/* advice.c - warns, with a line on standard error, of each option on the command line that has no effect without another
 * option, and names the option to add.  Transformers warns of the same options. */
#include "cli/cli.h"

static bool greedy(const kvik_generation *g)
{
    return !g->do_sample;
}

/* Contrastive search uses top_k. */
static bool greedy_alone(const kvik_generation *g)
{
    return !g->do_sample && !(g->penalty_alpha > 0);
}

static bool single(const kvik_generation *g)
{
    return g->num_beams == 1;
}

static bool together(const kvik_generation *g)
{
    return g->num_beam_groups == 1;
}

static bool unguided(const kvik_generation *g)
{
    return g->guidance_scale == 1;
}

static bool endless(const kvik_generation *g)
{
    return g->n_eos == 0;
}

static bool uncached(const kvik_generation *g)
{
    return !g->use_cache;
}

static bool counted(const kvik_generation *g)
{
    return g->max_new_tokens > 0;
}

static bool unmatched(const kvik_generation *g)
{
    return g->prompt_lookup_num_tokens == 0;
}

/* Stands for the way to switch sampling on, which the command knows. */
static const char sampling[] = "in greedy decoding; ";

static const struct {
    const char *name;
    bool (*idle)(const kvik_generation *g);
    const char *why;
} advice[] = {
    {"temperature", greedy, sampling},
    {"top_h", greedy, sampling},
    {"top_k", greedy_alone, sampling},
    {"top_p", greedy, sampling},
    {"min_p", greedy, sampling},
    {"typical_p", greedy, sampling},
    {"epsilon_cutoff", greedy, sampling},
    {"eta_cutoff", greedy, sampling},
    {"seed", greedy, sampling},
    {"length_penalty", single, "without beams; add --num-beams 4"},
    {"early_stopping", single, "without beams; add --num-beams 4"},
    {"diversity_penalty", together, "without groups of beams; add --num-beam-groups"},
    {"negative_prompt_ids", unguided, "without guidance; add --guidance-scale 1.5"},
    {"min_length", endless, "because no token ends the text; add --eos-token-id"},
    {"min_new_tokens", endless, "because no token ends the text; add --eos-token-id"},
    {"exponential_decay_length_penalty", endless,
     "because no token ends the text; add --eos-token-id"},
    {"max_matching_ngram_size", unmatched,
     "without prompt lookup; add --prompt-lookup-num-tokens 8"},
    {"cache_implementation", uncached, "with --use-cache false; leave that out"},
    {"cache_config", uncached, "with --use-cache false; leave that out"},
    {"max_length", counted, "beside max_new_tokens, which wins; give only one of them"},
};

void advice_tell(const kvik_generation *g, const json_t *options, const char *to_sample)
{
    for (size_t i = 0; i < countof(advice); i++) {
        char text[128], dashed[64];
        if (!json_object_get(options, advice[i].name) || !advice[i].idle(g)) continue;
        args_dashed(advice[i].name, dashed);
        snprintf(text, sizeof text, "--%s has no effect %s%s", dashed, advice[i].why,
                 advice[i].why == sampling ? to_sample : "");
        say_notice(NULL, text);
    }
}
