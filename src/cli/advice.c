/* advice.c - warns, with a line on standard error, of each option on the command line that has no effect without another
 * option, and names the option to add.  Transformers warns of the same options. */
#include "cli/cli.h"

#include <string.h>

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

#define BEAMLESS "without beams", "--num-beams", "4"
#define UNENDED  "because no token ends the text", "--eos-token-id", "ID"
#define UNCACHED "with --use-cache false; leave that out", NULL, NULL

static const struct advice {
    const char *name;
    bool (*idle)(const kvik_generation *g);
    const char *why, *add, *value; /* the option to add, or NULL */
} advice[] = {
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

static void tell_advice(const struct advice *a, enum advice_from from)
{
    const bool set = from == ADVICE_SET;
    char text[256], name[64], add[96] = "";
    args_dashed(a->name, name);
    if (a->add && set) {
        char other[64];
        args_plain(a->add, other);
        snprintf(add, sizeof add, "; /set %s %s", other, a->value);
    } else if (a->add && !strcmp(a->add, "--do-sample") && from == ADVICE_GREEDY) {
        snprintf(add, sizeof add, "; leave out --greedy");
    } else if (a->add) {
        bool flag = !strcmp(a->value, "true");
        snprintf(add, sizeof add, "; add %s%s%s", a->add, flag ? "" : " ", flag ? "" : a->value);
    }
    snprintf(text, sizeof text, "%s%s has no effect %s%s", set ? "" : "--", set ? a->name : name,
             a->why, add);
    say_notice(NULL, text);
}

/* Options of sampling have no effect in greedy decoding. */
static void tell_greedy(const kvik_generation *g, const json_t *options, enum advice_from from)
{
    const kvik_option *o;
    for (uint32_t i = 0; (o = kvik_option_at(i)); i++) {
        struct advice a = {o->name, NULL, "in greedy decoding", "--do-sample", "true"};
        bool used = strcmp(o->name, "top_k") == 0 && g->penalty_alpha > 0; /* contrastive search */
        if (strcmp(o->group, "sampling") == 0 && strcmp(o->name, "do_sample") != 0 && !used &&
            json_object_get(options, o->name))
            tell_advice(&a, from);
    }
}

void advice_tell(const kvik_generation *g, const json_t *options, enum advice_from from)
{
    if (!g->do_sample) tell_greedy(g, options, from);
    for (size_t i = 0; i < countof(advice); i++)
        if (json_object_get(options, advice[i].name) && advice[i].idle(g))
            tell_advice(&advice[i], from);
}
