/* mathfn_avx2.h - exp of mathfn.h on 8 values: the same operations in the same order, hence the same bits.
 * For *_avx2.c files (and wider ones) only. */
#pragma once
#include "dev/cpu/mathfn.h"

#include <immintrin.h>

static inline __m256 math_exp_avx2(__m256 x)
{
    /* min and max return their second operand when one is NaN. */
    x = _mm256_max_ps(_mm256_set1_ps(MATH_EXP_LO), x);
    x = _mm256_min_ps(_mm256_set1_ps(MATH_EXP_HI), x);
    const __m256 round = _mm256_set1_ps(MATH_ROUND);
    __m256 big = _mm256_fmadd_ps(x, _mm256_set1_ps(MATH_LOG2E), round);
    __m256i n = _mm256_sub_epi32(_mm256_castps_si256(big), _mm256_set1_epi32(0x4b400000));
    __m256 fn = _mm256_sub_ps(big, round);
    __m256 r = _mm256_fmadd_ps(fn, _mm256_set1_ps(-MATH_LN2_HI), x);
    r = _mm256_fmadd_ps(fn, _mm256_set1_ps(-MATH_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(MATH_EXP_P4), r, _mm256_set1_ps(MATH_EXP_P3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_P2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_P1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_P0));
    p = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r), _mm256_set1_ps(1.0f));
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i half = _mm256_srai_epi32(n, 1), rest = _mm256_sub_epi32(n, half);
    half = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    rest = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(half));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(rest));
}
