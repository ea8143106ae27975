/* fused_each_avx2.c - fused_avx2.c for affine tiles of which not every row has a table of 16 values: groups of channels, and codes
 * of 8 bits in groups of one row.  Of 2 and 4 bits in groups of channels the values of a channel are computed once for the rows of a
 * unit, and 16 rows of two channels look them up together.  Other values are computed from their codes. */
#if defined(__x86_64__)
#include "dev/cpu/fused_avx2.h"
#include "dev/cpu/fused_strips.h"

/* Computes the tables of 64 channels from d on: table 16 * m + c is that of channels 32 * m + c and 32 * m + 16 + c. */
static __attribute__((noinline)) void tables(const struct kv_reading *r, const unsigned char *unit,
                                             uint32_t d, struct table *table)
{
    const struct kv_affine *f = r->codec->param;
    const size_t dim = r->shape->dim;
    struct numbers n = {.doubles = true};
#define EACH(what)                                                                                 \
    for (uint32_t i = 0; i < 32; i++)                                                              \
        table[i] = what;
#define CASE(t, zero)                                                                              \
    if (r->shape->dtype == t && f->zero_first == zero) {                                           \
        for (uint32_t c = 0; c < 64; c += 16)                                                      \
            put_numbers(t, &n, c, vec_get(t, unit, d + c), vec_get(t, unit, dim + d + c));         \
        if (f->bits == 2)                                                                          \
            EACH(small_table(t, zero, &n, i + i / 16 * 16, i + i / 16 * 16 + 16))                  \
        else if (n.doubles)                                                                        \
            EACH(table_of(t, zero, true, &n, i + i / 16 * 16, i + i / 16 * 16 + 16))               \
        else                                                                                       \
            EACH(table_of(t, zero, false, &n, i + i / 16 * 16, i + i / 16 * 16 + 16))              \
    }
    FUSED_KINDS(CASE)
#undef CASE
#undef EACH
}

/* The places in bytes of codes of channels 32 * m + c, which the low half gets, and 32 * m + 16 + c. */
INLINE __m256i shifts(uint32_t bits, uint32_t m)
{
    const int low = bits == 4 ? 0 : (int)(4 * m), high = low + (int)bits;
    return _mm256_set_epi32(high, high, high, high, low, low, low, low);
}
/* Looks up two channels of 16 rows from a byte of each: rows 0 to 7 of both, then the others. */
INLINE void look_up_two(const struct table *table, v16 bytes, __m256i shift, __m256i mask,
                        __m256i *first, __m256i *second)
{
    const __m256i x = _mm256_srlv_epi32(_mm256_broadcastsi128_si256(bytes), shift);
    look_up(table, _mm256_and_si256(x, mask), first, second);
}

/* Looks up 64 channels of a strip of keys, whose codes are byte by byte. */
static __attribute__((noinline)) void look_up_keys(uint32_t bits, const unsigned char *codes,
                                                   const struct table *table, fused_keys to)
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    for (uint32_t m = 0; m < 2; m++) {
        const __m256i shift = shifts(bits, m);
        const unsigned char *from = codes + (bits == 4 ? m * 16 * KV_STRIP : 0);
        for (uint32_t c = 0; c < 16; c++, from += KV_STRIP) {
            __m256i first, second;
            look_up_two(&table[16 * m + c], v16_load(from), shift, mask, &first, &second);
            put_words(to[32 * m + c], _mm256_permute2x128_si256(first, second, 0x20));
            put_words(to[32 * m + 16 + c], _mm256_permute2x128_si256(first, second, 0x31));
        }
    }
}

/* Looks up 64 channels of a strip of values.  row: the codes of 16 rows.  They are transposed, and so are the values. */
static __attribute__((noinline)) void look_up_values(uint32_t bits, const unsigned char *const *row,
                                                     size_t at, const struct table *table,
                                                     fused_values to)
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    v16 bytes[16];
    for (uint32_t m = 0; m < 2; m++) {
        const __m256i shift = shifts(bits, m);
        if (m == 0 || bits == 4) transpose_bytes(row, at + 16 * m, bytes);
        for (uint32_t h = 0; h < 2; h++) {
            const struct table *look = &table[16 * m + 8 * h];
            __m256i x[8], y[8];
            UNROLL for (uint32_t c = 0; c < 8; c++)
                look_up_two(&look[c], bytes[8 * h + c], shift, mask, &x[c], &y[c]);
            transpose_words(x);
            transpose_words(y);
            UNROLL for (uint32_t i = 0; i < 8; i++)
            {
                put_words(to[i][4 * m + h][0], _mm256_permute2x128_si256(x[i], y[i], 0x20));
                put_words(to[i][4 * m + 2 + h][0], _mm256_permute2x128_si256(x[i], y[i], 0x31));
            }
        }
    }
}

