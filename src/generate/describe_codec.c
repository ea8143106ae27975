/* describe_codec.c - lists the codecs of this build as configurations of a cache: each kind with each number of bits
 * that it has.  The list is made from the table of codecs.  So `kvik eval` measures, and `kvik plan` offers, a codec
 * that is added later without any change there. */
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

/* The options of a configuration for keys and for values.  bits: index of the option that is the number of bits;
 * below 0: there is none. */
struct plane_options {
    struct kv_codec_options plane[2];
    int bits;
};

static int32_t bits_at(const struct plane_options *r, int plane)
{
    return r->plane[plane].value[r->bits];
}

static bool allowed(const struct plane_options *r)
{
    const struct kv_codec_kind *kind = r->plane[0].kind;
    for (int p = 0; p < 2; p++) {
        const struct kv_codec_options *o = &r->plane[p];
        const struct kv_codec_option *bits = r->bits < 0 ? NULL : &kind->option[r->bits];
        if (bits && (bits_at(r, p) < bits->min || bits_at(r, p) > bits->max)) return false;
        if (kind->check && kind->check(o, p == 0) < 0) return false;
    }
    return true;
}

static void set_bits(json_t *config, const char *name, const char *end, int32_t bits)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", name, end);
    json_object_set_new(config, key, json_integer(bits));
}

/* Adds one configuration: its name, and the text of its cache_config. */
static int add_config(json_t *list, const struct plane_options *r)
{
    const struct kv_codec_kind *kind = r->plane[0].kind;
    int axis = kv_codec_option_at(kind, "axis");
    char name[64], *text;
    json_t *config = json_pack("{s:s}", "backend", kind->name);
    if (!config) return ERR(NOMEM, "out of memory");
    snprintf(name, sizeof name, "%s", kind->name);
    if (r->bits >= 0 && bits_at(r, 0) == bits_at(r, 1)) {
        set_bits(config, kind->option[r->bits].name, "", bits_at(r, 0));
        snprintf(name, sizeof name, "%s %d bit%s", kind->name, (int)bits_at(r, 0),
                 bits_at(r, 0) == 1 ? "" : "s");
    } else if (r->bits >= 0) {
        set_bits(config, kind->option[r->bits].name, "_key", bits_at(r, 0));
        set_bits(config, kind->option[r->bits].name, "_value", bits_at(r, 1));
        snprintf(name, sizeof name, "%s %d/%d bits", kind->name, (int)bits_at(r, 0),
                 (int)bits_at(r, 1));
    }
    if (axis >= 0 && r->plane[0].value[axis] != kind->option[axis].usual) {
        json_object_set_new(config, "axis_key", json_integer(r->plane[0].value[axis]));
        json_object_set_new(config, "axis_value", json_integer(r->plane[1].value[axis]));
    }
    int e = json_text(config, &text);
    json_decref(config);
    TRY(e);
    e = json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", name, "backend",
                                              kind->name, "cache_config", text));
    mem_free(text);
    return e < 0 ? ERR(NOMEM, "out of memory") : 0;
}

/* Adds a kind with each of its numbers of bits, in descending order.  Kinds that do not follow the schedule of
 * Transformers also get configurations whose values have the next lower number, because values need fewer bits than
 * keys. */
static int add_kind(json_t *list, const struct kv_codec_kind *kind)
{
    struct plane_options r = {.bits = kv_codec_option_at(kind, "nbits")};
    int axis = kv_codec_option_at(kind, "axis");
    for (int p = 0; p < 2; p++) {
        TRY(kv_codec_usual(kind->name, &r.plane[p]));
        if (axis >= 0 && advised_axis(kind) >= 0) r.plane[p].value[axis] = advised_axis(kind);
    }
    if (r.bits < 0) return allowed(&r) ? add_config(list, &r) : 0;
    for (int32_t keys = MOST_BITS; keys > 0; keys--) {
        int32_t values = keys;
        r.plane[0].value[r.bits] = r.plane[1].value[r.bits] = keys;
        if (!allowed(&r)) continue;
        TRY(add_config(list, &r));
        if (kind->turns) continue;
        do
            r.plane[1].value[r.bits] = --values;
        while (values > 0 && !allowed(&r));
        if (values > 0) TRY(add_config(list, &r));
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
