/* preset_keys.c - cache_config: one table of keys for every preset, and the contradictions among them.  The
 * generation options and the cache's own reader both come here, so that a key is spelled in one place. */
#include "base/near.h"
#include "model/preset.h"

#include <string.h>

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
    KEY(BACKEND, "backend", NAME, codec.backend, 0, 0),
    KEY(NBITS, "nbits", UINT, codec.nbits, 1, 8),
    KEY(AXIS_KEY, "axis_key", INT, codec.axis_key, -1, 1),
    KEY(AXIS_VALUE, "axis_value", INT, codec.axis_value, -1, 1),
    KEY(Q_GROUP_SIZE, "q_group_size", UINT, codec.q_group_size, 1, 1 << 20),
    KEY(RESIDUAL_LENGTH, "residual_length", UINT, codec.residual_length, 0, 1 << 28),
    KEY(TEST_CODEC, "test_codec", NAME, test_codec, 0, 0),
    KEY(TEST_BLOCK_ROWS, "test_block_rows", UINT, block_rows, 16, KV_ATOM),
#undef KEY
};
/* Of the reference: where and in which type tensors are made; the model decides that here. */
static const char *const ignored[] = {"device", "batch_size", "max_batch_size", "dtype",
                                      "layer_device_map"};

const struct kv_keys kv_keys_none = {.codec = {NULL, 4, 0, 0, 64, 128}};

static bool same(const char *a, const char *b)
{
    return strlen(a) == strlen(b) && near_distance(a, b) == 0; /* '-' is '_' there */
}

bool kv_keys_ignores(const char *key)
{
    for (size_t i = 0; i < countof(ignored); i++)
        if (same(key, ignored[i])) return true;
    return false;
}

static int unknown(const char *what, const char *key)
{
    struct near n;
    near_begin(&n, key);
    for (size_t i = 0; i < KV_KEY_TEST_CODEC; i++)
        near_try(&n, table[i].name);
    if (n.best)
        return ERR(ARG, "%s: unknown key \"%.40s\"; did you mean \"%s\"?", what, key, n.best);
    return ERR(ARG, "%s: unknown key \"%.40s\"", what, key);
}

static int take_name(const char *what, enum kv_key id, const char *s, struct kv_keys *k)
{
    if (id == KV_KEY_TEST_CODEC) {
        if (!s || strcmp(s, kv_codec_shuffle.name) != 0)
            return ERR(ARG, "%s: test_codec: only \"%s\" exists", what, kv_codec_shuffle.name);
        k->test_codec = &kv_codec_shuffle;
        return 0;
    }
    struct near n;
    if (!s) return ERR(ARG, "%s: backend must be a name: \"quanto\" or \"hqq\"", what);
    near_begin(&n, s);
    for (uint32_t i = 0; kv_codec_at(i); i++) {
        const char *name = kv_codec_at(i)->name;
        near_try(&n, name);
        if (!same(s, name)) continue; /* case does not matter: the guide writes "HQQ" */
        k->codec.backend = name;
        return 0;
    }
    if (n.best)
        return ERR(ARG, "%s: unknown backend \"%.40s\"; did you mean \"%s\"?", what, s, n.best);
    return ERR(UNSUPPORTED, "%s: backend \"%.40s\" is not available; quanto and hqq are", what, s);
}

static int take(const char *what, enum kv_key id, const json_t *v, struct kv_keys *k)
{
    void *at = (char *)k + table[id].offset;
    json_int_t n = json_integer_value(v);
    const char *name = table[id].name;
    switch (table[id].kind) {
    case NAME:
        return take_name(what, id, json_string_value(v), k);
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
        while (i < KV_KEYS && !same(key, table[i].name))
            i++;
        if (i == KV_KEYS && same(key, "compute_dtype") && !json_is_null(v))
            return ERR(UNSUPPORTED,
                       "%s: compute_dtype: rows are decoded in the type they were written in; "
                       "leave it out",
                       what);
        if (i == KV_KEYS && !kv_keys_ignores(key) && !same(key, "compute_dtype"))
            return unknown(what, key);
        if (i == KV_KEYS || json_is_null(v)) continue;
        if (k.given & 1u << i) return ERR(ARG, "%s: %s is given twice", what, table[i].name);
        TRY(take(what, i, v, &k));
        k.given |= 1u << i;
    }
    *out = k;
    return 0;
}

static int check_windows(const struct kv_keys *k, const struct kv_preset *p)
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

static int check_tier(const struct kv_keys *k, const struct kv_preset *p)
{
    if (p->offload && k->given & 1u << KV_KEY_OFFLOADING && !k->offloading)
        return ERR(ARG,
                   "cache_implementation \"%s\" and cache_config offloading=false contradict each "
                   "other; leave one of them out",
                   p->name);
    if (k->offload_only_non_sliding && !kv_preset_offloads(p, k))
        return ERR(ARG,
                   "cache_config: offload_only_non_sliding needs offloading=true or an offloaded "
                   "cache_implementation, not \"%s\"",
                   p->name);
    return 0;
}

static int check_codec(const struct kv_keys *k, const struct kv_preset *p)
{
    struct kv_codec_options o = k->codec;
    for (uint32_t i = KV_KEY_NBITS; i <= KV_KEY_RESIDUAL_LENGTH; i++)
        if (k->given & 1u << i && !o.backend && !p->quantized)
            return ERR(ARG,
                       "cache_config: %s needs backend (\"quanto\" or \"hqq\") or "
                       "cache_implementation \"quantized\", not \"%s\"",
                       table[i].name, p->name);
    if (!o.backend && !p->quantized) return 0;
    if (k->test_codec) return ERR(ARG, "cache_config: test_codec and backend: give one of them");
    if (!o.backend) o.backend = "quanto";
    const struct kv_codec_kind *kind = kv_codec_find(o.backend);
    if (!kind)
        return ERR(UNSUPPORTED, "quantized caches: backend \"%s\" is not in this build", o.backend);
    return kind->check ? kind->check(&o) : 0;
}

int kv_keys_check(const struct kv_keys *k, const struct kv_preset *p)
{
    TRY(check_windows(k, p));
    TRY(check_tier(k, p));
    return check_codec(k, p);
}
