/* dot_q_neoni8mm.c - products of quantized weights with the matrix products of bytes of ARMv8.6 (dot_q_vec.h has the rest;
 * quads_neon.h has the activations).  A register has eight codes of two rows.  An instruction multiplies them with the
 * high and with the low codes of eight columns of an activation: half the instructions of dot_q_neondot.c. */
#if defined(__aarch64__)
#define VEC_ISA   DEV_NEONI8MM
#define VEC(name) name##_neoni8mm
#include "dev/cpu/quads_neon.h"

/* Codes of 8 columns come in two vectors.  They become rows 0 and 1, 2 and 3, ... 6 and 7, then the other eight
 * rows. */
INLINE void put_bytes(vi *w, uint32_t i, vi bytes)
{
    w[i] = bytes;
    if (i % 2 == 0) return;
    vi x = w[i - 1], y = bytes;
    w[i - 1] = (vi){vzip1q_s32(x.a, y.a), vzip2q_s32(x.a, y.a), vzip1q_s32(x.b, y.b),
                    vzip2q_s32(x.b, y.b)};
    w[i] = (vi){vzip1q_s32(x.c, y.c), vzip2q_s32(x.c, y.c), vzip1q_s32(x.d, y.d),
                vzip2q_s32(x.d, y.d)};
}

INLINE int32x4_t dot_two(int32x4_t acc, int32x4_t w, int8x16_t x)
{
    return vmmlaq_s32(acc, vreinterpretq_s8_s32(w), x);
}
INLINE void piece_dot(vi *acc, const vi *w, const int16_t *x, uint32_t k)
{
    int8x16_t v = x_eight(x, k);
    for (uint32_t i = 0; i < 2; i++) {
        acc[i].a = dot_two(acc[i].a, w[2 * k + i].a, v);
        acc[i].b = dot_two(acc[i].b, w[2 * k + i].b, v);
        acc[i].c = dot_two(acc[i].c, w[2 * k + i].c, v);
        acc[i].d = dot_two(acc[i].d, w[2 * k + i].d, v);
    }
}
/* Joins the sums of two rows each: high and low sum of the first row, then of the second. */
INLINE int32x4_t four_rows(int32x4_t x, int32x4_t y)
{
    static const int32_t by[4] = {8, 0, 8, 0};
    const int32x4_t shift = vld1q_s32(by);
    return vpaddq_s32(vshlq_s32(x, shift), vshlq_s32(y, shift));
}
INLINE vi chains_sum(const vi *acc)
{
    return (vi){four_rows(acc[0].a, acc[0].b), four_rows(acc[0].c, acc[0].d),
                four_rows(acc[1].a, acc[1].b), four_rows(acc[1].c, acc[1].d)};
}

#include "dev/cpu/dot_q_vec.h"
#include "dev/cpu/quantize_vec.h"
#else
typedef int dot_q_neoni8mm_unused;
#endif
