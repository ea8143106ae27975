/* preset.h - the names of cache_implementation as rows of fields, and the keys of cache_config: how a model's
 * sites become groups of the store.  Three axes are set independently: policy (which rows a query sees), codec
 * (how full tiles are stored) and tier (where full pages live).  A name only chooses their defaults. */
#pragma once
#include "base/json.h"
#include "kv/codec.h"
#include "kv/kv.h"

/* A site is a place where a model keeps something of the past: the keys and values of an attention layer, a recurrent
 * state, the rows that an encoder wrote.  A model declares what its sites hold; the preset and cache_config decide how. */
struct kv_site_plane {
    const char *name;
    uint32_t heads, dim;
    /* The shape of a state in exports: `turned`, [dim][heads] in place of [heads][dim]; with `parts`, the first of
     * these sizes is split into [parts][size / parts]. */
    bool turned;
    uint32_t parts;
};
struct kv_site {
    enum kv_kind kind;
    uint32_t layer;         /* layer that writes the site, for descriptions */
    uint32_t window, chunk; /* of KV_ROWS; both 0: every row is seen */
    uint32_t n_planes;
    struct kv_site_plane plane[KV_MAX_PLANES]; /* k, v | conv, ssm | conv, delta */
};
/* Returns a site of keys [heads][dim] and values [heads][dim_v] per token. */
struct kv_site kv_site_rows(uint32_t heads, uint32_t dim, uint32_t dim_v);
/* Returns the bytes of one row, whose values have type `rows`; or of one state, whose values are always f32. */
size_t kv_site_bytes(const struct kv_site *s, enum dtype rows);
struct preset {
    const char *name; /* of cache_implementation in Transformers */
    bool reserve;     /* reserves max_cache_len rows when a sequence begins */
    bool offload;     /* full pages live in the tier */
    /* full tiles are quantized, by quanto unless cache_config names another backend */
    bool quantized;
    bool windowed;     /* needs a model, or a cache_config, with a window */
    bool sink;         /* needs window_length and num_sink_tokens */
    bool states;       /* needs a model with recurrent states */
    const char *brief; /* one line for help and reports */
};
/* Numbers of bits on the rungs of kv_group.rung, with codec kvik. */
extern const int32_t preset_rung_bits[KV_RUNGS];

/* Returns NULL if the name is unknown.  "mamba", "jamba" and "zamba" mean the model's own cache; lists do not show
 * these names. */
const struct preset *preset_find(const char *name);
const struct preset *preset_at(uint32_t i); /* NULL past the end */

/* preset_keys.c: the keys of cache_config, the same for every preset.  '-' equals '_'; null means not given. */
enum { KV_LEN_MOST = 1 << 28 }; /* largest max_cache_len */

enum kv_key {
    KV_KEY_MAX_CACHE_LEN,
    KV_KEY_SLIDING_WINDOW,
    KV_KEY_WINDOW_LENGTH,
    KV_KEY_NUM_SINK_TOKENS,
    KV_KEY_OFFLOADING,
    KV_KEY_OFFLOAD_ONLY_NON_SLIDING,
    KV_KEY_BACKEND,
    KV_KEY_BACKEND_KEY, /* backend of keys, backend of values; "none": not quantized */
    KV_KEY_BACKEND_VALUE,
    KV_KEY_RESIDUAL_LENGTH,
    KV_KEY_MOVED_CHUNKS,
    KV_KEY_TEST_BLOCK_ROWS, /* rows of a block; only for tests */
    KV_KEYS
};
/* An option of a codec as given.  Whether the backend has this option is checked later. */
struct kv_key_option {
    const char *name; /* the name in a codec's table */
    int plane;        /* 0: for keys, 1: for values, -1: for both */
    int32_t value;
    const struct kv_codec_kind *only; /* the kind whose own name was given, or NULL */
};
enum { KV_KEY_OPTIONS = 3 * KV_CODEC_OPTIONS };

/* preset_layers.c: numbers of bits of single layers. */
enum {
    KV_LAYERS = 256,        /* most layers with bits of their own */
    KV_LAYER_MOST = 1 << 16 /* bound of the number of such a layer */
};
struct kv_layer_bits {
    int32_t layer;                       /* below 0: counted from the end */
    int32_t bits[2];                     /* of keys, of values; 0: as in the other layers */
    bool one[2];                         /* true if the bits were given for this plane alone */
    const struct kv_codec_kind *only[2]; /* the kind whose own name was given, or NULL */
};
struct kv_layers {
    uint32_t n;
    struct kv_layer_bits at[KV_LAYERS]; /* by number as given */
};
struct kv_keys {
    uint32_t given; /* bit 1 << enum kv_key */
    uint32_t max_cache_len, sliding_window, window_length, num_sink_tokens, block_rows;
    uint32_t residual_length, moved_chunks;
    bool offloading, offload_only_non_sliding;
    const char *backend, *backend_plane[2]; /* names of the registry, or NULL */
    struct kv_key_option option[KV_KEY_OPTIONS];
    uint32_t n_options;
    struct kv_layers layers;
    bool choose;    /* nbits is "auto": bits are chosen by measuring, before the cache is opened */
    double max_kld; /* the divergence that such a choice stays within; 0: not given */
};
extern const struct kv_keys kv_keys_none; /* no key given: the defaults of Transformers */
/* Reads an object of keys; `what` names its source in errors.  An unknown key is an error that suggests the nearest. */
int kv_keys_read(const json_t *o, const char *what, struct kv_keys *out);
/* Adds the keys of `more` to k.  A key that both have must have the same value.  `first` and `second` name the two
 * sources in errors. */
