/* coded_vec.h - the readers of coded tiles on vectors of 16 lanes (coded_read.h states the order of sums).
 *
 * A tile's codes become bytes, one block of 16 lanes after another, by shifts, masks and one look-up of 16 levels in a
 * register; then the dot products take four neighbours of each lane at once.  So K and V never exist as floats.  Files that
 * include this have given the vectors (vec_*.h) and
 *   CODED_AT_ONCE, CODED_BLOCKS   queries, and blocks of lanes, whose sums fit the registers
 *   codes_put(to, n, i, v, key)   writes the 16 codes v, or as many as there are, as codes i and up of n, a multiple of 4:
 *       of a query, of 8 bits, or of weights, of 16
 *   codes_get(from, n, i, m)      reads m of the 16 codes of a query from i on; others are anything that is a code
 *   codes_dot(key, bits, level, x, step, depth, c, apart, n, nq, nb, asks, then, sum)   sums of the codes of nq queries,
 *       `apart` bytes apart, with nb blocks of `depth` groups, `step` bytes apart: unsigned bytes of keys, signed ones of
 *       values, which codes of less than 8 bits find in level[16]; asks: the cache is asked for the bytes `then` behind */
#include "dev/cpu/coded_read.h"
#include "dev/cpu/half.h"

#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#ifndef CODED_FUSED
#define CODED_FUSED 0 /* codes_dot takes codes of 2 and 4 bits as they lie */
#endif
#ifndef CODED_SIGNED
#define CODED_SIGNED 0 /* codes_dot has taken the 128 from keys */
#endif
/* Room for blocks as bytes. */
#define CODED_ROOM (CODED_BLOCKS * CODED_DIM / 4 * 64)

static void query(const struct kv_reading *r, const float *q, float *out)
{
    const struct kv_coded *f = coded_of(r);
    uint32_t dim = r->shape->dim, n = (dim + 3) / 4 * 4;
    float x[CODED_DIM + 16] __attribute__((aligned(64)));
    int32_t lane[16] __attribute__((aligned(64)));
    struct coded_query *to = (struct coded_query *)(void *)out;
    memcpy(x, q, dim * sizeof *x);
    if (f->turned) hadamard_turn(&f->turn, x);
    memset(x + dim, 0, 16 * sizeof *x);
    vi top = vi_zero(), sum = vi_zero();
    for (uint32_t d = 0; d < dim; d += 16)
        top = vi_max(top, vi_and(vi_bits(vf_load(x + d)), 0x7fffffffu));
    float by = coded_query_scale((uint32_t)vi_top(top), &to->scale);
    for (uint32_t d = 0; d < dim; d += 16) {
        vi c = vi_and(vi_round(vf_mul(vf_load(x + d), vf_set1(by))), by > 0 ? UINT32_MAX : 0);
        codes_put(to + 1, n, d, c, true);
        sum = vi_add(sum, c);
    }
    vi_store(lane, sum);
    to->sum = 0;
    for (int i = 0; i < 16; i++)
        to->sum += lane[i];
}

/* Asks for what lies `apart` from the line at p; 0: nothing is known. */
INLINE void ask(const unsigned char *p, ptrdiff_t apart)
{
    __builtin_prefetch(p + apart, 0, 2);
}

/* From the first unit of a piece to what is read after the piece. */
INLINE ptrdiff_t then_of(const struct kv_reading *r, const struct kv_piece *at)
{
    const unsigned char *unit = coded_unit(r, at, at->r0 / CODED_ROWS);
    for (uint32_t i = 0; at->then && i < coded_head_bytes(coded_of(r), r->shape->dim); i += 64)
        ask(at->then + i, 0);
    return at->then ? (ptrdiff_t)((uintptr_t)at->then - (uintptr_t)unit) : 0;
}

/* 64 bytes of codes, of which some bits are wanted, as levels. */
INLINE vb levels_of(const struct kv_coded *f, vb x, int shift, uint8_t mask)
{
    return vb_lookup(f->key ? f->level_byte : (const uint8_t *)f->level,
                     vb_and1(vb_shr(x, shift), mask));
}

