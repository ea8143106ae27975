/* codec_shuffle.c - a lossless codec for tests: it stores the rows of a tile in another order and layout.
 *
 * Row r of a tile goes to place (r * 37 + 11) % 128, and the values of a row lie side by side in reverse.  Both planes are
 * stored like that.  So a kernel that reads a tile as a raw block, or a raw block as a tile, gives other bits at once. */
#include "dev/row.h"
#include "shuffle.h"

#include <string.h>

#define TILE  128u
#define STEP  37u /* odd, so r -> r * STEP + SHIFT is a permutation of 128 rows */
#define SHIFT 11u

static size_t shuffle_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    (void)c;
    return (size_t)TILE * s->heads * s->dim * dtype_size(s->dtype);
}

static size_t tile_at(const struct kv_shape *s, uint32_t head, uint32_t r, uint32_t d)
{
    size_t place = (r * STEP + SHIFT) % TILE;
    return (((size_t)head * TILE + place) * s->dim + (s->dim - 1 - d)) * dtype_size(s->dtype);
}

static void shuffle_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                           void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                           uint32_t lead)
{
    (void)c;
    (void)lead; /* leading rows are stored like others and never read */
    size_t size = dtype_size(s->dtype);
    for (uint32_t r = 0; r < TILE; r++) {
        uint32_t row = first + r;
        const unsigned char *block = raw[row / block_rows];
        for (uint32_t d = 0; d < s->dim; d++)
            memcpy((unsigned char *)dst + tile_at(s, head, r, d),
                   block + kv_row_place(s, row % block_rows, d) * size, size);
    }
}

static void shuffle_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                           void *dst, uint32_t first, const void *src)
{
    (void)c;
    size_t size = dtype_size(s->dtype);
    for (uint32_t r = 0; r < TILE; r++)
        for (uint32_t d = 0; d < s->dim; d++)
            memcpy((unsigned char *)dst + kv_row_place(s, first + r, d) * size,
                   (const unsigned char *)src + tile_at(s, head, r, d), size);
}

const struct kv_codec kv_codec_shuffle = {
    .name = "shuffle",
    .tile = TILE,
    .lossless = true,
    .describe = kv_codec_no_parameters,
    .bytes = shuffle_bytes,
    .encode = shuffle_encode,
    .decode = shuffle_decode,
};

static int shuffle_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                        uint32_t tile, struct kv_codec **out)
{
    (void)o;
    (void)s;
    (void)key;
    if (tile && tile != TILE) return ERR(ARG, "shuffle: its tiles have %u rows", TILE);
    struct kv_codec *c = mem_alloc(sizeof *c);
    if (!c) return ERR_NOMEM;
    *c = kv_codec_shuffle;
    *out = c;
    return 0;
}

static const struct kv_codec_kind shuffle = {
    .name = "shuffle",
    .open = shuffle_open,
};
KV_CODEC(shuffle, &shuffle);
