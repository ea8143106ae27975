/* codec_round.c - a codec of the tests: KV rows with fewer bits of mantissa, in whole strips.
 *
 * It shows what a new codec in src/kv would need. The tests that enumerate codecs are linked with
 * every file of this directory and cover this codec without naming it. Its options change what it
 * stores, how many rows make a tile, and how many first rows stay raw. It quantizes by position,
 * and readers dequantize whole tiles. */
#include "dev/row.h"
#include "kv/codec.h"

#include <stdio.h>
#include <string.h>

struct round_codec {
    struct kv_codec c;
    uint32_t keep;
};

enum { KEEP, STRIPS, FIRST, OPTIONS };
static const struct kv_codec_option options[OPTIONS] = {
    [KEEP] = {"mantissa_bits", 0, 23, 5},
    [STRIPS] = {"tile_strips", 1, 8, 2},
    [FIRST] = {"first_rows", 0, 64, 0},
};

static size_t round_bytes(const struct kv_codec *c, const struct kv_shape *s)
{
    return (size_t)c->tile * s->heads * s->dim * dtype_size(s->dtype);
}

/* Copies one value without its last mantissa bits. */
static void round_value(enum dtype t, uint32_t keep, unsigned char *to, const unsigned char *from)
{
    uint32_t x = 0, has = t == DT_F32 ? 23 : t == DT_F16 ? 10 : 7;
    uint16_t half;
    if (t == DT_F32) {
        memcpy(&x, from, 4);
    } else {
        memcpy(&half, from, 2);
        x = half;
    }
    if (keep < has) x &= ~((1u << (has - keep)) - 1);
    half = (uint16_t)x;
    if (t == DT_F32)
        memcpy(to, &x, 4);
    else
        memcpy(to, &half, 2);
}

/* Tile: [row][head][dim]. */
static void round_encode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, const void *const *raw, uint32_t block_rows, uint32_t first,
                         uint32_t lead)
{
    const struct round_codec *r = (const struct round_codec *)c;
    size_t size = dtype_size(s->dtype);
    for (uint32_t i = lead; i < c->tile; i++)
        for (uint32_t d = 0; d < s->dim; d++) {
            uint32_t row = first + i;
            const unsigned char *from = raw[row / block_rows];
            round_value(s->dtype, r->keep,
                        (unsigned char *)dst + (((size_t)i * s->heads + head) * s->dim + d) * size,
                        from + kv_row_place(s, row % block_rows, d) * size);
        }
}

static void round_decode(const struct kv_codec *c, const struct kv_shape *s, uint32_t head,
                         void *dst, uint32_t first, const void *src)
{
    size_t size = dtype_size(s->dtype);
    for (uint32_t i = 0; i < c->tile; i++)
        for (uint32_t d = 0; d < s->dim; d++)
            memcpy((unsigned char *)dst + kv_row_place(s, first + i, d) * size,
                   (const unsigned char *)src + (((size_t)i * s->heads + head) * s->dim + d) * size,
                   size);
}

static int round_describe(const struct kv_codec *c, char *out, size_t n)
{
    return snprintf(out, n, "%u bits of mantissa", ((const struct round_codec *)c)->keep);
}

static int round_open(const struct kv_codec_options *o, const struct kv_shape *s, bool key,
                      uint32_t tile, struct kv_codec **out)
{
    (void)s;
    (void)key;
    struct round_codec *r = mem_alloc(sizeof *r);
    if (!r) return ERR_NOMEM;
    r->keep = (uint32_t)o->value[KEEP];
    r->c = (struct kv_codec){.name = "round",
                             .tile = tile ? tile : KV_STRIP * (uint32_t)o->value[STRIPS],
                             .lead = (uint32_t)o->value[FIRST],
                             .describe = round_describe,
                             .bytes = round_bytes,
                             .encode = round_encode,
                             .decode = round_decode};
    *out = &r->c;
    return 0;
}

static const struct kv_codec_kind kind = {
    .name = "round",
    .option = options,
    .n_options = OPTIONS,
    .open = round_open,
};
KV_CODEC(round, &kind);
