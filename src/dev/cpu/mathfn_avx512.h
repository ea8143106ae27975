/* mathfn_avx512.h - mathfn.h on 16 values: the same operations in the same order, hence the same bits.
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

static inline __m512 math_silu_avx512(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 e = math_exp_avx512(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)));
    return _mm512_div_ps(x, _mm512_add_ps(one, e));
}

static inline __m512 math_tanh_avx512(__m512 x)
{
    const __m512 signs = _mm512_set1_ps(-0.0f), one = _mm512_set1_ps(1.0f);
    __m512 sign = _mm512_and_ps(x, signs);
    __m512 a = _mm512_min_ps(_mm512_set1_ps(MATH_TANH_TOP), _mm512_andnot_ps(signs, x));
    __m512 z = _mm512_mul_ps(a, a);
    __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(MATH_TANH_Q5), z, _mm512_set1_ps(MATH_TANH_Q4));
    q = _mm512_fmadd_ps(q, z, _mm512_set1_ps(MATH_TANH_Q3));
    q = _mm512_fmadd_ps(q, z, _mm512_set1_ps(MATH_TANH_Q2));
    q = _mm512_fmadd_ps(q, z, _mm512_set1_ps(MATH_TANH_Q1));
    q = _mm512_fmadd_ps(q, z, _mm512_set1_ps(MATH_TANH_Q0));
    __m512 low = _mm512_fmadd_ps(_mm512_mul_ps(a, z), q, a);
    __m512 e = _mm512_add_ps(math_exp_avx512(_mm512_add_ps(a, a)), one);
    __m512 high = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), e));
    __mmask16 mid = _mm512_cmp_ps_mask(a, _mm512_set1_ps(MATH_TANH_MID), _CMP_LT_OQ);
    return _mm512_or_ps(_mm512_mask_blend_ps(mid, high, low), sign);
}
