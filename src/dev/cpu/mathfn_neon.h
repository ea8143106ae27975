/* mathfn_neon.h - exp of mathfn.h on 4 values: the same operations in the same order, hence the same bits.
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
