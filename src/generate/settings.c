/* settings.c - kvik_generation: its defaults, and applying a JSON object of option names to it.  An object is
 * applied as a whole or not at all.  Values go into a copy of the struct; the copy replaces the original only if
 * every key was accepted.  null means "not given", as in Transformers. */
#include "base/near.h"
#include "generate/change.h"
#include "model/preset.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void gen_defaults(kvik_generation *g)
{
    *g = (kvik_generation){.size = sizeof *g};
    for (uint32_t i = 0; kvik_option_at(i); i++) {
        const struct option_slot *slot = option_slot_at((int)i);
        void *at = (char *)g + slot->offset;
        if (slot->kind == OPT_BOOL)
            *(bool *)at = slot->value != 0;
        else if (slot->kind == OPT_UINT)
            *(uint32_t *)at = (uint32_t)slot->value;
        else if (slot->kind == OPT_INT)
            *(int32_t *)at = (int32_t)slot->value;
        else if (slot->kind == OPT_FLOAT)
            *(double *)at = slot->value;
        else
            assert(slot->value == 0); /* all other kinds begin as zeros */
    }
}

void gen_done(kvik_generation *g)
{
    static const kvik_generation nothing;
    if (!g) return;
    settings_drop_others(g, &nothing);
    gen_defaults(g);
}

int gen_number(const kvik_generation *g, const char *name, double *value)
{
    int i = option_find(name);
    if (i < 0) return ERR(ARG, "there is no option \"%.60s\"", name);
    const struct option_slot *slot = option_slot_at(i);
    const void *at = (const char *)g + slot->offset;
    switch (slot->kind) {
    case OPT_BOOL:
        *value = *(const bool *)at;
        return 0;
    case OPT_UINT:
        *value = *(const uint32_t *)at;
        return 0;
    case OPT_SEED:
        *value = (double)*(const uint64_t *)at;
        return 0;
    case OPT_INT:
        *value = *(const int32_t *)at;
        return 0;
    case OPT_FLOAT:
        *value = *(const double *)at;
        return 0;
    default:
        return ERR(ARG, "option \"%.60s\" is not one number", name);
    }
}

#define SHOWN 48 /* most characters of a value that an error quotes */

static const char *show_value(const json_t *v, char out[SHOWN])
{
    char *s = NULL;
    bool whole = json_text(v, &s) == 0;
    snprintf(out, SHOWN, "%s", whole ? s : "?");
    if (whole && strlen(s) >= SHOWN) memcpy(out + SHOWN - 4, "...", 4);
    mem_free(s);
    return out;
}

int settings_bad(const struct generation_change *c, const kvik_option *o, const json_t *v,
                 const char *must)
{
    char s[SHOWN];
    return ERR(ARG, "%s: %s must be %s, not %s", c->what, o->name, must, show_value(v, s));
}

static int take_uint(const struct generation_change *c, const kvik_option *o, const json_t *v,
                     uint64_t *out)
{
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || (double)n < o->min || (n > 0 && (double)n > o->max)) {
        char must[96];
        if (o->max < 1e18)
            snprintf(must, sizeof must, "an integer from %.0f to %.0f", o->min, o->max);
        else
            snprintf(must, sizeof must, "an integer from %.0f to 2^63-1", o->min);
        return settings_bad(c, o, v, must);
    }
    *out = (uint64_t)n;
    return 0;
}

static int take_float(const struct generation_change *c, const kvik_option *o, const json_t *v,
                      double *out)
{
    double d = json_number_value(v);
    if (!json_is_number(v) || !(d >= o->min && d <= o->max)) {
        char must[96];
        snprintf(must, sizeof must, "a number from %g to %g", o->min, o->max);
        return settings_bad(c, o, v, must);
    }
    *out = d;
    return 0;
}

static int take_early(const struct generation_change *c, const kvik_option *o, const json_t *v,
                      enum kvik_early *out)
{
    bool never = json_is_string(v) && !strcmp(json_string_value(v), "never");
    if (!json_is_boolean(v) && !never) return settings_bad(c, o, v, "true, false or \"never\"");
    *out = never ? KVIK_EARLY_NEVER : json_is_true(v) ? KVIK_EARLY_TRUE : KVIK_EARLY_FALSE;
    return 0;
}

