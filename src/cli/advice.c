/* advice.c - warns, with a line on standard error, of each option on the command line that has no effect without another
 * option.  Transformers warns of the same options. */
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

static const struct {
    const char *name;
    bool (*idle)(const kvik_generation *g);
    const char *why;
} advice[] = {
    {"temperature", greedy, "without do_sample"},
    {"top_h", greedy, "without do_sample"},
    {"top_k", greedy_alone, "without do_sample"},
    {"top_p", greedy, "without do_sample"},
    {"min_p", greedy, "without do_sample"},
    {"typical_p", greedy, "without do_sample"},
    {"epsilon_cutoff", greedy, "without do_sample"},
    {"eta_cutoff", greedy, "without do_sample"},
    {"seed", greedy, "without do_sample"},
    {"length_penalty", single, "without num_beams"},
    {"early_stopping", single, "without num_beams"},
    {"diversity_penalty", together, "without num_beam_groups"},
    {"negative_prompt_ids", unguided, "without guidance_scale"},
    {"min_length", endless, "without eos_token_id"},
    {"min_new_tokens", endless, "without eos_token_id"},
    {"exponential_decay_length_penalty", endless, "without eos_token_id"},
    {"max_matching_ngram_size", unmatched, "without prompt_lookup_num_tokens"},
    {"cache_implementation", uncached, "with use_cache false"},
    {"cache_config", uncached, "with use_cache false"},
    {"max_length", counted, "beside max_new_tokens, which wins"},
};

void advice_tell(const kvik_generation *g, const json_t *options)
{
    for (size_t i = 0; i < countof(advice); i++) {
        char text[128];
        if (!json_object_get(options, advice[i].name) || !advice[i].idle(g)) continue;
        snprintf(text, sizeof text, "%s has no effect %s", advice[i].name, advice[i].why);
        say_notice(NULL, text);
    }
}