int kv_keys_add(struct kv_keys *k, const struct kv_keys *more, const char *first,
                const char *second);
/* True for keys of Transformers that have no effect in kvik (device, ...). */
bool kv_keys_ignores(const char *key);
/* Refuses contradictions among the keys and with the preset; each error names both sides. */
int kv_keys_check(const struct kv_keys *k, const struct preset *p);
/* Returns the option of a codec that a key spells, its plane (-1: both), and in *only the kind whose own name it is; NULL if no
 * kind has the option. */
const struct kv_codec_option *kv_keys_option(const char *key, int *plane,
                                             const struct kv_codec_kind **only);
/* Reads the object of "layers". */
int kv_layers_read(const char *what, const json_t *v, struct kv_layers *out);
bool kv_layers_same(const struct kv_layers *a, const struct kv_layers *b);
/* Refuses bits that the codecs do not have; errors name the layer. */
int kv_layers_check(const struct kv_layers *l, const struct kv_codec_pair *quant);
/* Replaces numbers below 0.  A layer that is not there, or that is named in two ways, is an error. */
int kv_layers_settle(const struct kv_layers *l, uint32_t n_layers, struct kv_layers *out);
/* Returns the codecs of one layer; l has been settled. */
struct kv_codec_pair kv_layers_pair(const struct kv_layers *l, const struct kv_codec_pair *quant,
                                    uint32_t layer);
/* Finds the codecs of keys and values that the keys and the preset ask for; errors name the key. */
int kv_keys_codecs(const struct kv_keys *k, const struct preset *p, struct kv_codec_pair *out);

#define PRESET_NEVER UINT32_MAX
struct preset_options {
    enum dtype dtype; /* type of raw rows */
    uint32_t window;  /* for sites without a window or chunk; 0: none */
    /* leading rows that stay besides `window`; with sinks the window bounds all sites of rows */
    uint32_t sinks;
    /* kv_policy.every of groups with a window or a state; 0: the default; PRESET_NEVER: no snapshots */
    uint32_t every;
    uint32_t block_rows;   /* 0: 16; or 32, 64, 128, 256, for tests */
    bool stream;           /* full pages may live in the tier */
    bool rungs;            /* rows get 8 bits, and then 4, when memory is short (kv_group.rung) */
    bool stream_only_full; /* pages of sites with a window or chunk stay in memory */
    struct kv_codec_pair quant; /* codecs; each group gets its own instances */
    struct kv_layers layers;    /* settled; layers whose codecs have other numbers of bits */
    /* for frozen sites, in place of stream and quant */
    bool cross_stream;
    struct kv_codec_pair cross_quant;
};
/* The choices of a configuration: a preset and its keys, and the length and tier that follow from them. */
struct preset_choice {
    const struct preset *preset;
    struct kv_keys keys;
    uint32_t max_cache_len; /* 0: not given */
    enum kv_streaming streaming;
    bool encode; /* rows are encoded when memory is short */
    /* for frozen sites; NULL: stored as they were computed */
    const struct preset *cross;
    struct kv_keys cross_keys;
};
/* Returns the preset that `p` means for these sites: as in Transformers, "hybrid" is "dynamic" for a model that
 * has states and no windows. */
const struct preset *preset_for(const struct preset *p, const struct kv_keys *k,
                                const struct kv_site *site, uint32_t n_sites);
/* Applies a preset and its keys to `o`, except for dtype.  A preset that needs a window may find it in the sites. */
int preset_settle(const struct preset *p, const struct kv_keys *k, const struct kv_site *site,
                  uint32_t n_sites, struct preset_options *o);
/* Does the same for frozen sites; cross NULL: stored as they were computed.  A preset or key that means nothing
 * for rows that never grow is an error. */
int preset_settle_cross(const struct preset *cross, const struct kv_keys *k,
                        struct preset_options *o);
bool preset_encodes(const struct preset_options *o); /* true if a plane has a codec */
bool preset_offloads(const struct preset *p, const struct kv_keys *k);
/* Makes groups: sites of the same kind, policy and shapes share one.  group: room for n_sites.  number[i]: number
 * of site i in the store.  Returns the number of groups.  The caller frees them with preset_close when no store
 * uses them any more. */
int preset_groups(const struct kv_site *site, uint32_t n_sites, const struct preset_options *o,
                  struct kv_group *group, uint32_t *number);
/* Closes the codec instances of groups. */
void preset_close(struct kv_group *group, uint32_t n_groups);
