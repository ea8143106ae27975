/* cache_usage.h - what a store uses, as programs read it. */
#pragma once
#include "kv/kv.h"
#include "kvik.h"

/* Fills *out, except `reused`, which the store does not know. */
void usage_of(const struct kv_usage *u, kvik_usage *out);
/* Returns the mean KLD to expect on a rung of on_full "encode"; 0: rows are as they are. */
double usage_kld(uint32_t rung);
