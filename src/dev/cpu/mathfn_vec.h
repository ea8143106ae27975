/* mathfn_vec.h - silu and tanh of mathfn.h on 16 lanes, stated once for AVX2, AVX-512 and NEON: the same operations in the
 * same order, hence the same bits.  Include it after the vec_*.h that gives the vectors and their exp. */
#pragma once

INLINE vf vf_silu(vf x)
{
    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_neg(x))));
}

INLINE vf vf_tanh(vf x)
{
    const vf one = vf_set1(1.0f);
    vf a = vf_min(vf_set1(MATH_TANH_TOP), vf_max(vf_neg(x), x)), z = vf_mul(a, a);
    vf q = vf_fma(vf_set1(MATH_TANH_Q5), z, vf_set1(MATH_TANH_Q4));
    q = vf_fma(q, z, vf_set1(MATH_TANH_Q3));
    q = vf_fma(q, z, vf_set1(MATH_TANH_Q2));
    q = vf_fma(q, z, vf_set1(MATH_TANH_Q1));
    q = vf_fma(q, z, vf_set1(MATH_TANH_Q0));
    vf low = vf_fma(vf_mul(a, z), q, a);
    vf high = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(vf_exp(vf_add(a, a)), one)));
    return vf_signed(vf_choose(a, vf_set1(MATH_TANH_MID), low, high), x);
}
