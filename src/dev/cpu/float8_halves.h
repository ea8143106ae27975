/* float8_halves.h - private to float8_avx2.c and float8_avx512.c: codes as floats of 16 bits (float8_vec.h). */
#pragma once
#include "dev/cpu/float8_strip.h"

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* 16 codes; times HALF_SCALE they are the values. */
INLINE __m256i float8_halves(__m128i code)
{
    __m256i w = _mm256_cvtepu8_epi16(code), low = _mm256_set1_epi16(0x7f);
    __m256i h = _mm256_slli_epi16(_mm256_and_si256(w, low), 7);
    __m256i nan = _mm256_cmpeq_epi16(h, _mm256_set1_epi16(HALF_NAN));
    h = _mm256_or_si256(h, _mm256_slli_epi16(_mm256_andnot_si256(low, w), 8));
    h = _mm256_or_si256(h, _mm256_and_si256(nan, _mm256_set1_epi16(HALF_QUIET)));
    return h;
}
