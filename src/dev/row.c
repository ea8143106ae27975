/* row.c - KV rows as floats, and tiles encoded head by head. */
#include "dev/row.h"
#include "dev/dev.h"

#include <assert.h>

#define BLOCKS_MOST 256u /* blocks of a tile */

void kv_row_load(const struct kv_shape *s, const void *head, uint32_t r, float *x)
{
    if (s->layout != KV_STRIPS) {
        size_t row = (size_t)s->dim * dtype_size(s->dtype);
        dev_to_f32(s->dtype, (const unsigned char *)head + r * row, x, s->dim);
        return;
    }
    size_t at = kv_row_place(s, r, 0);
    for (uint32_t d = 0; d < s->dim; d++)
        x[d] = kv_row_get(s->dtype, head, at + (size_t)d * KV_STRIP);
}

void kv_row_store(const struct kv_shape *s, void *head, uint32_t r, const float *x)
{
    size_t at = kv_row_place(s, r, 0), step = s->layout == KV_STRIPS ? KV_STRIP : 1;
    for (uint32_t d = 0; d < s->dim; d++)
        kv_row_put(s->dtype, head, at + d * step, x[d]);
}

void kv_tile_encode(const struct kv_codec *c, const struct kv_shape *s, void *dst,
                    const void *const *raw, uint32_t block_rows, uint32_t first, uint32_t lead)
{
    const void *head[BLOCKS_MOST];
    uint32_t blocks = MAX(1, c->tile / block_rows);
    size_t bytes = (size_t)block_rows * s->dim * dtype_size(s->dtype);
    assert(blocks <= BLOCKS_MOST);
    memset(dst, 0, c->bytes(c, s));
    for (uint32_t h = 0; h < s->heads; h++) {
        for (uint32_t i = 0; i < blocks; i++)
            head[i] = (const unsigned char *)raw[i] + h * bytes;
        c->encode(c, s, h, dst, head, block_rows, first, lead);
    }
}
