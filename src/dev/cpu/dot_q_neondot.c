/* dot_q_neondot.c - products of quantized weights with the dot products of bytes of ARMv8.2 (dot_q_vec.h has the rest;
 * quads_neon.h has the activations).  Codes of weights stay bytes, four in a lane.  An instruction multiplies them with four
 * columns of the activation and adds all to the lane, where AVX2 and NEON need words.  High and low codes of the
 * activation have sums of their own. */
#if defined(__aarch64__)
#define VEC_ISA   DEV_NEONDOT
#define VEC(name) name##_neondot
#include "dev/cpu/quads_neon.h"

INLINE void put_bytes(vi *w, uint32_t i, vi bytes)
{
    w[i] = bytes;
}

/* Multiplies 16 rows with four columns: lane 0 or 1 of x, and the lane two behind it. */
#define DOT(acc, w, x, lane) vdotq_laneq_s32(acc, vreinterpretq_s8_s32(w), x, lane)
#define DOTS(acc, w, x, lane)                                                                      \
    (vi)                                                                                           \
    {                                                                                              \
        DOT((acc).a, (w).a, x, lane), DOT((acc).b, (w).b, x, lane), DOT((acc).c, (w).c, x, lane),  \
            DOT((acc).d, (w).d, x, lane)                                                           \
    }
INLINE void piece_dot(vi *acc, const vi *w, const int16_t *x, uint32_t k)
{
    int8x16_t v = x_eight(x, k);
    acc[0] = DOTS(acc[0], w[2 * k], v, 0);
    acc[1] = DOTS(acc[1], w[2 * k], v, 2);
    acc[0] = DOTS(acc[0], w[2 * k + 1], v, 1);
    acc[1] = DOTS(acc[1], w[2 * k + 1], v, 3);
}
INLINE vi chains_sum(const vi *acc)
{
    return vi_add(vi_shl(acc[0], 8), acc[1]);
}

#include "dev/cpu/dot_q_vec.h"
#include "dev/cpu/quantize_vec.h"
#else
typedef int dot_q_neondot_unused;
#endif
