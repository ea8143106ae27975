/* group_avx2.c - groups of values to codes with AVX2 and F16C (group_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/group_kernels.h"
#include "dev/cpu/vec_avx2.h"

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE vf vec_float(vi v)
{
    return (vf){_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b)};
}
INLINE vf vec_round(enum dtype t, vf x)
{
    if (t == DT_F32) return x;
    if (t == DT_BF16) return vf_round_bf16(x);
    return (vf){_mm256_cvtph_ps(_mm256_cvtps_ph(x.a, NEAREST)),
                _mm256_cvtph_ps(_mm256_cvtps_ph(x.b, NEAREST))};
}
INLINE void vec_codes(uint8_t *q, vf x)
{
    vi v = vi_round(x);
    /* The words of 128 bits stay together, so two of them change places. */
    __m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32(v.a, v.b), 0xd8);
    v16_store(q, _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}

#include "dev/cpu/group_vec.h"
#else
typedef int group_avx2_unused;
#endif
