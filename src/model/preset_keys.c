/* preset_keys.c - cache_config: one table of keys for every preset, and the contradictions among them.  Generation
 * options and kvik_cache_config both read their keys here, so each key is spelled in one place. */
#include "base/near.h"
#include "model/preset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define KV_OPTION_NAME 48 /* bytes of a key that names an option of a codec */

enum kind { UINT, INT, BOOL, NAME };
static const struct {
    const char *name;
    enum kind kind;
    size_t offset; /* in struct kv_keys */
    int64_t min, max;
} table[KV_KEYS] = {
#define KEY(id, name, kind, field, min, max)                                                       \
    [KV_KEY_##id] = {name, kind, offsetof(struct kv_keys, field), min, max}
    KEY(MAX_CACHE_LEN, "max_cache_len", UINT, max_cache_len, 1, KV_LEN_MOST),
    KEY(SLIDING_WINDOW, "sliding_window", UINT, sliding_window, 1, 1 << 28),
    KEY(WINDOW_LENGTH, "window_length", UINT, window_length, 1, 1 << 28),
    KEY(NUM_SINK_TOKENS, "num_sink_tokens", UINT, num_sink_tokens, 0, 1 << 28),
    KEY(OFFLOADING, "offloading", BOOL, offloading, 0, 1),
    KEY(OFFLOAD_ONLY_NON_SLIDING, "offload_only_non_sliding", BOOL, offload_only_non_sliding, 0, 1),
    KEY(BACKEND, "backend", NAME, backend, 0, 0),
    KEY(BACKEND_KEY, "backend_key", NAME, backend_plane[0], 0, 0),
    KEY(BACKEND_VALUE, "backend_value", NAME, backend_plane[1], 0, 0),
    KEY(RESIDUAL_LENGTH, "residual_length", UINT, residual_length, 0, 1 << 28),
    KEY(MOVED_CHUNKS, "moved_chunks", UINT, moved_chunks, 0, KV_BORROWS_MOST),
    KEY(TEST_BLOCK_ROWS, "test_block_rows", UINT, block_rows, 16, KV_ATOM),
#undef KEY
};
/* Keys of Transformers for the device and type of tensors.  Here the model decides both, so the keys have no
 * effect. */
static const char *const ignored[] = {"device", "batch_size", "max_batch_size", "dtype",
                                      "layer_device_map"};

const struct kv_keys kv_keys_none = {.residual_length = 128};

static bool same_word(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && near_distance(a, b) == 0; /* near_distance takes '-' for '_' */
}

bool kv_keys_ignores(const char *key)
{
    for (size_t i = 0; i < countof(ignored); i++)
        if (same_word(key, ignored[i])) return true;
    return false;
}

/* Spells option `name` for plane 0 (keys), 1 (values) or -1 (both). */
static const char *spell_key(const char *name, int plane, char out[KV_OPTION_NAME])
{
    static const char *const suffix[] = {"", "_key", "_value"};
    snprintf(out, KV_OPTION_NAME, "%s%s", name, suffix[plane + 1]);
    return out;
}

/* Spells an option as it was given. */
static const char *spell_given(const struct kv_key_option *w, char out[KV_OPTION_NAME])
{
    if (!w->only) return spell_key(w->name, w->plane, out);
    return w->only->option[kv_codec_option_at(w->only, w->name)].own[w->plane];
}

static int unknown_key(const char *what, const char *key)
{
    static const int planes[] = {-1, 0, 1};
    char word[KV_OPTION_NAME], best[KV_OPTION_NAME] = "";
    size_t least = SIZE_MAX;
    struct near n;
    near_begin(&n, key);
    near_try(&n, "layers");
    near_try(&n, "max_kld");
    for (size_t i = 0; i < KV_KEY_TEST_BLOCK_ROWS; i++)
        near_try(&n, table[i].name);
    if (n.best) {
        snprintf(best, sizeof best, "%s", n.best);
        least = n.cost;
    }
    for (uint32_t i = 0; kv_codec_at(i); i++)
        for (uint32_t k = 0; k < kv_codec_at(i)->n_options; k++)
            for (size_t p = 0; p < countof(planes); p++) {
                near_begin(&n, key);
                near_try(&n, spell_key(kv_codec_at(i)->option[k].name, planes[p], word));
                if (planes[p] >= 0 && kv_codec_at(i)->option[k].own[planes[p]])
                    near_try(&n, kv_codec_at(i)->option[k].own[planes[p]]);
                if (!n.best || n.cost >= least) continue;
                least = n.cost;
                snprintf(best, sizeof best, "%s", n.best);
            }
    if (*best) return ERR(ARG, "%s: unknown key \"%.40s\"; did you mean \"%s\"?", what, key, best);
    return ERR(ARG, "%s: unknown key \"%.40s\"", what, key);
}

static int take_backend(const char *what, enum kv_key id, const char *s, struct kv_keys *k)
{
    struct near n;
    const char *key = table[id].name;
    char list[KV_CODEC_LIST];
    kv_codec_names(list);
    if (!s) return ERR(ARG, "%s: %s must be the name of a codec: %s", what, key, list);
    near_begin(&n, s);
    for (uint32_t i = 0; kv_codec_at(i); i++) {
        const char *name = kv_codec_at(i)->name;
        near_try(&n, name);
        /* case does not matter: the guide of Transformers writes "HQQ" */
        if (!same_word(s, name)) continue;
        memcpy((char *)k + table[id].offset, &name, sizeof name);
        return 0;
    }
    if (n.best)
        return ERR(ARG, "%s: unknown %s \"%.40s\"; did you mean \"%s\"?", what, key, s, n.best);
    return ERR(UNSUPPORTED, "%s: %s \"%.40s\" is not available; choose one of: %s", what, key, s,
               list);
}

static int take_key(const char *what, enum kv_key id, const json_t *v, struct kv_keys *k)
{
    void *at = (char *)k + table[id].offset;
    json_int_t n = json_integer_value(v);
    const char *name = table[id].name;
    switch (table[id].kind) {
    case NAME:
        return take_backend(what, id, json_string_value(v), k);
    case BOOL:
        if (!json_is_boolean(v)) return ERR(ARG, "%s: %s must be true or false", what, name);
        *(bool *)at = json_is_true(v);
        return 0;
    case UINT:
    case INT:
        if (!json_is_integer(v) || n < table[id].min || n > table[id].max)
            return ERR(ARG, "%s: %s must be an integer from %lld to %lld", what, name,
                       (long long)table[id].min, (long long)table[id].max);
        if (table[id].kind == UINT)
            *(uint32_t *)at = (uint32_t)n;
        else
            *(int *)at = (int)n;
    }
    return 0;
}

const struct kv_codec_option *kv_keys_option(const char *key, int *plane,
                                             const struct kv_codec_kind **only)
{
    char word[KV_OPTION_NAME];
    for (uint32_t i = 0; kv_codec_at(i); i++)
        for (uint32_t k = 0; k < kv_codec_at(i)->n_options; k++)
            for (*plane = -1; *plane < 2; ++*plane) {
                const struct kv_codec_option *o = &kv_codec_at(i)->option[k];
                const char *own = *plane < 0 ? NULL : o->own[*plane];
                *only = own && same_word(key, own) ? kv_codec_at(i) : NULL;
                if (*only || same_word(key, spell_key(o->name, *plane, word))) return o;
            }
    return NULL;
}

/* Returns 1 if the key is an option of a codec, which is then noted; 0 if it is no such option.  Kinds of codecs
 * may have an option of the same name with different ranges.  The kind is not known yet, so here it is enough that
 * the value suits one of them. */
static int take_option(const char *what, const char *key, const json_t *v, struct kv_keys *k)
{
    int plane;
    char word[KV_OPTION_NAME];
    const struct kv_codec_kind *only;
    const struct kv_codec_option *o = kv_keys_option(key, &plane, &only), *p = o;
    if (!o) return 0;
    if (json_is_null(v)) return 1;
    bool choose = json_is_string(v) && same_word(json_string_value(v), "auto") &&
                  strcmp(o->name, "nbits") == 0;
    if (choose && plane < 0) {
        k->choose = true;
        return 1;
    }
    json_int_t n = json_integer_value(v);
    if (only)
        snprintf(word, sizeof word, "%s", o->own[plane]);
    else
        spell_key(o->name, plane, word);
    for (uint32_t i = 0; !only && kv_codec_at(i) && (n < p->min || n > p->max); i++) {
        int at = kv_codec_option_at(kv_codec_at(i), o->name);
        if (at >= 0) p = &kv_codec_at(i)->option[at];
    }
    if (!json_is_integer(v) || n < p->min || n > p->max)
        return ERR(ARG, "%s: %s must be an integer from %d to %d%s", what, word, o->min, o->max,
                   choose ? "; \"auto\" is a value of nbits alone" : "");
    for (uint32_t i = 0; i < k->n_options; i++)
        if (strcmp(k->option[i].name, o->name) == 0 && k->option[i].plane == plane)
            return ERR(ARG, "%s: %s is given twice", what, word);
    if (k->n_options == KV_KEY_OPTIONS)
        return ERR(ARG, "%s: more than %d options of codecs", what, KV_KEY_OPTIONS);
    k->option[k->n_options++] = (struct kv_key_option){o->name, plane, (int32_t)n, only};
    return 1;
}

int kv_keys_read(const json_t *o, const char *what, struct kv_keys *out)
{
    struct kv_keys k = kv_keys_none;
    const char *key;
    json_t *v;
    if (!json_is_object(o))
        return ERR(ARG, "%s must be an object such as {\"max_cache_len\": 4096}", what);
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        uint32_t i = 0;
        while (i < KV_KEYS && !same_word(key, table[i].name))
            i++;
        if (i == KV_KEYS && same_word(key, "compute_dtype") && !json_is_null(v))
            return ERR(
                UNSUPPORTED,
                "%s: compute_dtype is not supported: rows are dequantized to the type in which "
                "they were computed; leave it out",
                what);
        if (i == KV_KEYS && same_word(key, "layers")) {
            if (!json_is_null(v)) TRY(kv_layers_read(what, v, &k.layers));
            continue;
        }
        if (i == KV_KEYS && same_word(key, "max_kld")) {
            if (json_is_null(v)) continue;
            k.max_kld = json_number_value(v);
            if (!(k.max_kld > 0) || isinf(k.max_kld))
                return ERR(ARG, "%s: max_kld must be a number above 0", what);
            continue;
        }
        if (i == KV_KEYS && !kv_keys_ignores(key) && !same_word(key, "compute_dtype")) {
            int taken = take_option(what, key, v, &k);
            if (taken < 0) return taken;
            if (!taken) return unknown_key(what, key);
        }
        if (i == KV_KEYS || json_is_null(v)) continue;
        if (k.given & 1u << i) return ERR(ARG, "%s: %s is given twice", what, table[i].name);
        TRY(take_key(what, i, v, &k));
        k.given |= 1u << i;
    }
    *out = k;
    return 0;
}