/* Computes 64 channels of a strip of keys of 8 bits, which only (q - b) * a has. */
INLINE void compute_keys(enum dtype t, const struct kv_reading *r, const struct strips *s,
                         uint32_t i, uint32_t d, fused_keys to)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim;
    float a[16] = {0}, b[16] = {0};
    vf xa = vf_zero(), xb = xa;
    if (s->row[i]) {
        const size_t g = s->numbers + (size_t)2 * (d / MIN(f->group, dim));
        xa = row_numbers(t, s->row[i], g);
        xb = row_numbers(t, s->row[i], g + (size_t)2 * affine_pairs(f, dim));
    }
    for (uint32_t end = d + 64; d < end; d += 16, to += 16) {
        v16 x[16];
        if (s->row[i]) {
            transpose_bytes(s->row[i], s->at + d, x);
        } else {
            UNROLL for (uint32_t c = 0; c < 16; c++) x[c] =
                v16_load(s->codes[i] + (size_t)(d + c) * KV_STRIP);
            vf_store(a, vec_get(t, s->unit[i], d));
            vf_store(b, vec_get(t, s->unit[i], (size_t)dim + d));
        }
        UNROLL for (uint32_t c = 0; c < 16; c++)
        {
            if (!s->row[i]) {
                xa = vf_set1(a[c]);
                xb = vf_set1(b[c]);
            }
            put_words(to[c], vec_words(t, affine_value(t, true, vf_from_bytes(x[c]), xa, xb)));
        }
    }
}

/* Computes 64 channels of rows [j0, j1) of a strip of values. */
INLINE void compute_values(enum dtype t, bool zero_first, const struct kv_reading *r,
                           const struct strips *s, uint32_t i, uint32_t d, uint32_t j0, uint32_t j1,
                           fused_values to)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, bits = f->bits, per = 8 / bits;
    const v16 mask = _mm_set1_epi8((char)((1 << bits) - 1));
    float a[16] = {0}, b[16] = {0}; /* of 16 rows */
    if (s->row[i]) {
        const size_t g = s->numbers + (size_t)2 * (d / MIN(f->group, dim));
        vf_store(a, row_numbers(t, s->row[i], g));
        vf_store(b, row_numbers(t, s->row[i], g + (size_t)2 * affine_pairs(f, dim)));
    }
    for (uint32_t c = 0; c < 4; c++) {
        const size_t at = (size_t)d * bits / 8 + c / per * 16;
        const __m128i shift = _mm_cvtsi32_si128((int)(c % per * bits));
        vf xa = vf_zero(), xb = xa;
        if (!s->row[i]) {
            xa = vec_get(t, s->unit[i], d + 16 * c);
            xb = vec_get(t, s->unit[i], (size_t)dim + d + 16 * c);
        }
        for (uint32_t j = j0; j < j1; j++) {
            const unsigned char *codes = s->row[i]
                                             ? s->row[i][j] + s->at
                                             : s->codes[i] + (size_t)j * affine_row_bytes(f, dim);
            const v16 q = _mm_and_si128(_mm_srl_epi16(v16_load(codes + at), shift), mask);
            if (s->row[i]) {
                xa = vf_set1(a[j]);
                xb = vf_set1(b[j]);
            }
            const __m256i x = vec_words(t, affine_value(t, zero_first, vf_from_bytes(q), xa, xb));
            v16_store(to[j % 8][2 * c][j / 8], _mm256_castsi256_si128(x));
            v16_store(to[j % 8][2 * c + 1][j / 8], _mm256_extracti128_si256(x, 1));
        }
    }
}

/* Functions of their own: of each type, and of values also of zero_first. */
#define KEYS(t)                                                                                    \
    static __attribute__((noinline)) void keys_##t(                                                \
        const struct kv_reading *r, const struct strips *s, uint32_t i, uint32_t d, fused_keys to) \
    {                                                                                              \
        compute_keys(t, r, s, i, d, to);                                                           \
    }
#define VALUES(t, zero)                                                                            \
    static __attribute__((noinline)) void values_##t##_##zero(                                     \
        const struct kv_reading *r, const struct strips *s, uint32_t i, uint32_t d, uint32_t j0,   \
        uint32_t j1, fused_values to)                                                              \
    {                                                                                              \
        compute_values(t, zero, r, s, i, d, j0, j1, to);                                           \
    }
