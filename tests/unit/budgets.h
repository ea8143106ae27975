/* budgets.h - limits for tests of full caches: bytes of rows and of the metadata beside them. */
#pragma once
#include "generate/handle.h"
#include "testing.h"

/* Returns the metadata that the budget holds for `seqs` sequences of `len` tokens. */
/* Checks the sums that include/kvik.h promises. */
static inline void sums_hold(const kvik_usage *u)
{
    assert_int_equal(u->bytes, u->live + u->states + u->staging);
    assert_int_equal(u->budget, u->bytes + u->reserved + u->metadata + u->free);
    assert_true(u->index <= u->free && u->shared <= u->live + u->states);
}

static inline uint64_t budget_tables(const kvik_cache *c, uint32_t seqs, uint32_t len)
{
    const struct kv_config k = {.group = c->x->group,
                                .n_groups = c->x->n_groups,
                                .streaming = c->x->streaming,
                                .index = kv_indexes(c->x->kv)};
    return 2 * (uint64_t)seqs * kv_metadata_bytes(&k, len);
}

/* Returns the metadata of an open cache.  Without sequences these are the arrays of fixed size. */
static inline uint64_t budget_metadata(const kvik_cache *c)
{
    struct kv_usage u;
    kv_usage(c->x->kv, &u);
    return u.metadata;
}

/* Returns the cache_memory that leaves `rows` bytes for rows in a cache like k with such sequences. */
static inline uint64_t budget_for(kvik_model *m, kvik_cache_config k, uint64_t rows, uint32_t seqs,
                                  uint32_t len)
{
    uint64_t memory = rows;
    for (uint32_t i = 0; i < 16; i++) {
        kvik_cache *c = NULL;
        k.cache_memory = memory;
        if (kvik_cache_open(m, &k, &c) < 0) {
            memory += 64 << 10;
            continue;
        }
        memory = rows + budget_metadata(c) + budget_tables(c, seqs, len);
        kvik_cache_close(c);
        if (memory == k.cache_memory) break;
    }
    return memory;
}
