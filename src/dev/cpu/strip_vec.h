/* strip_vec.h - strips out of affine tiles (affine.h) on vectors of 16 lanes, stated once for AVX2, AVX-512 and NEON:
 * strip_avx2.c and strip_avx512.c include it after the vec_*.h and after what differs: rounding,
 * storing and looking up.
 *
 * Values have channels in the lanes, keys rows.  A group of 2- or 4-bit codes of a 16-bit type has at most 16 values,
 * which are computed once and looked up; keys whose groups lie in rows take the same way and are transposed
 * after it.  Otherwise keys are transposed as packed bytes and computed.  Codes of 2, 4 and 8 bits in whole
 * chunks are done here, all else by the reference; all do the same operations on every value.
 */
#include "dev/cpu/affine_vec.h"
#include "dev/cpu/strip.h"

#ifndef STRIP_WIDE
#define STRIP_WIDE 0 /* the file has what wide strips need */
#endif
#define STRIP_GROUPS 16u  /* most groups of a row done here */
#define STRIP_DIM    256u /* most channels */

/* The strip's 16 rows: the unit each lies in, and its codes. */
struct strip_rows {
    const unsigned char *unit[KV_STRIP], *codes[KV_STRIP];
};

INLINE float vec_one(enum dtype t, const void *p, size_t i)
{
    float x;
    uint16_t h;
    if (t == DT_F16) return f16_load((const uint16_t *)p + i);
    if (t == DT_F32) {
        memcpy(&x, (const float *)p + i, sizeof x);
        return x;
    }
    memcpy(&h, (const uint16_t *)p + i, sizeof h);
    uint32_t wide = (uint32_t)h << 16;
    memcpy(&x, &wide, sizeof x);
    return x;
}

INLINE v16 codes_of(v16 bytes, const uint32_t bits, uint32_t k)
{
    if (bits == 8) return bytes;
    return v16_and1(v16_shr(bytes, (int)(bits * k)), (uint8_t)((1u << bits) - 1));
}

/* Decodes one chunk of columns of keys: 16 bytes, 128 / bits channels from d0 on.  a, b: numbers of the row groups,
 * whose lanes are rows; or (group 0) of the channels. */
INLINE void keys_chunk(enum dtype t, const uint32_t bits, bool zero_first,
                       const unsigned char (*col)[KV_STRIP], uint32_t d0, uint32_t dim,
                       const float *a, const float *b, uint32_t group, unsigned char *dst)
{
    const uint32_t size = t == DT_F32 ? 4 : 2, per = 8 / bits;
    for (uint32_t i = 0; i < 16; i++) {
        v16 bytes = v16_load(col[i]);
        UNROLL for (uint32_t k = 0; k < per; k++)
        {
            uint32_t d = d0 + i + 16 * k;
            vf xa, xb;
            if (!group) {
                xa = vf_set1(a[d]);
                xb = vf_set1(b[d]);
            } else {
                uint32_t g = group >= dim ? 0 : d / group;
                xa = vf_load(a + g * KV_STRIP);
                xb = vf_load(b + g * KV_STRIP);
            }
            vf q = vf_from_bytes(codes_of(bytes, bits, k));
            vec_put(t, dst + (size_t)d * KV_STRIP * size, affine_value(t, zero_first, q, xa, xb));
        }
    }
}

/* Returns the values of all codes of a group of 2 or 4 bits, for types of 16 bits. */
INLINE vtab table_of(enum dtype t, bool zero_first, vf a, vf b)
{
    return vec_table(t, affine_value(t, zero_first, affine_codes(4), a, b));
}

/* True if no 16 neighbours of a row lie in two groups. */
INLINE bool whole_groups(const struct kv_affine *f, uint32_t dim)
{
    return f->group && (f->group >= dim || f->group % 16 == 0);
}

