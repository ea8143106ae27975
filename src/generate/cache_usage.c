/* cache_usage.c - makes the public kvik_usage from what a store uses. */
#include "generate/cache_usage.h"

double usage_kld(uint32_t at)
{
    /* Mean KLD with native rows, with 8 bits, and with 4 bits.  Measured with SmolLM2-135M-Instruct in Q4_1, 4 096
     * tokens (docs/CACHE.md, Codecs: kvik). */
    static const double kld[1 + KV_RUNGS] = {0, 0.000025, 0.0016};
    return kld[at];
}

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
        .encoded8 = u->encoded[0],
        .encoded4 = u->encoded[1],
        .expected_kld = usage_kld(u->rung),
    };
}