static int twice(const char *key, const char *first, const char *second)
{
    return ERR(ARG, "%s and %s give different values of %s; give it in one of them", first, second,
               key);
}

/* Adds one of the fixed keys. */
static int add_key(struct kv_keys *k, const struct kv_keys *more, uint32_t id, const char *first,
                   const char *second)
{
    static const size_t bytes[] = {[UINT] = sizeof(uint32_t),
                                   [INT] = sizeof(int),
                                   [BOOL] = sizeof(bool),
                                   [NAME] = sizeof(const char *)};
    void *to = (char *)k + table[id].offset;
    const void *from = (const char *)more + table[id].offset;
    size_t n = bytes[table[id].kind];
    if (k->given & 1u << id && memcmp(to, from, n) != 0)
        return twice(table[id].name, first, second);
    memcpy(to, from, n);
    k->given |= 1u << id;
    return 0;
}

int kv_keys_add(struct kv_keys *k, const struct kv_keys *more, const char *first,
                const char *second)
{
    char word[KV_OPTION_NAME];
    for (uint32_t i = 0; i < KV_KEYS; i++)
        if (more->given & 1u << i) TRY(add_key(k, more, i, first, second));
    for (uint32_t i = 0; i < more->n_options; i++) {
        const struct kv_key_option *o = &more->option[i];
        uint32_t at = 0;
        while (at < k->n_options &&
               (strcmp(k->option[at].name, o->name) != 0 || k->option[at].plane != o->plane))
            at++;
        if (at == k->n_options && k->n_options == KV_KEY_OPTIONS)
            return ERR(ARG, "%s: more than %d options of codecs", second, KV_KEY_OPTIONS);
        if (at < k->n_options && k->option[at].value != o->value)
            return twice(spell_given(o, word), first, second);
        k->option[at] = *o;
        k->n_options = MAX(k->n_options, at + 1);
    }
    if (more->layers.n && k->layers.n && !kv_layers_same(&more->layers, &k->layers))
        return twice("layers", first, second);
    if (more->layers.n) k->layers = more->layers;
    if (more->max_kld > 0 && k->max_kld > 0 && more->max_kld != k->max_kld)
        return twice("max_kld", first, second);
    if (more->max_kld > 0) k->max_kld = more->max_kld;
    k->choose |= more->choose;
    return 0;
}