/* Decodes channels [d, d + 16) of a row from 16 codes. */
INLINE void values_row(enum dtype t, const uint32_t bits, bool zero_first,
                       const struct kv_affine *f, uint32_t dim, const unsigned char *unit,
                       const unsigned char *codes, unsigned char *dst)
{
    const uint32_t size = t == DT_F32 ? 4 : 2, per = 8 / bits;
    uint32_t pairs = affine_pairs(f, dim), group = MIN(f->group, dim);
    const bool table = t != DT_F32 && bits < 8;
    vf a = vf_zero(), b = a;
    vtab look = vec_table(DT_BF16, a);
    uint32_t left = 0, g = 0; /* how many more channels have the numbers a and b */
    for (uint32_t c = 0; c < dim * bits / 8; c += 16) {
        v16 bytes = v16_load(codes + c);
        UNROLL for (uint32_t k = 0; k < per; k++)
        {
            uint32_t d = c * (8 / bits) + 16 * k;
            if (!group) {
                a = vec_get(t, unit, d);
                b = vec_get(t, unit, (size_t)dim + d);
            } else if (!left) {
                a = vf_set1(vec_one(t, unit, g));
                b = vf_set1(vec_one(t, unit, (size_t)pairs + g));
                if (table) look = table_of(t, zero_first, a, b);
                left = group;
                g++;
            }
            left -= group ? 16 : 0;
            if (table && group) {
                vec_look_up(look, codes_of(bytes, bits, k), dst + (size_t)d * size);
                continue;
            }
            vf q = vf_from_bytes(codes_of(bytes, bits, k));
            vec_put(t, dst + (size_t)d * size, affine_value(t, zero_first, q, a, b));
        }
    }
}

/* Transposes 16 rows of 16 words to 16 columns of 16.  A column is the 32 bytes of one channel of a strip. */
INLINE void transpose_words(const uint16_t *row, uint32_t stride, unsigned char *dst)
{
    w16 x[16], y[16];
    UNROLL for (int i = 0; i < 16; i++) x[i] = w16_load(row + (size_t)i * stride);
    UNROLL for (int round = 0; round < 4; round++)
    {
        UNROLL for (int i = 0; i < 8; i++)
        {
            y[2 * i] = w16_zip_lo(x[i], x[i + 8]);
            y[2 * i + 1] = w16_zip_hi(x[i], x[i + 8]);
        }
        UNROLL for (int i = 0; i < 16; i++) x[i] = y[i];
    }
    UNROLL for (int c = 0; c < 8; c++)
    {
        w16_store_lo(dst + c * 32, x[2 * c], x[2 * c + 1]);
        w16_store_hi(dst + (c + 8) * 32, x[2 * c], x[2 * c + 1]);
    }
}

/* Decodes keys of 16-bit types whose groups lie in rows.  The rows are looked up as values are, and then transposed. */
INLINE void keys_by_row(enum dtype t, const uint32_t bits, bool zero_first,
                        const struct kv_affine *f, uint32_t dim, const struct strip_rows *r,
                        unsigned char *dst)
{
    uint16_t row[KV_STRIP * STRIP_DIM];
    for (uint32_t i = 0; i < KV_STRIP; i++)
        values_row(t, bits, zero_first, f, dim, r->unit[i], r->codes[i],
                   (unsigned char *)(row + i * dim));
    for (uint32_t d = 0; d < dim; d += 16)
        transpose_words(row + d, dim, dst + (size_t)d * 2 * KV_STRIP);
}

#if STRIP_WIDE
/* Decodes a strip 64 channels of 16 rows at a time.  The numbers of 16 rows are converted at once. */
INLINE void wide(enum dtype t, const uint32_t bits, bool zero_first, const struct kv_affine *f,
                 const struct kv_shape *s, const struct strip_rows *r, uint32_t r0, uint32_t r1,
                 unsigned char *dst)
{
    const vf code = affine_codes(bits);
    float a[KV_STRIP], b[KV_STRIP]; /* memory: a broadcast from there is free */
    vwide table[KV_STRIP / 2], codes[KV_STRIP / 2];
    uint32_t pairs = affine_pairs(f, s->dim), group = MIN(f->group, s->dim), bytes = 8 * bits;
#define VALUES(i) affine_value(t, zero_first, code, vf_set1(a[i]), vf_set1(b[i]))
    for (uint32_t d = 0, at = 0; d < s->dim; d += 64, at += bytes) {
        const bool begins = d % group == 0;
        if (begins) {
            vf x, y;
            vec_numbers(t, r->unit, d / group, pairs, &x, &y);
            vf_store(a, x);
            vf_store(b, y);
        }
        if (s->layout == KV_STRIPS) {
            for (uint32_t p = 0; p < KV_STRIP / 2; p++) {
                uint32_t i = STRIP_FIRST(p), k = STRIP_SECOND(p);
                if (begins) table[p] = vec_join(t, VALUES(i), VALUES(k));
                codes[p] = vec_codes(bits, r->codes[i] + at, r->codes[k] + at);
            }
            vec_look_up_columns(table, bits, codes, dst + (size_t)d * 2 * KV_STRIP);
            continue;
        }
        for (uint32_t i = r0; i < r1; i++) {
            vf x = VALUES(i);
            vec_look_up_row(vec_join(t, x, x), bits, r->codes[i] + at,
                            dst + ((size_t)i * s->dim + d) * 2);
        }
    }
#undef VALUES
}
#endif

