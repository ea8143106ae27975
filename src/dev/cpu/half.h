/* half.h - scalar conversions between f32 and the 16-bit floats, in integers, so that they need no
 * instruction set and give the bits the hardware conversions give (NaN stays NaN and is made quiet). */
#pragma once
#include <stdint.h>
#include <string.h>

static inline float half_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint32_t half_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float half_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return half_from_bits(sign | 0x7f800000u | m << 13 | (m ? 0x400000u : 0));
    if (e) return half_from_bits(sign | (e + 112) << 23 | m << 13);
    /* Zero or subnormal: m * 2^-24 is exact in f32. */
    float f = (float)m * 0x1p-24f;
    return half_from_bits(sign | half_bits(f));
}

/* Nearest even; overflow gives infinity. */
static inline uint16_t half_f32_to_f16(float f)
{
    uint32_t u = half_bits(f), sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (u >> 13 & 1023));
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) { /* below the smallest normal: let the f32 adder round at 2^-24 */
        float r = half_from_bits(u) + 0.5f;
        return (uint16_t)(sign | (half_bits(r) - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1);
    return (uint16_t)(sign | (u - 0x38000000u) >> 13);
}

static inline float half_bf16_to_f32(uint16_t h)
{
    return half_from_bits((uint32_t)h << 16);
}
static inline uint16_t half_f32_to_bf16(float f)
{
    uint32_t u = half_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* Load from any address, because weights lie as they lie in the file. */
static inline uint16_t half_load(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}
static inline float half_load_f16(const void *p)
{
    return half_f16_to_f32(half_load(p));
}