KEYS(DT_F16)
KEYS(DT_BF16)
FUSED_KINDS(VALUES)
typedef void values_fn(const struct kv_reading *r, const struct strips *s, uint32_t i, uint32_t d,
                       uint32_t j0, uint32_t j1, fused_values to);
static values_fn *values_of(const struct kv_reading *r)
{
    const struct kv_affine *f = r->codec->param;
    if (r->shape->dtype == DT_F16) return f->zero_first ? values_DT_F16_true : values_DT_F16_false;
    return f->zero_first ? values_DT_BF16_true : values_DT_BF16_false;
}

/* Two strips go together, as far as the registers suffice. */
INLINE void scores(enum dtype t, const uint32_t nq, const struct kv_reading *r,
                   const struct strips *s, struct kv_next *next, const float *q, float scale,
                   float *p, size_t ldp)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, most = nq > 3 ? 1 : 2;
    struct table table[32];
    fused_keys v[2];
    for (uint32_t d = 0; d < dim; d += 64, q += (size_t)64 * nq) {
        const float times = d + 64 == dim ? scale : 1; /* times 1 is exact */
        const unsigned char *unit = NULL;
        for (uint32_t i = 0, n; i < s->n; i += n) {
            n = MIN(most, s->n - i);
            for (uint32_t k = 0; k < n; k++) {
                if (f->bits == 8) {
                    (t == DT_F16 ? keys_DT_F16 : keys_DT_BF16)(r, s, i + k, d, v[k]);
                    continue;
                }
                if (s->unit[i + k] != unit) tables(r, unit = s->unit[i + k], d, table);
                look_up_keys(f->bits, s->codes[i + k] + (size_t)d * f->bits / 8 * KV_STRIP, table,
                             v[k]);
            }
            score_strips(t, nq, n, v, next, q, d == 0, times, p + i * KV_STRIP, ldp);
        }
    }
}

INLINE void sums(enum dtype t, const uint32_t nq, const struct kv_reading *r,
                 const struct strips *s, struct kv_next *next, uint32_t r0, uint32_t r1,
                 const float *p, size_t ldp, bool fresh, float *o, size_t ldo)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, nv = nq > 3 ? 2 : 4, bytes = affine_row_bytes(f, dim);
    const bool look = f->bits < 8 && f->unit > KV_STRIP; /* a table of one strip costs too much */
    struct table table[32];
    fused_values v;
    for (uint32_t d = 0; d < dim; d += 64) {
        const unsigned char *unit = NULL, *row[KV_STRIP];
        for (uint32_t i = 0; i < s->n; i++) {
            const uint32_t j = i * KV_STRIP, j0 = i ? 0 : r0, j1 = MIN(r1 - j, KV_STRIP);
            if (look) {
                if (s->unit[i] != unit) tables(r, unit = s->unit[i], d, table);
                for (uint32_t k = 0; k < KV_STRIP; k++)
                    row[k] = s->codes[i] + (size_t)k * bytes;
                look_up_values(f->bits, row, (size_t)d * f->bits / 8, table, v);
            } else {
                values_of(r)(r, s, i, d, j0, j1, v);
            }
            for (uint32_t c = 0; c < 8; c += nv)
                add_words(t, nq, nv, v, next, c, j0, j1, p + j, ldp, fresh && !i, o + d, ldo);
        }
    }
}

#define CALL       struct strips
#define ADD_FIRST  DT_F16
#define ADD_SECOND DT_BF16
#include "dev/cpu/fused_calls.h"

bool fused_score_each_avx2(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                           struct kv_next *next, const float *q, uint32_t nq, float scale, float *p,
                           size_t ldp)
{
    struct strips s;
    if (!find_strips(r, at, n, nq, &s)) return false;
    score_of[r->shape->dtype != DT_F16][nq - 1](r, &s, next, q, scale, p, ldp);
    return true;
}

bool fused_add_each_avx2(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                         struct kv_next *next, const float *p, size_t ldp, uint32_t nq, bool fresh,
                         float *o, size_t ldo)
{
    struct strips s;
    if (!find_strips(r, at, n, nq, &s)) return false;
    const uint32_t last = (s.n - 1) * KV_STRIP + (at[n - 1].r1 - 1) % KV_STRIP;
    add_of[r->shape->dtype != DT_F16][nq - 1](r, &s, next, at->r0 % KV_STRIP, last + 1, p, ldp,
                                              fresh, o, ldo);
    return true;
}
#else
typedef int fused_each_avx2_unused;
#endif
