/* advice.c - warns, with a line on standard error, of each option on the command line that has no effect without another
 * option, and names the option to add.  Transformers warns of the same options. */
#include "cli/cli.h"

#include <string.h>

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

/* A dynamic cache grows with the text, and max_cache_len only sizes a static one. */
static bool growing(const kvik_generation *g)
{
    return !g->cache_implementation || !strcmp(g->cache_implementation, "dynamic");
}

static bool unmatched(const kvik_generation *g)
{
    return g->prompt_lookup_num_tokens == 0;
}

#define GREEDY   "in greedy decoding", "--do-sample", "true"
#define BEAMLESS "without beams", "--num-beams", "4"
#define UNENDED  "because no token ends the text", "--eos-token-id", "ID"
#define UNCACHED "with --use-cache false; leave that out", NULL, NULL

static const struct {
    const char *name;
    bool (*idle)(const kvik_generation *g);
    const char *why, *add, *value; /* the option to add, or NULL */
} advice[] = {
    {"temperature", greedy, GREEDY},
    {"top_h", greedy, GREEDY},
    {"top_k", greedy_alone, GREEDY},
    {"top_p", greedy, GREEDY},
    {"min_p", greedy, GREEDY},
    {"typical_p", greedy, GREEDY},
    {"epsilon_cutoff", greedy, GREEDY},
    {"eta_cutoff", greedy, GREEDY},
    {"seed", greedy, GREEDY},
    {"length_penalty", single, BEAMLESS},
    {"early_stopping", single, BEAMLESS},
    {"diversity_penalty", together, "without groups of beams", "--num-beam-groups", "2"},
    {"negative_prompt_ids", unguided, "without guidance", "--guidance-scale", "1.5"},
    {"min_length", endless, UNENDED},
    {"min_new_tokens", endless, UNENDED},
    {"exponential_decay_length_penalty", endless, UNENDED},
    {"max_matching_ngram_size", unmatched, "without prompt lookup", "--prompt-lookup-num-tokens",
     "8"},
    {"cache_implementation", uncached, UNCACHED},
    {"cache_config", uncached, UNCACHED},
    {"max_cache_len", growing,
     "with a dynamic cache, which grows with the text; to limit its tokens give "
     "--cache-config '{\"max_cache_len\": N}'",
     NULL, NULL},
    {"max_length", counted, "beside max_new_tokens, which wins; give only one of them", NULL, NULL},
};

void advice_tell(const kvik_generation *g, const json_t *options, enum advice_from from)
{
    const bool set = from == ADVICE_SET;
    for (size_t i = 0; i < countof(advice); i++) {
        char text[256], name[64], add[96] = "";
        const char *value = advice[i].value;
        if (!json_object_get(options, advice[i].name) || !advice[i].idle(g)) continue;
        args_dashed(advice[i].name, name);
        if (advice[i].add && set) {
            char other[64];
            args_plain(advice[i].add, other);
            snprintf(add, sizeof add, "; /set %s %s", other, value);
        } else if (advice[i].add && !strcmp(advice[i].add, "--do-sample") &&
                   from == ADVICE_GREEDY) {
            snprintf(add, sizeof add, "; leave out --greedy");
        } else if (advice[i].add) {
            bool flag = !strcmp(value, "true");
            snprintf(add, sizeof add, "; add %s%s%s", advice[i].add, flag ? "" : " ",
                     flag ? "" : value);
        }
        snprintf(text, sizeof text, "%s%s has no effect %s%s", set ? "" : "--",
                 set ? advice[i].name : name, advice[i].why, add);
        say_notice(NULL, text);
    }
}
