/* attn_avx2.c - attention with AVX2, FMA and F16C (attn_vec.h has the kernels).  A vector is a pair of
 * registers, of which there are 16: 6 queries of scores, 3 x 32 or 6 x 16 values of O. */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx2.h"

#define SCORE_MAX      6
#define SCORE_CASES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define SCORE_PAIR     3
#define PV_MAX         6
#define PV_FEW         3
#define PV_VECS        2
#define PV_VECS_MANY   1
#define PV_CASES(X)    X(1) X(2) X(3) X(4) X(5) X(6)

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
