/* affine.h - layout of group-quantized rows in a tile: small integer codes, and two numbers (a, b) per group that
 * turn a code q into a value, a * q - b or (q - b) * a.  Codecs of the kv floor write this layout
 * (codec_affine.c).  Devices read it one strip of 16 rows at a time.
 *
 * A tile is [head][unit]; a unit is some rows with their own groups: either each group is `group` consecutive
 * values of the unit's rows, or (group 0) one channel over all rows of the unit.  Unit:
 *   a[pairs] b[pairs] in the plane's dtype, then the codes, then zeros up to a multiple of 4 bytes.
 * A row's codes take affine_row_bytes.  Values go in chunks of 128 / bits, each of 16 bytes: byte i holds values
 * i, i + 16, i + 32, .. from its low bits up, so that a shift and a mask give 16 neighbours.  A last
 * chunk of n values has W = ceil(n * bits / 8) bytes and distance W.  3-bit codes: their low two bits as a row of 2-bit codes,
 * then the high bits as a row of 1-bit codes.
 * Rows of a unit lie one after another, or, if the plane has KV_STRIPS and the unit whole strips, byte by byte:
 * [rows / 16][row bytes][16]. */
#pragma once
#include "dev/view.h"

struct kv_affine {
    uint32_t bits;   /* 1, 2, 3, 4, 8 */
    uint32_t unit;   /* rows: 1, 2, 4, 8 or a multiple of 16 */
    uint32_t group;  /* values of a row group; 0: channels */
    bool zero_first; /* (q - b) * a; else a * q - b; each operation rounded to the plane's dtype */
};

/* True if codes can have so many bits. */
static inline bool affine_bits(uint32_t bits)
{
    return bits == 8 || (bits >= 1 && bits <= 4);
}
static inline uint32_t affine_plane_bytes(uint32_t bits, uint32_t dim)
{
    return (dim * bits + 7) / 8;
}
static inline uint32_t affine_row_bytes(const struct kv_affine *f, uint32_t dim)
{
    if (f->bits == 3) return affine_plane_bytes(2, dim) + affine_plane_bytes(1, dim);
    return affine_plane_bytes(f->bits, dim);
}
static inline uint32_t affine_pairs(const struct kv_affine *f, uint32_t dim)
{
    return f->group ? f->unit * dim / f->group : dim;
}
static inline size_t affine_unit_bytes(const struct kv_affine *f, const struct kv_shape *s)
{
    size_t pairs = (size_t)2 * affine_pairs(f, s->dim) * dtype_size(s->dtype);
    return (pairs + (size_t)f->unit * affine_row_bytes(f, s->dim) + 3) & ~(size_t)3;
}
/* Returns the offset of unit `unit` of head `head` in a tile of `tile` rows. */
static inline size_t affine_unit_at(const struct kv_affine *f, const struct kv_shape *s,
                                    uint32_t tile, uint32_t head, uint32_t unit)
{
    return ((size_t)head * (tile / f->unit) + unit) * affine_unit_bytes(f, s);
}
/* True if the codes of 16 rows are interleaved byte by byte. */
static inline bool affine_strips(const struct kv_affine *f, const struct kv_shape *s)
{
    return s->layout == KV_STRIPS && f->unit % KV_STRIP == 0;
}

size_t affine_bytes(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile);
/* Writes the codes q[n] of values d and up of row r into a unit whose bytes were zero. */
void affine_put_run(const struct kv_affine *f, const struct kv_shape *s, unsigned char *unit,
                    uint32_t r, uint32_t d, uint32_t n, const uint8_t *q);
/* Reads the codes of values d to d + n of row r. */
void affine_get_run(const struct kv_affine *f, const struct kv_shape *s, const unsigned char *unit,
                    uint32_t r, uint32_t d, uint32_t n, uint8_t *q);
void affine_put_pair(const struct kv_affine *f, const struct kv_shape *s, unsigned char *unit,
                     uint32_t i, float a, float b);
/* Dequantizes rows [r0, r1) of one head of a tile to rows first + r of dst, one head in the plane's raw layout.  The
 * scalar reference of the vector kernels. */
void affine_decode(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile,
                   uint32_t head, const unsigned char *src, uint32_t r0, uint32_t r1, void *dst,
                   uint32_t first);
