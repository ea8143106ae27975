/* vec_avx512.h - the 16 lanes of the canonical order as vectors: vf (16 f32), vi (16 i32), vb (64
 * bytes).  vec_avx2.h has the same names on pairs of 256-bit registers, so that dot_vec.h and
 * elementwise_vec.h state each kernel once.  For *_avx512.c files only. */
#pragma once
#include "base/base.h"
#include "dev/cpu/mathfn_avx512.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_ISA    DEV_AVX512
#define VEC(name)  name##_avx512
#define VEC_ROWS   4 /* register tile of a product: rows x tokens */
#define VEC_TOKENS 4
#define VEC_GEMV   4
#define VEC_GEMV_F 8 /* ... and of a float one */
#define VEC_MANY   2 /* tokens at once in dot_q_vec.h */
#define LANES      16
#define INLINE     static inline __attribute__((always_inline))

#include "dev/cpu/vec_sse.h"

typedef __m512 vf;
typedef __m512i vi;
typedef __m512i vb;

INLINE vf vf_zero(void)
{
    return _mm512_setzero_ps();
}
INLINE vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
INLINE void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
/* The first n lanes, n in [0, 16]; the others load as zero and are not stored. */
INLINE __mmask16 vec_mask(uint32_t n)
{
    return (__mmask16)((1u << n) - 1);
}
INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps(vec_mask(n), p);
}
INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, vec_mask(n), v);
}
INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
INLINE vf vf_neg(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* Lanes from n on keep c. */
INLINE vf vf_fma_n(vf a, vf b, vf c, uint32_t n)
{
    return _mm512_mask3_fmadd_ps(a, b, c, vec_mask(n));
}
INLINE vf vf_max(vf a, vf b) /* b where one is NaN, as a > b ? a : b */
{
    return _mm512_max_ps(a, b);
}
INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
INLINE vf vf_choose(vf x, vf y, vf a, vf b) /* a where x < y, else b */
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
}
INLINE vf vf_signed(vf x, vf y) /* x, or -x where y has a sign; x has none */
{
    return _mm512_or_ps(x, _mm512_and_ps(y, _mm512_set1_ps(-0.0f)));
}
INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
INLINE vf vf_exp(vf x)
{
    return math_exp_avx512(x);
}
/* Lanes [lo, hi) of x, the others from `fill`. */
INLINE vf vf_keep(vf x, uint32_t lo, uint32_t hi, vf fill)
{
    return _mm512_mask_mov_ps(fill, vec_mask(MIN(hi, 16)) & (__mmask16)~vec_mask(lo), x);
}
INLINE float vf_top(vf x)
{
    return _mm512_reduce_max_ps(x);
}
INLINE vf vf_from_int(vi v)
{
    return _mm512_cvtepi32_ps(v);
}
INLINE vf vf_from_bytes(v16 v) /* unsigned */
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v));
}
INLINE vf vf_from_u8(const uint8_t *p) /* 16 bytes */
{
    return vf_from_bytes(v16_load(p));
}
INLINE vf vf_from_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
INLINE vf vf_from_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
INLINE vf vf_round_bf16(vf v)
{
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_ps(_mm512_and_si512(r, _mm512_set1_epi32((int)0xffff0000)));
}
INLINE float vf_tree(vf v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
/* Four trees at once: quads of (a, b, c, d) halved together. */
INLINE __m512 vec_halve(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
INLINE __m512 vec_quarter(vf ab, vf cd)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}
/* Trees of a [4][tokens] tile: out[t] gets the four rows of token t. */
INLINE void vf_trees(vf (*acc)[VEC_TOKENS], int tokens, float (*out)[4])
{
    if (tokens != 4) {
        for (int t = 0; t < tokens; t++)
            for (int r = 0; r < 4; r++)
                out[t][r] = vf_tree(acc[r][t]);
        return;
    }
    __m512 q[4]; /* q[r]: quad t holds four partial sums of (r, t) */
    for (int r = 0; r < 4; r++)
        q[r] = vec_quarter(vec_halve(acc[r][0], acc[r][1]), vec_halve(acc[r][2], acc[r][3]));
    __m512 lo =
        _mm512_add_ps(_mm512_shuffle_ps(q[0], q[1], 0x44), _mm512_shuffle_ps(q[0], q[1], 0xee));
    __m512 hi =
        _mm512_add_ps(_mm512_shuffle_ps(q[2], q[3], 0x44), _mm512_shuffle_ps(q[2], q[3], 0xee));
    _mm512_storeu_ps(
        out[0], _mm512_add_ps(_mm512_shuffle_ps(lo, hi, 0x88), _mm512_shuffle_ps(lo, hi, 0xdd)));
}

INLINE float f16_load(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}
/* Lanes 0..7 a, 8..15 b. */
INLINE vf vf_pair(float a, float b)
{
    return _mm512_mask_broadcastss_ps(_mm512_set1_ps(a), 0xff00, _mm_set_ss(b));
}
/* Scales of two 32-code blocks, from their f16. */
INLINE vf vf_pair_f16(const unsigned char *a, const unsigned char *b)
{
    uint16_t ha, hb;
    memcpy(&ha, a, 2);
    memcpy(&hb, b, 2);
    __m128 f = _mm_cvtph_ps(_mm_cvtsi32_si128((int)(ha | (uint32_t)hb << 16)));
    const __m512i idx = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_permutexvar_ps(idx, _mm512_castps128_ps512(f));
}
/* Scale and offset of two blocks, from their adjacent f16. */
INLINE void vf_pair2_f16(const unsigned char *a, const unsigned char *b, vf *d, vf *m)
{
    uint32_t ua, ub;
    memcpy(&ua, a, 4);
    memcpy(&ub, b, 4);
    __m128 f = _mm_cvtph_ps(_mm_insert_epi32(_mm_cvtsi32_si128((int)ua), (int)ub, 1));
    const __m512i idx = _mm512_set_epi32(2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0);
    *d = _mm512_permutexvar_ps(idx, _mm512_castps128_ps512(f));
    *m = _mm512_permutexvar_ps(_mm512_add_epi32(idx, _mm512_set1_epi32(1)),
                               _mm512_castps128_ps512(f));
}
/* Repeats each of p[0..1] eight times; vf_quads repeats each of p[0..3] four times. */
INLINE vf vf_octets(const float *p)
{
    __m512 v = _mm512_castpd_ps(_mm512_set1_pd(*(const double __attribute__((may_alias)) *)p));
    return _mm512_permutevar_ps(v,
                                _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0));
}
INLINE vf vf_quads(const float *p)
{
    __m512 v = _mm512_broadcast_f32x4(_mm_loadu_ps(p));
    return _mm512_permutevar_ps(v,
                                _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0));
}

