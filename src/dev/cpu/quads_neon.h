/* quads_neon.h - activations as bytes, for dot_q_neondot.c and dot_q_neoni8mm.c.
 *
 * A code of 16 bits is two codes of int8, 256 * high + low (CPU_X_CODE leaves room).  For every 8 columns
 * struct cpu_xgroup has the 8 high codes and then the 8 low ones, in natural order, in place of 8 words.  Both sums are exact
 * integers and are joined by a shift at the end of a block, so the result has the bits of words.  The kernel that
 * quantizes is compiled with the products, for one instruction set, so the two orders never meet. */
#pragma once
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec_neon.h"

#define QUADS 1
/* Vectors of a block of 32, four codes in a lane; steps of 8 columns. */
enum { CODES = 8, PIECES = 4 };
#undef VEC_MANY
#define VEC_MANY 2 /* two chains of each of two tokens take half of the registers */

INLINE int8x16_t x_eight(const int16_t *x, uint32_t k)
{
    return vreinterpretq_s8_s16(vld1q_s16(x + 8 * k));
}
INLINE int16x8_t x_split(int32x4_t a, int32x4_t b)
{
    int16x8_t q = vmovn_high_s32(vmovn_s32(a), b);
    return vreinterpretq_s16_s8(vcombine_s8(vrshrn_n_s16(q, 8), vmovn_s16(q)));
}
INLINE void x_put(int16_t *q, vi v) /* 16 columns */
{
    vst1q_s16(q, x_split(v.a, v.b));
    vst1q_s16(q + 8, x_split(v.c, v.d));
}
