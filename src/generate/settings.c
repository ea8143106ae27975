/* settings.c - kvik_generation: defaults, a JSON object of reference names applied onto it, checks of the whole.
 * An application is all or nothing: values go into a copy of the struct, and what the copy owns anew replaces
 * the original's only when every key was accepted.  null means "not given", as in the reference. */
#include "base/near.h"
#include "generate/options.h"
#include "kv/preset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 48 }; /* characters of a value quoted in an error */

void gen_defaults(kvik_generation *g)
{
    *g = (kvik_generation){
        .temperature = 1.0,
        .top_k = 50,
        .top_p = 1.0,
        .repetition_penalty = 1.0,
        .num_beams = 1,
        .num_return_sequences = 1,
        .length_penalty = 1.0,
        .pad_token_id = -1,
        .bos_token_id = -1,
        .use_cache = true,
        .typical_p = 1.0,
        .encoder_repetition_penalty = 1.0,
        .forced_bos_token_id = -1,
        .guidance_scale = 1.0,
        .num_beam_groups = 1,
        .max_matching_ngram_size = 2,
        .num_assistant_tokens = 20,
        .assistant_confidence_threshold = 0.4,
    };
}

static void strings_drop(char **s, uint32_t n)
{
    for (uint32_t i = 0; s && i < n; i++)
        mem_free(s[i]);
    mem_free(s);
}

void gen_done(kvik_generation *g)
{
    if (!g) return;
    strings_drop(g->stop_strings, g->n_stop_strings);
    mem_free(g->cache_implementation);
    mem_free(g->cache_config);
    mem_free(g->unmet);
    gen_defaults(g);
}

void kvik_generation_done(kvik_generation *g)
{
    gen_done(g);
}

/* What one application changes: `to` starts as a copy of the struct and shares what it owns until replaced. */
struct change {
    const char *what;
    bool strict;
    const kvik_generation *from;
    kvik_generation to;
    json_t *unmet; /* owned */
};

static void replace(char **slot, const char *original, char *value)
{
    if (*slot != original) mem_free(*slot);
    *slot = value;
}

static const char *show(const json_t *v, char out[SHOWN])
{
    char *s = NULL;
    bool whole = json_text(v, &s) == 0;
    snprintf(out, SHOWN, "%s", whole ? s : "?");
    if (whole && strlen(s) >= SHOWN) memcpy(out + SHOWN - 4, "...", 4);
    mem_free(s);
    return out;
}

static int bad(const struct change *c, const kvik_option *o, const json_t *v, const char *must)
{
    char s[SHOWN];
    return ERR(ARG, "%s: %s must be %s, not %s", c->what, o->name, must, show(v, s));
}

static int take_uint(const struct change *c, const kvik_option *o, const json_t *v, uint64_t *out)
{
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || (double)n < o->min || (n > 0 && (double)n > o->max)) {
        char must[96];
        if (o->max < 1e18)
            snprintf(must, sizeof must, "an integer from %.0f to %.0f", o->min, o->max);
        else
            snprintf(must, sizeof must, "an integer from %.0f to 2^63-1", o->min);
        return bad(c, o, v, must);
    }
    *out = (uint64_t)n;
    return 0;
}

static int take_float(const struct change *c, const kvik_option *o, const json_t *v, double *out)
{
    double d = json_number_value(v);
    if (!json_is_number(v) || !(d >= o->min && d <= o->max)) {
        char must[96];
        snprintf(must, sizeof must, "a number from %g to %g", o->min, o->max);
        return bad(c, o, v, must);
    }
    *out = d;
    return 0;
}

/* One id or a list of them; -1 in it means none, as people write it. */
static int take_ids(struct change *c, const kvik_option *o, const json_t *v)
{
    int32_t id[KVIK_MAX_EOS];
    uint32_t n = 0;
    size_t count = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;
        json_int_t k = json_integer_value(e);
        if (!json_is_integer(e) || k < -1 || k > INT32_MAX)
            return bad(c, o, v, "a token id or a list of token ids");
        if (k < 0) continue;
        if (n == KVIK_MAX_EOS)
            return ERR(LIMIT, "%s: %s has more than %d ids", c->what, o->name, KVIK_MAX_EOS);
        id[n++] = (int32_t)k;
    }
    memset(c->to.eos_token_id, 0, sizeof c->to.eos_token_id);
    memcpy(c->to.eos_token_id, id, n * sizeof *id);
    c->to.n_eos = n;
    return 0;
}

