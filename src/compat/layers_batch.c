/* layers_batch.c - operations on the whole batch of a cache without a model.  An operation is checked on every
 * layer before it changes one.  If it needs new sequences, it makes all of them first. */
#include "compat/layers.h"

#include <string.h>

static int layers_batch(const kvik_layers *all, uint32_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < all->n_layers; i++) {
        const struct layer *l = &all->layer[i];
        if (!l->open) continue;
        if (*out && l->batch != *out)
            return ERR(ARG, "layer %u has a batch of %u, an earlier layer has one of %u", i,
                       l->batch, *out);
        *out = l->batch;
    }
    return 0;
}

/* Fills want[batch] with the lengths of the layer's rows after a crop. */
static int layer_wants(const kvik_layers *all, uint32_t layer, int64_t len, uint32_t *want)
{
    const struct layer *l = &all->layer[layer];
    uint32_t have;
    for (uint32_t b = 0; b < l->batch; b++) {
        uint32_t old = kv_len(l->kv, l->seq[b]);
        int64_t to = crop_kept(len, old);
        if (to < 0)
            return ERR(ARG, "crop by %llu: layer %u has %u rows",
                       (unsigned long long)-(uint64_t)len, layer, old);
        TRY(kv_resume(l->kv, l->seq[b], (uint32_t)to, &have));
        if (have != to)
            return ERR(LOST,
                       "crop to %lld rows: layer %u no longer has the rows that its window "
                       "would need, and without a model they cannot be recomputed",
                       (long long)to, layer);
        want[b] = have;
    }
    return 0;
}

/* Each layer has a store of its own.  So all layers reserve the room that they need before the first one is cut. */
KVIK_API int kvik_layers_crop(kvik_layers *layers, int64_t len)
{
    USE_LAYERS(layers);
    uint32_t have, *want = mem_array(all->max_batch, sizeof *want);
    int e = want ? 0 : ERR_NOMEM;
    for (int go = 0; go < 2; go++)
        for (uint32_t i = 0; e >= 0 && i < all->n_layers; i++) {
            const struct layer *l = &all->layer[i];
            if (!l->open) continue;
            e = layer_wants(all, i, len, want);
            if (e >= 0 && !go) e = kv_trim_room(l->kv, l->seq, want, l->batch);
            for (uint32_t b = 0; go && e >= 0 && b < l->batch; b++)
                e = kv_trim(l->kv, l->seq[b], want[b], &have);
        }
    mem_free(want);
    return e;
}

KVIK_API int kvik_layers_reorder(kvik_layers *layers, const uint32_t *from, uint32_t n)
{
    uint32_t batch;
    USE_LAYERS(layers);
    if (n && !from) return ERR(ARG, "a reorder needs the indices of the new contents");
    TRY(layers_batch(all, &batch));
    if (batch && n != batch) return ERR(ARG, "reorder of %u rows, the cache has %u", n, batch);
    for (uint32_t i = 0; batch && i < n; i++)
        if (from[i] >= batch) return ERR(ARG, "row %u of a batch of %u", from[i], batch);
    for (uint32_t i = 0; i < all->n_layers; i++) /* checks all layers before one is changed */
        if (all->layer[i].open) TRY(kv_reorder_room(all->layer[i].kv, all->layer[i].seq, from, n));
    for (uint32_t i = 0; i < all->n_layers; i++)
        if (all->layer[i].open) TRY(kv_reorder(all->layer[i].kv, all->layer[i].seq, from, n));
    return 0;
}

/* Replaces the sequences of a layer.  fresh: [n] new sequences with the rows of the selected ones. */
static int layer_select(kvik_layers *all, struct layer *l, const uint32_t *index, uint32_t n,
                        kv_seq *fresh)
{
    uint32_t k = 0;
    int e = 0;
    for (; e >= 0 && k < n; k++) {
        e = kv_fork(l->kv, l->seq[index[k]], &fresh[k]);
        if (e < 0) break;
        if (all->set.preset->reserve) e = kv_reserve(l->kv, fresh[k], layer_most(l));
    }
    if (e >= 0) return 0;
    for (uint32_t i = 0; i <= k && i < n; i++)
        if (fresh[i]) (void)kv_drop(l->kv, fresh[i]);
    return e;
}

