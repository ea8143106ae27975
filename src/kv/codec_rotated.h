/* codec_rotated.h - a rotation around any codec: rows are stored turned, so that a few large channels spread over
 * all of them, and codes of few bits lose less. */
#pragma once
#include "kv/codec.h"

/* Makes a codec that stores rows turned, in tiles of `inner`.  The rotation follows from `seed` and the size of
 * heads.  Attention reads turned rows with the reader of `inner`: it turns queries before they meet rows, and back the
 * sum of each atom's values.  inner is owned from now on, also if this fails, and freed with `close`. */
int rotated_open(struct kv_codec *inner, void (*close)(struct kv_codec *c), uint32_t seed,
                 const struct kv_shape *s, struct kv_codec **out);
void rotated_close(struct kv_codec *c);
