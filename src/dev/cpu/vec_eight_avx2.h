/* vec_eight_avx2.h - the names of dot_q_vec.h on single registers of 256 bits: 8 lanes.  vec_avx2.h has pairs of them, which leave
 * too few registers where codes of weights are decoded between products.  For dot_q_few_avx2.c only. */
#pragma once
#include "base/base.h"
#include "dev/dev.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_ISA  DEV_AVX2
#define VEC_MANY 4
#define LANES    8
#define INLINE   static inline __attribute__((always_inline))
#include "dev/cpu/vec_sse.h"

typedef __m256 vf;
typedef __m256i vi;

INLINE vf vf_zero(void)
{
    return _mm256_setzero_ps();
}
INLINE vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
INLINE void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
INLINE vf vf_add(vf x, vf y)
{
    return _mm256_add_ps(x, y);
}
INLINE vf vf_mul(vf x, vf y)
{
    return _mm256_mul_ps(x, y);
}
INLINE vf vf_neg(vf x)
{
    return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}
INLINE vf vf_fma(vf x, vf y, vf c)
{
    return _mm256_fmadd_ps(x, y, c);
}
INLINE vf vf_from_int(vi v)
{
    return _mm256_cvtepi32_ps(v);
}
INLINE vf vec_halves(vi v) /* converts the low words; the high words are 0 */
{
    v = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(v));
}
INLINE vf vf_low_f16(vi v)
{
    return vec_halves(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)));
}
INLINE vf vf_high_f16(vi v)
{
    return vec_halves(_mm256_srli_epi32(v, 16));
}

INLINE vi vi_zero(void)
{
    return _mm256_setzero_si256();
}
INLINE vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
INLINE vi vi_add(vi x, vi y)
{
    return _mm256_add_epi32(x, y);
}
INLINE vi vi_and(vi v, uint32_t m)
{
    return _mm256_and_si256(v, _mm256_set1_epi32((int)m));
}
INLINE vi vi_shl(vi v, int n)
{
    return _mm256_slli_epi32(v, n);
}
INLINE vi vi_shr(vi v, int n)
{
    return _mm256_srli_epi32(v, n);
}
INLINE vi vi_sar(vi v, int n)
{
    return _mm256_srai_epi32(v, n);
}
INLINE vi vi_dot16(vi acc, vi w, vi x)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(w, x));
}
INLINE vi vec_two(const unsigned char *p, size_t apart)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
                                   _mm_loadu_si128((const __m128i *)(p + apart)), 1);
}
/* Transposes 16 bytes of each of 8 rows: lane r of out[i] gets bytes 4i..4i+3 of row r. */
INLINE void vi_rows4(const unsigned char *p, size_t stride, vi *out)
{
    vi a = vec_two(p, 4 * stride), b = vec_two(p + stride, 4 * stride);
    vi c = vec_two(p + 2 * stride, 4 * stride), d = vec_two(p + 3 * stride, 4 * stride);
    vi t = _mm256_unpacklo_epi32(a, b), u = _mm256_unpacklo_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(t, u);
    out[1] = _mm256_unpackhi_epi64(t, u);
    t = _mm256_unpackhi_epi32(a, b), u = _mm256_unpackhi_epi32(c, d);
    out[2] = _mm256_unpacklo_epi64(t, u);
    out[3] = _mm256_unpackhi_epi64(t, u);
}
/* Four bytes of each of 8 rows. */
INLINE vi vi_rows1(const unsigned char *p, size_t stride)
{
    return _mm256_set_m128i(vec_column(p + 4 * stride, stride), vec_column(p, stride));
}
INLINE vi vb_and1(vi v, uint8_t m)
{
    return _mm256_and_si256(v, _mm256_set1_epi8((char)m));
}
INLINE vi vb_xor1(vi v, uint8_t m)
{
    return _mm256_xor_si256(v, _mm256_set1_epi8((char)m));
}
INLINE vi vb_or(vi x, vi y)
{
    return _mm256_or_si256(x, y);
}
INLINE vi vb_shr(vi v, int n)
{
    return _mm256_srli_epi16(v, n);
}
INLINE vi vb_lookup(const uint8_t *table16, vi v)
{
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table16)), v);
}
