/* mathfn_neon.h - mathfn.h on 4 values: the same operations in the same order, hence the same bits.
 * For *_neon*.c files only.  Comparisons and selections stand where AVX has min and max: those of NEON give a NaN where
 * one operand is one. */
#pragma once
#include "dev/cpu/mathfn.h"

#include <arm_neon.h>

static inline float32x4_t math_exp_neon(float32x4_t x)
{
    const float32x4_t lo = vdupq_n_f32(MATH_EXP_LO), hi = vdupq_n_f32(MATH_EXP_HI);
    x = vbslq_f32(vcgtq_f32(lo, x), lo, x); /* a NaN passes both */
    x = vbslq_f32(vcltq_f32(hi, x), hi, x);
    const float32x4_t round = vdupq_n_f32(MATH_ROUND);
    float32x4_t big = vfmaq_f32(round, x, vdupq_n_f32(MATH_LOG2E));
    int32x4_t n = vsubq_s32(vreinterpretq_s32_f32(big), vdupq_n_s32(0x4b400000));
    float32x4_t fn = vsubq_f32(big, round);
    float32x4_t r = vfmaq_f32(x, fn, vdupq_n_f32(-MATH_LN2_HI));
    r = vfmaq_f32(r, fn, vdupq_n_f32(-MATH_LN2_LO));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(MATH_EXP_P3), vdupq_n_f32(MATH_EXP_P4), r);
    p = vfmaq_f32(vdupq_n_f32(MATH_EXP_P2), p, r);
    p = vfmaq_f32(vdupq_n_f32(MATH_EXP_P1), p, r);
    p = vfmaq_f32(vdupq_n_f32(MATH_EXP_P0), p, r);
    p = vaddq_f32(vfmaq_f32(r, vmulq_f32(r, r), p), vdupq_n_f32(1.0f));
    const int32x4_t bias = vdupq_n_s32(127);
    int32x4_t half = vshrq_n_s32(n, 1), rest = vsubq_s32(n, half);
    half = vshlq_n_s32(vaddq_s32(half, bias), 23);
    rest = vshlq_n_s32(vaddq_s32(rest, bias), 23);
    p = vmulq_f32(p, vreinterpretq_f32_s32(half));
    return vmulq_f32(p, vreinterpretq_f32_s32(rest));
}

static inline float32x4_t math_silu_neon(float32x4_t x)
{
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), math_exp_neon(vnegq_f32(x))));
}

static inline float32x4_t math_tanh_neon(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f), top = vdupq_n_f32(MATH_TANH_TOP);
    float32x4_t a = vabsq_f32(x);
    a = vbslq_f32(vcltq_f32(top, a), top, a);
    float32x4_t z = vmulq_f32(a, a);
    float32x4_t q = vfmaq_f32(vdupq_n_f32(MATH_TANH_Q4), vdupq_n_f32(MATH_TANH_Q5), z);
    q = vfmaq_f32(vdupq_n_f32(MATH_TANH_Q3), q, z);
    q = vfmaq_f32(vdupq_n_f32(MATH_TANH_Q2), q, z);
    q = vfmaq_f32(vdupq_n_f32(MATH_TANH_Q1), q, z);
    q = vfmaq_f32(vdupq_n_f32(MATH_TANH_Q0), q, z);
    float32x4_t low = vfmaq_f32(a, vmulq_f32(a, z), q);
    float32x4_t e = vaddq_f32(math_exp_neon(vaddq_f32(a, a)), one);
    float32x4_t high = vsubq_f32(one, vdivq_f32(vdupq_n_f32(2.0f), e));
    float32x4_t y = vbslq_f32(vcltq_f32(a, vdupq_n_f32(MATH_TANH_MID)), low, high);
    uint32x4_t sign = vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x80000000u));
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(y), sign));
}
