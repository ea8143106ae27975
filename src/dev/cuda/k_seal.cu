/* k_seal.cu - encodes tiles on the device, with the bytes that the codecs of the kv floor write: copies of rows
 * (none), groups with a range (quanto), and floats of 8 bits (fp8).
 *
 * The list of tiles that a step seals lies in memory of the device (view.h: enc).  So the arguments of a step are
 * always the same, and only the number of tiles, which is y of the grid, differs.  For groups there are two kernels.
 * In the first a thread finds the range of a group.  In the second a thread makes one byte of codes, because groups
 * may share a byte.  A code follows from the value and the range as stored, so the second kernel needs only the
 * tile. */
#include "dev/cuda/k_seal.h"

/* Returns the number of groups of one unit of a head.  range_bytes returns the bytes of their ranges, unit_bytes
 * those of the unit. */
K_FN uint32_t pairs_of(const struct k_plane *p)
{
    return p->affine.group ? p->affine.unit * p->dim / p->affine.group : p->dim;
}
K_FN uint32_t range_bytes(const struct k_plane *p)
{
    return 2 * pairs_of(p) * size_of(p->type);
}
K_FN uint32_t unit_bytes(const struct k_plane *p)
{
    uint32_t row = code_bytes(p->affine.bits, p->dim);
    return (range_bytes(p) + p->affine.unit * row + 3) & ~3u;
}

KERNEL(k_seal_rows)
{
    EACH_VALUE(i, a.n)
    {
        const struct k_plane *p = &a.s.p;
        struct k_tile tile = tile_of(&a.s, BLOCK_Y);
        uint32_t rows = p->sealed.rows, d = (uint32_t)(i % p->dim), r = (uint32_t)(i / p->dim) % rows,
                 head = (uint32_t)(i / p->dim / rows), size = size_of(p->type);
        size_t from, to = place_of(p, rows, head, r, d);
        const unsigned char *page = raw_at(&a.s, &tile, head, r, d, &from);
        for (uint32_t k = 0; k < size; k++)
            tile.to[to * size + k] = page[from * size + k];
    }
}

/* Finds the least and the largest value of a group without its leading rows; false: the group has no other rows.  A
 * NaN becomes both. */
K_FN bool range_of(const struct k_seal *s, const struct k_tile *tile, uint32_t head, uint32_t unit,
                   uint32_t i, float *lo, float *hi)
{
    const struct k_plane *p = &s->p;
    uint32_t group = p->affine.group, size = group ? group : p->affine.unit;
    bool any = false;
    for (uint32_t k = 0; k < size; k++) {
        uint32_t at = i * group + k, row = unit * p->affine.unit + (group ? at / p->dim : k);
        if (row < tile->lead) continue;
        float x = raw_value(s, tile, head, row, group ? at % p->dim : i);
        if (!any || !(x >= *lo)) *lo = x;
        if (!any || !(x <= *hi)) *hi = x;
        any = true;
        if (*lo != *lo) return true;
    }
    return any;
}

KERNEL(k_seal_ranges)
{
    EACH_VALUE(g, a.n)
    {
        const struct k_plane *p = &a.s.p;
        struct k_tile tile = tile_of(&a.s, BLOCK_Y);
        uint32_t pairs = pairs_of(p), units = p->sealed.rows / p->affine.unit;
        uint32_t i = (uint32_t)(g % pairs), unit = (uint32_t)(g / pairs);
        unsigned char *to = tile.to + (size_t)unit * unit_bytes(p);
        float lo = 0, hi = 0, top = (float)((1u << p->affine.bits) - 1), scale = 0, shift = 0;
        if (range_of(&a.s, &tile, unit / units, unit % units, i, &lo, &hi)) {
            scale = k_round(p->type, k_round(p->type, hi - lo) / top);
            shift = -lo;
        }
        put_value(p->type, to, i, scale);
        put_value(p->type, to, pairs + i, shift);
    }
}