static int check_windows(const struct kv_keys *k, const struct preset *p)
{
    bool length = k->given & 1u << KV_KEY_WINDOW_LENGTH,
         sinks = k->given & 1u << KV_KEY_NUM_SINK_TOKENS;
    if (p->sink && !(length && sinks))
        return ERR(ARG,
                   "cache_implementation \"sink\" needs cache_config {\"window_length\": N, "
                   "\"num_sink_tokens\": M}; %s missing",
                   length  ? "num_sink_tokens is"
                   : sinks ? "window_length is"
                           : "both are");
    if (length && k->given & 1u << KV_KEY_SLIDING_WINDOW)
        return ERR(ARG,
                   "cache_config: window_length %u and sliding_window %u contradict each "
                   "other; give one of them",
                   k->window_length, k->sliding_window);
    if (length != sinks)
        return ERR(ARG, "cache_config: %s needs %s; window_length counts the sinks too",
                   length ? "window_length" : "num_sink_tokens",
                   length ? "num_sink_tokens" : "window_length");
    if (length && k->window_length <= k->num_sink_tokens)
        return ERR(ARG,
                   "cache_config: window_length %u includes the sinks and must be larger than "
                   "num_sink_tokens %u",
                   k->window_length, k->num_sink_tokens);
    return 0;
}

