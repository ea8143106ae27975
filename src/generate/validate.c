/* validate.c - checks whether a whole configuration can run, and finds which way of decoding it asks for, by the
 * rules of Transformers.  Values that were set by name were checked then.  A struct that was filled in by hand is
 * checked here, in the same ranges. */
#include "generate/options.h"
#include "model/preset.h"

#include <math.h>

enum gen_mode gen_mode(const kvik_generation *g)
{
    if (g->num_beams > 1) {
        if (g->num_beam_groups > 1) return GEN_GROUP_BEAM;
        return g->do_sample ? GEN_BEAM_SAMPLE : GEN_BEAM;
    }
    if (g->do_sample) return GEN_SAMPLE;
    return g->top_k > 1 && g->penalty_alpha > 0 ? GEN_CONTRASTIVE : GEN_GREEDY;
}

bool gen_assisted(const kvik_generation *g, bool assistant_model)
{
    return (assistant_model || g->prompt_lookup_num_tokens > 0) && gen_mode(g) <= GEN_SAMPLE;
}

bool gen_plain(const kvik_generation *g, bool assistant_model)
{
    return gen_mode(g) <= GEN_SAMPLE && !gen_assisted(g, assistant_model);
}

/* Checks that every number is within the range of its option.  temperature 0 is an error only when sampling. */
static int validate_numbers(const kvik_generation *g)
{
    const kvik_option *o;
    for (uint32_t i = 0; (o = kvik_option_at(i)); i++) {
        const struct option_slot *s = option_slot_at((int)i);
        if (s->kind != OPT_FLOAT) continue;
        double v = *(const double *)((const char *)g + s->offset);
        if (v >= o->min && v <= o->max) continue;
        return ERR(ARG, "%s must be a number from %g to %g, not %g", o->name, o->min, o->max, v);
    }
    if (g->do_sample && !(g->temperature > 0))
        return ERR(ARG,
                   "temperature must be above 0 when sampling, not %g; for the most likely token "
                   "use do_sample=false",
                   g->temperature);
    if (!(g->decay_factor >= 0 && isfinite(g->decay_factor)))
        return ERR(ARG, "exponential_decay_length_penalty: the factor must be above 0, not %g",
                   g->decay_factor);
    return 0;
}

static int validate_groups(const kvik_generation *g)
{
    uint32_t beams = g->num_beams, groups = g->num_beam_groups;
    if (!groups) return ERR(ARG, "num_beam_groups is 0; it must be at least 1");
    if (groups == 1) return 0;
    if (beams % groups)
        return ERR(ARG,
                   "num_beams is %u, which cannot be divided into %u groups; it must be a multiple "
                   "of num_beam_groups",
                   beams, groups);
    if (g->do_sample)
        return ERR(ARG,
                   "num_beam_groups=%u with do_sample=true: beam groups cannot sample; set "
                   "num_beam_groups to 1 or do_sample to false",
                   groups);
    if (!(g->diversity_penalty > 0))
        return ERR(ARG,
                   "num_beam_groups=%u needs a diversity_penalty above 0; without one all groups "
                   "find the same beams",
                   groups);
    return 0;
}

static int validate_beams(const kvik_generation *g)
{
    uint32_t beams = g->num_beams, rows = g->num_return_sequences;
    if (!beams || !rows)
        return ERR(ARG, "num_beams is %u and num_return_sequences is %u; both must be at least 1",
                   beams, rows);
    TRY(validate_groups(g));
    if (beams > 1 && rows > beams)
        return ERR(ARG, "num_return_sequences is %u, more than num_beams, which is %u", rows,
                   beams);
    if (beams == 1 && rows > 1 && !g->do_sample)
        return ERR(ARG,
                   "num_return_sequences is %u, and greedy decoding without beams gives one "
                   "sequence; set do_sample, or num_beams to %u or more",
                   rows, rows);
    return 0;
}

/* Checks the options of contrastive search and speculation. */
static int validate_search(const kvik_generation *g)
{
    if (g->penalty_alpha > 0 && g->num_beams == 1 && !g->do_sample && g->top_k < 2)
        return ERR(ARG,
                   "penalty_alpha=%g (contrastive search) chooses among the top_k tokens, and "
                   "top_k is %u; set it to 2 or more",
                   g->penalty_alpha, g->top_k);
    if (g->prompt_lookup_num_tokens && !g->max_matching_ngram_size)
        return ERR(ARG, "max_matching_ngram_size is 0; it must be at least 1");
    if (!g->num_assistant_tokens)
        return ERR(ARG, "num_assistant_tokens is 0; it must be at least 1");
    return 0;
}

