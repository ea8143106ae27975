/* kv_model.h - the store's model checker: random operations against a flat reference. */
#pragma once
#include "kv/kv_int.h"

struct model_options {
    uint64_t ops, seed;
    bool check;       /* also run kv_check; without it only views are compared */
    bool verbose;     /* print every operation */
    const char *only; /* name of one configuration, or NULL */
    bool stream;      /* every store that can streams; otherwise every second one */
};
struct model_totals {
    uint64_t ops, steps, aborts, refused, rejected_rows, trims, reorders, verified_rows,
        verified_views;
    uint64_t seals, evictions, forks, rows_copied, stores, reserves;
    uint64_t pieces, raw_pieces, tier_reads, tier_writes, tier_drops, tier_faults, began_full,
        loads;
    uint64_t hits, hit_rows, kept;
    uint64_t walked; /* choices of the oldest snapshot that a walk was compared with */
    uint64_t marks, rollbacks, reserved_rollbacks;
    uint64_t encodes, encodes_full,
        encodes_refused; /* rungs reached when asked for, and for want of room */
    uint32_t max_refs;
};
/* Returns 0, or -1 after a difference; prints the difference, the seed and the operation to stderr. */
int model_run(const struct model_options *o, struct model_totals *t);
