/* attn_avx2.c - attention with AVX2, FMA and F16C (attn_vec.h has the kernels).  A vector is a pair of
 * registers, of which there are 16: 6 queries of scores, 3 x 32 values of O. */
#if defined(__x86_64__)
#include "base/base.h"
#include "dev/cpu/vec_avx2.h"

#define SCORE_MAX      6
#define SCORE_CASES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define PV_MAX         3
#define PV_VECS        2
#define PV_CASES(X)    X(1) X(2) X(3)

INLINE vf vf_max(vf x, vf y) /* y where one is NaN, as x > y ? x : y */
{
    return (vf){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
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
INLINE vf vf_tanh(vf x)
{
    return (vf){math_tanh_avx2(x.a), math_tanh_avx2(x.b)};
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
/* Nearest even, at most 65504 in size; NaN stays NaN. */
INLINE __m128i vec_to_f16(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-65504.0f), _mm256_min_ps(_mm256_set1_ps(65504.0f), x));
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE void vf_store_f16(void *p, vf x)
{
    _mm_storeu_si128(p, vec_to_f16(x.a));
    _mm_storeu_si128((__m128i *)p + 1, vec_to_f16(x.b));
}
INLINE void vf_store_bf16(void *p, vf x) /* of rounded values */
{
    __m256i a = _mm256_srli_epi32(_mm256_castps_si256(x.a), 16);
    __m256i b = _mm256_srli_epi32(_mm256_castps_si256(x.b), 16);
    __m256i v = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    _mm256_storeu_si256(p, v);
}

#include "dev/cpu/attn_vec.h"
#else
typedef int attn_avx2_unused;
#endif
