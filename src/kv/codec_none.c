/* codec_none.c - copies the rows of a plane that has no codec while the other plane of its group has one.
 *
 * The planes of a group share one table of tiles, so a plane without a codec has tiles too.  Such a tile has whole strips
 * and as many rows as a tile of the other plane.  Its layout is that of a raw block with as many rows, so attention
 * reads it in place. */
#include "dev/reader.h"
#include "kv/codec.h"

#include <string.h>

static size_t head_bytes(const struct kv_shape *s, uint32_t rows)
{
    return (size_t)rows * s->dim * dtype_size(s->dtype);
}

static size_t none_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return s->heads * head_bytes(s, c->tile);
}

static void none_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                        void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                        uint32_t lead)
{
    (void)lead; /* leading rows are stored too, but nothing reads them from a tile */
    unsigned char *to = (unsigned char *)dst + head * head_bytes(s, c->tile);
    uint32_t n = MIN(c->tile, block_rows); /* rows of one block; `first` is a multiple of 16 */
    for (uint32_t i = 0; i < c->tile / n; i++, to += head_bytes(s, n))
        memcpy(to, (const unsigned char *)raw[i] + head_bytes(s, first), head_bytes(s, n));
}

static void none_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                        void *dst, uint32_t first, const void *src)
{
    size_t n = head_bytes(s, c->tile);
    memcpy((unsigned char *)dst + head_bytes(s, first), (const unsigned char *)src + head * n, n);
}

static int none_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                     uint32_t tile, struct kv_codec **out)
{
    (void)o;
    (void)s;
    (void)key;
    struct kv_codec *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    *c = (struct kv_codec){.name = KV_CODEC_NONE,
                           .tile = tile ? tile : KV_STRIP,
                           .lossless = true,
                           .describe = kv_codec_no_parameters,
                           .bytes = none_bytes,
                           .encode = none_encode,
                           .decode = none_decode,
                           .reader = kv_read_in_place,
                           .encoder = KV_BY_COPY};
    *out = c;
    return 0;
}

static const struct kv_codec_kind none = {
    .name = KV_CODEC_NONE,
    .open = none_open,
};
KV_CODEC(none, &none);
