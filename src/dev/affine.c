/* affine.c - writes and reads quantized groups one value at a time.  Codecs write with it; for kernels the reading half
 * is the scalar reference. */
#include "dev/affine.h"
#include "dev/row.h"

#include <assert.h>

/* Returns the byte that holds the code of value d in a row of `bits`-bit codes; *shift: the place of its bits there. */
static uint32_t code_byte(uint32_t bits, uint32_t dim, uint32_t d, uint32_t *shift)
{
    uint32_t chunk = 128 / bits, c = d / chunk, i = d % chunk;
    uint32_t w = affine_plane_bytes(bits, MIN(chunk, dim - c * chunk));
    *shift = i / w * bits;
    return c * 16 + i % w;
}

static size_t code_at(const struct kv_affine *f, const struct kv_shape *s, uint32_t r, uint32_t c)
{
    uint32_t n = affine_row_bytes(f, s->dim);
    size_t pairs = (size_t)2 * affine_pairs(f, s->dim) * dtype_size(s->dtype);
    if (affine_strips(f, s))
        return pairs + ((size_t)(r / KV_STRIP) * n + c) * KV_STRIP + r % KV_STRIP;
    return pairs + (size_t)r * n + c;
}

size_t affine_bytes(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile)
{
    assert(tile % f->unit == 0);
    return affine_unit_at(f, s, tile, s->heads, 0);
}

void affine_put(const struct kv_affine *f, const struct kv_shape *s, unsigned char *unit,
                uint32_t r, uint32_t d, uint32_t q)
{
    uint32_t shift, bits = f->bits == 3 ? 2 : f->bits;
    uint32_t c = code_byte(bits, s->dim, d, &shift), mask = (1u << bits) - 1;
    unit[code_at(f, s, r, c)] |= (unsigned char)((q & mask) << shift);
    if (f->bits != 3) return;
    c = affine_plane_bytes(2, s->dim) + code_byte(1, s->dim, d, &shift);
    unit[code_at(f, s, r, c)] |= (unsigned char)(q >> 2 << shift);
}

/* Writes bits `low` and up of each of n codes into a row of `bits`-bit codes whose bytes are `step` apart. */
static void put_run(unsigned char *row, size_t step, uint32_t bits, uint32_t dim, uint32_t d,
                    uint32_t n, const uint8_t *q, uint32_t low)
{
    uint32_t chunk = 128 / bits, mask = (1u << bits) - 1;
    while (n) { /* as many codes as have their bits at the same place of adjacent bytes */
        uint32_t c = d / chunk, i = d % chunk;
        uint32_t w = affine_plane_bytes(bits, MIN(chunk, dim - c * chunk));
        uint32_t some = MIN(n, MIN(w - i % w, chunk - i)), shift = i / w * bits;
        unsigned char *to = row + (size_t)(c * 16 + i % w) * step;
        for (uint32_t k = 0; k < some; k++)
            to[k * step] |= (unsigned char)((q[k] >> low & mask) << shift);
        d += some;
        q += some;
        n -= some;
    }
}

void affine_put_run(const struct kv_affine *f, const struct kv_shape *s, unsigned char *unit,
                    uint32_t r, uint32_t d, uint32_t n, const uint8_t *q)
{
    size_t step = affine_strips(f, s) ? KV_STRIP : 1;
    put_run(unit + code_at(f, s, r, 0), step, f->bits == 3 ? 2 : f->bits, s->dim, d, n, q, 0);
    if (f->bits != 3) return;
    put_run(unit + code_at(f, s, r, affine_plane_bytes(2, s->dim)), step, 1, s->dim, d, n, q, 2);
}

uint32_t affine_get(const struct kv_affine *f, const struct kv_shape *s, const unsigned char *unit,
                    uint32_t r, uint32_t d)
{
    uint32_t shift, bits = f->bits == 3 ? 2 : f->bits;
    uint32_t c = code_byte(bits, s->dim, d, &shift);
    uint32_t q = unit[code_at(f, s, r, c)] >> shift & ((1u << bits) - 1);
    if (f->bits != 3) return q;
    c = affine_plane_bytes(2, s->dim) + code_byte(1, s->dim, d, &shift);
    return q | (unit[code_at(f, s, r, c)] >> shift & 1u) << 2;
}

void affine_put_pair(const struct kv_affine *f, const struct kv_shape *s, unsigned char *unit,
                     uint32_t i, float a, float b)
{
    kv_row_put(s->dtype, unit, i, a);
    kv_row_put(s->dtype, unit, (size_t)affine_pairs(f, s->dim) + i, b);
}

void affine_decode(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile,
                   uint32_t head, const unsigned char *src, uint32_t r0, uint32_t r1, void *dst,
                   uint32_t first)
{
    enum dtype t = s->dtype;
    uint32_t pairs = affine_pairs(f, s->dim);
    for (uint32_t r = r0; r < r1; r++) {
        const unsigned char *unit = src + affine_unit_at(f, s, tile, head, r / f->unit);
        uint32_t row = first + r;
        for (uint32_t d = 0; d < s->dim; d++) {
            uint32_t i = f->group ? (r % f->unit * s->dim + d) / f->group : d;
            float a = kv_row_get(t, unit, i), b = kv_row_get(t, unit, (size_t)pairs + i);
            float q = (float)affine_get(f, s, unit, r % f->unit, d);
            float y = f->zero_first ? kv_row_round(t, q - b) * a : kv_row_round(t, a * q) - b;
            kv_row_put(t, dst, kv_row_place(s, row, d), y);
        }
    }
}