/* Returns the code of value d of row r of a unit, from the range of its group. */
K_FN uint32_t range_code(const struct k_seal *s, const struct k_tile *tile, const unsigned char *to,
                         uint32_t head, uint32_t unit, uint32_t r, uint32_t d)
{
    const struct k_plane *p = &s->p;
    uint32_t group = p->affine.group, i = group ? (r * p->dim + d) / group : d;
    uint32_t type = p->type, row = unit * p->affine.unit + r;
    if (row < tile->lead) return 0;
    float scale = k_load(type, to, i), shift = k_load(type, to, (size_t)pairs_of(p) + i);
    float top = (float)((1u << p->affine.bits) - 1), x = raw_value(s, tile, head, row, d);
    float q = k_round(type, k_round(type, x + shift) / scale);
    q = q > top ? top : q;
    return q > 0 ? (uint32_t)((q + 0x1.8p23f) - 0x1.8p23f) : 0; /* a NaN gets code 0 */
}

KERNEL(k_seal_codes)
{
    EACH_VALUE(b, a.n)
    {
        const struct k_plane *p = &a.s.p;
        const struct k_affine *f = &p->affine;
        struct k_tile tile = tile_of(&a.s, BLOCK_Y);
        uint32_t row_bytes = code_bytes(f->bits, p->dim), head_of = range_bytes(p);
        uint32_t codes = unit_bytes(p) - head_of, at = (uint32_t)(b % codes), byte = 0;
        uint32_t unit = (uint32_t)(b / codes), units = p->sealed.rows / f->unit;
        unsigned char *to = tile.to + (size_t)unit * unit_bytes(p);
        bool strips = p->strips && f->unit % 16 == 0;
        uint32_t r = strips ? at / 16 / row_bytes * 16 + at % 16 : at / row_bytes;
        uint32_t c = strips ? at / 16 % row_bytes : at % row_bytes;
        uint32_t chunk = 128 / f->bits, d0 = c / 16 * chunk, n = walk_min(chunk, p->dim - d0);
        uint32_t apart = code_bytes(f->bits, n);
        for (uint32_t i = c % 16, k = 0; at < f->unit * row_bytes && i < n && k < 8; i += apart, k += f->bits)
            byte |= range_code(&a.s, &tile, to, unit / units, unit % units, r, d0 + i) << k;
        to[head_of + at] = (unsigned char)byte;
    }
}

/* Returns value i of 16 rows of a head from row `row` on, in the order of a strip of raw layout; 0 for rows that
 * stay raw. */
K_FN float strip_value(const struct k_seal *s, const struct k_tile *tile, uint32_t head,
                       uint32_t row, uint32_t i)
{
    uint32_t dim = s->p.dim, r = row + (s->p.strips ? i % 16 : i / dim);
    return r < tile->lead ? 0 : raw_value(s, tile, head, r, s->p.strips ? i / 16 : i % dim);
}

KERNEL(k_seal_float8)
{
    SHARED(uint32_t, top, K_THREADS);
    const struct k_plane *p = &a.s.p;
    struct k_tile tile = tile_of(&a.s, BLOCK_Y);
    uint32_t units = p->sealed.rows / 16, head = BLOCK_X / units, row = BLOCK_X % units * 16;
    uint32_t n = 16 * p->dim;
    bool seen = tile.lead < row + 16; /* false: all 16 rows stay raw, and their codes are zeros */
    EACH_THREAD
    {
        top[t] = 0;
        for (uint32_t i = t; i < n; i += K_THREADS)
            top[t] = walk_max(top[t], half_bits(strip_value(&a.s, &tile, head, row, i)) & 0x7fffffffu);
    }
    LARGEST(top);
    bool finite = top[0] < 0x7f800000u;
    float most = half_from_bits(top[0]) / FLOAT8_TOP;
    float scale = !finite ? half_from_bits(0x7fc00000u) : most > 0x1p-126f ? most : 0x1p-126f;
    unsigned char *codes = tile.to + (size_t)p->heads * units * sizeof scale + (size_t)BLOCK_X * n;
    EACH_THREAD
    {
        if (t == 0) put_value(0, tile.to, BLOCK_X, seen ? scale : 0);
        for (uint32_t i = t; i < n; i += K_THREADS)
            codes[i] = seen && finite ? float8_code(strip_value(&a.s, &tile, head, row, i) / scale) : 0;
    }
}
