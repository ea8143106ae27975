/* readers.c - finds the reader of a codec.  It also has the two readers without kernels: of rows that lie in tiles
 * as in raw blocks, and of tiles that the codec itself decodes. */
#include "dev/reader.h"

static const struct kv_reader in_place = {.rows = 4 * KV_STRIP};
const struct kv_reader *const kv_read_in_place[DEV_ISAS] = {&in_place};

/* Decodes one head of whole tiles. */
static const void *decoded(const struct kv_reading *r, const struct kv_piece *at, void *room)
{
    const struct kv_codec *c = r->codec;
    size_t row = r->shape->dim * dtype_size(r->shape->dtype);
    for (uint32_t i = at->r0 / c->tile; i * c->tile < at->r1; i++)
        if (c->tile < KV_STRIP)
            c->decode(c, r->shape, at->head, room, i * c->tile, at->tile[i]);
        else
            c->decode(c, r->shape, at->head, (char *)room + i * c->tile * row, 0, at->tile[i]);
    return (char *)room + at->r0 / KV_STRIP * KV_STRIP * row;
}
static const struct kv_reader by_decoding = {.strips = decoded};
const struct kv_reader *const kv_read_decoded[DEV_ISAS] = {&by_decoding};

struct kv_reading kv_reading(const struct kv_codec *c, const struct kv_shape *s, enum dev_isa isa)
{
    const struct kv_reader *const *table = !c          ? kv_read_in_place
                                           : c->reader ? c->reader
                                                       : kv_read_decoded;
    uint32_t i = isa;
    while (i > DEV_REF && !table[i])
        i--;
    return (struct kv_reading){c, s, isa, table[i]};
}