INLINE void keys(enum dtype t, const uint32_t bits, bool zero_first, const struct kv_affine *f,
                 uint32_t dim, const struct strip_rows *r, bool strips, unsigned char *dst)
{
    /* one for each group of a row, or one for each channel (STRIP_DIM) */
    float a[STRIP_GROUPS * KV_STRIP], b[STRIP_GROUPS * KV_STRIP];
    unsigned char col[16][KV_STRIP];
    uint32_t pairs = affine_pairs(f, dim);
    const size_t size = t == DT_F32 ? 4 : 2;
    for (uint32_t g = 0; f->group && g < pairs; g++) {
        vf_store(a + g * KV_STRIP, row_numbers(t, r->unit, g * size));
        vf_store(b + g * KV_STRIP, row_numbers(t, r->unit, ((size_t)pairs + g) * size));
    }
    for (uint32_t d = 0; !f->group && d < dim; d += 16) {
        vf_store(a + d, vec_get(t, r->unit[0], d));
        vf_store(b + d, vec_get(t, r->unit[0], (size_t)dim + d));
    }
    for (uint32_t c = 0; c < dim * bits / 8; c += 16) {
        const unsigned char(*from)[KV_STRIP] = (const void *)(r->codes[0] + c * KV_STRIP);
        if (!strips) {
            v16 x[16];
            transpose_bytes(r->codes, c, x);
            UNROLL for (int i = 0; i < 16; i++) v16_store(col[i], x[i]);
            from = (const void *)col;
        }
        keys_chunk(t, bits, zero_first, from, c * (8 / bits), dim, a, b, f->group, dst);
    }
}

INLINE void strip_of(enum dtype t, const uint32_t bits, bool zero_first, const struct kv_affine *f,
                     const struct kv_shape *s, const struct strip_rows *r, uint32_t r0, uint32_t r1,
                     unsigned char *dst)
{
    const uint32_t size = t == DT_F32 ? 4 : 2;
    if (s->layout == KV_STRIPS) {
        if (t != DT_F32 && bits < 8 && whole_groups(f, s->dim) && !affine_strips(f, s))
            keys_by_row(t, bits, zero_first, f, s->dim, r, dst);
        else
            keys(t, bits, zero_first, f, s->dim, r, affine_strips(f, s), dst);
        return;
    }
    for (uint32_t i = r0; i < r1; i++)
        values_row(t, bits, zero_first, f, s->dim, r->unit[i], r->codes[i],
                   dst + (size_t)i * s->dim * size);
}

/* The kernels of (bits, zero_first, type) are functions of their own, because the frame of all together is large. */
typedef void rows_fn(const struct kv_affine *f, const struct kv_shape *s,
                     const struct strip_rows *r, uint32_t r0, uint32_t r1, unsigned char *dst);
#define EACH(CASE) /* in the order of kernel_of */                                                 \
    CASE(2, false, DT_F32)                                                                         \
    CASE(2, false, DT_F16)                                                                         \
    CASE(2, false, DT_BF16)                                                                        \
    CASE(2, true, DT_F32)                                                                          \
    CASE(2, true, DT_F16)                                                                          \
    CASE(2, true, DT_BF16)                                                                         \
    CASE(4, false, DT_F32)                                                                         \
    CASE(4, false, DT_F16)                                                                         \
    CASE(4, false, DT_BF16)                                                                        \
    CASE(4, true, DT_F32)                                                                          \
    CASE(4, true, DT_F16)                                                                          \
    CASE(4, true, DT_BF16)                                                                         \
    CASE(8, false, DT_F32)                                                                         \
    CASE(8, false, DT_F16)                                                                         \
    CASE(8, false, DT_BF16)                                                                        \
    CASE(8, true, DT_F32)                                                                          \
    CASE(8, true, DT_F16)                                                                          \
    CASE(8, true, DT_BF16)
#define APART(bits, zero, t)                                                                       \
    static __attribute__((noinline)) void rows_##bits##zero##t(                                    \
        const struct kv_affine *f, const struct kv_shape *s, const struct strip_rows *r,           \
        uint32_t r0, uint32_t r1, unsigned char *dst)                                              \
    {                                                                                              \
        strip_of(t, bits, zero, f, s, r, r0, r1, dst);                                             \
    }
