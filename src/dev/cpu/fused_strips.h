/* fused_strips.h - what fused_each_avx2.c and fused_each_avx512.c share: the strips of a call. */
#pragma once
#include "dev/cpu/fused_vec.h"

/* The strips of a call.  Of a group of channels: the unit and the codes of the first row.  Of rows of 8 bits: the tiles. */
struct strips {
    const unsigned char *unit[FUSED_STRIPS], *codes[FUSED_STRIPS];
    const unsigned char *const *row[FUSED_STRIPS]; /* NULL: groups of channels */
    size_t numbers, at; /* in a tile of row[]: of the head's numbers and codes */
    uint32_t n;
};

/* False: tiles of another form. */
static bool find_strips(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                        uint32_t nq, struct strips *out)
{
    const struct kv_affine *f = r->codec->param;
    const struct kv_shape *s = r->shape;
    const uint32_t tile = r->codec->tile, row = affine_row_bytes(f, s->dim);
    const size_t head = affine_unit_at(f, s, tile, at->head, 0),
                 pairs = (size_t)2 * affine_pairs(f, s->dim) * dtype_size(s->dtype);
    if (nq > FUSED_MOST || s->dtype == DT_F32 || s->dim % 64 || (f->bits == 8 && !f->zero_first))
        return false;
    *out = (struct strips){.numbers = head, .at = head + pairs, .n = 0};
    if (n > FUSED_STRIPS) return false;
    if (f->bits == 8 && tile == 1 && f->group && (f->group >= s->dim || f->group % 64 == 0)) {
        for (; out->n < n; out->n++)
            out->row[out->n] = at[out->n].tile;
        return true;
    }
    if (f->group || f->unit % KV_STRIP || (f->bits != 2 && f->bits != 4 && f->bits != 8))
        return false;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = at[i].r0 / KV_STRIP * KV_STRIP; j < at[i].r1; j += KV_STRIP, out->n++) {
            if (out->n == FUSED_STRIPS) return false;
            const uint32_t in = j % tile;
            out->unit[out->n] =
                at[i].tile[j / tile] + head + in / f->unit * affine_unit_bytes(f, s);
            out->codes[out->n] = out->unit[out->n] + pairs + (size_t)(in % f->unit) * row;
        }
    return true;
}
