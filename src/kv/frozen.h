/* frozen.h - private to the store: frozen rows, which one step writes and sequences with the same input share. */
#pragma once
#include "kv/kv_int.h"

/* True if the salt names the source of the contents' frozen rows, so that they can be shared. */
bool frozen_known(const struct seq *s);
/* Returns contents with the frozen rows of the same source and adapter that are not in an open step, or NULL. */
const struct seq *frozen_donor(const struct kv *kv, const struct seq *s);

/* Returns the first cell of the tail of s.  Frozen rows have none: nothing is written behind them. */
static inline uint32_t seq_tail(const struct group *g, const struct seq *s)
{
    return g->c.policy.kind == KV_FROZEN ? table_used(g, RAW, s->cross) : tail_first(g, s->len);
}
