/* shuffle.h - a lossless codec that stores the rows of a tile of 128 in another order, linked with every test: it proves that
 * sealing happens inside the forward. */
#pragma once
#include "kv/codec.h"

extern const struct kv_codec kv_codec_shuffle;
