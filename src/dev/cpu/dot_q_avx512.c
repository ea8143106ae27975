/* dot_q_avx512.c - products of quantized weights with AVX-512 and VNNI (dot_q_vec.h has the rest).  Codes of weights stay
 * bytes, four in a lane, and an activation of 16 bits is two codes of int8, 256 * high + low (CPU_X_CODE leaves room).  For every
 * 16 columns struct cpu_xgroup has the 16 high codes and then the 16 low ones, in natural order, in place of 16 words.  An
 * instruction multiplies unsigned bytes with signed ones, so codes of weights are never negative here.  Both sums are
 * exact integers, and a shift at the end of a block joins them: the result has the bits of words. */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx512.h"

#define QUADS        1
#define IN_REGISTERS 1
#define SIGNED_CODES 0
enum { CODES = 8, PIECES = 8 };

INLINE void put_bytes(vi *w, uint32_t i, vi bytes)
{
    w[i] = bytes;
}
/* Adds the products of w with four bytes, which are the same for all lanes.  gcc 12 would load the four bytes by an
 * instruction of their own, and fewer products would fit into the processor's queue. */
INLINE vi dot_bytes(vi acc, vi w, const char *four)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const char(*)[4])four));
    return acc;
}
INLINE void piece_dot(vi *acc, const vi *w, const int16_t *x, uint32_t k)
{
    const char *from = (const char *)(x + k / 4 * 16) + k % 4 * 4;
    acc[0] = dot_bytes(acc[0], w[k], from);
    acc[1] = dot_bytes(acc[1], w[k], from + 16);
}
INLINE vi chains_sum(const vi *acc)
{
    return vi_add(vi_shl(acc[0], 8), acc[1]);
}
INLINE void x_put(int16_t *q, vi v)
{
    _mm_storeu_si128((__m128i *)q, _mm512_cvtepi32_epi8(vi_sar(vi_add(v, vi_set1(128)), 8)));
    _mm_storeu_si128((__m128i *)(q + 8), _mm512_cvtepi32_epi8(v));
}

#include "dev/cpu/dot_q_vec.h"
#include "dev/cpu/quantize_vec.h"
#else
typedef int dot_q_avx512_unused;
#endif
