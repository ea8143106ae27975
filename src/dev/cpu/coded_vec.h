/* coded_vec.h - the readers of coded tiles on vectors of 16 lanes (coded_read.h states the order of sums).
 *
 * A tile's codes become bytes, one block of 16 lanes after another, by shifts, masks and one look-up of 16 levels in a
 * register; then the dot products take four neighbours of each lane at once.  So K and V never exist as floats.  Files that
 * include this have given the vectors (vec_*.h) and
 *   CODED_AT_ONCE, CODED_BLOCKS   queries, and blocks of lanes, whose sums fit the registers
 *   codes_put(to, n, i, v, key)   writes the 16 codes v, or as many as there are, as codes i and up of n, a multiple of 4:
 *       of a query, of 8 bits, or of weights, of 16
 *   codes_put4(to, n, i, v)       of weights, four vectors; a file without it gets four times codes_put
 *   codes_get(from, n, i, m)      reads m of the 16 codes of a query from i on; others are anything that is a code
 *   codes_dot(key, bits, level, x, step, depth, c, apart, n, nq, nb, asks, then, sum)   sums of the codes of nq queries,
 *       `apart` bytes apart, with nb blocks of `depth` groups, `step` bytes apart: unsigned bytes of keys, signed ones of
 *       values, which codes of less than 8 bits find in level[16]; asks: the cache is asked for the bytes `then` behind */
#include "dev/cpu/coded_read.h"
#include "dev/cpu/half.h"

#include <math.h>
#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#ifndef CODED_FUSED
#define CODED_FUSED 0 /* codes_dot takes codes of 2 and 4 bits as they lie */
#endif
#ifndef CODED_TILES
#define CODED_TILES 0 /* the processor may have the products of tiles.h */
#endif
#ifndef CODED_SIGNED
#define CODED_SIGNED 0 /* codes_dot has taken the 128 from keys */
#endif
#if CODED_TILES
#define AWAKE(i, often) /* in a loop over queries, once in so many */                              \
    if ((i) % (often) == 0) tiles_awake();
#else
#define AWAKE(i, often) (void)(i);
#endif
/* Bytes of room for blocks that were unpacked. */
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

#include "dev/cpu/coded_bytes.h"

/* Returns the distance from the first unit of a piece to the bytes that are read after the piece. */
INLINE ptrdiff_t then_of(const struct kv_reading *r, const struct kv_piece *at)
{
    const unsigned char *unit = coded_unit(r, at, at->r0 / CODED_ROWS);
    for (uint32_t i = 0; at->then && i < coded_head_bytes(coded_of(r), r->shape->dim); i += 64)
        ask(at->then + i, 0);
    return at->then ? (ptrdiff_t)((uintptr_t)at->then - (uintptr_t)unit) : 0;
}

/* --- keys */
struct scoring {
    const struct kv_coded *f;
    const unsigned char *unit;
    float t[CODED_QUERIES], m[CODED_QUERIES], scale[CODED_ROWS], *p;
    size_t ldp;
    uint32_t r0, r1; /* rows of the unit that are wanted; p[0] is row r0's */
    ptrdiff_t then;  /* from the unit to the bytes that are read after it; 0: not known */
};

INLINE const struct coded_query *query_at(const float *q, uint32_t i, uint32_t dim)
{
    return (const struct coded_query *)(const void *)(q + (size_t)i * dim);
}

/* Returns what is added to the sums of a query, because bytes of keys are 128 too large. */
INLINE vi bias_of(const struct coded_query *c)
{
    return vi_set1(CODED_SIGNED ? 0 : (int32_t)(0u - 128u * (uint32_t)c->sum));
}

