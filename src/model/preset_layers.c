/* preset_layers.c - bits of single layers: the key "layers" of cache_config.
 *
 *     {"backend": "kvik", "nbits": 4, "layers": {"0": {"nbits": 8}, "-1": {"k_bits": 8, "v_bits": 4}}}
 *
 * A layer is named by its number, from 0; a negative number counts from the end, so "-1" is the last layer.  A layer
 * that does not name an option has the option of all layers.  The keys are read before the number of layers is
 * known, so numbers stay as they were given until then. */
#include "base/near.h"
#include "model/preset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t *bits_at(struct kv_layer_bits *l, int plane)
{
    return &l->bits[plane];
}

/* Reads one number of bits: nbits, nbits_key, nbits_value, or another name that a kind has for them. */
static int take_bits(const char *what, const char *layer, const char *key, const json_t *v,
                     struct kv_layer_bits *out)
{
    int plane;
    const struct kv_codec_kind *only;
    const struct kv_codec_option *o = kv_keys_option(key, &plane, &only);
    if (!o || strcmp(o->name, "nbits") != 0)
        return ERR(
            ARG, "%s: layers \"%.20s\": unknown key \"%.40s\"; a layer has nbits, k_bits or v_bits",
            what, layer, key);
    if (json_is_null(v)) return 0;
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 1 || n > 16)
        return ERR(ARG, "%s: layers \"%.20s\": %.40s must be a number of bits", what, layer, key);
    for (int p = 0; p < 2; p++) {
        if (plane >= 0 && plane != p) continue;
        int32_t *at = bits_at(out, p);
        /* the name for one plane overrides the name for both, as in cache_config */
        if (*at && plane < 0 && out->one[p]) continue;
        if (*at && (plane < 0 || out->one[p]))
            return ERR(ARG, "%s: layers \"%.20s\": %.40s is given twice", what, layer, key);
        *at = (int32_t)n;
        out->one[p] = plane >= 0;
        out->only[p] = only;
    }
    return 0;
}

static int take_layer(const char *what, const char *name, const json_t *v, struct kv_layers *out)
{
    char *end;
    const char *key;
    const json_t *value;
    errno = 0;
    long n = strtol(name, &end, 10);
    bool digit = strchr("-0123456789", *name); /* strtol takes spaces and a plus, too */
    if (!digit || end == name || *end || errno || n <= -KV_LAYER_MOST || n >= KV_LAYER_MOST)
        return ERR(ARG, "%s: layers: \"%.20s\" is no number of a layer, such as \"0\" or \"-1\"",
                   what, name);
    if (!json_is_object(v))
        return ERR(ARG, "%s: layers \"%.20s\" must be an object such as {\"nbits\": 8}", what,
                   name);
    if (out->n == KV_LAYERS)
        return ERR(ARG, "%s: layers: more than %d layers have bits of their own", what, KV_LAYERS);
    struct kv_layer_bits l = {.layer = (int32_t)n};
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
        TRY(take_bits(what, name, key, value, &l));
    for (uint32_t i = 0; i < out->n; i++)
        if (out->at[i].layer == l.layer)
            return ERR(ARG, "%s: layers: layer %d is given twice", what, (int)l.layer);
    if (l.bits[0] || l.bits[1]) out->at[out->n++] = l;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const struct kv_layer_bits *x = a, *y = b;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

int kv_layers_read(const char *what, const json_t *v, struct kv_layers *out)
{
    const char *name;
    const json_t *one;
    *out = (struct kv_layers){0};
    if (!json_is_object(v))
        return ERR(ARG, "%s: layers must be an object such as {\"0\": {\"nbits\": 8}}", what);
    json_object_foreach((json_t *)(uintptr_t)v, name, one) TRY(take_layer(what, name, one, out));
    qsort(out->at, out->n, sizeof *out->at, by_number);
    return 0;
}

bool kv_layers_same(const struct kv_layers *a, const struct kv_layers *b)
{
    bool same = a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++)
        same = a->at[i].layer == b->at[i].layer && a->at[i].bits[0] == b->at[i].bits[0] &&
               a->at[i].bits[1] == b->at[i].bits[1];
    return same;
}

static int pair_with(const struct kv_codec_pair *quant, const struct kv_layer_bits *l,
                     struct kv_codec_pair *out)
{
    *out = *quant;
    for (int p = 0; p < 2; p++) {
        struct kv_codec_options *o = &out->plane[p];
        if (!l->bits[p]) continue;
        /* if one plane is not quantized or has no option for bits, bits for both are those of the other plane */
        if (!l->one[p] && kv_codec_option_at(o->kind, "nbits") < 0 &&
            kv_codec_option_at(out->plane[1 - p].kind, "nbits") >= 0)
            continue;
        if (l->only[p] && l->only[p] != o->kind)
            return ERR(ARG, "%s have backend \"%s\", without the option %s", p ? "values" : "keys",
                       o->kind ? o->kind->name : KV_CODEC_NONE,
                       l->only[p]->option[kv_codec_option_at(l->only[p], "nbits")].own[p]);
        TRY(kv_codec_set(o, "nbits", l->bits[p]));
    }
    return kv_codec_pair_check(out);
}

int kv_layers_check(const struct kv_layers *l, const struct kv_codec_pair *quant)
{
    char where[64];
    struct kv_codec_pair pair;
    for (uint32_t i = 0; i < l->n; i++) {
        int e = pair_with(quant, &l->at[i], &pair);
        snprintf(where, sizeof where, "cache_config: layers \"%d\"", (int)l->at[i].layer);
        if (e < 0) return err_prefix(e, "%s", where), e;
    }
    return 0;
}

int kv_layers_settle(const struct kv_layers *l, uint32_t n_layers, struct kv_layers *out)
{
    struct kv_layers made = *l;
    for (uint32_t i = 0; i < l->n; i++) {
        int64_t at = l->at[i].layer, n = n_layers;
        if (at < -n || at >= n)
            return ERR(ARG, "cache_config: layers \"%d\": there are layers 0 to %u", (int)at,
                       n_layers - 1);
        made.at[i].layer = (int32_t)(at < 0 ? at + n : at);
        for (uint32_t k = 0; k < i; k++)
            if (made.at[k].layer == made.at[i].layer)
                return ERR(ARG, "cache_config: layers \"%d\" and \"%d\" are the same layer",
                           (int)l->at[k].layer, (int)l->at[i].layer);
    }
    *out = made;
    return 0;
}

struct kv_codec_pair kv_layers_pair(const struct kv_layers *l, const struct kv_codec_pair *quant,
                                    uint32_t layer)
{
    struct kv_codec_pair pair = *quant;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->at[i].layer == (int32_t)layer && pair_with(quant, &l->at[i], &pair) < 0)
            return *quant; /* kv_layers_check has checked that this cannot fail */
    return pair;
}