static int check_tier(const struct kv_keys *k, const struct preset *p)
{
    if (p->offload && k->given & 1u << KV_KEY_OFFLOADING && !k->offloading)
        return ERR(ARG,
                   "cache_implementation \"%s\" and cache_config offloading=false contradict each "
                   "other; leave one of them out",
                   p->name);
    if (k->offload_only_non_sliding && !preset_offloads(p, k))
        return ERR(ARG,
                   "cache_config: offload_only_non_sliding needs offloading=true or an offloaded "
                   "cache_implementation, not \"%s\"",
                   p->name);
    return 0;
}

static int no_codec(const char *key, const struct preset *p)
{
    return ERR(ARG,
               "cache_config: %s needs a backend (such as \"quanto\") or cache_implementation "
               "\"quantized\", not \"%s\"",
               key, p->name);
}

/* Applies one option to the planes that it is for.  At least one of their codecs must have the option. */
static int apply_option(const struct kv_key_option *w, struct kv_codec_pair *o)
{
    char word[KV_OPTION_NAME];
    const char *key = spell_given(w, word);
    bool taken = false;
    for (int p = 0; p < 2; p++) {
        if (w->plane >= 0 && w->plane != p) continue;
        if (w->only && w->only != o->plane[p].kind) continue;
        if (kv_codec_option_at(o->plane[p].kind, w->name) < 0) continue;
        TRY(kv_codec_set(&o->plane[p], w->name, w->value));
        taken = true;
    }
    if (taken) return 0;
    const struct kv_codec_kind *k = o->plane[0].kind, *v = o->plane[1].kind;
    return ERR(ARG,
               "cache_config: %s: keys have backend \"%s\", values \"%s\", without this option",
               key, k ? k->name : KV_CODEC_NONE, v ? v->name : KV_CODEC_NONE);
}

