/* bits.h - chooses the bits of a quantized cache by measuring: "nbits": "auto". */
#pragma once
#include "generate/handle.h"

/* Replaces the key "auto" in s by the bits that are chosen for this model and configuration, and tells the caller. */
int bits_choose(kvik_model *m, const kvik_cache_config *config, struct preset_choice *s);
