/* cache_usage.c - what a store uses, as programs read it. */
#include "generate/cache_usage.h"

void usage_of(const struct kv_usage *u, kvik_usage *out)
{
    *out = (kvik_usage){
        .free = u->free,
        .bytes = u->live + u->states + u->staging,
        .peak_bytes = u->peak,
        .live = u->live,
        .shared = u->shared,
        .states = u->states,
        .staging = u->staging,
        .reserved = u->reserved,
        .spilled = u->spilled,
        .tier_read = u->tier_read,
        .tier_written = u->tier_written,
        .streaming = u->streaming,
        .budget = u->pool,
        .need = u->need,
        .tokens = u->rows,
        .index = u->index,
        .forks = u->forks,
        .rows_copied = u->rows_copied,
        .seals = u->seals,
        .evictions = u->evictions,
        .metadata = u->metadata,
    };
}
