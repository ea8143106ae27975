/* fused_avx2.c - attention of few queries over affine tiles of one row with AVX2 (fused.h).
 *
 * A group of codes of 2 or 4 bits has at most 16 values.  They are computed once, as words, and 32 codes look up their low bytes
 * and their high bytes.  The instruction looks up in both halves of a register by themselves, so rows p and p + 8 of a strip go
 * together.  Of keys 16 channels are transposed, 8 rows in each half. */
#if defined(__x86_64__)
#include "dev/cpu/fused_avx2.h"

/* Loads the numbers that are `a` and `b` bytes behind the rows.  All are stored before the first is loaded as a vector, which waits
 * for the stores. */
INLINE void load_numbers(enum dtype t, const struct rows *rows, size_t a, size_t b,
                         struct numbers *out)
{
    int32_t two[2][FUSED_STRIPS * KV_STRIP]; /* a in the low half, and mostly b in the high one */
    const uint32_t apart = b != a + 2;
    out->doubles = true;
    for (uint32_t s = 0; s < rows->strips; s++)
        UNROLL for (uint32_t i = 0; i < KV_STRIP; i++)
        {
            memcpy(&two[0][s * KV_STRIP + i], rows->base[s][i] + a, sizeof two[0][0]);
            if (apart) memcpy(&two[1][s * KV_STRIP + i], rows->base[s][i] + b, sizeof two[0][0]);
        }
    for (uint32_t i = 0; i < rows->strips * KV_STRIP; i += KV_STRIP) {
        vi x = vi_load(two[0] + i), y = vi_load(two[apart] + i);
        if (apart) y = vi_shl(y, 16);
        vf low = vf_low_f16(x), high = vf_high_f16(y);
        if (t != DT_F16) {
            x = vi_shl(x, 16);
            y = vi_and(y, 0xffff0000u);
            low = (vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
            high = (vf){_mm256_castsi256_ps(y.a), _mm256_castsi256_ps(y.b)};
        }
        put_numbers(t, out, i, low, high);
    }
}

/* Computes the tables of group g of all rows, [strip][pair]. */
static __attribute__((noinline)) void tables(const struct kv_reading *r, const struct rows *rows,
                                             uint32_t g, struct table (*table)[8])
{
    const struct kv_affine *f = r->codec->param;
    const size_t a = rows->numbers + (size_t)2 * g,
                 b = a + (size_t)2 * affine_pairs(f, r->shape->dim);
    const uint32_t pairs = rows->strips * 8;
    struct numbers n;
#define EACH(what)                                                                                 \
    for (uint32_t i = 0; i < pairs; i++)                                                           \
        table[i / 8][i % 8] = what;
#define CASE(t, zero)                                                                              \
    if (r->shape->dtype == t && f->zero_first == zero) {                                           \
        load_numbers(t, rows, a, b, &n);                                                           \
        if (f->bits == 2)                                                                          \
            EACH(small_table(t, zero, &n, i + i / 8 * 8, i + i / 8 * 8 + 8))                       \
        else if (n.doubles)                                                                        \
            EACH(table_of(t, zero, true, &n, i + i / 8 * 8, i + i / 8 * 8 + 8))                    \
        else                                                                                       \
            EACH(table_of(t, zero, false, &n, i + i / 8 * 8, i + i / 8 * 8 + 8))                   \
    }
    FUSED_KINDS(CASE)
#undef CASE
#undef EACH
}

INLINE __m256i two_rows(const unsigned char *a, const unsigned char *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(v16_load(a)), v16_load(b), 1);
}
/* Looks up 64 channels of a strip of keys. */
static __attribute__((noinline)) void look_up_keys(const uint32_t bits,
                                                   const unsigned char *const *base, size_t at,
                                                   const struct table *table, fused_keys to)
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    for (uint32_t k = 0; k < 4; k++) {
        const size_t in = at + (bits == 4 ? k / 2 * 16 : 0);
        const __m128i shift = _mm_cvtsi32_si128((int)(bits == 4 ? k % 2 * 4 : k * 2));
        __m256i first[8], second[8];
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            const __m256i x = _mm256_srl_epi16(two_rows(base[i] + in, base[i + 8] + in), shift);
            look_up(&table[i], _mm256_and_si256(x, mask), &first[i], &second[i]);
        }
        transpose_words(first);
        transpose_words(second);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            put_words(to[16 * k + i], first[i]);
            put_words(to[16 * k + 8 + i], second[i]);
        }
    }
}

