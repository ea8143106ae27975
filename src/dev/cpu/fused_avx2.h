/* fused_avx2.h - fused_vec.h with AVX2: values as words in memory.  There are 16 registers, and sums of products need them all.  So
 * 64 channels of a strip are looked up first, and then the products load and convert them, which costs no more than registers. */
#pragma once
#include "dev/cpu/affine_avx2.h"
#include "dev/cpu/fused_vec.h"

/* 64 channels of a strip: of keys [channel][row]; of values [pair][8 channels][row], where pair p has rows p and p + 8. */
typedef uint16_t fused_keys[64][KV_STRIP];
typedef uint16_t fused_values[8][8][2][8];

INLINE __m256 floats_of(enum dtype t, const uint16_t *p)
{
    const __m128i *h = (const void *)p;
    return t == DT_F16 ? _mm256_cvtph_ps(_mm_loadu_si128(h)) : vec_from_bf16(h);
}
INLINE void put_words(uint16_t *p, __m256i x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x);
}
/* Returns the same pointer, but the compiler forgets what it loaded by it, and takes fewer registers.  A sum that does not stay in
 * its register takes three times as long. */
INLINE const float *again(const float *p)
{
    __asm__ volatile("" : "+r"(p));
    return p;
}

/* Adds the products of 64 channels of ns strips to their scores, and multiplies them by scale. */
INLINE void score_words(enum dtype t, const uint32_t nq, const uint32_t ns, const fused_keys *v,
                        struct kv_next *next, const float *q, bool fresh, float scale, float *p,
                        size_t ldp)
{
    vf acc[2][FUSED_MOST];
    UNROLL for (uint32_t s = 0; s < ns; s++) UNROLL for (uint32_t i = 0; i < nq; i++) acc[s][i] =
        fresh ? vf_zero() : vf_load(p + i * ldp + s * KV_STRIP);
    for (uint32_t c0 = 0; c0 < 64; c0 += 4) {
        prefetch_tiles(next, ns);
        UNROLL for (uint32_t c = c0; c < c0 + 4; c++, q += nq)
        {
            UNROLL for (uint32_t s = 0; s < ns; s++)
            {
                const vf x = {floats_of(t, v[s][c]), floats_of(t, v[s][c] + 8)};
                const float *qc = again(q);
                UNROLL for (uint32_t i = 0; i < nq; i++) acc[s][i] =
                    vf_fma(vf_set1(qc[i]), x, acc[s][i]);
            }
        }
    }
    UNROLL for (uint32_t s = 0; s < ns; s++) UNROLL for (uint32_t i = 0; i < nq; i++)
        vf_store(p + i * ldp + s * KV_STRIP, vf_mul(acc[s][i], vf_set1(scale)));
}
/* The same of ns strips, 1 or 2, each with a constant. */
INLINE void score_strips(enum dtype t, const uint32_t nq, uint32_t ns, const fused_keys *v,
                         struct kv_next *next, const float *q, bool fresh, float times, float *p,
                         size_t ldp)
{
    if (ns == 2)
        score_words(t, nq, 2, v, next, q, fresh, times, p, ldp);
    else
        score_words(t, nq, 1, v, next, q, fresh, times, p, ldp);
}

/* Adds rows [j0, j1) of a strip to nv vectors of 8 channels. */
INLINE void add_words(enum dtype t, const uint32_t nq, const uint32_t nv, const fused_values v,
                      struct kv_next *next, uint32_t c0, uint32_t j0, uint32_t j1, const float *p,
                      size_t ldp, bool fresh, float *o, size_t ldo)
{
    __m256 acc[FUSED_MOST][4];
    UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < nv; c++) acc[i][c] =
        fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(o + i * ldo + 8 * (c0 + c));
    for (uint32_t j = j0; j < j1; j++) {
        if (c0 == 0) prefetch_tiles(next, 1);
        UNROLL for (uint32_t c = 0; c < nv; c++)
        {
            const __m256 x = floats_of(t, v[j % 8][c0 + c][j / 8]);
            UNROLL for (uint32_t i = 0; i < nq; i++) acc[i][c] =
                _mm256_fmadd_ps(_mm256_set1_ps(p[i * ldp + j]), x, acc[i][c]);
        }
    }
    UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < nv; c++)
        _mm256_storeu_ps(o + i * ldo + 8 * (c0 + c), acc[i][c]);
}

