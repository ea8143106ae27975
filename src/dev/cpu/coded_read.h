/* coded_read.h - private to dev/cpu: what the readers of coded tiles (dev/coded.h) share, and their ORDER OF SUMS, in which
 * all instruction sets agree.  Dot products are sums of integers, so their order does not matter.
 *
 *   query  turned where rows are; then codes of 8 bits with one scale: qs = amax / 127, c[d] = round-to-even(q[d] * (127 /
 *          amax)).  Turned queries have no large channels, so what this rounds off is what 8 bits round off from keys.
 *   score  t = qs * scale.  isum = the sum over d of c[d] * level[r][d].  With means m = t * sum16 of c[d] * mean[d], else 0.
 *          The score is fma((float)isum, t * scale[r], m).
 *   add    rows by units, and the rows of a unit by bands: a band has the rows whose scales are from 1/64 of the largest one that is
 *          left up, and nearly always it has all rows.  top = that scale, as bits, of all 128 rows, NaN left out; u[r] = scale[r] *
 *          (32512 / top), 0 outside the band; w[r] = round-to-even(p[r] * u[r]), 0 for rows outside the piece; isum = the sum over r
 *          of w[r] * level[r][d]; o[d] = fma((float)isum, top / 32512, o[d]).  A top of 0 (or below 2^-100) adds nothing, and
 *          neither do smaller ones.  A visible row whose scale is NaN makes o NaN.  p is at most 1, so w has 16 bits; what p weighs
 *          below top / 65024 is lost.  Without bands one huge row, even one that no query attends to, would take the bits of all others.
 *   end    turned back. */
#pragma once
#include "dev/coded.h"
#include "dev/cpu/cpu.h"
#include "dev/reader.h"

#define CODED_BAND    0x1p-6f /* the least scale of a band, in its largest */
#define CODED_QUERIES 48u     /* whose weights lie on the stack at once */

/* A prepared query: this struct, then its codes in the form of the instruction set, 2 * ceil4(dim) bytes.  It fits
 * into dim floats if dim is at least 8; the codec refuses smaller heads. */
struct coded_query {
    float scale;
    int32_t sum; /* sum of the codes */
};

/* As cpu_group_scale, for codes of 8 bits: the scale is 256 times larger, and the result 256 times smaller. */
static inline float coded_query_scale(uint32_t bits, float *scale)
{
    float by = cpu_group_scale(bits, scale) * 0x1p-8f;
    *scale *= 256;
    return by;
}

static inline const struct kv_coded *coded_of(const struct kv_reading *r)
{
    return r->codec->param;
}
static inline const unsigned char *coded_unit(const struct kv_reading *r, const struct kv_piece *at,
                                              uint32_t unit)
{
    return at->tile[0] + coded_unit_at(coded_of(r), r->shape->dim, r->codec->tile, at->head, unit);
}

/* The scalar functions.  Vector functions call them for shapes that they do not take. */
void coded_end(const struct kv_reading *r, float *o);
/* Adds rows [r0, r1) of one unit; p[0] belongs to row r0. */
void coded_add_unit(const struct kv_coded *f, uint32_t dim, const unsigned char *unit, uint32_t r0,
                    uint32_t r1, const float *p, float *o);

extern const struct kv_reader coded_reader_neon, coded_reader_neondot, coded_reader_avx2,
    coded_reader_avx512;
