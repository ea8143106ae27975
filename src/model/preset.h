/* preset.h - cache_implementation names as rows of fields, and what cache_config adds to them: from a model's
 * sites to kv groups.  Three axes, set independently: policy (which rows a query sees), codec (how full tiles are
 * encoded), tier (where full pages live).  A name only chooses their defaults. */
#pragma once
#include "base/json.h"
#include "kv/codec.h"
#include "kv/kv.h"

/* A site is a place where a model keeps something of the past: the keys and values of an attention layer, a recurrent
 * state, the rows that an encoder wrote.  A model declares what its sites hold; the preset and cache_config decide how. */
struct kv_site_plane {
    const char *name;
    uint32_t heads, dim;
};
struct kv_site {
    enum kv_kind kind;
    uint32_t layer;         /* the model's layer that writes it, for reports */
    uint32_t window, chunk; /* of KV_ROWS; 0: every row is seen */
    uint32_t n_planes;
    struct kv_site_plane plane[KV_MAX_PLANES]; /* k, v | conv, ssm */
};
/* A site of keys [heads][dim] and values [heads][dim_v] per token. */
struct kv_site kv_site_rows(uint32_t heads, uint32_t dim, uint32_t dim_v);
/* Bytes of one row, whose values have type `rows`; or of one state, whose values are always f32. */
size_t kv_site_bytes(const struct kv_site *s, enum dtype rows);
struct kv_preset {
    const char *name;  /* the reference's cache_implementation */
    bool reserve;      /* set aside max_cache_len rows when a sequence begins */
    bool offload;      /* full pages live in the tier */
    bool quantized;    /* a codec, quanto unless cache_config says otherwise */
    bool windowed;     /* needs a model, or a cache_config, with a window */
    bool sink;         /* needs window_length and num_sink_tokens */
    const char *brief; /* one line for help and reports */
};
const struct kv_preset *kv_preset_find(const char *name); /* NULL: unknown */
const struct kv_preset *kv_preset_at(uint32_t i);         /* NULL past the end */

/* preset_keys.c: the keys of cache_config, the same for every preset.  '-' equals '_'; null is not given. */
enum { KV_LEN_MOST = 1 << 28 }; /* tokens of a sequence that can be asked for */

enum kv_key {
    KV_KEY_MAX_CACHE_LEN,
    KV_KEY_SLIDING_WINDOW,
    KV_KEY_WINDOW_LENGTH,
    KV_KEY_NUM_SINK_TOKENS,
    KV_KEY_OFFLOADING,
    KV_KEY_OFFLOAD_ONLY_NON_SLIDING,
    KV_KEY_BACKEND,
    KV_KEY_BACKEND_KEY, /* of keys, of values, where they differ; "none" leaves them as they are */
    KV_KEY_BACKEND_VALUE,
    KV_KEY_RESIDUAL_LENGTH,
    KV_KEY_TEST_CODEC,      /* a lossless codec of the tests */
    KV_KEY_TEST_BLOCK_ROWS, /* rows of a block */
    KV_KEYS
};
/* A codec's option as it was given; the backend decides later whether it has such an option. */
struct kv_key_option {
    const char *name; /* of a kind's table */
    int plane;        /* 0: of keys, 1: of values, -1: of both */
    int32_t value;
};
enum { KV_KEY_OPTIONS = 3 * KV_CODEC_OPTIONS };
struct kv_keys {
    uint32_t given; /* bit 1 << enum kv_key */
    uint32_t max_cache_len, sliding_window, window_length, num_sink_tokens, block_rows;
    uint32_t residual_length;
    bool offloading, offload_only_non_sliding;
    const char *backend, *backend_plane[2]; /* names of the registry, or NULL */
    struct kv_key_option option[KV_KEY_OPTIONS];
    uint32_t n_options;
    const struct kv_codec *test_codec;
};
extern const struct kv_keys kv_keys_none; /* nothing given: the reference's defaults */
/* `what` names the source in errors.  Unknown keys are errors that suggest the nearest. */
int kv_keys_read(const json_t *o, const char *what, struct kv_keys *out);
bool kv_keys_ignores(const char *key); /* of the reference, without effect here (device, ...) */
/* Contradictions, among the keys and with the preset; each error names both. */
int kv_keys_check(const struct kv_keys *k, const struct kv_preset *p);
/* What the keys and the preset say of the codecs of both planes; errors name the key. */
int kv_keys_codecs(const struct kv_keys *k, const struct kv_preset *p, struct kv_codec_pair *out);

struct kv_preset_options {
    enum dtype dtype; /* of raw rows */
    uint32_t window;  /* applies to sites without a window or chunk; 0: none */
    uint32_t sinks;   /* leading rows kept besides `window`, which then bounds all sites of rows */
    uint32_t every;   /* kv_policy.every of groups that forget */
    uint32_t block_rows;          /* 0: 16; or 32, 64, 128, 256, for tests */
    bool stream;                  /* full pages may live in the tier, */
    bool stream_only_full;        /* but those of layers with a window or chunk stay in memory */
    struct kv_codec_pair quant;   /* instances are made for each group */
    const struct kv_codec *codec; /* a ready instance of k and v, or NULL (tests) */
};
/* What a configuration chose: a preset, the keys beside it, and what both say of length and tier. */
struct preset_choice {
    const struct kv_preset *preset;
    struct kv_keys keys;
    uint32_t max_cache_len; /* 0: not given */
    enum kv_streaming streaming;
};
/* Preset and checked keys onto `o` (dtype stays).  The sites decide whether there is a window. */
int kv_preset_settle(const struct kv_preset *p, const struct kv_keys *k, const struct kv_site *site,
                     uint32_t n_sites, struct kv_preset_options *o);
bool kv_preset_encodes(const struct kv_preset_options *o); /* some plane has a codec */
bool kv_preset_offloads(const struct kv_preset *p, const struct kv_keys *k);
/* Sites of the same kind, policy and shapes share a group.  group: room for n_sites; number[i]: the store's number of
 * site i.  Returns the number of groups, to be given to kv_preset_close once no store uses them. */
int kv_preset_groups(const struct kv_site *site, uint32_t n_sites,
                     const struct kv_preset_options *o, struct kv_group *group, uint32_t *number);
void kv_preset_close(struct kv_group *group, uint32_t n_groups); /* their codec instances */