INLINE void unpack4(const struct kv_coded *f, const unsigned char *src, uint32_t depth,
                    ptrdiff_t then, unsigned char *dst)
{
    for (uint32_t e = 0; e < depth; e += 2, src += 64, dst += 128) {
        vb x = vb_load(src);
        ask(src, then);
        vb_store(dst, levels_of(f, x, 0, 15));
        vb_store(dst + 64, levels_of(f, x, 4, 15));
    }
}

INLINE void unpack2(const struct kv_coded *f, const unsigned char *src, uint32_t depth,
                    ptrdiff_t then, unsigned char *dst)
{
    for (uint32_t e = 0; e < depth; e += 4, src += 64, dst += 256) {
        vb x = vb_load(src);
        ask(src, then);
        vb_store(dst, levels_of(f, x, 0, 3));
        vb_store(dst + 64, levels_of(f, x, 2, 3));
        vb_store(dst + 128, levels_of(f, x, 4, 3));
        vb_store(dst + 192, levels_of(f, x, 6, 3));
    }
}

/* A group of 3 bits: two at `low`, one at `high`. */
INLINE vb levels3(const struct kv_coded *f, vb x, int low, vb y, const int high)
{
    vb bit = vb_and1(y, (uint8_t)(1u << high));
    bit = high < 2 ? vb_shl(bit, 2 - high) : vb_shr(bit, high - 2);
    return vb_lookup(f->key ? f->level_byte : (const uint8_t *)f->level,
                     vb_or(vb_and1(vb_shr(x, low), 3), bit));
}

INLINE void unpack3(const struct kv_coded *f, const unsigned char *src, uint32_t depth,
                    ptrdiff_t then, unsigned char *dst)
{
    const unsigned char *top = src + coded_part_bytes(2, depth);
    for (uint32_t e = 0; e < depth; e += 8, top += 64) {
        vb y = vb_load(top);
        vb x = vb_load(src);
        ask(top, then);
        ask(src, then);
        vb_store(dst, levels3(f, x, 0, y, 0));
        vb_store(dst + 64, levels3(f, x, 2, y, 1));
        vb_store(dst + 128, levels3(f, x, 4, y, 2));
        vb_store(dst + 192, levels3(f, x, 6, y, 3));
        if (e + 4 >= depth) return;
        x = vb_load(src + 64);
        ask(src + 64, then);
        vb_store(dst + 256, levels3(f, x, 0, y, 4));
        vb_store(dst + 320, levels3(f, x, 2, y, 5));
        vb_store(dst + 384, levels3(f, x, 4, y, 6));
        vb_store(dst + 448, levels3(f, x, 6, y, 7));
        src += 128;
        dst += 512;
    }
}

/* Some blocks, a step apart, with codes of *bits bits: where they lie if the kernel takes them so and few queries meet them,
 * else as bytes in room. */
static const unsigned char *blocks_of(const struct kv_coded *f, const unsigned char *codes,
                                      uint32_t block, uint32_t n, uint32_t depth, size_t size,
                                      ptrdiff_t then, uint32_t queries, unsigned char *room,
                                      size_t *step, uint32_t *bits)
{
    codes += block * size;
    *step = size;
    *bits = f->bits;
    if (f->bits == 8 || (CODED_FUSED && f->bits != 3 && queries <= CODED_AT_ONCE)) return codes;
    *bits = 8;
    *step = (size_t)(depth + 7) / 8 * 512;
    for (uint32_t b = 0; b < n; b++, codes += size) {
        if (f->bits == 4)
            unpack4(f, codes, depth, then, room + b * *step);
        else if (f->bits == 3)
            unpack3(f, codes, depth, then, room + b * *step);
        else
            unpack2(f, codes, depth, then, room + b * *step);
    }
    return room;
}

/* --- keys */
struct scoring {
    const struct kv_coded *f;
    const unsigned char *unit;
    float t[CODED_QUERIES], m[CODED_QUERIES], *p;
    size_t ldp;
    uint32_t r0, r1; /* rows of the unit that are wanted; p[0] is row r0's */
    ptrdiff_t then;  /* from the unit to what is read after it, or 0 */
};

INLINE void score_block(const struct scoring *s, uint32_t i, uint32_t block, vi sum)
{
    uint32_t row = block * 16;
    vf scale = vf_mul(vf_set1(s->t[i]), vf_from_bf16(coded_scales(s->unit) + row));
    vf x = vf_fma(vf_from_int(sum), scale, vf_set1(s->m[i]));
    float *p = s->p + i * s->ldp;
    if (row >= s->r0 && row + 16 <= s->r1) {
        vf_store(p + (row - s->r0), x);
        return;
    }
    float lane[16];
    vf_store(lane, x);
    for (uint32_t j = MAX(row, s->r0); j < MIN(row + 16, s->r1); j++)
        p[j - s->r0] = lane[j - row];
}

