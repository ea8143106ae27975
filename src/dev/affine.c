/* affine.c - writes and reads quantized groups.  Codecs write with it; for kernels the reading half is the scalar
 * reference. */
#include "dev/affine.h"
#include "dev/dev.h"
#include "dev/row.h"

#include <assert.h>

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

/* Some values of a row whose bits lie at one place of neighbouring bytes. */
struct code_run {
    uint32_t byte, shift, n;
};

/* Returns the run of `bits`-bit codes that begins with value d of a row and has at most n values. */
static struct code_run run_at(uint32_t bits, uint32_t dim, uint32_t d, uint32_t n)
{
    uint32_t chunk = 128 / bits, c = d / chunk, i = d % chunk, w = 16, place = i / 16;
    if (dim - c * chunk <
        chunk) { /* the last chunk; a division takes as long as the codes of a run */
        w = affine_plane_bytes(bits, dim - c * chunk);
        place = i / w;
    }
    i -= place * w;
    return (struct code_run){c * 16 + i, place * bits, MIN(n, w - i)};
}

/* Writes bits `low` and up of each of n codes into a row of `bits`-bit codes whose bytes are `step` apart. */
static void put_run(unsigned char *row, size_t step, uint32_t bits, uint32_t dim, uint32_t d,
                    uint32_t n, const uint8_t *q, uint32_t low)
{
    uint32_t mask = (1u << bits) - 1;
    for (struct code_run r; n; d += r.n, q += r.n, n -= r.n) {
        r = run_at(bits, dim, d, n);
        unsigned char *to = row + r.byte * step;
        for (uint32_t k = 0; k < r.n; k++)
            to[k * step] |= (unsigned char)((q[k] >> low & mask) << r.shift);
    }
}

/* Reads n codes as put_run writes them, and adds their bits to q. */
static void get_run(const unsigned char *row, size_t step, uint32_t bits, uint32_t dim, uint32_t d,
                    uint32_t n, uint8_t *q, uint32_t low)
{
    uint32_t mask = (1u << bits) - 1;
    for (struct code_run r; n; d += r.n, q += r.n, n -= r.n) {
        r = run_at(bits, dim, d, n);
        const unsigned char *from = row + r.byte * step;
        for (uint32_t k = 0; k < r.n; k++)
            q[k] |= (uint8_t)((from[k * step] >> r.shift & mask) << low);
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

void affine_get_run(const struct kv_affine *f, const struct kv_shape *s, const unsigned char *unit,
                    uint32_t r, uint32_t d, uint32_t n, uint8_t *q)
{
    size_t step = affine_strips(f, s) ? KV_STRIP : 1;
    memset(q, 0, n);
    get_run(unit + code_at(f, s, r, 0), step, f->bits == 3 ? 2 : f->bits, s->dim, d, n, q, 0);
    if (f->bits != 3) return;
    get_run(unit + code_at(f, s, r, affine_plane_bytes(2, s->dim)), step, 1, s->dim, d, n, q, 2);
}

void affine_put_pair(const struct kv_affine *f, const struct kv_shape *s, unsigned char *unit,
                     uint32_t i, float a, float b)
{
    kv_row_put(s->dtype, unit, i, a);
    kv_row_put(s->dtype, unit, (size_t)affine_pairs(f, s->dim) + i, b);
}

#define PIECE 128u /* values of a row that are decoded at a time */

/* For each value of a row, the two numbers by which its code becomes a value. */
struct pairs {
    float a[PIECE], b[PIECE];
};

static void pairs_of(const struct kv_affine *f, const struct kv_shape *s, const unsigned char *unit,
                     uint32_t r, uint32_t d, uint32_t n, struct pairs *p)
{
    size_t pairs = affine_pairs(f, s->dim), size = dtype_size(s->dtype);
    if (!f->group) {
        dev_to_f32(s->dtype, unit + d * size, p->a, n);
        dev_to_f32(s->dtype, unit + (pairs + d) * size, p->b, n);
        return;
    }
    for (uint32_t k = 0, at = r * s->dim + d; k < n;) { /* a group of the row after another */
        uint32_t group = (at + k) / f->group, end = MIN(n, (group + 1) * f->group - at);
        float a = kv_row_get(s->dtype, unit, group);
        float b = kv_row_get(s->dtype, unit, pairs + group);
        for (; k < end; k++) {
            p->a[k] = a;
            p->b[k] = b;
        }
    }
}

/* Decodes values d to d + n of row r of a unit to x. */
static void piece_of(const struct kv_affine *f, const struct kv_shape *s, const unsigned char *unit,
                     uint32_t r, uint32_t d, uint32_t n, float *x)
{
    uint8_t q[PIECE];
    struct pairs p;
    affine_get_run(f, s, unit, r, d, n, q);
    pairs_of(f, s, unit, r, d, n, &p);
    for (uint32_t k = 0; k < n; k++)
        x[k] = f->zero_first ? (float)q[k] - p.b[k] : p.a[k] * (float)q[k];
    if (s->dtype != DT_F32)
        for (uint32_t k = 0; k < n; k++)
            x[k] = kv_row_round(s->dtype, x[k]);
    for (uint32_t k = 0; k < n; k++)
        x[k] = f->zero_first ? x[k] * p.a[k] : x[k] - p.b[k];
}

void affine_decode(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile,
                   uint32_t head, const unsigned char *src, uint32_t r0, uint32_t r1, void *dst,
                   uint32_t first)
{
    size_t step = s->layout == KV_STRIPS ? KV_STRIP : 1;
    float x[PIECE];
    for (uint32_t r = r0; r < r1; r++) {
        const unsigned char *unit = src + affine_unit_at(f, s, tile, head, r / f->unit);
        for (uint32_t d = 0, n; d < s->dim; d += n) {
            n = MIN(PIECE, s->dim - d);
            piece_of(f, s, unit, r % f->unit, d, n, x);
            size_t at = kv_row_place(s, first + r, d);
            for (uint32_t k = 0; k < n; k++)
                kv_row_put(s->dtype, dst, at + k * step, x[k]);
        }
    }
}