/* The numbers of a group of all rows, or of 64 groups of channels. */
struct numbers {
    float a[FUSED_STRIPS * KV_STRIP], b[FUSED_STRIPS * KV_STRIP];
    bool doubles; /* 15 * a is finite in the type of rows, for all of them */
};
INLINE void put_numbers(enum dtype t, struct numbers *n, uint32_t i, vf a, vf b)
{
    const __m256 most = _mm256_set1_ps(t == DT_F16 ? 4096.0f : 1e37f), sign = _mm256_set1_ps(-0.0f);
    const __m256 x = _mm256_cmp_ps(_mm256_andnot_ps(sign, a.a), most, _CMP_NLE_UQ);
    const __m256 y = _mm256_cmp_ps(_mm256_andnot_ps(sign, a.b), most, _CMP_NLE_UQ);
    if (_mm256_movemask_ps(_mm256_or_ps(x, y))) n->doubles = false;
    vf_store(n->a + i, a);
    vf_store(n->b + i, b);
}
/* The values of two groups: their low bytes and their high bytes. */
struct table {
    __m256i lo, hi;
};

/* Returns the values of the odd codes of 4 bits in a, of the even ones in b.  doubles: an even code times a is twice or more what an
 * odd one is, and so is the rounded product, since nothing overflows, and small floats are multiples of the smallest one. */
INLINE vf row_values(enum dtype t, bool zero_first, bool doubles, float a, float b)
{
    const vf code = {_mm256_set_ps(15, 13, 11, 9, 7, 5, 3, 1),
                     _mm256_set_ps(14, 12, 10, 8, 6, 4, 2, 0)};
    const __m256i odd_of = _mm256_set_epi32(3, 1, 2, 0, 1, 0, 0, 0);
    const __m256 times = _mm256_set_ps(2, 4, 2, 8, 2, 4, 2, 0);
    if (zero_first || !doubles) return affine_value(t, zero_first, code, vf_set1(a), vf_set1(b));
    __m256 odd = _mm256_mul_ps(code.a, _mm256_set1_ps(a));
    odd = t == DT_F16 ? _mm256_cvtph_ps(_mm256_cvtps_ph(odd, NEAREST)) : vec_round_bf16(odd);
    __m256 even = _mm256_mul_ps(_mm256_permutevar8x32_ps(odd, odd_of), times);
    return vf_sub((vf){odd, even}, vf_set1(b));
}

INLINE struct table table_of(enum dtype t, bool zero_first, bool doubles, const struct numbers *n,
                             uint32_t i, uint32_t k)
{
    const __m256i split = _mm256_broadcastsi128_si256(
        _mm_set_epi8(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0));
    const vf x = row_values(t, zero_first, doubles, n->a[i], n->b[i]);
    const vf y = row_values(t, zero_first, doubles, n->a[k], n->b[k]);
    __m256i odd = _mm256_shuffle_epi8(vec_words(t, (vf){x.a, y.a}), split);
    __m256i even = _mm256_shuffle_epi8(vec_words(t, (vf){x.b, y.b}), split);
    return (struct table){_mm256_unpacklo_epi8(even, odd), _mm256_unpackhi_epi8(even, odd)};
}

/* Codes of 2 bits: both groups have place in 8 lanes. */
INLINE struct table small_table(enum dtype t, bool zero_first, const struct numbers *n, uint32_t i,
                                uint32_t k)
{
    const vf a = {_mm256_set_m128(_mm_set1_ps(n->a[k]), _mm_set1_ps(n->a[i])), _mm256_setzero_ps()};
    const vf b = {_mm256_set_m128(_mm_set1_ps(n->b[k]), _mm_set1_ps(n->b[i])), _mm256_setzero_ps()};
    const __m256i low = _mm256_set_epi32(0, 0, 0, 0x0e0c0a08, 0, 0, 0, 0x06040200);
    const __m256i high = _mm256_set_epi32(0, 0, 0, 0x0f0d0b09, 0, 0, 0, 0x07050301);
    __m256i words = vec_words(t, affine_value(t, zero_first, affine_codes(2), a, b));
    words = _mm256_permute4x64_epi64(words, 0x44);
    return (struct table){_mm256_shuffle_epi8(words, low), _mm256_shuffle_epi8(words, high)};
}

/* Looks up words of the first 8 channels of each half, then of the others. */
INLINE void look_up(const struct table *table, __m256i codes, __m256i *first, __m256i *second)
{
    const __m256i l = _mm256_shuffle_epi8(table->lo, codes),
                  h = _mm256_shuffle_epi8(table->hi, codes);
    *first = _mm256_unpacklo_epi8(l, h);
    *second = _mm256_unpackhi_epi8(l, h);
}
/* Transposes 8 rows of 8 words in both halves. */
INLINE void transpose_words(__m256i *x)
{
    __m256i y[8];
    UNROLL for (int round = 0; round < 3; round++)
    {
        UNROLL for (int i = 0; i < 4; i++)
        {
            y[2 * i] = _mm256_unpacklo_epi16(x[i], x[i + 4]);
            y[2 * i + 1] = _mm256_unpackhi_epi16(x[i], x[i + 4]);
        }
        UNROLL for (int i = 0; i < 8; i++) x[i] = y[i];
    }
}