/* Lane 4g in all lanes. */
INLINE vf vf_spread(vf v, uint32_t g)
{
    return _mm512_permutexvar_ps(_mm512_set1_epi32((int)(4 * g)), v);
}

INLINE vi vi_zero(void)
{
    return _mm512_setzero_si512();
}
INLINE vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
INLINE vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
INLINE void vi_store(void *p, vi v)
{
    _mm512_storeu_si512(p, v);
}
INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
INLINE vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}
INLINE vi vi_and(vi v, uint32_t m)
{
    return _mm512_and_si512(v, _mm512_set1_epi32((int)m));
}
INLINE vi vi_shl(vi v, int n) /* of 32 bits */
{
    return _mm512_slli_epi32(v, (unsigned)n);
}
INLINE vi vi_shr(vi v, int n)
{
    return _mm512_srli_epi32(v, (unsigned)n);
}
INLINE vi vi_sar(vi v, int n)
{
    return _mm512_srai_epi32(v, (unsigned)n);
}
INLINE vi vi_bits(vf v)
{
    return _mm512_castps_si512(v);
}
INLINE vi vi_round(vf v) /* nearest even */
{
    return _mm512_cvtps_epi32(v);
}
INLINE int32_t vi_top(vi v)
{
    return _mm512_reduce_max_epi32(v);
}
/* The sums of four vectors, and of two pairs of them. */
INLINE void vi_totals(const vi *v, int32_t *out, int32_t *pairs)
{
    vi x = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    vi y = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    x = _mm512_add_epi32(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
    __m256i h = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    _mm_storeu_si128((__m128i *)out, s);
    _mm_storel_epi64((__m128i *)pairs, _mm_hadd_epi32(s, s));
}
/* acc + the dot product of the two signed words of each lane. */
INLINE vi vi_dot16(vi acc, vi w, vi x)
{
    return _mm512_dpwssd_epi32(acc, w, x);
}
/* 16 numbers as words; of every four the second and the third change places. */
INLINE void vi_put_words(int16_t *p, vi v)
{
    __m256i w = _mm512_cvtepi32_epi16(v);
    w = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(w, 0xd8), 0xd8);
    _mm256_storeu_si256((__m256i *)p, w);
}
/* The low and the high half of each lane, an f16. */
INLINE vf vf_low_f16(vi v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}
INLINE vf vf_high_f16(vi v)
{
    return vf_low_f16(_mm512_srli_epi32(v, 16));
}