static int take_decay(struct generation_change *c, const kvik_option *o, const json_t *v)
{
    const json_t *start = json_array_get(v, 0), *factor = json_array_get(v, 1);
    json_int_t n = json_integer_value(start);
    double f = json_number_value(factor);
    if (json_array_size(v) != 2 || !json_is_integer(start) || n < 0 || n > UINT32_MAX ||
        !json_is_number(factor) || !(f > 0 && f <= 1e6))
        return settings_bad(
            c, o, v, "[START, FACTOR], a number of tokens and a factor above 0, as [8, 1.1]");
    c->to.decay_start = (uint32_t)n;
    c->to.decay_factor = f;
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

static int refuse_value(const char *what, const char *key, const char *want, const json_t *v)
{
    char s[SHOWN];
    if (!strcmp(want, "null") || !strcmp(want, "[]"))
        return ERR(UNSUPPORTED, "%s: %s=%s is not supported in this version; leave it out", what,
                   key, show_value(v, s));
    return ERR(UNSUPPORTED, "%s: %s=%s is not supported in this version; only %s works", what, key,
               show_value(v, s), want);
}

static int take_string(struct generation_change *c, const char *value, size_t offset)
{
    char *copy = mem_strdup(value);
    if (!copy) return ERR_NOMEM;
    settings_replace(c, offset, copy, 0);
    return 0;
}

/* Takes one of the choices of the option. */
static int take_choice(struct generation_change *c, const kvik_option *o, const json_t *v,
                       size_t offset)
{
    const char *s = json_string_value(v);
    char list[128], shown[SHOWN], *save = NULL;
    struct near near;
    if (!s) return settings_bad(c, o, v, "a name");
    snprintf(list, sizeof list, "%s", o->choices);
    near_begin(&near, s);
    for (char *w = strtok_r(list, "|", &save); w; w = strtok_r(NULL, "|", &save)) {
        if (!strcmp(w, s)) return take_string(c, s, offset);
        near_try(&near, w);
    }
    show_value(v, shown);
    if (near.best)
        return ERR(ARG, "%s: unknown %s %s; did you mean \"%s\"?", c->what, o->name, shown,
                   near.best);
    return ERR(ARG, "%s: unknown %s %s; one of %s", c->what, o->name, shown, o->choices);
}

static int take_cache(struct generation_change *c, const kvik_option *o, const json_t *v,
                      size_t offset)
{
    const char *s = json_string_value(v);
    char shown[SHOWN];
    struct near near;
    if (!s) return settings_bad(c, o, v, "a name");
    if (preset_find(s)) return take_string(c, s, offset);
    near_begin(&near, s);
    for (uint32_t i = 0; preset_at(i); i++)
        near_try(&near, preset_at(i)->name);
    for (size_t i = 0; option_cache_others[i]; i++) {
        near_try(&near, option_cache_others[i]);
        if (strcmp(s, option_cache_others[i]) == 0)
            return ERR(UNSUPPORTED, "%s: %s \"%s\" is not supported in this version", c->what,
                       o->name, s);
    }
    show_value(v, shown);
    if (near.best)
        return ERR(ARG, "%s: unknown %s %s; did you mean \"%s\"?", c->what, o->name, shown,
                   near.best);
    return ERR(ARG, "%s: unknown %s %s; one of %s", c->what, o->name, shown, o->choices);
}

/* Takes cache_config, without the keys that have no effect.  The keys are checked here, so that a wrong command
 * line is refused before a model is loaded. */
static int take_cache_config(struct generation_change *c, const kvik_option *o, const json_t *v,
                             size_t offset)
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
    settings_replace(c, offset, text, 0);
    return 0;
}

/* Handles an option for which the caller's kvik_generation, of an older version, has no field.  In a model's own
 * file the option is skipped, since a file may be newer than the program. */
static int beyond(const struct generation_change *c, const kvik_option *o)
{
    if (!c->strict) return 0;
    return ERR(UNSUPPORTED,
               "%s: the kvik.h that this program was compiled with has no option \"%s\"", c->what,
               o->name);
}

