/* store.h - the store that benchmarks of the cache's own work share: the geometry of SmolLM2-135M
 * (30 layers, 3 heads of 64, f16), opened without a model. */
#pragma once
#include "kv/kv.h"

/* window: of all layers; 0: every row is seen.  index: the prefix index keeps dropped sequences. */
static inline int store_open_for(struct kv **out, uint32_t seqs, uint32_t window, bool index,
                                 size_t pool)
{
    struct kv_group g = {.policy = {.kind = KV_ROWS, .window = window},
                         .n_sites = 30,
                         .rows = 16,
                         .n_planes = 2,
                         .plane = {{"k", {3, 64, DT_F16, KV_STRIPS}, NULL},
                                   {"v", {3, 64, DT_F16, KV_ROWMAJOR}, NULL}}};
    struct kv_config config = {.group = &g,
                               .n_groups = 1,
                               .max_seqs = seqs,
                               .max_tokens = 256,
                               .max_len = seqs > 64 ? 2048 : 16384,
                               .index = index,
                               .pool_bytes = pool};
    return kv_open(out, &config);
}

static inline int store_open(struct kv **out, uint32_t window, bool index, size_t pool)
{
    return store_open_for(out, 64, window, index, pool);
}