static int take_strings(struct change *c, const kvik_option *o, const json_t *v)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > 256) return ERR(LIMIT, "%s: %s has more than 256 texts", c->what, o->name);
    char **s = n ? mem_array(n, sizeof *s) : NULL;
    if (n && !s) return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;
        size_t len = json_string_length(e);
        int err = 0;
        if (!json_is_string(e))
            err = bad(c, o, v, "a text or a list of texts");
        else if (!len)
            err = ERR(ARG, "%s: %s has an empty text, which would stop at once", c->what, o->name);
        else if (strlen(json_string_value(e)) != len)
            err = ERR(ARG, "%s: %s has a text with a zero byte", c->what, o->name);
        else if (!(s[i] = mem_strndup(json_string_value(e), len)))
            err = ERR_NOMEM;
        if (err) {
            strings_drop(s, (uint32_t)n);
            return err;
        }
    }
    if (c->to.stop_strings != c->from->stop_strings)
        strings_drop(c->to.stop_strings, c->to.n_stop_strings);
    c->to.stop_strings = s;
    c->to.n_stop_strings = (uint32_t)n;
    return 0;
}

static int take_early(const struct change *c, const kvik_option *o, const json_t *v,
                      enum kvik_early *out)
{
    bool never = json_is_string(v) && !strcmp(json_string_value(v), "never");
    if (!json_is_boolean(v) && !never) return bad(c, o, v, "true, false or \"never\"");
    *out = never ? KVIK_EARLY_NEVER : json_is_true(v) ? KVIK_EARLY_TRUE : KVIK_EARLY_FALSE;
    return 0;
}

static bool neutral(const char *want, const json_t *v)
{
    if (!want || json_is_null(v)) return true;
    if (!strcmp(want, "[]"))
        return (json_is_array(v) || json_is_object(v)) && !json_array_size(v) &&
               !json_object_size(v);
    if (!strcmp(want, "false")) return json_is_false(v);
    if (!strcmp(want, "null")) return false;
    return json_is_number(v) && json_number_value(v) == strtod(want, NULL);
}

static int refuse(const char *what, const char *key, const char *want, const json_t *v)
{
    char s[SHOWN];
    if (!strcmp(want, "null") || !strcmp(want, "[]"))
        return ERR(UNSUPPORTED, "%s: %s=%s is not supported in this version; leave it out", what,
                   key, show(v, s));
    return ERR(UNSUPPORTED, "%s: %s=%s is not supported in this version; only %s works", what, key,
               show(v, s), want);
}

static int take_choice(struct change *c, const kvik_option *o, const json_t *v)
{
    const char *s = json_string_value(v);
    char shown[SHOWN];
    struct near near;
    if (!s) return bad(c, o, v, "a name");
    if (kv_preset_find(s)) {
        char *copy = mem_strdup(s);
        if (!copy) return ERR_NOMEM;
        replace(&c->to.cache_implementation, c->from->cache_implementation, copy);
        return 0;
    }
    near_begin(&near, s);
    for (uint32_t i = 0; kv_preset_at(i); i++)
        near_try(&near, kv_preset_at(i)->name);
    for (size_t i = 0; option_cache_others[i]; i++) {
        near_try(&near, option_cache_others[i]);
        if (strcmp(s, option_cache_others[i]) == 0)
            return ERR(UNSUPPORTED, "%s: %s \"%s\" is not supported in this version", c->what,
                       o->name, s);
    }
    show(v, shown);
    if (near.best)
        return ERR(ARG, "%s: unknown %s %s; did you mean \"%s\"?", c->what, o->name, shown,
                   near.best);
    return ERR(ARG, "%s: unknown %s %s; one of %s", c->what, o->name, shown, o->choices);
}

/* cache_config: checked here, so that a command line is refused before a model is loaded; kept without what has no
 * effect. */
