/* blocks.h - the blocks of quantized weights, for kernels that are compiled once for each type: their size, which types
 * have an offset, and the codes of MXFP4.  A type is a constant where these functions are inlined. */
#pragma once
#include "base/dtype.h"
#include "dev/cpu/half.h"

#define BLOCK_FN static inline __attribute__((always_inline))

BLOCK_FN bool block_is_k(enum dtype t) /* blocks of 256 codes; other types have blocks of 32 */
{
    return t == DT_Q2_K || t == DT_Q3_K || t == DT_Q4_K || t == DT_Q5_K || t == DT_Q6_K;
}
BLOCK_FN bool block_has_min(enum dtype t)
{
    return t == DT_Q4_1 || t == DT_Q5_1 || t == DT_Q2_K || t == DT_Q4_K || t == DT_Q5_K;
}
BLOCK_FN bool block_halves(enum dtype t) /* a scale serves 16 codes */
{
    return t == DT_Q2_K || t == DT_Q3_K || t == DT_Q6_K;
}
BLOCK_FN uint32_t block_bytes(enum dtype t)
{
    return t == DT_Q4_0    ? 18
           : t == DT_Q4_1  ? 20
           : t == DT_Q5_0  ? 22
           : t == DT_Q5_1  ? 24
           : t == DT_Q8_0  ? 34
           : t == DT_MXFP4 ? 17
           : t == DT_Q2_K  ? 84
           : t == DT_Q3_K  ? 110
           : t == DT_Q4_K  ? 144
           : t == DT_Q5_K  ? 176
                           : 210;
}

/* Twice the value of each 4-bit code of MXFP4, plus 12; and half of a block's scale. */
static const uint8_t block_e2m1_plus12[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                              12, 11, 10, 9,  8,  6,  4,  0};
BLOCK_FN float block_e8m0_half(uint32_t e)
{
    return half_from_bits(e < 2 ? 0x200000u << e : (e - 1) << 23);
}