/* 16 bytes from each of four addresses, `apart` apart. */
INLINE __m512i vec_four(const unsigned char *p, size_t apart)
{
    const __m128i *a = (const __m128i *)p, *b = (const __m128i *)(p + 2 * apart);
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(a)),
                                          _mm_loadu_si128((const __m128i *)(p + apart)), 1);
    __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(b)),
                                           _mm_loadu_si128((const __m128i *)(p + 3 * apart)), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
/* Transposes 16 bytes of each of 16 rows: lane r of out[i] gets bytes 4i..4i+3 of row r. */
INLINE void vi_rows4(const unsigned char *p, size_t stride, vi *out)
{
    __m512i a = vec_four(p, 4 * stride), b = vec_four(p + stride, 4 * stride);
    __m512i c = vec_four(p + 2 * stride, 4 * stride), d = vec_four(p + 3 * stride, 4 * stride);
    __m512i t = _mm512_unpacklo_epi32(a, b), u = _mm512_unpacklo_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(t, u);
    out[1] = _mm512_unpackhi_epi64(t, u);
    t = _mm512_unpackhi_epi32(a, b), u = _mm512_unpackhi_epi32(c, d);
    out[2] = _mm512_unpacklo_epi64(t, u);
    out[3] = _mm512_unpackhi_epi64(t, u);
}
/* Four bytes of each of 16 rows. */
INLINE vi vi_rows1(const unsigned char *p, size_t stride)
{
    __m512i v = _mm512_castsi128_si512(vec_column(p, stride));
    v = _mm512_inserti32x4(v, vec_column(p + 4 * stride, stride), 1);
    v = _mm512_inserti32x4(v, vec_column(p + 8 * stride, stride), 2);
    return _mm512_inserti32x4(v, vec_column(p + 12 * stride, stride), 3);
}

INLINE vb vb_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
/* Bytes [16g, 16g + 16). */
INLINE v16 vb_quarter(vb v, uint32_t g)
{
    return g == 0   ? _mm512_castsi512_si128(v)
           : g == 1 ? _mm512_extracti32x4_epi32(v, 1)
           : g == 2 ? _mm512_extracti32x4_epi32(v, 2)
                    : _mm512_extracti32x4_epi32(v, 3);
}
INLINE void vb_store(void *p, vb v)
{
    _mm512_storeu_si512(p, v);
}
INLINE vb vb_join(__m256i a, __m256i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
INLINE vb vb_load2(const void *a, const void *b) /* 32 bytes each */
{
    return vb_join(_mm256_loadu_si256(a), _mm256_loadu_si256(b));
}
INLINE vb vb_and1(vb v, uint8_t m)
{
    return _mm512_and_si512(v, _mm512_set1_epi8((char)m));
}
INLINE vb vb_xor1(vb v, uint8_t m)
{
    return _mm512_xor_si512(v, _mm512_set1_epi8((char)m));
}
INLINE vb vb_or(vb a, vb b)
{
    return _mm512_or_si512(a, b);
}
INLINE vb vb_shl(vb v, int n) /* bits cross bytes: mask first */
{
    return _mm512_slli_epi16(v, (unsigned)n);
}
INLINE vb vb_shr(vb v, int n) /* mask after */
{
    return _mm512_srli_epi16(v, (unsigned)n);
}
/* 32 bytes y: (y >> lo) in the first half, (y >> hi) in the second; mask after. */
INLINE vb vb_split(const void *p, int lo, int hi)
{
    __m256i a = _mm256_set1_epi16((short)lo), b = _mm256_set1_epi16((short)hi);
    return _mm512_srlv_epi16(_mm512_broadcast_i64x4(_mm256_loadu_si256(p)), vb_join(a, b));
}
/* Nibbles of two blocks of 16 bytes: low ones, high ones, of each. */
INLINE vb vb_nibbles(const void *a, const void *b)
{
    __m256i y =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(a)), _mm_loadu_si128(b), 1);
    __m512i z = _mm512_castsi256_si512(y);
    z = _mm512_shuffle_i64x2(z, z, 0x50);
    z = _mm512_srlv_epi64(z, _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0));
    return _mm512_and_si512(z, _mm512_set1_epi8(15));
}
/* Adds 16 where the bit is set. */
INLINE vb vb_or_bits(vb v, uint32_t a, uint32_t b)
{
    __mmask64 m = (uint64_t)b << 32 | a;
    return _mm512_mask_add_epi8(v, m, v, _mm512_set1_epi8(16));
}
INLINE vb vb_lookup(const uint8_t *table16, vb v)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table16)),
                               v);
}