static int take_cache_config(struct change *c, const kvik_option *o, const json_t *v)
{
    char what[128];
    struct kv_keys keys;
    const char *key;
    json_t *e;
    snprintf(what, sizeof what, "%s: %s", c->what, o->name);
    TRY(kv_keys_read(v, what, &keys));
    json_t *kept = json_object();
    char *text = NULL;
    int err = kept ? 0 : ERR(NOMEM, "out of memory");
    json_object_foreach((json_t *)(uintptr_t)v, key, e)
    {
        if (!err && !json_is_null(e) && !kv_keys_ignores(key) && json_object_set(kept, key, e) < 0)
            err = ERR(NOMEM, "out of memory");
    }
    if (!err) err = json_text(kept, &text);
    json_decref(kept);
    if (err) return err;
    replace(&c->to.cache_config, c->from->cache_config, text);
    return 0;
}

static int take(struct change *c, int i, const json_t *v)
{
    const kvik_option *o = &kvik_options(NULL)[i];
    const struct option_slot *slot = option_slot_at(i);
    void *at = (char *)&c->to + slot->offset;
    uint64_t u;
    switch (slot->kind) {
    case OPT_BOOL:
        if (!json_is_boolean(v)) return bad(c, o, v, "true or false");
        *(bool *)at = json_is_true(v);
        return 0;
    case OPT_UINT:
        TRY(take_uint(c, o, v, &u));
        *(uint32_t *)at = (uint32_t)u;
        return 0;
    case OPT_SEED:
        return take_uint(c, o, v, (uint64_t *)at);
    case OPT_INT:
        TRY(take_uint(c, o, v, &u));
        *(int32_t *)at = (int32_t)(int64_t)u;
        return 0;
    case OPT_FLOAT:
        return take_float(c, o, v, (double *)at);
    case OPT_STRING:
        return take_choice(c, o, v);
    case OPT_STRINGS:
        return take_strings(c, o, v);
    case OPT_IDS:
        return take_ids(c, o, v);
    case OPT_EARLY:
        return take_early(c, o, v, at);
    case OPT_JSON:
        return take_cache_config(c, o, v);
    }
    return 0;
}

/* A name of the reference that this version knows only at its neutral value. */
static int take_neutral(struct change *c, const struct option_neutral *o, const json_t *v)
{
    if (neutral(o->value, v)) {
        json_object_del(c->unmet, o->name);
        return 0;
    }
    if (c->strict) return refuse(c->what, o->name, o->value, v);
    return json_object_set(c->unmet, o->name, (json_t *)v) < 0 ? ERR(NOMEM, "out of memory") : 0;
}

static int unknown(const char *what, const char *key)
{
    const char *near = kvik_option_nearest(key);
    if (near)
        return ERR(ARG, "%s: unknown option \"%.60s\"; did you mean \"%s\"?", what, key, near);
    return ERR(ARG, "%s: unknown option \"%.60s\"", what, key);
}

static int apply_all(struct change *c, const json_t *o)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        const struct option_neutral *rest;
        int i = option_find(key);
        if (i >= 0) {
            if (!json_is_null(v)) TRY(take(c, i, v));
        } else if ((rest = option_neutral_find(key))) {
            TRY(take_neutral(c, rest, v));
        } else if (c->strict) {
            return unknown(c->what, key);
        }
    }
    char *text = NULL;
    if (json_object_size(c->unmet)) TRY(json_text(c->unmet, &text));
    replace(&c->to.unmet, c->from->unmet, text);
    return 0;
}

/* Frees what `drop` owns and `keep` does not. */
static void drop_others(kvik_generation *drop, const kvik_generation *keep)
{
    if (drop->stop_strings != keep->stop_strings)
        strings_drop(drop->stop_strings, drop->n_stop_strings);
    if (drop->cache_implementation != keep->cache_implementation)
        mem_free(drop->cache_implementation);
    if (drop->cache_config != keep->cache_config) mem_free(drop->cache_config);
    if (drop->unmet != keep->unmet) mem_free(drop->unmet);
}

