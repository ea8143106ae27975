/* codec_rotated.h - a rotation around any codec: rows are stored turned, so that a few large channels spread over
 * all of them, and codes of few bits lose less. */
#pragma once
#include "kv/codec.h"

/* Makes a codec that rotates rows and stores them in tiles of `inner`.  The rotation follows from `seed` and the
 * size of heads.  Attention reads these rows with the reader of `inner`: it rotates each query before, and rotates
 * each atom's sum of values back.  The new codec owns `inner`, also if this call fails. */
int rotated_open(struct kv_codec *inner, uint32_t seed, const struct kv_shape *s,
                 struct kv_codec **out);
void rotated_close(struct kv_codec *c);
