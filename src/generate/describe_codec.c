/* describe_codec.c - lists the codecs of this build as configurations of a cache, from the table of codecs: each kind with each number of bits that
 * it has.  So a codec that is added later is measured by `kvik eval` and offered by `kvik plan` without a word there. */
#include "generate/describe.h"
#include "kv/codec.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BITS = 16 };

/* Returns the axis that is recommended for a kind; below 0: its default. */
static int32_t advised_axis(const struct kv_codec_kind *kind)
{
    return strcmp(kind->name, "hqq") == 0 ? 1 : -1;
}

/* Finds the options that are numbers of bits, at most two: of all rows, or of keys and of values. */
static uint32_t bits_of(const struct kv_codec_kind *kind, uint32_t at[2])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < kind->n_options && n < 2; i++) {
        size_t len = strlen(kind->option[i].name);
        if (len >= 4 && strcmp(kind->option[i].name + len - 4, "bits") == 0) at[n++] = i;
    }
    return n;
}

static bool allowed(const struct kv_codec_options *o)
{
    const struct kv_codec_kind *kind = o->kind;
    for (uint32_t i = 0; i < kind->n_options; i++)
        if (o->value[i] < kind->option[i].min || o->value[i] > kind->option[i].max) return false;
    return !kind->check || (kind->check(o, true) >= 0 && kind->check(o, false) >= 0);
}

/* Adds one configuration: its name, and the text of its cache_config. */
static int add(json_t *list, const struct kv_codec_options *o, const uint32_t *bits, uint32_t n)
{
    const struct kv_codec_kind *kind = o->kind;
    int axis = kv_codec_option_at(kind, "axis");
    char name[64], *text;
    json_t *config = json_pack("{s:s}", "backend", kind->name);
    if (!config) return ERR(NOMEM, "out of memory");
    for (uint32_t i = 0; i < n; i++)
        json_object_set_new(config, kind->option[bits[i]].name, json_integer(o->value[bits[i]]));
    if (axis >= 0 && o->value[axis] != kind->option[axis].usual) {
        json_object_set_new(config, "axis_key", json_integer(o->value[axis]));
        json_object_set_new(config, "axis_value", json_integer(o->value[axis]));
    }
    int at = snprintf(name, sizeof name, "%s", kind->name);
    if (n) at += snprintf(name + at, sizeof name - (size_t)at, " %d", (int)o->value[bits[0]]);
    if (n > 1 && o->value[bits[1]] != o->value[bits[0]])
        at += snprintf(name + at, sizeof name - (size_t)at, "/%d", (int)o->value[bits[1]]);
    bool one = n == 1 && o->value[bits[0]] == 1;
    if (n) snprintf(name + at, sizeof name - (size_t)at, one ? " bit" : " bits");
    int e = json_text(config, &text);
    json_decref(config);
    TRY(e);
    e = json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", name, "backend",
                                              kind->name, "cache_config", text));
    mem_free(text);
    return e < 0 ? ERR(NOMEM, "out of memory") : 0;
}

/* Adds a kind with each number of bits, and with the next lower one for the values, from the most bits down. */
static int add_kind(json_t *list, const struct kv_codec_kind *kind)
{
    struct kv_codec_options o;
    uint32_t at[2], n = bits_of(kind, at);
    TRY(kv_codec_usual(kind->name, &o));
    int axis = kv_codec_option_at(kind, "axis");
    if (axis >= 0 && advised_axis(kind) >= 0) o.value[axis] = advised_axis(kind);
    if (!n) return allowed(&o) ? add(list, &o, at, 0) : 0;
    for (int32_t keys = MOST_BITS; keys > 0; keys--) {
        o.value[at[0]] = keys;
        for (int32_t values = keys, found = 0; values > 0 && found < 2; values--) {
            if (n > 1) o.value[at[1]] = values;
            if (allowed(&o)) {
                TRY(add(list, &o, at, n));
                found++;
            } else if (values == keys) {
                break;
            }
            if (n < 2) break;
        }
    }
    return 0;
}

int describe_codecs(json_t **out)
{
    json_t *list = json_array();
    int e = list ? 0 : ERR(NOMEM, "out of memory");
    for (uint32_t i = 0; e >= 0 && kv_codec_at(i); i++)
        if (strcmp(kv_codec_at(i)->name, KV_CODEC_NONE) != 0) e = add_kind(list, kv_codec_at(i));
    if (e >= 0)
        *out = list;
    else
        json_decref(list);
    return e;
}
