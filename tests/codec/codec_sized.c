/* codec_sized.c - a codec of the tests that stores heads of 32 to 128 values only.
 *
 * Most golden models have smaller heads. The tests that enumerate codecs must skip such a codec there, and run it
 * where it fits. It keeps the bits of every row. */
#include "dev/row.h"
#include "kv/codec.h"

#include <string.h>

enum { DIM_LEAST = 32, DIM_MOST = 128 };

static size_t row_bytes(const struct kv_shape *s)
{
    return s->dim * dtype_size(s->dtype);
}

static size_t sized_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return c->tile * s->heads * row_bytes(s);
}

/* Tile: [head][row][dim]. */
static void sized_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                         uint32_t lead)
{
    size_t size = dtype_size(s->dtype);
    for (uint32_t r = lead; r < c->tile; r++)
        for (uint32_t d = 0; d < s->dim; d++) {
            uint32_t row = first + r;
            memcpy((char *)dst + (head * c->tile + r) * row_bytes(s) + d * size,
                   (const char *)raw[row / block_rows] +
                       kv_row_place(s, row % block_rows, d) * size,
                   size);
        }
}

static void sized_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, uint32_t first, const void *src)
{
    size_t size = dtype_size(s->dtype);
    for (uint32_t r = 0; r < c->tile; r++)
        for (uint32_t d = 0; d < s->dim; d++)
            memcpy((char *)dst + kv_row_place(s, first + r, d) * size,
                   (const char *)src + (head * c->tile + r) * row_bytes(s) + d * size, size);
}

static int sized_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                      uint32_t tile, struct kv_codec **out)
{
    (void)o;
    (void)key;
    if (s->dim < DIM_LEAST || s->dim > DIM_MOST)
        return ERR(ARG, "sized: heads have %d to %d values, not %u", DIM_LEAST, DIM_MOST, s->dim);
    struct kv_codec *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    *c = (struct kv_codec){.name = "sized",
                           .tile = tile ? tile : KV_STRIP,
                           .lossless = true,
                           .describe = kv_codec_no_parameters,
                           .bytes = sized_bytes,
                           .encode = sized_encode,
                           .decode = sized_decode};
    *out = c;
    return 0;
}

static const struct kv_codec_kind kind = {.name = "sized", .open = sized_open};
KV_CODEC(sized, &kind);
