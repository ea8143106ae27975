/* mathfn_avx512.h - exp of mathfn.h on 16 values: the same operations in the same order, hence the same bits.
 * For *_avx512.c files (and wider ones) only. */
#pragma once
#include "dev/cpu/mathfn.h"

#include <immintrin.h>

static inline __m512 math_exp_avx512(__m512 x)
{
    /* min and max return their second operand when one is NaN. */
    x = _mm512_max_ps(_mm512_set1_ps(MATH_EXP_LO), x);
    x = _mm512_min_ps(_mm512_set1_ps(MATH_EXP_HI), x);
    const __m512 round = _mm512_set1_ps(MATH_ROUND);
    __m512 big = _mm512_fmadd_ps(x, _mm512_set1_ps(MATH_LOG2E), round);
    __m512 fn = _mm512_sub_ps(big, round);
    __m512 r = _mm512_fmadd_ps(fn, _mm512_set1_ps(-MATH_LN2_HI), x);
    r = _mm512_fmadd_ps(fn, _mm512_set1_ps(-MATH_LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(MATH_EXP_P4), r, _mm512_set1_ps(MATH_EXP_P3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_P2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_P1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_P0));
    p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r), _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, fn); /* p 2^fn, rounded once: as two exact halves round */
}
