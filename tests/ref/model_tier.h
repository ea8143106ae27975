/* model_tier.h - a tier in memory that does what a slow and faulty disk may do: nothing moves before
 * finish, the k-th start or finish fails, half of what failed was done, and it knows which bytes are
 * somebody's. */
#pragma once
#include "kv/tier.h"

struct tier_mem {
    struct kv_tier tier;
    unsigned char *bytes, *state; /* [cap], [cap / 64]: 0 nobody's, 1 written */
    size_t cap;
    uint32_t in_flight;
    uint64_t fail_at; /* the k-th call from now fails; 0: none */
    bool failed;      /* it did */
    uint64_t bad;     /* reads of bytes that were never written, or dropped; overlong queues */
    uint64_t reads, writes, drops, faults;
};
struct tier_mem *tier_mem_open(void); /* freed by its close */
/* Bytes [at, at + n), or NULL if some were never written. */
const unsigned char *tier_mem_at(const struct tier_mem *t, uint64_t at, size_t n);
