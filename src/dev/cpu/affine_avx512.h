/* affine_avx512.h - affine_vec.h with AVX-512: rounding to the type of rows. */
#pragma once
#include "dev/affine.h"
#include "dev/cpu/vec_avx512.h"

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE vf vec_round(enum dtype t, vf x)
{
    if (t == DT_F32) return x;
    if (t == DT_BF16) return vf_round_bf16(x);
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, NEAREST));
}
/* Rounded to 16 bits. */
INLINE __m256i vec_words(enum dtype t, vf x)
{
    if (t == DT_F16) return _mm512_cvtps_ph(x, NEAREST);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(vf_round_bf16(x)), 16));
}

#include "dev/cpu/affine_vec.h"
