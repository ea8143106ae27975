/* affine.c - writes and reads quantized groups one value at a time.  Codecs write with it; for kernels the reading half
 * is the scalar reference. */
#include "dev/affine.h"
#include "dev/cpu/half.h"

#include <assert.h>

float affine_load(enum dtype t, const void *p, size_t i)
{
    float x;
    if (t == DT_F32) {
        memcpy(&x, (const unsigned char *)p + 4 * i, 4);
        return x;
    }
    uint16_t h = half_load((const unsigned char *)p + 2 * i);
    return t == DT_F16 ? half_f16_to_f32(h) : half_bf16_to_f32(h);
}

static void store(enum dtype t, void *p, size_t i, float x)
{
    if (t == DT_F32) {
        memcpy((unsigned char *)p + 4 * i, &x, 4);
        return;
    }
    uint16_t h = t == DT_F16 ? half_f32_to_f16(x) : half_f32_to_bf16(x);
    memcpy((unsigned char *)p + 2 * i, &h, 2);
}

float affine_round(enum dtype t, float x)
{
    if (t == DT_F32) return x;
    return t == DT_F16 ? half_f16_to_f32(half_f32_to_f16(x))
                       : half_bf16_to_f32(half_f32_to_bf16(x));
}

/* Returns the byte that holds the code of value d in a row of `bits`-bit codes; *shift: the place of its bits there. */
static uint32_t place(uint32_t bits, uint32_t dim, uint32_t d, uint32_t *shift)
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
    uint32_t c = place(bits, s->dim, d, &shift), mask = (1u << bits) - 1;
    unit[code_at(f, s, r, c)] |= (unsigned char)((q & mask) << shift);
    if (f->bits != 3) return;
    c = affine_plane_bytes(2, s->dim) + place(1, s->dim, d, &shift);
    unit[code_at(f, s, r, c)] |= (unsigned char)(q >> 2 << shift);
}

uint32_t affine_get(const struct kv_affine *f, const struct kv_shape *s, const unsigned char *unit,
                    uint32_t r, uint32_t d)
{
    uint32_t shift, bits = f->bits == 3 ? 2 : f->bits;
    uint32_t c = place(bits, s->dim, d, &shift);
    uint32_t q = unit[code_at(f, s, r, c)] >> shift & ((1u << bits) - 1);
    if (f->bits != 3) return q;
    c = affine_plane_bytes(2, s->dim) + place(1, s->dim, d, &shift);
    return q | (unit[code_at(f, s, r, c)] >> shift & 1u) << 2;
}

void affine_put_pair(const struct kv_affine *f, const struct kv_shape *s, unsigned char *unit,
                     uint32_t i, float a, float b)
{
    store(s->dtype, unit, i, a);
    store(s->dtype, unit, (size_t)affine_pairs(f, s->dim) + i, b);
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
            float a = affine_load(t, unit, i), b = affine_load(t, unit, (size_t)pairs + i);
            float q = (float)affine_get(f, s, unit, r % f->unit, d);
            float y = f->zero_first ? affine_round(t, q - b) * a : affine_round(t, a * q) - b;
            size_t at = s->layout == KV_STRIPS
                            ? ((size_t)(row / KV_STRIP) * s->dim + d) * KV_STRIP + row % KV_STRIP
                            : (size_t)row * s->dim + d;
            store(t, dst, at, y);
        }
    }
}
