/* unbound.h - inside a cache without a model: one small store for each layer, since layers may be fed at their own
 * pace; policy, codec and tier come from the same presets as everywhere. */
#pragma once
#include "generate/handle.h"

struct unbound_layer {
    bool slides; /* the configured window applies */
    bool open;   /* geometry is known */
    struct kv *kv;
    struct kv_group group;
    uint32_t batch, heads, dim_k, dim_v;
    enum dtype dtype;
    kv_seq *seq; /* [batch] owned, room for max_batch */
};
struct unbound {
    struct dev *dev;
    struct preset_choice set;
    uint64_t memory; /* for each layer; 0: not given */
    char *spill_dir; /* owned */
    uint32_t n_layers, max_batch;
    struct unbound_layer *layer; /* [n_layers] */
    /* What the last update returned, and scratch; grown as needed. */
    float *keys, *values, *packed;
    int32_t *position;
    void *scratch;
    size_t n_keys, n_values, n_packed, n_position, n_scratch; /* elements; bytes */
};
/* A cache of n_layers without a model, as `set` and the rest of c ask; kinds as kvik_cache_open_unbound takes them. */
int unbound_open(const struct preset_choice *set, const kvik_cache_config *c, uint32_t n_layers,
                 const char *const *kinds, struct unbound **out);
void unbound_layer_close(struct unbound_layer *l);
void unbound_close(struct unbound *u);
void unbound_usage(const struct unbound *u, struct kv_usage *out); /* summed over layers */
/* Rows and positions of an update of n rows by the next one. */
struct unbound_shape {
    uint32_t sinks, lo, len; /* returned: [0, sinks), [lo, len + n) */
    uint32_t rows;           /* and padding up to this many */
};
struct unbound_shape unbound_shape(const struct unbound *u, const struct unbound_layer *l,
                                   uint32_t n);

/* batch.c: operations on the whole batch, on every layer that has rows or on none. */
int batch_crop(struct unbound *u, int64_t len);
int batch_reorder(struct unbound *u, const uint32_t *from, uint32_t n);
/* rows 0,0,..,1,1,..: *index (mem_free) selects each of `rows` rows `times` times, *n of them, at most `most`. */
int batch_repeated(uint32_t rows, uint32_t times, uint32_t most, uint32_t **index, uint32_t *n);
