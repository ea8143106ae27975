/* layers.h - the inside of a cache without a model.  Each layer has a small store of its own, because callers
 * update layers one by one.  Policy, codec and tier come from the same presets as in other caches.  Every public
 * call begins with USE_LAYERS, as calls with other caches begin with USE_CACHE (generate/handle.h). */
#pragma once
#include "compat/compat_sizes.h"
#include "generate/handle.h"

struct layer {
    bool slides; /* the configured window applies to this layer */
    bool open;   /* the shapes are known, since the first update */
    struct kv *kv;
    struct kv_group group;
    uint32_t batch, heads, dim_k, dim_v;
    enum dtype dtype;
    kv_seq *seq; /* [batch] owned, room for max_batch */
};
struct kvik_layers {
    struct refs refs;
    struct guard guard;
    struct dev *dev;         /* owned */
    struct dev_queue *queue; /* owned */
    struct preset_choice set;
    uint64_t memory; /* limit of each layer; 0: not given */
    char *spill_dir; /* owned */
    uint32_t n_layers, max_batch;
    struct layer *layer; /* [n_layers] */
    /* Results of the last update, and scratch. */
    float *keys, *values, *packed;
    int32_t *position;
    void *scratch;
    /* sizes of these arrays in elements; n_scratch in bytes */
    size_t n_keys, n_values, n_packed, n_position, n_scratch;
};
int layers_enter(const kvik_layers *l, kvik_layers **used);
void layers_leave(kvik_layers **used); /* does nothing if *used is NULL */
/* Uses a cache as `all` until the end of the block. */
#define USE_LAYERS(l)                                                                              \
    kvik_layers *all __attribute__((cleanup(layers_leave))) = NULL;                                \
    TRY(layers_enter(l, &all))
/* True if every row gets all its memory when it begins. */
static inline bool layers_static(const kvik_layers *all)
{
    return all->set.preset->reserve;
}
/* Returns the greatest length of a row.  The store allows one more (layers.c, store_open). */
static inline uint32_t layer_most(const struct layer *l)
{
    return kv_max_len(l->kv) - 1;
}
void layer_close(struct layer *l);
/* The rows that an update of n rows returns. */
struct layers_shape {
    uint32_t sinks, lo, len; /* they are rows [0, sinks) and [lo, len + n) */
    uint32_t rows;           /* number of these rows, with padding */
};
struct layers_shape layers_shape(const kvik_layers *all, const struct layer *l, uint32_t n);

/* Makes *index (mem_free) with *n entries 0,0,..,1,1,..: each of `rows` batch rows, `times` times.  ERR_LIMIT if
 * there are more than `most`. */
int rows_repeated(uint32_t rows, uint32_t times, uint32_t most, uint32_t **index, uint32_t *n);