static int take_option(struct generation_change *c, int i, const json_t *v)
{
    const kvik_option *o = kvik_option_at((uint32_t)i);
    const struct option_slot *slot = option_slot_at(i);
    if (slot->offset >= c->from->size) return beyond(c, o);
    void *at = (char *)&c->to + slot->offset;
    uint64_t u;
    switch (slot->kind) {
    case OPT_BOOL:
        if (!json_is_boolean(v)) return settings_bad(c, o, v, "true or false");
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
    case OPT_NAME:
        return take_choice(c, o, v, slot->offset);
    case OPT_CACHE:
        return take_cache(c, o, v, slot->offset);
    case OPT_STRINGS:
        return settings_take_strings(c, o, v, slot->offset);
    case OPT_IDS:
        return settings_take_ids(c, o, v, slot->offset);
    case OPT_ID_LIST:
        return settings_take_id_list(c, o, v, slot->offset);
    case OPT_MASK:
        return settings_take_mask(c, o, v);
    case OPT_LISTS:
        return settings_take_lists(c, o, v, slot->offset);
    case OPT_BIASES:
        return settings_take_biases(c, o, v, slot->offset);
    case OPT_DECAY:
        return take_decay(c, o, v);
    case OPT_EARLY:
        return take_early(c, o, v, at);
    case OPT_CACHE_CONFIG:
        return take_cache_config(c, o, v, slot->offset);
    case OPT_OBJECT:
        return settings_take_object(c, o, v, slot->offset);
    case OPT_SCHEMA:
        return settings_take_schema(c, o, v, slot->offset);
    }
    return 0;
}

/* Takes a name that is accepted only at its neutral value.  Unless strict, other values are collected in `unmet`. */
static int take_neutral(struct generation_change *c, const struct option_neutral *o,
                        const json_t *v)
{
    if (neutral(o->value, v)) {
        json_object_del(c->unmet, o->name);
        return 0;
    }
    if (c->strict) return refuse_value(c->what, o->name, o->value, v);
    return json_object_set(c->unmet, o->name, (json_t *)v) < 0 ? ERR(NOMEM, "out of memory") : 0;
}

static int unknown_key(const char *what, const char *key)
{
    const char *near = kvik_option_nearest(key);
    if (near)
        return ERR(ARG, "%s: unknown option \"%.60s\"; did you mean \"%s\"?", what, key, near);
    return ERR(ARG, "%s: unknown option \"%.60s\"", what, key);
}

static int apply_all(struct generation_change *c, const json_t *o)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        const struct option_neutral *rest;
        int i = option_find(key);
        if (i >= 0) {
            if (!json_is_null(v)) TRY(take_option(c, i, v));
        } else if ((rest = option_neutral_find(key))) {
            TRY(take_neutral(c, rest, v));
        } else if (c->strict) {
            return unknown_key(c->what, key);
        }
    }
    TRY(settings_apply_mask(c));
    char *text = NULL;
    if (json_object_size(c->unmet)) TRY(json_text(c->unmet, &text));
    settings_replace(c, offsetof(kvik_generation, unmet), text, 0);
    return 0;
}

int gen_apply(kvik_generation *g, const json_t *o, const char *what, bool strict)
{
    if (!json_is_object(o)) return ERR(ARG, "%s: must be a JSON object of option names", what);
    struct generation_change c = {.what = what, .strict = strict, .from = g, .to = *g};
    int err = 0;
    JSON_SCOPE(scope);
    if (g->unmet) err = json_parse(g->unmet, strlen(g->unmet), "kvik_generation.unmet", &c.unmet);
    if (!err && !c.unmet && !(c.unmet = json_object())) err = ERR(NOMEM, "out of memory");
    if (!err) err = apply_all(&c, o);
    if (!err) err = json_whole(&scope);
    json_decref(c.unmet);
    if (err) {
        settings_drop_others(&c.to, g);
        return err;
    }
    settings_drop_others(g, &c.to);
    *g = c.to;
    return 0;
}
