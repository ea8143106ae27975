/* budget.h - how many bytes a cache gets where its configuration names no limit, and how long a step may then be. */
#pragma once
#include "model/preset.h"

/* What a cache is opened for. */
struct budget {
    const struct kv_site *site;
    uint32_t n_sites;
    const struct preset_options *preset;
    /* configuration of the store; its groups, pool and staging are not used here */
    struct kv_config store;
    uint32_t max_seqs;    /* the caller's sequences; the store has more for its own use */
    uint32_t frozen_rows; /* most rows of an encoder's input */
    bool reserve;         /* every sequence reserves max_len rows */
    bool step_given; /* the caller has chosen store.max_tokens, so budget_step does not lower it */
};
/* Returns half of the memory of the machine. */
size_t budget_half(void);
/* Returns the bytes that hold everything the cache is opened for, but at most `most`.  *staging: bytes for pages
 * in flight; 0: the store chooses. */
size_t budget_bytes(const struct budget *b, size_t most, size_t *staging);
/* Returns how many tokens a step may have in a streaming cache of `bytes` bytes, if the caller wants `wanted`. */
uint32_t budget_step(const struct budget *b, size_t bytes, size_t staging, uint32_t wish);
/* Returns the bytes of the rows of one token over all sites, in type `rows`.  An encoder's rows do not count: they
 * belong to no token. */
size_t budget_row(const struct kv_site *site, uint32_t n_sites, enum dtype rows);