INLINE float mean_dot(const void *codes, uint32_t n, const uint16_t *mean, uint32_t dim)
{
    vf s = vf_zero();
    uint32_t d = 0;
    for (; d + 16 <= dim; d += 16)
        s = vf_fma(vf_from_int(codes_get(codes, n, d, 16)), vf_from_bf16(mean + d), s);
    if (d < dim) {
        uint16_t last[16] = {0};
        memcpy(last, mean + d, (dim - d) * sizeof *last);
        s = vf_fma_n(vf_from_int(codes_get(codes, n, d, n - d)), vf_from_bf16(last), s, dim - d);
    }
    return vf_tree(s);
}

INLINE void score_some(const struct scoring *s, const uint32_t bits, const bool asks, uint32_t i,
                       const uint32_t nq, uint32_t block, const uint32_t nb, const unsigned char *x,
                       size_t step, uint32_t depth, const float *q, uint32_t dim)
{
    vi sum[CODED_AT_ONCE][CODED_BLOCKS];
    const struct coded_query *c = (const struct coded_query *)(const void *)(q + (size_t)i * dim);
    codes_dot(true, bits, s->f->level_byte, x, step, depth, (const unsigned char *)(c + 1),
              dim * sizeof *q, 4 * depth, nq, nb, asks, s->then, sum);
    UNROLL for (uint32_t k = 0; k < nq; k++)
    {
        const struct coded_query *ck =
            (const struct coded_query *)(const void *)(q + (size_t)(i + k) * dim);
        const vi bias = vi_set1(CODED_SIGNED ? 0 : (int32_t)(0u - 128u * (uint32_t)ck->sum));
        UNROLL for (uint32_t b = 0; b < nb; b++)
            score_block(s, i + k, block + b, vi_add(sum[k][b], bias));
    }
}

INLINE void score_blocks(const struct scoring *s, const uint32_t bits, uint32_t n, uint32_t block,
                         const uint32_t nb, const unsigned char *x, size_t step, uint32_t depth,
                         const float *q, uint32_t dim)
{
    uint32_t i = 0;
    if (n >= CODED_AT_ONCE) {
        score_some(s, bits, true, 0, CODED_AT_ONCE, block, nb, x, step, depth, q, dim);
        i = CODED_AT_ONCE;
    }
    for (; bits == 8 && i + CODED_AT_ONCE <= n; i += CODED_AT_ONCE)
        score_some(s, bits, false, i, CODED_AT_ONCE, block, nb, x, step, depth, q, dim);
    for (; i < n; i++)
        score_some(s, bits, true, i, 1, block, nb, x, step, depth, q, dim);
}

/* By the kernel for the bits of what blocks_of returned. */
INLINE void score_packed(const struct scoring *s, uint32_t bits, uint32_t n, uint32_t block,
                         const uint32_t nb, const unsigned char *x, size_t step, uint32_t depth,
                         const float *q, uint32_t dim)
{
    if (bits == 8)
        score_blocks(s, 8, n, block, nb, x, step, depth, q, dim);
    else if (CODED_FUSED && bits == 4)
        score_blocks(s, 4, n, block, nb, x, step, depth, q, dim);
    else if (CODED_FUSED)
        score_blocks(s, 2, n, block, nb, x, step, depth, q, dim);
}