INLINE void score_block(const struct scoring *s, uint32_t i, uint32_t block, vi sum)
{
    uint32_t row = block * 16;
    vf scale = vf_mul(vf_set1(s->t[i]), vf_load(s->scale + row));
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

/* The dot products with means are computed for n queries at once, at most 4 * VEC_TOKENS, whose trees are added
 * together. */
#define MEANS (4u * VEC_TOKENS)
static void mean_dots(const float *q, uint32_t n, const uint16_t *mean, uint32_t dim, float *out)
{
    vf acc[4][VEC_TOKENS];
    float tree[VEC_TOKENS][4];
    const void *codes[MEANS];
    for (uint32_t i = 0; i < MEANS; i++)
        codes[i] = query_at(q, MIN(i, n - 1), dim) + 1;
    UNROLL for (uint32_t i = 0; i < MEANS; i++) acc[i % 4][i / 4] = vf_zero();
    for (uint32_t d = 0; d < dim; d += 16) {
        vf x = vf_from_bf16(mean + d);
        UNROLL for (uint32_t i = 0; i < MEANS; i++) acc[i % 4][i / 4] =
            vf_fma(vf_from_int(codes_get(codes[i], dim, d, 16)), x, acc[i % 4][i / 4]);
    }
    vf_trees(acc, VEC_TOKENS, tree);
    for (uint32_t i = 0; i < n; i++)
        out[i] = tree[i / 4][i % 4];
}

/* Computes the parts of the scores of n queries that do not depend on the sums. */
static void begin_unit(struct scoring *s, const float *q, uint32_t n, float scale, uint32_t dim)
{
    const uint16_t *mean = coded_means(s->unit);
    uint32_t i = 0;
    for (uint32_t row = 0; row < CODED_ROWS; row += 16)
        vf_store(s->scale + row, vf_from_bf16(coded_scales(s->unit) + row));
    for (; s->f->mean && dim % 16 == 0 && n - i >= 4; i = MIN(n, i + MEANS)) {
        AWAKE(i, MEANS)
        mean_dots(q + (size_t)i * dim, MIN(n - i, MEANS), mean, dim, s->m + i);
    }
    for (; i < n; i++)
        s->m[i] = s->f->mean ? mean_dot(query_at(q, i, dim) + 1, (dim + 3) / 4 * 4, mean, dim) : 0;
    for (i = 0; i < n; i++) {
        s->t[i] = query_at(q, i, dim)->scale * scale;
        s->m[i] = s->f->mean ? s->t[i] * s->m[i] : 0;
    }
}

INLINE void score_some(const struct scoring *s, const uint32_t bits, const bool asks, uint32_t i,
                       const uint32_t nq, uint32_t block, const uint32_t nb, const unsigned char *x,
                       size_t step, uint32_t depth, const float *q, uint32_t dim)
{
    vi sum[CODED_AT_ONCE][CODED_BLOCKS];
    codes_dot(true, bits, s->f->level_byte, x, step, depth,
              (const unsigned char *)(query_at(q, i, dim) + 1), dim * sizeof *q, 4 * depth, nq, nb,
              asks, s->then, sum);
    UNROLL for (uint32_t k = 0; k < nq; k++)
    {
        const vi bias = bias_of(query_at(q, i + k, dim));
        UNROLL for (uint32_t b = 0; b < nb; b++)
            score_block(s, i + k, block + b, vi_add(sum[k][b], bias));
    }
}

INLINE void score_blocks(const struct scoring *s, const uint32_t bits, uint32_t n, uint32_t block,
                         const uint32_t nb, const unsigned char *x, size_t step, uint32_t depth,
                         const float *q, uint32_t dim)
{
    uint32_t i = 0;
    if (n >= CODED_AT_ONCE && (s->then || bits != 8)) {
        score_some(s, bits, true, 0, CODED_AT_ONCE, block, nb, x, step, depth, q, dim);
        i = CODED_AT_ONCE;
    }
    for (; bits == 8 && i + CODED_AT_ONCE <= n; i += CODED_AT_ONCE)
        score_some(s, bits, false, i, CODED_AT_ONCE, block, nb, x, step, depth, q, dim);
    for (; i < n; i++)
        score_some(s, bits, true, i, 1, block, nb, x, step, depth, q, dim);
}

/* Scores blocks by the kernel for the bits that blocks_of returned. */
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

#if CODED_TILES
/* Writes the scores of all rows of a unit, by the operations of score_block. */
INLINE void score_all(const struct scoring *s, uint32_t i, vi bias, const int32_t *sum)
{
    const vf t = vf_set1(s->t[i]), m = vf_set1(s->m[i]);
    const float *scale = s->scale;
    float *p = s->p + i * s->ldp;
    UNROLL for (uint32_t row = 0; row < CODED_ROWS; row += 16)
        vf_store(p + row, vf_fma(vf_from_int(vi_add(vi_load(sum + row), bias)),
                                 vf_mul(t, vf_load(scale + row)), m));
}

/* The product of tiles reads 16 queries.  The codes of fewer queries are copied to a place where 16 can be read. */
static void score_tiles(const struct scoring *s, const struct blocks *x, const float *q, uint32_t n,
                        uint32_t dim)
{
    int32_t sum[TILES_QUERIES * CODED_ROWS] __attribute__((aligned(64)));
    unsigned char few[TILES_QUERIES * CODED_DIM] __attribute__((aligned(64)));
    uint32_t b0 = s->r0 / 16, nb = (s->r1 + 15) / 16 - b0;
    bool whole = s->r0 == 0 && s->r1 == CODED_ROWS;
    for (uint32_t i0 = 0; i0 < n; i0 += TILES_QUERIES) {
        uint32_t some = MIN(n - i0, TILES_QUERIES);
        const unsigned char *codes = (const unsigned char *)(query_at(q, i0, dim) + 1);
        size_t apart = dim * sizeof *q;
        if (some < TILES_QUERIES) {
            memset(few, 0, (size_t)TILES_QUERIES * dim);
            for (uint32_t i = 0; i < some; i++)
                memcpy(few + (size_t)i * dim, codes + i * apart, dim);
            codes = few;
            apart = dim;
        }
        tiles_keys(x->at + b0 * x->step, x->step, nb, dim / 64, codes, apart, sum);
        for (uint32_t i = 0; i < some; i++) {
            const vi bias = bias_of(query_at(q, i0 + i, dim));
            AWAKE(i, 8)
            if (whole)
                score_all(s, i0 + i, bias, sum + i * CODED_ROWS);
            else
                for (uint32_t b = 0; b < nb; b++)
                    score_block(s, i0 + i, b0 + b,
                                vi_add(vi_load(sum + i * CODED_ROWS + 16 * b), bias));
        }
    }
}
#endif

static void score_unit(struct scoring *s, const struct blocks *bytes, const float *q, uint32_t n,
                       uint32_t dim)
{
    unsigned char room[CODED_ROOM] __attribute__((aligned(64)));
    const struct kv_coded *f = s->f;
    uint32_t depth = coded_depth(f, dim), size = coded_block_bytes(f, dim);
    const unsigned char *codes = s->unit + coded_head_bytes(f, dim);
    const ptrdiff_t then = s->then;
#if CODED_TILES
    if (bytes->at && n >= TILES_FEW && dim % 64 == 0 && tiles_here()) {
        score_tiles(s, bytes, q, n, dim);
        return;
    }
#endif
    for (uint32_t b = s->r0 / 16; b * 16 < s->r1;) {
        uint32_t nb = MIN(CODED_BLOCKS, (s->r1 + 15) / 16 - b);
        struct blocks x = bytes->at ? blocks_from(bytes, b)
                                    : blocks_of(f, codes, b, nb, depth, size, then, n, room);
        s->then = x.at == room ? 0 : then;
        if (nb == CODED_BLOCKS)
            score_packed(s, x.bits, n, b, CODED_BLOCKS, x.at, x.step, depth, q, dim);
        else
            for (uint32_t k = 0; k < nb; k++)
                score_packed(s, x.bits, n, b + k, 1, x.at + k * x.step, x.step, depth, q, dim);
        b += nb;
    }
}

static void score(const struct kv_reading *r, const struct kv_piece *at, const float *q, uint32_t n,
                  float scale, float *p, size_t ldp)
{
    uint32_t dim = r->shape->dim;
    for (uint32_t i = 0; i < n; i += CODED_QUERIES)
        for (uint32_t j = at->r0, end; j < at->r1; j = end) {
            uint32_t first = j / CODED_ROWS * CODED_ROWS, some = MIN(n - i, CODED_QUERIES);
            struct blocks bytes = bytes_of(r, at, j / CODED_ROWS);
            end = MIN(at->r1, first + CODED_ROWS);
            struct scoring s = {.f = coded_of(r),
                                .unit = coded_unit(r, at, j / CODED_ROWS),
                                .p = p + i * ldp + (j - at->r0),
                                .ldp = ldp,
                                .r0 = j - first,
                                .r1 = end - first,
                                .then = i ? 0 : then_of(r, at)};
            begin_unit(&s, q + (size_t)i * dim, some, scale, dim);
            score_unit(&s, &bytes, q + (size_t)i * dim, some, dim);
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
    if (n >= CODED_AT_ONCE && (s->then || bits != 8)) {
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

#if CODED_TILES
static void add_tiles(const struct adding *s, const struct blocks *x, uint32_t n, uint32_t blocks,
                      const unsigned char *w)
{
    int32_t low[TILES_QUERIES * 64] __attribute__((aligned(64)));
    int32_t high[TILES_QUERIES * 64] __attribute__((aligned(64)));
    for (uint32_t i0 = 0; i0 < n; i0 += TILES_QUERIES)
        for (uint32_t b0 = 0; b0 < blocks; b0 += 4) {
            uint32_t some = MIN(n - i0, TILES_QUERIES), nb = MIN(4, blocks - b0);
            tiles_values(x->at + b0 * x->step, x->step, nb, w + (size_t)i0 * 2 * CODED_ROWS, low,
                         high);
            for (uint32_t i = 0; i < some; i++) {
                AWAKE(i, 8)
                for (uint32_t b = 0; b < nb; b++) {
                    uint32_t k = i * 64 + 16 * b;
                    add_block(s, i0 + i, b0 + b,
                              vi_add(vi_shl(vi_load(high + k), 8), vi_load(low + k)));
                }
            }
        }
}
#endif

#ifndef CODED_PUT4
INLINE void codes_put4(void *to, uint32_t n, uint32_t i, const vi *v)
{
    UNROLL for (uint32_t k = 0; k < 4; k++) codes_put(to, n, i + 16 * k, v[k], false);
}
#endif

/* Computes the weights of all rows of a unit for n queries.  u: the factor of each row's probability. */
static void weigh_all(const float *u, const float *p, size_t ldp, uint32_t n, unsigned char *w)
{
    for (uint32_t i = 0; i < n; i++, p += ldp, w += 2 * CODED_ROWS) {
        AWAKE(i, 4)
        for (uint32_t row = 0; row < CODED_ROWS; row += 64) {
            vi v[4];
            UNROLL for (uint32_t k = 0; k < 4; k++) v[k] =
                vi_round(vf_mul(vf_load(p + row + 16 * k), vf_load(u + row + 16 * k)));
            codes_put4(w, CODED_ROWS, row, v);
        }
    }
}

/* Computes the weights of rows [r0, r1); other rows weigh 0. */
static void weigh_some(const float *u, uint32_t r0, uint32_t r1, const float *p, size_t ldp,
                       uint32_t n, unsigned char *w)
{
    for (uint32_t i = 0; i < n; i++, p += ldp, w += 2 * CODED_ROWS)
        for (uint32_t row = 0; row < CODED_ROWS; row += 16) {
            vf x = vf_zero();
            if (row >= r0 && row + 16 <= r1) {
                x = vf_load(p + (row - r0));
            } else if (row < r1 && row + 16 > r0) {
                float lane[16] = {0};
                for (uint32_t j = MAX(row, r0); j < MIN(row + 16, r1); j++)
                    lane[j - row] = p[j - r0];
                x = vf_load(lane);
            }
            codes_put(w, CODED_ROWS, row, vi_round(vf_mul(x, vf_load(u + row))), false);
        }
}

/* Returns the largest scale of a unit as the bits of a float.  A scale that is not finite counts as larger than all
 * others. */
INLINE uint32_t top_scale(const unsigned char *unit)
{
    vi top = vi_zero();
    UNROLL for (uint32_t row = 0; row < CODED_ROWS; row += 16) top =
        vi_max(top, vi_shr(vi_bits(vf_from_bf16(coded_scales(unit) + row)), 16));
    return (uint32_t)vi_top(top) << 16;
}

/* Returns the largest scale below a limit; all scales are finite. */
INLINE uint32_t top_below(const unsigned char *unit, float limit)
{
    vi top = vi_zero();
    UNROLL for (uint32_t row = 0; row < CODED_ROWS; row += 16)
    {
        vf x = vf_from_bf16(coded_scales(unit) + row);
        top = vi_max(top, vi_bits(vf_choose(x, vf_set1(limit), x, vf_zero())));
    }
    return (uint32_t)vi_top(top);
}

/* Computes the weights of n queries for the band of scales in [least, limit), which are multiplied with `by`. */
static void weigh(const unsigned char *unit, float by, float least, float limit, uint32_t r0,
                  uint32_t r1, const float *p, size_t ldp, uint32_t n, unsigned char *w)
{
    float u[CODED_ROWS] __attribute__((aligned(64)));
    for (uint32_t row = 0; row < CODED_ROWS; row += 16) {
        vf x = vf_from_bf16(coded_scales(unit) + row), none = vf_zero();
        x = vf_choose(x, vf_set1(limit), vf_choose(x, vf_set1(least), none, x), none);
        vf_store(u + row, vf_mul(x, vf_set1(by)));
    }
    if (r0 == 0 && r1 == CODED_ROWS)
        weigh_all(u, p, ldp, n, w);
    else
        weigh_some(u, r0, r1, p, ldp, n, w);
}

static void add_unit(struct adding *s, const struct kv_coded *f, const unsigned char *unit,
                     const struct blocks *bytes, uint32_t n, const unsigned char *w)
{
    unsigned char room[CODED_ROOM] __attribute__((aligned(64)));
    const unsigned char *codes = unit + coded_head_bytes(f, s->dim);
    uint32_t size = coded_block_bytes(f, s->dim), blocks = coded_blocks(f, s->dim);
    const ptrdiff_t then = s->then;
#if CODED_TILES
    if (bytes->at && n >= TILES_FEW && tiles_here()) {
        add_tiles(s, bytes, n, blocks, w);
        return;
    }
#endif
    for (uint32_t b = 0; b < blocks;) {
        uint32_t nb = MIN(CODED_BLOCKS, blocks - b);
        struct blocks x = bytes->at
                              ? blocks_from(bytes, b)
                              : blocks_of(f, codes, b, nb, CODED_ROWS / 4, size, then, n, room);
        s->then = x.at == room ? 0 : then;
        if (nb == CODED_BLOCKS)
            add_packed(s, x.bits, n, b, CODED_BLOCKS, x.at, x.step, w);
        else
            for (uint32_t k = 0; k < nb; k++)
                add_packed(s, x.bits, n, b + k, 1, x.at + k * x.step, x.step, w);
        b += nb;
    }
}

/* Adds rows [r0, r1) of a unit for n queries, at most CODED_QUERIES; p[0] belongs to row r0. */
static void add_rows(struct adding *s, const struct kv_coded *f, const unsigned char *unit,
                     const struct blocks *bytes, uint32_t r0, uint32_t r1, const float *p,
                     size_t ldp, uint32_t n)
{
    unsigned char w[CODED_QUERIES * 2 * CODED_ROWS] __attribute__((aligned(64)));
    uint32_t top = top_scale(unit);
    float by, limit = INFINITY;
    if (top >= 0x7f800000u) {
        for (uint32_t i = 0; i < n; i++)
            coded_add_unit(f, s->dim, unit, r0, r1, p + i * ldp, s->o + i * s->ldo);
        return;
    }
    for (; (by = cpu_group_scale(top, &s->step)) > 0; top = top_below(unit, limit)) {
        float least = half_from_bits(top) * CODED_BAND;
        weigh(unit, by, least, limit, r0, r1, p, ldp, n, w);
        add_unit(s, f, unit, bytes, n, w);
        limit = least;
    }
}

static void add(const struct kv_reading *r, const struct kv_piece *at, const float *p, size_t ldp,
                uint32_t n, float *o, size_t ldo)
{
    const struct kv_coded *f = coded_of(r);
    for (uint32_t i = 0; i < n; i += CODED_QUERIES)
        for (uint32_t j = at->r0, end; j < at->r1; j = end) {
            uint32_t first = j / CODED_ROWS * CODED_ROWS;
            struct blocks bytes = bytes_of(r, at, j / CODED_ROWS);
            struct adding s = {.level = (const uint8_t *)f->level,
                               .o = o + i * ldo,
                               .ldo = ldo,
                               .dim = r->shape->dim,
                               .then = i ? 0 : then_of(r, at)};
            end = MIN(at->r1, first + CODED_ROWS);
            add_rows(&s, f, coded_unit(r, at, j / CODED_ROWS), &bytes, j - first, end - first,
                     p + i * ldp + (j - at->r0), ldp, MIN(n - i, CODED_QUERIES));
        }
}

#if CODED_TILES
static void awake(const struct kv_reading *r)
{
    (void)r;
    tiles_awake();
}
static void rest(const struct kv_reading *r)
{
    (void)r;
    tiles_rest();
}
#endif
const struct kv_reader VEC(coded_reader) = {.query = query,
                                            .open = open_piece,
                                            .score = score,
                                            .add = add,
#if CODED_TILES
                                            .awake = awake,
                                            .rest = rest,
#endif
                                            .end = coded_end};