static int layers_select(kvik_layers *all, const uint32_t *index, uint32_t n)
{
    uint32_t batch, done = 0;
    TRY(layers_batch(all, &batch));
    if (!batch) return 0; /* no layer has rows yet */
    if (!n || n > all->max_batch)
        return ERR(LIMIT, "a batch of %u, the cache was opened for max_sequences %u", n,
                   all->max_batch);
    for (uint32_t i = 0; i < n; i++)
        if (index[i] >= batch) return ERR(ARG, "row %u of a batch of %u", index[i], batch);
    kv_seq *fresh = mem_array((size_t)all->n_layers * n, sizeof *fresh);
    int e = fresh ? 0 : ERR_NOMEM;
    for (; e >= 0 && done < all->n_layers; done++)
        if (all->layer[done].open) {
            e = layer_select(all, &all->layer[done], index, n, fresh + (size_t)done * n);
            if (e < 0) break;
        }
    for (uint32_t i = 0; fresh && i < done; i++) {
        struct layer *l = &all->layer[i];
        if (!l->open) continue;
        for (uint32_t b = 0; b < (e < 0 ? n : l->batch); b++)
            (void)kv_drop(l->kv, e < 0 ? fresh[(size_t)i * n + b] : l->seq[b]);
        if (e < 0) continue;
        memcpy(l->seq, fresh + (size_t)i * n, n * sizeof *l->seq);
        l->batch = n;
    }
    mem_free(fresh);
    return e;
}

KVIK_API int kvik_layers_select(kvik_layers *layers, const uint32_t *index, uint32_t n)
{
    USE_LAYERS(layers);
    if (n && !index) return ERR(ARG, "rows are selected by index, and index is NULL");
    return layers_select(all, index, n);
}

int rows_repeated(uint32_t rows, uint32_t times, uint32_t most, uint32_t **index, uint32_t *n)
{
    if (__builtin_mul_overflow(rows, times, n) || *n > most)
        return ERR(LIMIT, "%u rows repeated %u times, the cache was opened for max_sequences %u",
                   rows, times, most);
    if (!(*index = mem_array(*n, sizeof **index))) return ERR_NOMEM;
    for (uint32_t i = 0; i < *n; i++)
        (*index)[i] = i / times;
    return 0;
}

KVIK_API int kvik_layers_repeat(kvik_layers *layers, uint32_t times)
{
    uint32_t batch, n, *index;
    USE_LAYERS(layers);
    if (!times) return ERR(ARG, "rows are repeated once or more");
    TRY(layers_batch(all, &batch));
    if (!batch) return 0;
    TRY(rows_repeated(batch, times, all->max_batch, &index, &n));
    int e = layers_select(all, index, n);
    mem_free(index);
    return e;
}

KVIK_API int kvik_layers_reset(kvik_layers *layers)
{
    USE_LAYERS(layers);
    for (uint32_t i = 0; i < all->n_layers; i++)
        layer_close(&all->layer[i]); /* the next update may have another shape */
    return 0;
}

KVIK_API int64_t kvik_layers_length(const kvik_layers *layers, uint32_t layer)
{
    USE_LAYERS(layers);
    if (layer >= all->n_layers) return ERR(ARG, "layer %u of %u", layer, all->n_layers);
    return all->layer[layer].open ? kv_len(all->layer[layer].kv, all->layer[layer].seq[0]) : 0;
}

KVIK_API int kvik_layers_mask_sizes(const kvik_layers *layers, uint32_t layer, uint32_t n,
                                    uint32_t *kv_length, uint32_t *kv_offset)
{
    USE_LAYERS(layers);
    if (layer >= all->n_layers) return ERR(ARG, "layer %u of %u", layer, all->n_layers);
    struct layers_shape s = layers_shape(all, &all->layer[layer], n);
    if (n > UINT32_MAX - s.len)
        return ERR(LIMIT, "an update of %u rows after %u exceeds the limit of %u rows", n, s.len,
                   UINT32_MAX);
    if (kv_length) *kv_length = s.rows;
    if (kv_offset) *kv_offset = s.lo - s.sinks;
    return 0;
}
