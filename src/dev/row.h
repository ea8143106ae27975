/* row.h - KV rows as floats, whatever the type and layout of their plane.  Codecs read and write values with these
 * functions. */
#pragma once
#include "dev/cpu/half.h"
#include "dev/view.h"

/* Returns the place of value d of row r in one head in raw layout. */
static inline size_t kv_row_place(const struct kv_shape *s, uint32_t r, uint32_t d)
{
    return s->layout == KV_STRIPS ? ((size_t)(r / KV_STRIP) * s->dim + d) * KV_STRIP + r % KV_STRIP
                                  : (size_t)r * s->dim + d;
}
/* Returns value i of an array of type t: f32, f16 or bf16. */
static inline float kv_row_get(enum dtype t, const void *p, size_t i)
{
    float x;
    if (t == DT_F32) {
        memcpy(&x, (const unsigned char *)p + 4 * i, 4);
        return x;
    }
    uint16_t h = half_load((const unsigned char *)p + 2 * i);
    return t == DT_F16 ? half_f16_to_f32(h) : half_bf16_to_f32(h);
}
/* Stores x as value i, rounded to nearest even; overflow becomes infinite. */
static inline void kv_row_put(enum dtype t, void *p, size_t i, float x)
{
    if (t == DT_F32) {
        memcpy((unsigned char *)p + 4 * i, &x, 4);
        return;
    }
    uint16_t h = t == DT_F16 ? half_f32_to_f16(x) : half_f32_to_bf16(x);
    memcpy((unsigned char *)p + 2 * i, &h, 2);
}
/* Returns x rounded to type t. */
static inline float kv_row_round(enum dtype t, float x)
{
    if (t == DT_F32) return x;
    return t == DT_F16 ? half_f16_to_f32(half_f32_to_f16(x))
                       : half_bf16_to_f32(half_f32_to_bf16(x));
}
/* Copy row r of one head in raw layout to x[dim], and back. */
void kv_row_load(const struct kv_shape *s, const void *head, uint32_t r, float *x);
void kv_row_store(const struct kv_shape *s, void *head, uint32_t r, const float *x);

/* Encodes all heads of a tile, whose bytes it clears first.  raw[i]: the plane of the i-th block, all heads; block_rows,
 * first, lead: as struct kv_codec says. */
void kv_tile_encode(const struct kv_codec *c, const struct kv_shape *s, void *dst,
                    const void *const *raw, uint32_t block_rows, uint32_t first, uint32_t lead);