static int validate_ids(const char *name, const int32_t *id, uint32_t n)
{
    if (n && !id) return ERR(ARG, "%s is NULL, but its count is %u", name, n);
    for (uint32_t i = 0; i < n; i++)
        if (id[i] < 0) return ERR(ARG, "%s has a negative id %d", name, id[i]);
    return 0;
}

static int validate_sequences(const char *name, const kvik_bias *b, uint32_t n)
{
    if (n && !b) return ERR(ARG, "%s is NULL, but its count is %u", name, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!b[i].n) return ERR(ARG, "%s has a sequence without tokens", name);
        TRY(validate_ids(name, b[i].ids, b[i].n));
    }
    return 0;
}

static bool suppressed(const kvik_generation *g, int32_t id)
{
    for (uint32_t i = 0; i < g->n_suppress_tokens; i++)
        if (g->suppress_tokens[i] == id) return true;
    return false;
}

static int validate_tokens(const kvik_generation *g)
{
    uint32_t left = 0;
    if (g->n_eos > KVIK_MAX_EOS || g->n_forced_eos > KVIK_MAX_EOS)
        return ERR(ARG, "eos_token_id has %u ids and forced_eos_token_id %u; at most %d each",
                   g->n_eos, g->n_forced_eos, KVIK_MAX_EOS);
    TRY(validate_ids("eos_token_id", g->eos_token_id, g->n_eos));
    TRY(validate_ids("forced_eos_token_id", g->forced_eos_token_id, g->n_forced_eos));
    TRY(validate_ids("suppress_tokens", g->suppress_tokens, g->n_suppress_tokens));
    TRY(validate_ids("begin_suppress_tokens", g->begin_suppress_tokens,
                     g->n_begin_suppress_tokens));
    TRY(validate_ids("negative_prompt_ids", g->negative_prompt_ids, g->n_negative_prompt_ids));
    TRY(validate_sequences("sequence_bias", g->sequence_bias, g->n_sequence_bias));
    TRY(validate_sequences("bad_words_ids", g->bad_words_ids, g->n_bad_words_ids));
    for (uint32_t i = 0; i < g->n_sequence_bias; i++)
        if (isnan(g->sequence_bias[i].bias))
            return ERR(ARG, "sequence_bias has a bias that is NaN");
    for (uint32_t i = 0; i < g->n_forced_eos; i++)
        left += !suppressed(g, g->forced_eos_token_id[i]);
    if (g->n_forced_eos && !left)
        return ERR(ARG, "every forced_eos_token_id is in suppress_tokens; remove one from there");
    if (g->forced_bos_token_id >= 0 && suppressed(g, g->forced_bos_token_id))
        return ERR(ARG, "forced_bos_token_id %d is in suppress_tokens; remove it from there",
                   g->forced_bos_token_id);
    return 0;
}

int gen_validate(const kvik_generation *g)
{
    if (g->unmet)
        return ERR(
            UNSUPPORTED,
            "the model's generation_config.json asks for %.200s, which this version does not "
            "support; set it to its neutral value to generate without it",
            g->unmet);
    TRY(validate_tokens(g));
    if (g->n_stop_strings && !g->stop_strings)
        return ERR(ARG, "n_stop_strings is %u without stop_strings", g->n_stop_strings);
    for (uint32_t i = 0; i < g->n_stop_strings; i++)
        if (!g->stop_strings[i] || !*g->stop_strings[i])
            return ERR(ARG, "stop_strings has an empty text, which would stop at once");
    if (g->cache_implementation && !preset_find(g->cache_implementation))
        return ERR(UNSUPPORTED, "cache_implementation \"%.40s\" is not supported in this version",
                   g->cache_implementation);
    if (g->json_schema && (g->n_forced_eos || g->forced_bos_token_id >= 0))
        return ERR(ARG,
                   "json_schema with %s: a forced token is no part of a valid text; leave one of "
                   "the two out",
                   g->n_forced_eos ? "forced_eos_token_id" : "forced_bos_token_id");
    TRY(validate_beams(g));
    TRY(validate_search(g));
    return validate_numbers(g);
}
