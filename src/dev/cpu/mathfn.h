/* mathfn.h - exp, silu, softplus, gelu and tanh in f32, one value at a time.  mathfn_avx2.h, mathfn_avx512.h,
 * mathfn_neon.h (exp) and the *_vec.h do the same operations in the same order on vectors, so all give the same bits.
 *
 * exp: x = n*ln2 + r with n the nearest integer, |r| <= ln2/2; exp(r) = 1 + (r + r^2 * P(r)), P of degree 4
 * fitted by weighted least squares (relative error 4e-10 before rounding); then times 2^n in two
 * exact halves, so that subnormal results round once.  x is clamped to [-104, 89], where the result is
 * 0 and infinity.  exp(0) is exactly 1, exp(-inf) 0, NaN stays NaN.  Error below 1.1 ulp.
 * softplus: max(x, 0) + log1p(exp(-|x|)), which cancels nowhere.  log1p(t) = 2 atanh(s), s = t / (2 + t) <= 1/3, by a
 * polynomial in s * s (relative error 7e-10 before rounding).
 * gelu_erf: max(x, 0) - u / 2 * erfc(u / sqrt(2)) with u = |x|; erfc(u / sqrt(2)) is exp(-u^2 / 2) times a polynomial in
 * t = 1 / (1 + T u) without a constant term (relative error 5e-8 before rounding).
 * tanh: below 0.6 x + x^3 * Q(x^2), above 1 - 2 / (exp(2x) + 1). */
#pragma once
#include <stdint.h>
#include <string.h>

#define MATH_EXP_LO    -104.0f
#define MATH_EXP_HI    89.0f
#define MATH_LOG2E     0x1.715476p+0f
#define MATH_ROUND     0x1.8p+23f /* adding and subtracting it rounds to an integer, ties to even */
#define MATH_LN2_HI    0x1.62e4p-1f
#define MATH_LN2_LO    0x1.7f7d1cp-20f
#define MATH_EXP_P0    0.5f
#define MATH_EXP_P1    0x1.555486p-3f
#define MATH_EXP_P2    0x1.555454p-5f
#define MATH_EXP_P3    0x1.124148p-7f
#define MATH_EXP_P4    0x1.6dbc68p-10f
#define MATH_TANH_Q0   -0.3333333f
#define MATH_TANH_Q1   0.13333248f
#define MATH_TANH_Q2   -0.053952474f
#define MATH_TANH_Q3   0.021734439f
#define MATH_TANH_Q4   -0.008267091f
#define MATH_TANH_Q5   0.0022310638f
#define MATH_TANH_MID  0.6f                  /* polynomial below */
#define MATH_TANH_TOP  10.0f                 /* 1 from here on */
#define MATH_GELU_END  15.0f                 /* gelu_erf is max(x, 0) from here on */
#define MATH_GELU_LINE 1.5957691216057308f   /* 2 sqrt(2/pi) */
#define MATH_GELU_CUBE 0.071354816272600252f /* ... * 0.044715 */

#define MATH_LOG_P0 0x1.555558p-2f /* of log1p, in s * s with s = t / (2 + t), for t in [0, 1] */
#define MATH_LOG_P1 0x1.9996a8p-3f
#define MATH_LOG_P2 0x1.250972p-3f
#define MATH_LOG_P3 0x1.b6d6a8p-4f
#define MATH_LOG_P4 0x1.f1aed4p-4f

#define MATH_ERFC_T  0x1.147ae2p-2f /* t = 1 / (1 + T u) */
#define MATH_ERFC_P0 0x1.b938cap-3f
#define MATH_ERFC_P1 0x1.b8870ap-3f
#define MATH_ERFC_P2 0x1.a0cd1ap-3f
#define MATH_ERFC_P3 0x1.27e9dcp-3f
#define MATH_ERFC_P4 0x1.b7dddep-3f
#define MATH_ERFC_P5 -0x1.19028ap-3f
#define MATH_ERFC_P6 0x1.5aae52p-2f
#define MATH_ERFC_P7 -0x1.028e88p-2f
#define MATH_ERFC_P8 0x1.d9b94cp-5f