#define NAME(bits, zero, t) rows_##bits##zero##t,
EACH(APART)
static rows_fn *const rows_kernel[] = {EACH(NAME)};
#undef APART
#undef NAME
#if STRIP_WIDE
#define APART(bits, zero, t)                                                                       \
    static __attribute__((noinline)) void wide_##bits##zero##t(                                    \
        const struct kv_affine *f, const struct kv_shape *s, const struct strip_rows *r,           \
        uint32_t r0, uint32_t r1, unsigned char *dst)                                              \
    {                                                                                              \
        if (bits < 8 && t != DT_F32) wide(t, bits, zero, f, s, r, r0, r1, dst);                    \
    }
#define NAME(bits, zero, t) wide_##bits##zero##t,
EACH(APART)
static rows_fn *const wide_kernel[] = {EACH(NAME)};
#undef APART
#undef NAME
#endif
#undef EACH

static rows_fn *kernel_of(const struct kv_affine *f, const struct kv_shape *s)
{
    uint32_t i = f->bits == 2 ? 0 : f->bits == 4 ? 6 : 12;
    i += (f->zero_first ? 3 : 0) + (s->dtype == DT_F32 ? 0 : s->dtype == DT_F16 ? 1 : 2);
#if STRIP_WIDE
    /* Values of 16 bits, of which no 64 neighbours lie in two groups. */
    if (s->dtype != DT_F32 && f->bits < 8 && s->dim % 64 == 0 && !affine_strips(f, s) && f->group &&
        (f->group >= s->dim || f->group % 64 == 0))
        return wide_kernel[i];
#endif
    return rows_kernel[i];
}

static bool done_here(const struct kv_affine *f, const struct kv_shape *s)
{
    if (f->bits != 2 && f->bits != 4 && f->bits != 8) return false;
    if (s->dim % (128 / f->bits) || s->dim > STRIP_DIM) return false;
    if (s->layout == KV_STRIPS)
        return f->group ? affine_pairs(f, s->dim) <= STRIP_GROUPS : f->unit % KV_STRIP == 0;
    return !f->group || whole_groups(f, s->dim);
}

static void find_rows(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile,
                      uint32_t head, const unsigned char *const *src, uint32_t at,
                      struct strip_rows *restrict out)
{
    size_t bytes = affine_unit_bytes(f, s), head_at = affine_unit_at(f, s, tile, head, 0);
    uint32_t row = affine_row_bytes(f, s->dim);
    size_t pairs = (size_t)2 * affine_pairs(f, s->dim) * dtype_size(s->dtype);
    if (tile == 1) { /* the usual case without its divisions */
        for (uint32_t i = 0; i < KV_STRIP; i++) {
            out->unit[i] = src[i] + head_at;
            out->codes[i] = out->unit[i] + pairs;
        }
        return;
    }
    for (uint32_t i = 0; i < KV_STRIP; i++) {
        const unsigned char *from = tile < KV_STRIP ? src[i / tile] : src[0];
        uint32_t r = tile < KV_STRIP ? i % tile : at + i, in = r % f->unit;
        out->unit[i] = from + head_at + r / f->unit * bytes;
        out->codes[i] = out->unit[i] + pairs;
        out->codes[i] +=
            affine_strips(f, s) ? (size_t)in / KV_STRIP * row * KV_STRIP : (size_t)in * row;
    }
}

static void decode_strip(const struct kv_affine *f, const struct kv_shape *s, uint32_t tile,
                         uint32_t head, const unsigned char *const *src, uint32_t at, uint32_t r0,
                         uint32_t r1, void *dst)
{
    struct strip_rows rows;
    if (!done_here(f, s)) {
        strip_decode_ref(f, s, tile, head, src, at, r0, r1, dst);
        return;
    }
    find_rows(f, s, tile, head, src, at, &rows);
    kernel_of(f, s)(f, s, &rows, r0, r1, dst);
}

static const void *strips(const struct kv_reading *r, const struct kv_piece *at, void *room)
{
    return strips_by(decode_strip, r, at, room);
}
#ifndef STRIP_FEW
#define STRIP_FEW
#define STRIP_RUN 4 /* strips at once */
#endif
const struct kv_reader STRIP_READER = {.rows = STRIP_RUN * KV_STRIP, .strips = strips STRIP_FEW};
