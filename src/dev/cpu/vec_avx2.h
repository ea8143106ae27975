/* vec_avx2.h - the names of vec_avx512.h on pairs of 256-bit registers: lanes 0..7 in a, 8..15 in b.
 * For *_avx2.c files only. */
#pragma once
#include "base/base.h"
#include "dev/cpu/mathfn_avx2.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_ISA    DEV_AVX2
#define VEC(name)  name##_avx2
#define VEC_ROWS   2 /* register tile of a product: rows x tokens */
#define VEC_TOKENS 2
#define VEC_GEMV   2
#define VEC_GEMV_F 4
#define VEC_MANY   4 /* tokens at once in dot_q_vec.h */
#define LANES      16
#define INLINE     static inline __attribute__((always_inline))

#include "dev/cpu/vec_sse.h"

typedef struct {
    __m256 a, b;
} vf;
typedef struct {
    __m256i a, b;
} vi;
typedef vi vb;

INLINE vf vf_zero(void)
{
    return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
INLINE vf vf_set1(float x)
{
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
INLINE vf vf_load(const float *p)
{
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
INLINE void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
INLINE vi vec_mask(uint32_t n)
{
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return (vi){_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane),
                _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - 8), lane)};
}
INLINE vf vf_load_n(const float *p, uint32_t n)
{
    vi m = vec_mask(n);
    return (vf){_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    vi m = vec_mask(n);
    _mm256_maskstore_ps(p, m.a, v.a);
    _mm256_maskstore_ps(p + 8, m.b, v.b);
}
INLINE vf vf_add(vf x, vf y)
{
    return (vf){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
INLINE vf vf_mul(vf x, vf y)
{
    return (vf){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
INLINE vf vf_neg(vf x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}
INLINE vf vf_fma(vf x, vf y, vf c)
{
    return (vf){_mm256_fmadd_ps(x.a, y.a, c.a), _mm256_fmadd_ps(x.b, y.b, c.b)};
}
INLINE vf vf_fma_n(vf x, vf y, vf c, uint32_t n)
{
    vi m = vec_mask(n);
    vf r = vf_fma(x, y, c);
    return (vf){_mm256_blendv_ps(c.a, r.a, _mm256_castsi256_ps(m.a)),
                _mm256_blendv_ps(c.b, r.b, _mm256_castsi256_ps(m.b))};
}
INLINE vf vf_max(vf x, vf y) /* y where one is NaN, as x > y ? x : y */
{
    return (vf){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
INLINE vf vf_min(vf x, vf y)
{
    return (vf){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
INLINE __m256 vec_choose(__m256 x, __m256 y, __m256 a, __m256 b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
}
INLINE vf vf_choose(vf x, vf y, vf a, vf b) /* a where x < y, else b */
{
    return (vf){vec_choose(x.a, y.a, a.a, b.a), vec_choose(x.b, y.b, a.b, b.b)};
}
INLINE vf vf_signed(vf x, vf y) /* x, or -x where y has a sign; x has none */
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){_mm256_or_ps(x.a, _mm256_and_ps(y.a, sign)),
                _mm256_or_ps(x.b, _mm256_and_ps(y.b, sign))};
}
INLINE vf vf_sub(vf x, vf y)
{
    return (vf){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
INLINE vf vf_div(vf x, vf y)
{
    return (vf){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
INLINE vf vf_exp(vf x)
{
    return (vf){math_exp_avx2(x.a), math_exp_avx2(x.b)};
}
/* Lanes [lo, hi) of x, the others from `fill`. */
INLINE vf vf_keep(vf x, uint32_t lo, uint32_t hi, vf fill)
{
    vi below = vec_mask(MIN(hi, 16)), under = vec_mask(lo);
    __m256i a = _mm256_andnot_si256(under.a, below.a), b = _mm256_andnot_si256(under.b, below.b);
    return (vf){_mm256_blendv_ps(fill.a, x.a, _mm256_castsi256_ps(a)),
                _mm256_blendv_ps(fill.b, x.b, _mm256_castsi256_ps(b))};
}
INLINE float vf_top(vf x)
{
    __m256 v = _mm256_max_ps(x.a, x.b);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
INLINE vf vf_from_int(vi v)
{
    return (vf){_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)};
}
INLINE vf vf_from_bytes(v16 v)
{
    return (vf){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(v, v)))};
}
INLINE vf vf_from_u8(const uint8_t *p)
{
    return vf_from_bytes(v16_load(p));
}
INLINE vf vf_from_f16(const void *p)
{
    const __m128i *h = p;
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
INLINE __m256 vec_from_bf16(const __m128i *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
INLINE vf vf_from_bf16(const void *p)
{
    const __m128i *h = p;
    return (vf){vec_from_bf16(h), vec_from_bf16(h + 1)};
}
INLINE __m256 vec_round_bf16(__m256 v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    r = _mm256_blendv_epi8(r, quiet, _mm256_castps_si256(nan));
    return _mm256_castsi256_ps(_mm256_and_si256(r, _mm256_set1_epi32((int)0xffff0000)));
}
INLINE vf vf_round_bf16(vf v)
{
    return (vf){vec_round_bf16(v.a), vec_round_bf16(v.b)};
}
INLINE float vf_tree(vf v)
{
    __m256 a = _mm256_add_ps(v.a, v.b);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
INLINE void vf_trees(vf (*acc)[VEC_TOKENS], int tokens, float (*out)[4])
{
    for (int t = 0; t < tokens; t++) {
        __m256 s[4];
        for (int r = 0; r < 4; r++)
            s[r] = _mm256_add_ps(acc[r][t].a, acc[r][t].b);
        __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(s[0], s[1], 0x20),
                                  _mm256_permute2f128_ps(s[0], s[1], 0x31));
        __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(s[2], s[3], 0x20),
                                  _mm256_permute2f128_ps(s[2], s[3], 0x31));
        /* [a0 a1 c0 c1 | b0 b1 d0 d1] */
        __m256 v = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
        v = _mm256_add_ps(v, _mm256_movehdup_ps(v)); /* a . c . | b . d . */
        __m128 lo = _mm256_castps256_ps128(v), hi = _mm256_extractf128_ps(v, 1);
        __m128 ac = _mm_shuffle_ps(lo, lo, 0x88), bd = _mm_shuffle_ps(hi, hi, 0x88);
        _mm_storeu_ps(out[t], _mm_unpacklo_ps(ac, bd));
    }
}

INLINE float f16_load(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}
INLINE vf vf_pair(float a, float b)
{
    return (vf){_mm256_set1_ps(a), _mm256_set1_ps(b)};
}
INLINE __m128 vec_two_f16(const unsigned char *a, const unsigned char *b)
{
    uint16_t ha, hb;
    memcpy(&ha, a, 2);
    memcpy(&hb, b, 2);
    return _mm_cvtph_ps(_mm_cvtsi32_si128((int)(ha | (uint32_t)hb << 16)));
}
INLINE vf vf_pair_f16(const unsigned char *a, const unsigned char *b)
{
    __m128 f = vec_two_f16(a, b);
    return (vf){_mm256_broadcastss_ps(f), _mm256_broadcastss_ps(_mm_movehdup_ps(f))};
}
INLINE void vf_pair2_f16(const unsigned char *a, const unsigned char *b, vf *d, vf *m)
{
    uint32_t ua, ub;
    memcpy(&ua, a, 4);
    memcpy(&ub, b, 4);
    __m128 f = _mm_cvtph_ps(_mm_insert_epi32(_mm_cvtsi32_si128((int)ua), (int)ub, 1));
    __m256 v = _mm256_set_m128(f, f);
    *d = (vf){_mm256_permute_ps(v, 0x00), _mm256_permute_ps(v, 0xaa)};
    *m = (vf){_mm256_permute_ps(v, 0x55), _mm256_permute_ps(v, 0xff)};
}
INLINE vf vf_octets(const float *p)
{
    return (vf){_mm256_broadcast_ss(p), _mm256_broadcast_ss(p + 1)};
}
INLINE vf vf_quads(const float *p)
{
    __m256 v = _mm256_broadcast_ps((const __m128 *)p);
    return (vf){_mm256_permutevar_ps(v, _mm256_set_epi32(1, 1, 1, 1, 0, 0, 0, 0)),
                _mm256_permutevar_ps(v, _mm256_set_epi32(3, 3, 3, 3, 2, 2, 2, 2))};
}

INLINE vf vf_spread(vf v, uint32_t g)
{
    __m256 s = _mm256_permutevar8x32_ps(g < 2 ? v.a : v.b, _mm256_set1_epi32((int)(g % 2 * 4)));
    return (vf){s, s};
}

INLINE vi vi_zero(void)
{
    return (vi){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
INLINE vi vi_load(const int32_t *p)
{
    return (vi){_mm256_loadu_si256((const __m256i *)p),
                _mm256_loadu_si256((const __m256i *)(p + 8))};
}
INLINE vi vi_set1(int32_t x)
{
    return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
INLINE void vi_store(void *p, vi v)
{
    _mm256_storeu_si256(p, v.a);
    _mm256_storeu_si256((__m256i *)p + 1, v.b);
}
INLINE vi vi_add(vi x, vi y)
{
    return (vi){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
INLINE vi vi_max(vi x, vi y)
{
    return (vi){_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}
INLINE vi vi_and(vi v, uint32_t m)
{
    const __m256i k = _mm256_set1_epi32((int)m);
    return (vi){_mm256_and_si256(v.a, k), _mm256_and_si256(v.b, k)};
}
INLINE vi vi_shl(vi v, int n)
{
    return (vi){_mm256_slli_epi32(v.a, n), _mm256_slli_epi32(v.b, n)};
}
INLINE vi vi_shr(vi v, int n)
{
    return (vi){_mm256_srli_epi32(v.a, n), _mm256_srli_epi32(v.b, n)};
}
INLINE vi vi_sar(vi v, int n)
{
    return (vi){_mm256_srai_epi32(v.a, n), _mm256_srai_epi32(v.b, n)};
}
INLINE vi vi_bits(vf v)
{
    return (vi){_mm256_castps_si256(v.a), _mm256_castps_si256(v.b)};
}
INLINE vi vi_round(vf v)
{
    return (vi){_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)};
}
INLINE int32_t vi_top(vi v)
{
    __m256i m = _mm256_max_epi32(v.a, v.b);
    __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}
/* The sums of four vectors, and of two pairs of them. */
INLINE void vi_totals(const vi *v, int32_t *out, int32_t *pairs)
{
    __m256i x =
        _mm256_hadd_epi32(_mm256_add_epi32(v[0].a, v[0].b), _mm256_add_epi32(v[1].a, v[1].b));
    __m256i y =
        _mm256_hadd_epi32(_mm256_add_epi32(v[2].a, v[2].b), _mm256_add_epi32(v[3].a, v[3].b));
    x = _mm256_hadd_epi32(x, y);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storeu_si128((__m128i *)out, s);
    _mm_storel_epi64((__m128i *)pairs, _mm_hadd_epi32(s, s));
}
INLINE vi vi_dot16(vi acc, vi w, vi x)
{
    return (vi){_mm256_add_epi32(acc.a, _mm256_madd_epi16(w.a, x.a)),
                _mm256_add_epi32(acc.b, _mm256_madd_epi16(w.b, x.b))};
}
INLINE __m256i vec_join_words(__m256i a, __m256i b) /* of 8 lanes below 2^15 each */
{
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
}
INLINE void vi_put_words(int16_t *p, vi v)
{
    __m256i w = vec_join_words(v.a, v.b);
    w = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(w, 0xd8), 0xd8);
    _mm256_storeu_si256((__m256i *)p, w);
}
INLINE vf vec_two_halves(__m256i a, __m256i b)
{
    __m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    return (vf){_mm256_cvtph_ps(_mm256_castsi256_si128(w)),
                _mm256_cvtph_ps(_mm256_extracti128_si256(w, 1))};
}
INLINE vf vf_low_f16(vi v)
{
    v = vi_and(v, 0xffff);
    return vec_two_halves(v.a, v.b);
}
INLINE vf vf_high_f16(vi v)
{
    v = vi_shr(v, 16);
    return vec_two_halves(v.a, v.b);
}

INLINE __m256i vec_two(const unsigned char *p, size_t apart)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
                                   _mm_loadu_si128((const __m128i *)(p + apart)), 1);
}
INLINE void vec_rows4(const unsigned char *p, size_t stride, __m256i *out)
{
    __m256i a = vec_two(p, 4 * stride), b = vec_two(p + stride, 4 * stride);
    __m256i c = vec_two(p + 2 * stride, 4 * stride), d = vec_two(p + 3 * stride, 4 * stride);
    __m256i t = _mm256_unpacklo_epi32(a, b), u = _mm256_unpacklo_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(t, u);
    out[1] = _mm256_unpackhi_epi64(t, u);
    t = _mm256_unpackhi_epi32(a, b), u = _mm256_unpackhi_epi32(c, d);
    out[2] = _mm256_unpacklo_epi64(t, u);
    out[3] = _mm256_unpackhi_epi64(t, u);
}
INLINE void vi_rows4(const unsigned char *p, size_t stride, vi *out)
{
    __m256i a[4], b[4];
    vec_rows4(p, stride, a);
    vec_rows4(p + 8 * stride, stride, b);
    for (int i = 0; i < 4; i++)
        out[i] = (vi){a[i], b[i]};
}
INLINE vi vi_rows1(const unsigned char *p, size_t stride)
{
    return (vi){
        _mm256_set_m128i(vec_column(p + 4 * stride, stride), vec_column(p, stride)),
        _mm256_set_m128i(vec_column(p + 12 * stride, stride), vec_column(p + 8 * stride, stride))};
}

INLINE vb vb_load2(const void *a, const void *b)
{
    return (vb){_mm256_loadu_si256(a), _mm256_loadu_si256(b)};
}
INLINE vb vb_load(const void *p)
{
    return vb_load2(p, (const char *)p + 32);
}
INLINE v16 vb_quarter(vb v, uint32_t g)
{
    __m256i h = g < 2 ? v.a : v.b;
    return g % 2 ? _mm256_extracti128_si256(h, 1) : _mm256_castsi256_si128(h);
}
INLINE void vb_store(void *p, vb v)
{
    _mm256_storeu_si256(p, v.a);
    _mm256_storeu_si256((__m256i *)p + 1, v.b);
}
INLINE vb vb_and1(vb v, uint8_t m)
{
    const __m256i k = _mm256_set1_epi8((char)m);
    return (vb){_mm256_and_si256(v.a, k), _mm256_and_si256(v.b, k)};
}
INLINE vb vb_xor1(vb v, uint8_t m)
{
    const __m256i k = _mm256_set1_epi8((char)m);
    return (vb){_mm256_xor_si256(v.a, k), _mm256_xor_si256(v.b, k)};
}
INLINE vb vb_or(vb x, vb y)
{
    return (vb){_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
INLINE vb vb_shl(vb v, int n)
{
    return (vb){_mm256_slli_epi16(v.a, n), _mm256_slli_epi16(v.b, n)};
}
INLINE vb vb_shr(vb v, int n)
{
    return (vb){_mm256_srli_epi16(v.a, n), _mm256_srli_epi16(v.b, n)};
}
INLINE vb vb_split(const void *p, int lo, int hi)
{
    __m256i y = _mm256_loadu_si256(p);
    return (vb){_mm256_srli_epi16(y, lo), _mm256_srli_epi16(y, hi)};
}
INLINE __m256i vec_nibbles(const void *p)
{
    __m128i x = _mm_loadu_si128(p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(x, 4), x), _mm256_set1_epi8(15));
}
INLINE vb vb_nibbles(const void *a, const void *b)
{
    return (vb){vec_nibbles(a), vec_nibbles(b)};
}
/* Returns bytes: 16 where the bit of the byte is set, else 0. */
INLINE __m256i vec_bits(uint32_t bits)
{
    const __m256i spread =
        _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const __m256i pick = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread);
    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, pick), pick);
    return _mm256_and_si256(v, _mm256_set1_epi8(16));
}
INLINE vb vb_or_bits(vb v, uint32_t a, uint32_t b)
{
    return (vb){_mm256_or_si256(v.a, vec_bits(a)), _mm256_or_si256(v.b, vec_bits(b))};
}
INLINE vb vb_lookup(const uint8_t *table16, vb v)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table16));
    return (vb){_mm256_shuffle_epi8(t, v.a), _mm256_shuffle_epi8(t, v.b)};
}