int gen_apply(kvik_generation *g, const json_t *o, const char *what, bool strict)
{
    if (!json_is_object(o)) return ERR(ARG, "%s: must be a JSON object of option names", what);
    struct change c = {.what = what, .strict = strict, .from = g, .to = *g};
    int err = 0;
    if (g->unmet) err = json_parse(g->unmet, strlen(g->unmet), "kvik_generation.unmet", &c.unmet);
    if (!err && !c.unmet && !(c.unmet = json_object())) err = ERR(NOMEM, "out of memory");
    if (!err) err = apply_all(&c, o);
    json_decref(c.unmet);
    if (err) {
        drop_others(&c.to, g);
        return err;
    }
    drop_others(g, &c.to);
    *g = c.to;
    return 0;
}

int kvik_generation_set(kvik_generation *g, const char *json)
{
    if (!g || !json) return ERR(ARG, "kvik_generation_set: NULL argument");
    json_t *o;
    TRY(json_parse(json, strlen(json), "generation options", &o));
    int err = gen_apply(g, o, "generation options", true);
    json_decref(o);
    return err;
}

static int validate_sampling(const kvik_generation *g)
{
    if (!(g->repetition_penalty > 0 && isfinite(g->repetition_penalty)))
        return ERR(ARG, "repetition_penalty must be above 0, not %g", g->repetition_penalty);
    if (!g->do_sample) return 0;
    if (!(g->temperature > 0 && isfinite(g->temperature)))
        return ERR(ARG,
                   "temperature must be above 0 when sampling, not %g; for the most likely token "
                   "use do_sample=false",
                   g->temperature);
    if (!(g->top_p >= 0 && g->top_p <= 1))
        return ERR(ARG, "top_p must be from 0 to 1, not %g", g->top_p);
    if (!(g->min_p >= 0 && g->min_p <= 1))
        return ERR(ARG, "min_p must be from 0 to 1, not %g", g->min_p);
    return 0;
}

static int validate_beams(const kvik_generation *g)
{
    uint32_t beams = g->num_beams, rows = g->num_return_sequences;
    if (!beams || !rows)
        return ERR(ARG, "num_beams is %u and num_return_sequences %u; both are at least 1", beams,
                   rows);
    if (beams > 1 && g->do_sample)
        return ERR(UNSUPPORTED,
                   "num_beams=%u with do_sample=true (beam sampling) is not supported in this "
                   "version; set num_beams to 1 or do_sample to false",
                   beams);
    if (beams > 1 && rows > beams)
        return ERR(ARG, "num_return_sequences is %u, more than num_beams, which is %u", rows,
                   beams);
    if (beams == 1 && rows > 1 && !g->do_sample)
        return ERR(ARG,
                   "num_return_sequences is %u, and greedy decoding without beams gives one "
                   "sequence; set do_sample, or num_beams to %u or more",
                   rows, rows);
    if (!isfinite(g->length_penalty))
        return ERR(ARG, "length_penalty must be a number, not %g", g->length_penalty);
    return 0;
}

int gen_validate(const kvik_generation *g)
{
    if (g->unmet)
        return ERR(
            UNSUPPORTED,
            "the model's generation_config.json asks for %.200s, which this version does not "
            "do; set it to its neutral value to generate without",
            g->unmet);
    if (g->n_eos > KVIK_MAX_EOS)
        return ERR(ARG, "eos_token_id has %u ids; at most %d", g->n_eos, KVIK_MAX_EOS);
    for (uint32_t i = 0; i < g->n_eos; i++)
        if (g->eos_token_id[i] < 0)
            return ERR(ARG, "eos_token_id has a negative id %d", g->eos_token_id[i]);
    if (g->n_stop_strings && !g->stop_strings)
        return ERR(ARG, "n_stop_strings is %u without stop_strings", g->n_stop_strings);
    for (uint32_t i = 0; i < g->n_stop_strings; i++)
        if (!g->stop_strings[i] || !*g->stop_strings[i])
            return ERR(ARG, "stop_strings has an empty text, which would stop at once");
    if (g->cache_implementation && !kv_preset_find(g->cache_implementation))
        return ERR(UNSUPPORTED, "cache_implementation \"%.40s\" is not supported in this version",
                   g->cache_implementation);
    TRY(validate_beams(g));
    return validate_sampling(g);
}
