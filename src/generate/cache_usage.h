/* cache_usage.h - makes the public kvik_usage from what a store uses. */
#pragma once
#include "kv/kv.h"
#include "kvik.h"

/* Fills *out, except `reused`, which the store does not know. */
void usage_of(const struct kv_usage *u, kvik_usage *out);
/* Returns the mean KLD to expect on a rung of on_full "encode"; 0 on rung 0, where rows are native. */
double usage_kld(uint32_t rung);