/* Checks residual_length.  A codec without a residual refuses it, as Transformers does, unless the other plane's codec has one. */
static int check_residual(const struct kv_keys *k, const struct kv_codec_pair *o)
{
    const struct kv_codec_kind *without = NULL;
    if (!(k->given & 1u << KV_KEY_RESIDUAL_LENGTH)) return 0;
    for (int p = 0; p < 2; p++) {
        const struct kv_codec_kind *kind = o->plane[p].kind;
        if (kind && kind->turns && !kind->at_once) return 0;
        if (kind && kind->at_once) without = kind;
    }
    if (!without) return 0;
    return ERR(
        ARG,
        "cache_config: residual_length: backend \"%s\" quantizes the rows of every update when "
        "it ends; leave it out",
        without->name);
}

/* Checks nbits "auto": bits are chosen for both planes and for all layers, so both planes must have the codec with a
 * ladder of bits, and no other key may set bits. */
static int check_choice(const struct kv_keys *k, const struct kv_codec_pair *o)
{
    char word[KV_OPTION_NAME];
    if (!k->choose && k->max_kld > 0)
        return ERR(ARG, "cache_config: max_kld is for nbits \"auto\"");
    if (!k->choose) return 0;
    for (int p = 0; p < 2; p++)
        if (!o->plane[p].kind || strcmp(o->plane[p].kind->name, "kvik") != 0)
            return ERR(
                ARG, "cache_config: nbits \"auto\" is for backend \"kvik\", and %s have \"%s\"",
                p ? "values" : "keys", o->plane[p].kind ? o->plane[p].kind->name : KV_CODEC_NONE);
    if (k->n_options || k->layers.n)
        return ERR(ARG, "cache_config: nbits \"auto\" chooses the bits of all rows; leave out %s",
                   k->layers.n ? "layers" : spell_given(&k->option[0], word));
    return 0;
}

int kv_keys_codecs(const struct kv_keys *k, const struct preset *p, struct kv_codec_pair *out)
{
    const char *both = k->backend ? k->backend : p->quantized ? "quanto" : KV_CODEC_NONE;
    struct kv_codec_pair o = {.residual_length = k->residual_length};
    for (int i = 0; i < 2; i++) {
        const char *name = k->backend_plane[i] ? k->backend_plane[i] : both;
        if (strcmp(name, KV_CODEC_NONE) == 0) continue;
        TRY(kv_codec_usual(name, &o.plane[i]));
    }
    if (!o.plane[0].kind && !o.plane[1].kind) {
        char key[KV_OPTION_NAME];
        if (p->quantized)
            return ERR(ARG, "cache_implementation \"%s\" and backend \"%s\" contradict each other",
                       p->name, KV_CODEC_NONE);
        if (k->n_options) return no_codec(spell_given(&k->option[0], key), p);
        if (k->given & 1u << KV_KEY_RESIDUAL_LENGTH) return no_codec("residual_length", p);
        if (k->layers.n) return no_codec("layers", p);
        if (k->choose || k->max_kld > 0) return no_codec(k->choose ? "nbits" : "max_kld", p);
        *out = o;
        return 0;
    }
    for (int one = 0; one < 2; one++) /* an option of one plane overrides the same option of both */
        for (uint32_t i = 0; i < k->n_options; i++)
            if ((k->option[i].plane >= 0) == one) TRY(apply_option(&k->option[i], &o));
    TRY(kv_codec_pair_check(&o));
    TRY(check_residual(k, &o));
    TRY(check_choice(k, &o));
    TRY(kv_layers_check(&k->layers, &o));
    *out = o;
    return 0;
}

int kv_keys_check(const struct kv_keys *k, const struct preset *p)
{
    TRY(check_windows(k, p));
    TRY(check_tier(k, p));
    struct kv_codec_pair o;
    return kv_keys_codecs(k, p, &o);
}