static void score_unit(struct scoring *s, const float *q, uint32_t n, float scale, uint32_t dim)
{
    unsigned char room[CODED_ROOM] __attribute__((aligned(64)));
    const struct kv_coded *f = s->f;
    uint32_t depth = coded_depth(f, dim), size = coded_block_bytes(f, dim);
    const unsigned char *codes = s->unit + coded_head_bytes(f, dim);
    const ptrdiff_t then = s->then;
    uint32_t bits;
    size_t step;
    for (uint32_t i = 0; i < n; i++) {
        const struct coded_query *c =
            (const struct coded_query *)(const void *)(q + (size_t)i * dim);
        s->t[i] = c->scale * scale;
        s->m[i] = f->mean ? s->t[i] * mean_dot(c + 1, 4 * depth, coded_means(s->unit), dim) : 0;
    }
    for (uint32_t b = s->r0 / 16; b * 16 < s->r1;) {
        uint32_t nb = MIN(CODED_BLOCKS, (s->r1 + 15) / 16 - b);
        const unsigned char *x =
            blocks_of(f, codes, b, nb, depth, size, then, n, room, &step, &bits);
        s->then = x == room ? 0 : then;
        if (nb == CODED_BLOCKS)
            score_packed(s, bits, n, b, CODED_BLOCKS, x, step, depth, q, dim);
        else
            for (uint32_t k = 0; k < nb; k++)
                score_packed(s, bits, n, b + k, 1, x + k * step, step, depth, q, dim);
        b += nb;
    }
}

static void score(const struct kv_reading *r, const struct kv_piece *at, const float *q, uint32_t n,
                  float scale, float *p, size_t ldp)
{
    uint32_t dim = r->shape->dim;
    for (uint32_t i = 0; i < n; i += CODED_QUERIES)
        for (uint32_t j = at->r0, end; j < at->r1; j = end) {
            uint32_t first = j / CODED_ROWS * CODED_ROWS;
            end = MIN(at->r1, first + CODED_ROWS);
            struct scoring s = {.f = coded_of(r),
                                .unit = coded_unit(r, at, j / CODED_ROWS),
                                .p = p + i * ldp + (j - at->r0),
                                .ldp = ldp,
                                .r0 = j - first,
                                .r1 = end - first,
                                .then = i ? 0 : then_of(r, at)};
            score_unit(&s, q + (size_t)i * dim, MIN(n - i, CODED_QUERIES), scale, dim);
        }
}

/* --- values */
struct adding {
    const uint8_t *level;
    float step, *o; /* (float)isum * step */
    size_t ldo;
    uint32_t dim;
    ptrdiff_t then;
};

INLINE void add_block(const struct adding *s, uint32_t i, uint32_t block, vi sum)
{
    float *o = s->o + i * s->ldo + (size_t)block * 16;
    uint32_t left = s->dim - block * 16;
    vf x = vf_from_int(sum), by = vf_set1(s->step);
    if (left >= 16)
        vf_store(o, vf_fma(x, by, vf_load(o)));
    else
        vf_store_n(o, vf_fma(x, by, vf_load_n(o, left)), left);
}

INLINE void add_some(const struct adding *s, const uint32_t bits, const bool asks, uint32_t i,
                     const uint32_t nq, uint32_t block, const uint32_t nb, const unsigned char *x,
                     size_t step, const unsigned char *w)
{
    vi sum[CODED_AT_ONCE][CODED_BLOCKS];
    codes_dot(false, bits, s->level, x, step, CODED_ROWS / 4, w + (size_t)i * 2 * CODED_ROWS,
              2 * CODED_ROWS, CODED_ROWS, nq, nb, asks, s->then, sum);
    UNROLL for (uint32_t k = 0; k < nq; k++) UNROLL for (uint32_t b = 0; b < nb; b++)
        add_block(s, i + k, block + b, sum[k][b]);
}

INLINE void add_blocks(const struct adding *s, const uint32_t bits, uint32_t n, uint32_t block,
                       const uint32_t nb, const unsigned char *x, size_t step,
                       const unsigned char *w)
{
    uint32_t i = 0;
    if (n >= CODED_AT_ONCE) {
        add_some(s, bits, true, 0, CODED_AT_ONCE, block, nb, x, step, w);
        i = CODED_AT_ONCE;
    }
    for (; bits == 8 && i + CODED_AT_ONCE <= n; i += CODED_AT_ONCE)
        add_some(s, bits, false, i, CODED_AT_ONCE, block, nb, x, step, w);
    for (; i < n; i++)
        add_some(s, bits, true, i, 1, block, nb, x, step, w);
}

INLINE void add_packed(const struct adding *s, uint32_t bits, uint32_t n, uint32_t block,
                       const uint32_t nb, const unsigned char *x, size_t step,
                       const unsigned char *w)
{
    if (bits == 8)
        add_blocks(s, 8, n, block, nb, x, step, w);
    else if (CODED_FUSED && bits == 4)
        add_blocks(s, 4, n, block, nb, x, step, w);
    else if (CODED_FUSED)
        add_blocks(s, 2, n, block, nb, x, step, w);
}

