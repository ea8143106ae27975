/* model_tier.h - a tier in memory that behaves as a slow and faulty disk may: nothing moves before
 * finish, the k-th start or finish fails, and half of a failed transfer was done. It knows which
 * bytes are in use. */
#pragma once
#include "kv/tier.h"

struct tier_mem {
    struct kv_tier tier;
    unsigned char *bytes, *state; /* [cap], [cap / 64]: 0 free, 1 written */
    size_t cap;
    uint32_t in_flight;
    uint64_t fail_at; /* the k-th call from now fails; 0: none */
    bool failed;      /* a call failed */
    /* Number of reads of bytes never written or dropped, and of overlong queues. */
    uint64_t bad;
    uint64_t reads, writes, drops, faults;
};
struct tier_mem *tier_mem_open(void); /* close frees the tier */
/* Returns bytes [at, at + n), or NULL if some were never written. */
const unsigned char *tier_mem_at(const struct tier_mem *t, uint64_t at, size_t n);
