/* float8_code.h - floats of 8 bits as numbers (float8.h), in integers, so that they need no instruction set.  Kernels of other
 * devices compile them, too. */
#pragma once
#include "dev/cpu/half.h"

#define FLOAT8_TOP 448.0f
#define FLOAT8_NAN 0x7fu

/* Returns the exact value of a code. */
static inline float float8_value(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, e = code >> 3 & 15, m = code & 7;
    if ((code & 0x7fu) == FLOAT8_NAN) return half_from_bits(sign | 0x7fc00000u);
    if (e) return half_from_bits(sign | (e + 120) << 23 | m << 20);
    return half_from_bits(sign | half_bits((float)m * 0x1p-9f));
}

/* Returns the code nearest to x, halves to even.  Values beyond the largest code get the largest code. */
static inline uint8_t float8_code(float x)
{
    uint32_t u = half_bits(x), sign = u >> 24 & 0x80u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint8_t)(sign | FLOAT8_NAN);
    if (u >= 0x43e00000u) return (uint8_t)(sign | (FLOAT8_NAN - 1)); /* 448 */
    if (u < 0x3c800000u) { /* below the smallest normal, 2^-6: the f32 adder rounds at 2^-9 */
        float r = half_from_bits(u) + 0x1p14f;
        return (uint8_t)(sign | (half_bits(r) - half_bits(0x1p14f)));
    }
    u += 0x7ffffu + (u >> 20 & 1);
    return (uint8_t)(sign | (u - 0x3c000000u) >> 20);
}