/* The weights of the rows of a unit, of n queries. */
INLINE void weigh(const unsigned char *unit, float by, uint32_t r0, uint32_t r1, const float *p,
                  size_t ldp, uint32_t n, unsigned char *w)
{
    const vf one = vf_set1(by), none = vf_zero();
    for (uint32_t row = 0; row < CODED_ROWS; row += 16) {
        vf u = vf_mul(vf_from_bf16(coded_scales(unit) + row), one);
        bool whole = row >= r0 && row + 16 <= r1, part = row < r1 && row + 16 > r0;
        for (uint32_t i = 0; i < n; i++) {
            vf x = none;
            if (whole) {
                x = vf_load(p + i * ldp + (row - r0));
            } else if (part) {
                float lane[16] = {0};
                for (uint32_t j = MAX(row, r0); j < MIN(row + 16, r1); j++)
                    lane[j - row] = p[i * ldp + j - r0];
                x = vf_load(lane);
            }
            codes_put(w + (size_t)i * 2 * CODED_ROWS, CODED_ROWS, row, vi_round(vf_mul(x, u)),
                      false);
        }
    }
}

/* The largest of the scales of a unit, as the bits of a float. */
INLINE uint32_t top_scale(const unsigned char *unit)
{
    vi top = vi_zero();
    UNROLL for (uint32_t row = 0; row < CODED_ROWS; row += 16) top =
        vi_max(top, vi_bits(vf_from_bf16(coded_scales(unit) + row)));
    return (uint32_t)vi_top(top);
}

static void add_unit(const struct kv_coded *f, uint32_t dim, const unsigned char *unit, uint32_t r0,
                     uint32_t r1, ptrdiff_t then, const float *p, size_t ldp, uint32_t n, float *o,
                     size_t ldo)
{
    unsigned char room[CODED_ROOM] __attribute__((aligned(64)));
    unsigned char w[CODED_QUERIES * 2 * CODED_ROWS] __attribute__((aligned(64)));
    struct adding s = {.level = (const uint8_t *)f->level, .o = o, .ldo = ldo, .dim = dim};
    const unsigned char *codes = unit + coded_head_bytes(f, dim);
    uint32_t size = coded_block_bytes(f, dim), blocks = coded_blocks(f, dim), top = top_scale(unit),
             bits;
    size_t step;
    if (top >= 0x7f800000u) { /* a row is not finite */
        for (uint32_t i = 0; i < n; i++)
            coded_add_unit(f, dim, unit, r0, r1, p + i * ldp, o + i * ldo);
        return;
    }
    weigh(unit, cpu_group_scale(top, &s.step), r0, r1, p, ldp, n, w);
    for (uint32_t b = 0; b < blocks;) {
        uint32_t nb = MIN(CODED_BLOCKS, blocks - b);
        const unsigned char *x =
            blocks_of(f, codes, b, nb, CODED_ROWS / 4, size, then, n, room, &step, &bits);
        s.then = x == room ? 0 : then;
        if (nb == CODED_BLOCKS)
            add_packed(&s, bits, n, b, CODED_BLOCKS, x, step, w);
        else
            for (uint32_t k = 0; k < nb; k++)
                add_packed(&s, bits, n, b + k, 1, x + k * step, step, w);
        b += nb;
    }
}

static void add(const struct kv_reading *r, const struct kv_piece *at, const float *p, size_t ldp,
                uint32_t n, float *o, size_t ldo)
{
    for (uint32_t i = 0; i < n; i += CODED_QUERIES)
        for (uint32_t j = at->r0, end; j < at->r1; j = end) {
            uint32_t first = j / CODED_ROWS * CODED_ROWS;
            end = MIN(at->r1, first + CODED_ROWS);
            add_unit(coded_of(r), r->shape->dim, coded_unit(r, at, j / CODED_ROWS), j - first,
                     end - first, i ? 0 : then_of(r, at), p + i * ldp + (j - at->r0), ldp,
                     MIN(n - i, CODED_QUERIES), o + i * ldo, ldo);
        }
}

const struct kv_reader VEC(coded_reader) = {
    .query = query, .score = score, .add = add, .end = coded_end};
