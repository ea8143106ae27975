/* attn_avx512.c - attention with AVX-512 (attn_vec.h has the kernels).  12 queries of scores and 6 x 64
 * values of O leave registers for K and V and hide the latency of fma. */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx512.h"

#define SCORE_MAX      12
#define SCORE_CASES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define SCORE_PAIR     6
#define PV_MAX         6
#define PV_VECS        4
#define PV_CASES(X)    X(1) X(2) X(3) X(4) X(5) X(6)

/* Nearest even, at most 65504 in size; NaN stays NaN. */
INLINE void vf_store_f16(void *p, vf x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-65504.0f), _mm512_min_ps(_mm512_set1_ps(65504.0f), x));
    _mm256_storeu_si256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE void vf_store_bf16(void *p, vf x) /* of rounded values */
{
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16)));
}

#include "dev/cpu/attn_vec.h"
#else
typedef int attn_avx512_unused;
#endif
