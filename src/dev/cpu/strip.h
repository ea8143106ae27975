/* strip.h - private to dev/cpu: strips out of tiles as affine.h says, which the reader of such tiles
 * (reader_affine.c) makes with a kernel of each instruction set. */
#pragma once
#include "dev/affine.h"
#include "dev/reader.h"

/* Decodes rows [r0, r1) of a strip of one head into the plane's raw layout; other rows of dst may get any values.
 * src: the KV_STRIP / tile tiles from the strip's first row on, all readable; or one tile, whose row `at` is the
 * strip's first row. */
typedef void strip_fn(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile,
                      uint32_t head, const unsigned char *const *src, uint32_t at, uint32_t r0,
                      uint32_t r1, void *dst);
strip_fn strip_decode_ref;

/* Makes the strips of a piece, as a reader's `strips` does, with the given kernel. */
static inline const void *strips_by(strip_fn *decode, const struct kv_reading *r,
                                    const struct kv_piece *at, void *room)
{
    const struct kv_shape *s = r->shape;
    uint32_t tile = r->codec->tile;
    unsigned char *to = room;
    for (uint32_t row = at->r0 / KV_STRIP * KV_STRIP; row < at->r1; row += KV_STRIP) {
        const unsigned char *const *src = tile < KV_STRIP ? at->tile : at->tile + row / tile;
        decode(r->codec->param, s, tile, at->head, src, tile < KV_STRIP ? 0 : row % tile,
               MAX(at->r0, row) - row, MIN(at->r1, row + KV_STRIP) - row, to);
        to += (size_t)KV_STRIP * s->dim * dtype_size(s->dtype);
    }
    return room;
}

extern const struct kv_reader strip_reader_neon, strip_reader_avx2, strip_reader_avx512;
