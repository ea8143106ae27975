/* cache_usage.h - what a store uses, as programs read it. */
#pragma once
#include "kv/kv.h"
#include "kvik.h"

/* Fills *out, except `reused`, which the store does not know. */
void usage_of(const struct kv_usage *u, kvik_usage *out);
/* Returns the bits of a value on a rung of on_full "encode", and the mean KLD to expect there. */
uint32_t usage_bits(uint32_t rung);
double usage_kld(uint32_t rung);
