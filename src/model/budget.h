/* budget.h - how many bytes a cache gets where its configuration names no limit, and how long a step may then be. */
#pragma once
#include "model/preset.h"

/* What a cache is opened for. */
struct budget {
    const struct kv_site *site;
    uint32_t n_sites;
    const struct preset_options *preset;
    struct kv_config store; /* as it will be opened; the groups, pool and staging are not used */
    uint32_t max_seqs;      /* sequences of the caller; the store has more for its own use */
    uint32_t frozen_rows;   /* most rows of an encoder's input */
    bool reserve;           /* every sequence sets max_len rows aside */
    bool step_given; /* store.max_tokens is the caller's choice, so budget_step does not lower it */
};
/* Half of the memory of the machine. */
size_t budget_half(void);
/* Returns the bytes that hold everything the cache is opened for, or `most` if that is less.  *staging: the part for
 * pages in flight; 0: the store chooses. */
size_t budget_bytes(const struct budget *b, size_t most, size_t *staging);
/* Returns how many tokens of a wanted step fit a streaming cache of so many bytes. */
uint32_t budget_step(const struct budget *b, size_t bytes, size_t staging, uint32_t wish);
/* Bytes of the rows of one token over all sites, in type `rows`; rows of an encoder are nobody's token. */
size_t budget_row(const struct kv_site *site, uint32_t n_sites, enum dtype rows);
