/* row.h - KV rows as floats, whatever the type and layout of their plane.  Codecs read and write values with these
 * functions. */
#pragma once
#include "dev/view.h"

/* Returns the place of value d of row r in one head in raw layout. */
static inline size_t kv_row_place(const struct kv_shape *s, uint32_t r, uint32_t d)
{
    return s->layout == KV_STRIPS ? ((size_t)(r / KV_STRIP) * s->dim + d) * KV_STRIP + r % KV_STRIP
                                  : (size_t)r * s->dim + d;
}
/* Returns value i of an array of type t: f32, f16 or bf16. */
float kv_row_get(enum dtype t, const void *p, size_t i);
/* Stores x as value i, rounded to nearest even; overflow becomes infinite. */
void kv_row_put(enum dtype t, void *p, size_t i, float x);
float kv_row_round(enum dtype t, float x);
/* Copy row r of one head in raw layout to x[dim], and back. */
void kv_row_load(const struct kv_shape *s, const void *head, uint32_t r, float *x);
void kv_row_store(const struct kv_shape *s, void *head, uint32_t r, const float *x);

/* Encodes all heads of a tile, whose bytes it clears first.  raw[i]: the plane of the i-th block, all heads; block_rows,
 * first, lead: as struct kv_codec says. */
void kv_tile_encode(const struct kv_codec *c, const struct kv_shape *s, void *dst,
                    const void *const *raw, uint32_t block_rows, uint32_t first, uint32_t lead);