static inline float math_pow2(int32_t n) /* n in [-126, 127] */
{
    uint32_t u = (uint32_t)(n + 127) << 23;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float math_exp(float x)
{
    x = MATH_EXP_LO > x ? MATH_EXP_LO : x; /* a NaN passes both comparisons */
    x = MATH_EXP_HI < x ? MATH_EXP_HI : x;
    float big = __builtin_fmaf(x, MATH_LOG2E, MATH_ROUND);
    uint32_t bits;
    memcpy(&bits, &big, 4);
    int32_t n = (int32_t)(bits - 0x4b400000u); /* the integer sits in the low bits of 1.5 * 2^23 */
    float fn = big - MATH_ROUND;
    float r = __builtin_fmaf(fn, -MATH_LN2_HI, x);
    r = __builtin_fmaf(fn, -MATH_LN2_LO, r);
    float p = __builtin_fmaf(MATH_EXP_P4, r, MATH_EXP_P3);
    p = __builtin_fmaf(p, r, MATH_EXP_P2);
    p = __builtin_fmaf(p, r, MATH_EXP_P1);
    p = __builtin_fmaf(p, r, MATH_EXP_P0);
    p = __builtin_fmaf(r * r, p, r) + 1.0f;
    if (n < -150 || n > 128) n = 0; /* only for NaN; keeps the shifts defined */
    int32_t half = n >> 1;
    return p * math_pow2(half) * math_pow2(n - half);
}

static inline float math_silu(float x)
{
    return x / (1.0f + math_exp(-x));
}

static inline float math_softplus(float x)
{
    float t = math_exp(x < -x ? x : -x), s = t / (2.0f + t), z = s * s;
    float q = __builtin_fmaf(MATH_LOG_P4, z, MATH_LOG_P3);
    q = __builtin_fmaf(q, z, MATH_LOG_P2);
    q = __builtin_fmaf(q, z, MATH_LOG_P1);
    q = __builtin_fmaf(q, z, MATH_LOG_P0);
    q = __builtin_fmaf(s * z, q, s);
    return (x > 0 ? x : 0) + (q + q);
}

/* 0.5 (1 + tanh(u)) is 1 / (1 + exp(-2u)), which does not cancel where u is negative. */
static inline float math_gelu(float x)
{
    float u2 = x * __builtin_fmaf(MATH_GELU_CUBE, x * x, MATH_GELU_LINE);
    return x / (1.0f + math_exp(-u2));
}

static inline float math_gelu_erf(float x)
{
    float u = x < -x ? -x : x, t = 1.0f / __builtin_fmaf(MATH_ERFC_T, u, 1.0f);
    float q = __builtin_fmaf(MATH_ERFC_P8, t, MATH_ERFC_P7);
    q = __builtin_fmaf(q, t, MATH_ERFC_P6);
    q = __builtin_fmaf(q, t, MATH_ERFC_P5);
    q = __builtin_fmaf(q, t, MATH_ERFC_P4);
    q = __builtin_fmaf(q, t, MATH_ERFC_P3);
    q = __builtin_fmaf(q, t, MATH_ERFC_P2);
    q = __builtin_fmaf(q, t, MATH_ERFC_P1);
    q = __builtin_fmaf(q, t, MATH_ERFC_P0);
    q = q * t * math_exp(-0.5f * u * u);
    float half = u < MATH_GELU_END ? 0.5f * u : 0;
    return (x > 0 ? x : 0) - half * q;
}

static inline float math_tanh(float x)
{
    uint32_t u, sign;
    memcpy(&u, &x, 4);
    sign = u & 0x80000000u;
    u &= 0x7fffffffu;
    float a, y;
    memcpy(&a, &u, 4);
    a = MATH_TANH_TOP < a ? MATH_TANH_TOP : a;
    if (a < MATH_TANH_MID) {
        float z = a * a;
        float q = __builtin_fmaf(MATH_TANH_Q5, z, MATH_TANH_Q4);
        q = __builtin_fmaf(q, z, MATH_TANH_Q3);
        q = __builtin_fmaf(q, z, MATH_TANH_Q2);
        q = __builtin_fmaf(q, z, MATH_TANH_Q1);
        q = __builtin_fmaf(q, z, MATH_TANH_Q0);
        y = __builtin_fmaf(a * z, q, a);
    } else {
        y = 1.0f - 2.0f / (math_exp(a + a) + 1.0f);
    }
    memcpy(&u, &y, 4);
    u |= sign;
    memcpy(&y, &u, 4);
    return y;
}
