/* float8.h - layout of rows stored as floats of 8 bits: a sign, 4 bits of exponent and 3 of mantissa (e4m3fn: no infinity, one
 * NaN of each sign, 448 the largest), times one scale for 16 rows of a head.  The codec `fp8` writes this layout
 * (kv/codec_fp8.c); readers make strips of it (cpu/reader_float8.c).
 *
 * A tile is scale[head][unit] in f32, then the codes [head][unit][16 * dim]; a unit is 16 rows.  The codes of a unit stand in
 * the order of a strip of the plane's raw layout, so that whatever the layout a strip is made by one pass over neighbours.
 * A value is float8_value(code) * scale, rounded to the type of the plane. */
#pragma once
#include "dev/float8_code.h"
#include "dev/view.h"

static inline size_t float8_tile_bytes(const struct kv_shape *s, uint32_t tile)
{
    size_t units = (size_t)s->heads * (tile / KV_STRIP);
    return units * (sizeof(float) + (size_t)KV_STRIP * s->dim);
}
/* Returns the offset of a unit's scale in a tile, and of its codes. */
static inline size_t float8_scale_at(uint32_t tile, uint32_t head, uint32_t unit)
{
    return ((size_t)head * (tile / KV_STRIP) + unit) * sizeof(float);
}
static inline size_t float8_codes_at(const struct kv_shape *s, uint32_t tile, uint32_t head,
                                     uint32_t unit)
{
    uint32_t units = tile / KV_STRIP;
    return s->heads * units * sizeof(float) + ((size_t)head * units + unit) * KV_STRIP * s->dim;
}

/* Writes n values of type t, n a multiple of 16.  float8_decode is the scalar reference. */
typedef void float8_fn(enum dtype t, float scale, const unsigned char *code, uint32_t n, void *out);
float8_fn float8_decode;
