/* coded.h - layout of rows that attention reads as integers: each value is a level of few bits, each row has one scale.
 * The codec `kvik` writes this layout (kv/codec_kvik.c); readers take whole dot products of it (cpu/reader_coded.c).
 *
 * A tile is [head][unit]; a unit is 128 rows of one head:
 *   scale[128]     of rows, bf16; 0 where a row is not written, NaN where a row is not finite
 *   mean[dim]      bf16, with `mean` only: what was taken from every row before it was coded
 *   zeros up to a multiple of 64 bytes, then the codes.
 * A value is level(code) * scale + mean, of the turned row where `turned` is set.
 *
 * Codes serve dot products of bytes, which take four neighbours of each of 16 lanes at once.  Of keys the lanes are rows and
 * neighbours are dims; of values the lanes are dims and neighbours are rows.  So codes come in blocks of 16 lanes: of keys 8
 * blocks, of values one for each 16 dims.  A block is a list of groups; group e holds codes 4e to 4e + 3 of each lane,
 * [16 lanes][4], 64 bytes with codes of 8 bits.  With fewer bits several groups share 64 bytes, so that a shift and a mask give
 * a group: 4 bits have group 2i in the low halves and 2i + 1 in the high ones; 2 bits have groups 4i to 4i + 3 from the low bits
 * up.  3 bits are the low two as codes of 2 bits, then the high ones as codes of 1 bit, 8 groups to 64 bytes. */
#pragma once
#include "dev/hadamard.h"
#include "dev/view.h"

#define CODED_ROWS   128u /* rows of a unit */
#define CODED_DIM    512u /* most values of a row: their sums fit 32 bits */
#define CODED_LEVELS 16u

struct kv_coded {
    uint32_t bits; /* 2, 3, 4, 8 */
    bool key, mean, turned;
    /* Signed, at most 127 in size.  A code of 8 bits is its own level, as a signed byte.  level_byte: for keys the
     * level plus 128, because kernels want unsigned bytes of keys; 8-bit codes of keys are stored with 128 added,
     * too. */
    int8_t level[CODED_LEVELS];
    uint8_t level_byte[CODED_LEVELS];
    /* the bound between the i-th level above 0 and the next one, in units of a row */
    float edge[CODED_LEVELS / 2];
    /* how much a row's deviation and its largest value count in its unit */
    float of_rms, of_top;
    struct hadamard turn;
};

static inline uint32_t coded_blocks(const struct kv_coded *f, uint32_t dim)
{
    return f->key ? CODED_ROWS / 16 : (dim + 15) / 16;
}
/* Returns the number of groups of a block. */
static inline uint32_t coded_depth(const struct kv_coded *f, uint32_t dim)
{
    return f->key ? (dim + 3) / 4 : CODED_ROWS / 4;
}
/* Returns the bytes of a block's part with codes of 1, 2, 4 or 8 bits. */
static inline uint32_t coded_part_bytes(uint32_t bits, uint32_t depth)
{
    return (depth * bits + 7) / 8 * 64;
}
static inline uint32_t coded_block_bytes(const struct kv_coded *f, uint32_t dim)
{
    uint32_t depth = coded_depth(f, dim);
    if (f->bits == 3) return coded_part_bytes(2, depth) + coded_part_bytes(1, depth);
    return coded_part_bytes(f->bits, depth);
}
static inline uint32_t coded_head_bytes(const struct kv_coded *f, uint32_t dim)
{
    return (CODED_ROWS * 2 + (f->mean ? 2 * dim : 0) + 63) / 64 * 64;
}
static inline size_t coded_unit_bytes(const struct kv_coded *f, uint32_t dim)
{
    return coded_head_bytes(f, dim) + (size_t)coded_blocks(f, dim) * coded_block_bytes(f, dim);
}
/* Returns the offset of a unit of a head in a tile of `tile` rows. */
static inline size_t coded_unit_at(const struct kv_coded *f, uint32_t dim, uint32_t tile,
                                   uint32_t head, uint32_t unit)
{
    return ((size_t)head * (tile / CODED_ROWS) + unit) * coded_unit_bytes(f, dim);
}
static inline const uint16_t *coded_scales(const unsigned char *unit)
{
    return (const uint16_t *)(const void *)unit;
}
static inline const uint16_t *coded_means(const unsigned char *unit)
{
    return coded_scales(unit) + CODED_ROWS;
}

/* Writes all codes of a unit, q[CODED_ROWS][dim]; with 8 bits they are levels as bytes.  The caller writes scales
 * and means. */
void coded_pack(const struct kv_coded *f, uint32_t dim, unsigned char *unit, const uint8_t *q);
/* Writes the levels of one row to out[dim]. */
void coded_get(const struct kv_coded *f, uint32_t dim, const unsigned char *unit, uint32_t r,
               int8_t *out);
