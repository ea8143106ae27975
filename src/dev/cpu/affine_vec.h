/* affine_vec.h - what vector kernels over affine tiles (affine.h) share: numbers and codes of a group, and the value of a code.  A file
 * includes it after a vec_*.h and after vec_round, which rounds to the type of rows. */
#pragma once
#include "dev/affine.h"

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

INLINE vf vec_get(enum dtype t, const void *p, size_t i)
{
    if (t == DT_F16) return vf_from_f16((const uint16_t *)p + i);
    if (t == DT_BF16) return vf_from_bf16((const uint16_t *)p + i);
    return vf_load((const float *)p + i);
}

INLINE vf affine_value(enum dtype t, bool zero_first, vf q, vf a, vf b)
{
    if (zero_first) return vf_mul(vec_round(t, vf_sub(q, b)), a);
    return vf_sub(vec_round(t, vf_mul(a, q)), b);
}

/* Returns the values of all codes of 2 or 4 bits in the lanes; those of 2 bits four times. */
INLINE vf affine_codes(uint32_t bits)
{
    static const float all[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const float four[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    return vf_load(bits == 4 ? all : four);
}

/* Loads the number that is `at` bytes behind each of 16 addresses. */
INLINE vf row_numbers(enum dtype t, const unsigned char *const *row, size_t at)
{
    uint32_t wide[KV_STRIP];
    uint16_t half[KV_STRIP];
    if (t == DT_F32) {
        UNROLL for (uint32_t r = 0; r < KV_STRIP; r++) memcpy(&wide[r], row[r] + at, 4);
        return vec_get(t, wide, 0);
    }
    UNROLL for (uint32_t r = 0; r < KV_STRIP; r++) memcpy(&half[r], row[r] + at, 2);
    return vec_get(t, half, 0);
}

/* Transposes 16 bytes of each of 16 rows, which are `at` bytes behind their addresses. */
INLINE void transpose_bytes(const unsigned char *const *row, size_t at, v16 *x)
{
    v16 y[16];
    UNROLL for (int i = 0; i < 16; i++) x[i] = v16_load(row[i] + at);
    UNROLL for (int round = 0; round < 4; round++)
    {
        UNROLL for (int i = 0; i < 8; i++)
        {
            y[2 * i] = v16_zip_lo(x[i], x[i + 8]);
            y[2 * i + 1] = v16_zip_hi(x[i], x[i + 8]);
        }
        UNROLL for (int i = 0; i < 16; i++) x[i] = y[i];
    }
}
