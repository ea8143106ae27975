/* fused_avx512.h - fused_vec.h with AVX-512: tables of values. */
#pragma once
#include "dev/cpu/affine_avx512.h"
#include "dev/cpu/fused_vec.h"

INLINE vf from_words(enum dtype t, __m256i x)
{
    if (t == DT_F16) return _mm512_cvtph_ps(x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Computes the values of all codes of 16 groups, [group][code], as floats or (words) in the type of rows. */
INLINE void tables_of(enum dtype t, bool zero_first, bool words, uint32_t bits, vf a, vf b,
                      void *table)
{
    const vf code = affine_codes(bits);
    float xa[16], xb[16];
    vf_store(xa, a);
    vf_store(xb, b);
    /* A broadcast from memory costs nothing.  The compiler would take shuffles. */
    __asm__("" : "+m"(xa), "+m"(xb));
    UNROLL for (uint32_t i = 0; i < 16; i++)
    {
        const vf v = affine_value(t, zero_first, code, vf_set1(xa[i]), vf_set1(xb[i]));
        if (words)
            _mm256_storeu_si256((__m256i *)table + i, vec_words(t, v));
        else
            vf_store((float *)table + (size_t)i * 16, vec_round(t, v));
    }
}
