/* unbound.h - the inside of a cache without a model.  Each layer has a small store of its own, because callers update
 * layers one by one.  Policy, codec and tier come from the same presets as everywhere. */
#pragma once
#include "generate/handle.h"

struct unbound_layer {
    bool slides; /* the configured window applies */
    bool open;   /* the first update told the shapes */
    struct kv *kv;
    struct kv_group group;
    uint32_t batch, heads, dim_k, dim_v;
    enum dtype dtype;
    kv_seq *seq; /* [batch] owned, room for max_batch */
};
struct unbound {
    struct dev *dev;
    struct preset_choice set;
    uint64_t memory; /* limit of each layer; 0: not given */
    char *spill_dir; /* owned */
    uint32_t n_layers, max_batch;
    struct unbound_layer *layer; /* [n_layers] */
    /* Results of the last update, and scratch; grown as needed. */
    float *keys, *values, *packed;
    int32_t *position;
    void *scratch;
    size_t n_keys, n_values, n_packed, n_position, n_scratch; /* elements; n_scratch: bytes */
};
/* Opens a cache of n_layers as `set` and the rest of c ask; kinds as for kvik_cache_open_unbound. */
int unbound_open(const struct preset_choice *set, const kvik_cache_config *c, uint32_t n_layers,
                 const char *const *kinds, struct unbound **out);
/* Returns the limit of a row; the store's is one more (unbound.c, store_open). */
static inline uint32_t unbound_most(const struct unbound_layer *l)
{
    return kv_max_len(l->kv) - 1;
}
void unbound_layer_close(struct unbound_layer *l);
void unbound_close(struct unbound *u);
void unbound_usage(const struct unbound *u, struct kv_usage *out); /* summed over layers */
/* What the next update of n rows returns. */
struct unbound_shape {
    uint32_t sinks, lo, len; /* rows [0, sinks) and [lo, len + n) */
    uint32_t rows;           /* their number, with padding */
};
struct unbound_shape unbound_shape(const struct unbound *u, const struct unbound_layer *l,
                                   uint32_t n);

/* batch.c: operations on the whole batch: every layer that has rows changes, or none. */
int batch_crop(struct unbound *u, int64_t len);
int batch_reorder(struct unbound *u, const uint32_t *from, uint32_t n);
/* Makes *index (mem_free), *n entries 0,0,..,1,1,..: each of `rows` rows `times` times; ERR_LIMIT above `most`. */
int batch_repeated(uint32_t rows, uint32_t times, uint32_t most, uint32_t **index, uint32_t *n);
