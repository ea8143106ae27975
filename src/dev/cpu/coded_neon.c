/* coded_neon.c - coded tiles with NEON (coded_vec.h has the rest): bytes become words, which are multiplied with codes of 16
 * bits; a row or dim has four sums, one for each neighbour, which are added at the end. */
#if defined(__aarch64__)
#include "dev/cpu/vec_neon.h"

#define CODED_AT_ONCE 1u
#define CODED_BLOCKS  4u

INLINE void codes_put(void *to, uint32_t n, uint32_t i, vi v, bool key)
{
    (void)key;
    int16_t all[16];
    vst1q_s16(all, vmovn_high_s32(vmovn_s32(v.a), v.b));
    vst1q_s16(all + 8, vmovn_high_s32(vmovn_s32(v.c), v.d));
    memcpy((int16_t *)to + i, all, MIN(16, n - i) * sizeof *all);
}
INLINE vi codes_get(const void *from, uint32_t n, uint32_t i, uint32_t many)
{
    (void)n;
    int16_t all[16] = {0};
    memcpy(all, (const int16_t *)from + i, many * sizeof *all);
    int16x8_t x = vld1q_s16(all), y = vld1q_s16(all + 8);
    return (vi){vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x), vmovl_s16(vget_low_s16(y)),
                vmovl_high_s16(y)};
}

/* Multiplies eight lanes of a group. */
INLINE void half_dot(const bool key, const unsigned char *x, uint32_t depth, const unsigned char *c,
                     int32x4_t *sum)
{
    int32x4_t s[8];
    for (int i = 0; i < 8; i++)
        s[i] = vdupq_n_s32(0);
    for (uint32_t e = 0; e < depth; e++, x += 64, c += 8) {
        int16x4_t w = vreinterpret_s16_u8(vld1_u8(c));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            uint8x8_t b = vld1_u8(x + 8 * i);
            int16x8_t y =
                key ? vreinterpretq_s16_u16(vmovl_u8(b)) : vmovl_s8(vreinterpret_s8_u8(b));
            s[2 * i] = vmlal_s16(s[2 * i], vget_low_s16(y), w);
            s[2 * i + 1] = vmlal_s16(s[2 * i + 1], vget_high_s16(y), w);
        }
    }
    for (int i = 0; i < 2; i++)
        sum[i] =
            vpaddq_s32(vpaddq_s32(s[4 * i], s[4 * i + 1]), vpaddq_s32(s[4 * i + 2], s[4 * i + 3]));
}

INLINE void codes_dot(const bool key, const uint32_t bits, const uint8_t *level,
                      const unsigned char *x, size_t step, uint32_t depth, const unsigned char *c,
                      size_t apart, uint32_t n, const uint32_t nq, const uint32_t nb,
                      const bool asks, ptrdiff_t then, vi (*sum)[CODED_BLOCKS])
{
    (void)n, (void)asks, (void)then, (void)bits, (void)level;
    for (uint32_t i = 0; i < nq; i++)
        for (uint32_t b = 0; b < nb; b++) {
            int32x4_t s[4];
            half_dot(key, x + b * step, depth, c + i * apart, s);
            half_dot(key, x + b * step + 32, depth, c + i * apart, s + 2);
            sum[i][b] = (vi){s[0], s[1], s[2], s[3]};
        }
}

#include "dev/cpu/coded_vec.h"
#else
typedef int coded_neon_unused;
#endif
