/* float8_strip.h - private to dev/cpu: strips out of tiles as dev/float8.h says, with a kernel of each instruction set. */
#pragma once
#include "dev/float8.h"
#include "dev/reader.h"

#include <string.h>

/* The factor between a code read as a float of 16 bits (float8_vec.h) and its value. */
#define HALF_SCALE 256.0f
#define HALF_NAN   0x3f80 /* the bits of a float8 NaN after the shift */
#define HALF_QUIET 0x7e00 /* bits that make it a NaN of 16 bits */

/* Makes the strips of a piece, as a reader's `strips` does, with the given kernel.  It also makes the rows of a
 * strip outside the piece. */
static inline const void *float8_strips(float8_fn *decode, const struct kv_reading *r,
                                        const struct kv_piece *at, void *room)
{
    const struct kv_shape *s = r->shape;
    uint32_t tile = r->codec->tile, n = KV_STRIP * s->dim;
    unsigned char *to = room;
    for (uint32_t row = at->r0 / KV_STRIP * KV_STRIP; row < at->r1; row += KV_STRIP) {
        const unsigned char *from = at->tile[row / tile];
        uint32_t unit = row % tile / KV_STRIP;
        float scale;
        memcpy(&scale, from + float8_scale_at(tile, at->head, unit), sizeof scale);
        decode(s->dtype, scale, from + float8_codes_at(s, tile, at->head, unit), n, to);
        to += (size_t)n * dtype_size(s->dtype);
    }
    return room;
}

extern const struct kv_reader float8_reader_neon, float8_reader_avx2, float8_reader_avx512;
