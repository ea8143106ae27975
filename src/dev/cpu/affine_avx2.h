/* affine_avx2.h - affine_vec.h with AVX2 and F16C: rounding to the type of rows. */
#pragma once
#include "dev/affine.h"
#include "dev/cpu/vec_avx2.h"

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE vf vec_round(enum dtype t, vf x)
{
    if (t == DT_F32) return x;
    if (t == DT_BF16) return vf_round_bf16(x);
    return (vf){_mm256_cvtph_ps(_mm256_cvtps_ph(x.a, NEAREST)),
                _mm256_cvtph_ps(_mm256_cvtps_ph(x.b, NEAREST))};
}
/* Rounded to 16 bits. */
INLINE __m256i vec_words(enum dtype t, vf x)
{
    if (t == DT_F16)
        return _mm256_set_m128i(_mm256_cvtps_ph(x.b, NEAREST), _mm256_cvtps_ph(x.a, NEAREST));
    x = vf_round_bf16(x);
    __m256i a = _mm256_srli_epi32(_mm256_castps_si256(x.a), 16);
    __m256i b = _mm256_srli_epi32(_mm256_castps_si256(x.b), 16);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

#include "dev/cpu/affine_vec.h"