/* Looks up 64 channels of a strip of values. */
INLINE void look_up_values(const uint32_t bits, const unsigned char *const *base, size_t at,
                           const struct table *table, fused_values to)
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    for (uint32_t i = 0; i < 8; i++) {
        const struct table look = table[i];
        const unsigned char *x = base[i] + at, *y = base[i + 8] + at;
        const __m256i codes[2] = {two_rows(x, y), bits == 4 ? two_rows(x + 16, y + 16) : mask};
        UNROLL for (uint32_t c = 0; c < 4; c++)
        {
            const int shift = (int)(c % (8 / bits) * bits);
            __m256i k = _mm256_srli_epi16(codes[c * bits / 8], shift), first, second;
            look_up(&look, _mm256_and_si256(k, mask), &first, &second);
            put_words(to[i][2 * c][0], first);
            put_words(to[i][2 * c + 1][0], second);
        }
    }
}
static __attribute__((noinline)) void look_up_values_2(const unsigned char *const *base, size_t at,
                                                       const struct table *table, fused_values to)
{
    look_up_values(2, base, at, table, to);
}
static __attribute__((noinline)) void look_up_values_4(const unsigned char *const *base, size_t at,
                                                       const struct table *table, fused_values to)
{
    look_up_values(4, base, at, table, to);
}

/* Two strips go together, as far as the registers suffice. */
INLINE void scores(enum dtype t, const uint32_t nq, const struct kv_reading *r,
                   const struct rows *rows, struct kv_next *next, const float *q, float scale,
                   float *p, size_t ldp)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, group = MIN(f->group, dim), most = nq > 3 ? 1 : 2;
    struct table table[FUSED_STRIPS][8];
    fused_keys v[2];
    for (uint32_t d = 0; d < dim; d += 64, q += (size_t)64 * nq) {
        const float times = d + 64 == dim ? scale : 1; /* times 1 is exact */
        if (d % group == 0) tables(r, rows, d / group, table);
        for (uint32_t s = 0, n; s < rows->strips; s += n) {
            n = MIN(most, rows->strips - s);
            for (uint32_t i = 0; i < n; i++)
                look_up_keys(f->bits, rows->base[s + i], rows->codes + (size_t)d * f->bits / 8,
                             table[s + i], v[i]);
            score_strips(t, nq, n, v, next, q, d == 0, times, p + s * KV_STRIP, ldp);
        }
    }
}

INLINE void sums(enum dtype t, const uint32_t nq, const struct kv_reading *r,
                 const struct rows *rows, struct kv_next *next, uint32_t r0, uint32_t r1,
                 const float *p, size_t ldp, bool fresh, float *o, size_t ldo)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, group = MIN(f->group, dim), nv = nq > 3 ? 2 : 4;
    struct table table[FUSED_STRIPS][8];
    fused_values v;
    for (uint32_t d = 0; d < dim; d += 64) {
        const size_t at = rows->codes + (size_t)d * f->bits / 8;
        if (d % group == 0) tables(r, rows, d / group, table);
        for (uint32_t s = 0; s < rows->strips; s++) {
            const uint32_t row = s * KV_STRIP, j0 = s ? 0 : r0, j1 = MIN(r1 - row, KV_STRIP);
            if (f->bits == 2)
                look_up_values_2(rows->base[s], at, table[s], v);
            else
                look_up_values_4(rows->base[s], at, table[s], v);
            for (uint32_t c = 0; c < 8; c += nv)
                add_words(t, nq, nv, v, next, c, j0, j1, p + row, ldp, fresh && !s, o + d, ldo);
        }
    }
}

#define ADD_FIRST  DT_F16
#define ADD_SECOND DT_BF16
static bool add_second(const struct kv_reading *r)
{
    return r->shape->dtype != DT_F16;
}
#include "dev/cpu/fused_rows.h"
#else
typedef int fused_avx2_unused;
#endif
