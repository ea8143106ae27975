/* k_seal.h - the tiles that a step seals, and the raw rows that go into them: shared by the kernels that encode. */
#pragma once
#include "dev/cuda/k_cache.h"

struct k_tile { /* of one plane */
    unsigned char *to;
    const uint32_t *page; /* the raw pages of its sequence */
    uint32_t row0, lead;  /* first row of the tile; number of its rows that stay raw */
};

K_FN uint32_t size_of(uint32_t type)
{
    return type == 0 ? 4 : 2;
}

/* Returns tile i of the tiles that the step seals. */
K_FN struct k_tile tile_of(const struct k_seal *s, uint32_t i)
{
    const struct k_form *f = &s->p.sealed;
    uint32_t slot = s->slot[s->enc[2 * i]], tile = s->enc[2 * i + 1], row = tile * f->rows;
    struct k_tile t = {f->base + f->table[(size_t)slot * f->stride + tile] * f->grain + f->offset,
                       s->p.raw.table + (size_t)slot * s->p.raw.stride, row,
                       s->lead > row ? walk_min(s->lead - row, f->rows) : 0};
    return t;
}

/* Returns the place of a value in a raw block of `rows` rows, or in a tile with the same layout. */
K_FN size_t place_of(const struct k_plane *p, uint32_t rows, uint32_t head, uint32_t r, uint32_t d)
{
    size_t at = p->strips ? ((size_t)(r / 16) * p->dim + d) * 16 + r % 16 : (size_t)r * p->dim + d;
    return (size_t)head * rows * p->dim + at;
}

/* Finds the raw page of row r of a tile, and the place of a value in it. */
K_FN const unsigned char *raw_at(const struct k_seal *s, const struct k_tile *t, uint32_t head,
                                 uint32_t r, uint32_t d, size_t *place)
{
    const struct k_form *f = &s->p.raw;
    uint32_t row = t->row0 + r;
    *place = place_of(&s->p, f->rows, head, row % f->rows, d);
    return f->base + t->page[row / f->rows] * f->grain + f->offset;
}

K_FN float raw_value(const struct k_seal *s, const struct k_tile *t, uint32_t head, uint32_t r,
                     uint32_t d)
{
    size_t at;
    const unsigned char *page = raw_at(s, t, head, r, d, &at);
    return k_load(s->p.type, page, at);
}

/* Stores value i of an array; overflow becomes infinite (kv_row_put). */
K_FN void put_value(uint32_t type, unsigned char *to, size_t i, float x)
{
    uint16_t h = type == 1 ? half_f32_to_f16(x) : half_f32_to_bf16(x);
    if (type == 0)
        memcpy(to + 4 * i, &x, 4);
    else
        memcpy(to + 2 * i, &h, 2);
}
