/* k_cache.h - values of rows of the cache, in raw pages and in tiles (view.h, affine.h). */
#pragma once
#include "dev/cuda/k_block.h"
#include "dev/cuda/k_walk.h"

/* Returns the bytes of a row of dim codes with `bits` bits. */
K_FN uint32_t code_bytes(uint32_t bits, uint32_t dim)
{
    return (dim * bits + 7) / 8;
}

/* Returns the bits of value d of a row; byte c of the row lies at codes[c * step]. */
K_FN uint32_t code_bits(const unsigned char *codes, size_t step, uint32_t bits, uint32_t dim,
                        uint32_t d)
{
    uint32_t chunk = 128 / bits, c = d / chunk, i = d % chunk, left = dim - c * chunk;
    uint32_t w = code_bytes(bits, walk_min(chunk, left));
    return codes[(c * 16 + i % w) * step] >> (i / w * bits) & ((1u << bits) - 1);
}

/* Returns value d of row r of one head in a tile of groups (affine.h).  rows: rows of the tile. */
K_FN float affine_value(const struct k_plane *p, const unsigned char *tile, uint32_t rows,
                        uint32_t head, uint32_t r, uint32_t d)
{
    const struct k_affine *f = &p->affine;
    uint32_t size = p->type == 0 ? 4 : 2, bits = f->bits == 3 ? 2 : f->bits;
    uint32_t low = code_bytes(bits, p->dim), row = low + (f->bits == 3 ? code_bytes(1, p->dim) : 0);
    uint32_t pairs = f->group ? f->unit * p->dim / f->group : p->dim;
    size_t head_of = ((size_t)2 * pairs * size),
           unit = (head_of + (size_t)f->unit * row + 3) & ~(size_t)3;
    tile += ((size_t)head * (rows / f->unit) + r / f->unit) * unit;
    uint32_t i = f->group ? (r % f->unit * p->dim + d) / f->group : d;
    float x = k_load(p->type, tile, i), y = k_load(p->type, tile, (size_t)pairs + i);
    bool strips = p->strips && f->unit % 16 == 0;
    r %= f->unit;
    const unsigned char *codes =
        tile + head_of + (strips ? (size_t)(r / 16) * row * 16 + r % 16 : (size_t)r * row);
    size_t step = strips ? 16 : 1;
    uint32_t q = code_bits(codes, step, bits, p->dim, d);
    if (f->bits == 3) q |= code_bits(codes + low * step, step, 1, p->dim, d) << 2;
    float v =
        f->zero_first ? k_round(p->type, (float)q - y) * x : k_round(p->type, x * (float)q) - y;
    return k_round(p->type, v);
}

/* Returns the same value in a tile of floats of 8 bits (float8.h). */
K_FN float float8_row_value(const struct k_plane *p, const unsigned char *tile, uint32_t rows,
                            uint32_t head, uint32_t r, uint32_t d)
{
    uint32_t unit = head * (rows / 16) + r / 16;
    size_t codes = (size_t)p->heads * (rows / 16) * sizeof(float) + (size_t)unit * 16 * p->dim;
    uint8_t code = tile[codes + (p->strips ? d * 16 + r % 16 : r % 16 * p->dim + d)];
    return k_round(p->type, float8_value(code) * ((const float *)(const void *)tile)[unit]);
}

/* A row as a thread reads it.  row_of finds the row once; row_value then reads value by value. */
enum k_row_form { ROW_VALUES, ROW_AFFINE, ROW_FLOAT8 };
struct k_row {
    const unsigned char *at; /* the plane of its page or tile */
    uint32_t r, rows;
    enum k_row_form form;
};

/* Finds row `row` of a sequence.  tiled: the codec loses nothing, so whole strips that are sealed are read sealed. */
K_FN struct k_row row_of(const struct k_plane *p, const struct k_walk *w, uint32_t token,
                         uint32_t phase, uint32_t row)
{
    uint32_t lead = (w->lead + 15) / 16 * 16, edge = w->edge[token] / 16 * 16;
    bool sealed = phase == WALK_SEALED || (w->tiled && !w->lossy && row >= lead && row < edge);
    const struct k_form *f = p->coded && sealed ? &p->sealed : &p->raw;
    uint32_t page = f->table[(size_t)w->slot[w->lane[token]] * f->stride + row / f->rows];
    struct k_row at = {f->base + page * f->grain + f->offset, row % f->rows, f->rows, ROW_VALUES};
    if (p->coded && sealed && p->affine.bits) at.form = ROW_AFFINE;
    if (p->coded && sealed && p->float8) at.form = ROW_FLOAT8;
    return at;
}

K_FN float row_value(const struct k_plane *p, const struct k_row *row, uint32_t head, uint32_t d)
{
    if (row->form == ROW_AFFINE) return affine_value(p, row->at, row->rows, head, row->r, d);
    if (row->form == ROW_FLOAT8) return float8_row_value(p, row->at, row->rows, head, row->r, d);
    size_t place = p->strips ? ((size_t)(row->r / 16) * p->dim + d) * 16 + row->r % 16
                             : (size_t)row->r * p->dim + d;
    return k_load(p->type, row->at, (size_t)head * row->rows * p->dim + place);
}
