/* coded_neondot.c - coded tiles with the dot products of bytes of ARMv8.2 (coded_vec.h has the rest).  They multiply signed
 * bytes, so keys lose their 128 as they are loaded, and a weight of 16 bits is 256 * high + low with signed halves. */
#if defined(__aarch64__)
#define VEC_ISA   DEV_NEONDOT
#define VEC(name) name##_neondot
#include "dev/cpu/vec_neon.h"

#define CODED_AT_ONCE 3u
#define CODED_BLOCKS  2u
#define CODED_SIGNED  1

/* Writes codes as bytes.  Of the codes of weights it writes all high bytes first, then all low bytes. */
INLINE void codes_put(void *to, uint32_t n, uint32_t i, vi v, bool key)
{
    int8_t all[32];
    int16x8_t x = vmovn_high_s32(vmovn_s32(v.a), v.b), y = vmovn_high_s32(vmovn_s32(v.c), v.d);
    vst1q_s8(all, vrshrn_high_n_s16(vrshrn_n_s16(x, 8), y, 8));
    vst1q_s8(all + 16, vmovn_high_s16(vmovn_s16(x), y));
    if (!key) memcpy((char *)to + i, all, MIN(16, n - i));
    memcpy((char *)to + (key ? 0 : n) + i, all + 16, MIN(16, n - i));
}
INLINE vi wide(int8x16_t x)
{
    int16x8_t a = vmovl_s8(vget_low_s8(x)), b = vmovl_high_s8(x);
    return (vi){vmovl_s16(vget_low_s16(a)), vmovl_high_s16(a), vmovl_s16(vget_low_s16(b)),
                vmovl_high_s16(b)};
}
INLINE vi codes_get(const void *from, uint32_t n, uint32_t i, uint32_t many)
{
    (void)n;
    int8_t low[16] = {0};
    memcpy(low, (const char *)from + i, many);
    return wide(vld1q_s8(low));
}

INLINE int8x16_t four_bytes(const unsigned char *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return vreinterpretq_s8_s32(vdupq_n_s32(x));
}
INLINE vi dots(vi acc, vi y, int8x16_t w)
{
    return (vi){vdotq_s32(acc.a, vreinterpretq_s8_s32(y.a), w),
                vdotq_s32(acc.b, vreinterpretq_s8_s32(y.b), w),
                vdotq_s32(acc.c, vreinterpretq_s8_s32(y.c), w),
                vdotq_s32(acc.d, vreinterpretq_s8_s32(y.d), w)};
}

INLINE void codes_dot(const bool key, const uint32_t bits, const uint8_t *level,
                      const unsigned char *x, size_t step, uint32_t depth, const unsigned char *c,
                      size_t apart, uint32_t n, const uint32_t nq, const uint32_t nb,
                      const bool asks, ptrdiff_t then, vi (*sum)[CODED_BLOCKS])
{
    (void)asks, (void)then, (void)bits, (void)level;
    for (uint32_t b = 0; b < nb; b++) {
        vi high[CODED_AT_ONCE], low[CODED_AT_ONCE];
        const unsigned char *from = x + b * step, *w = c;
        for (uint32_t i = 0; i < nq; i++)
            high[i] = low[i] = vi_zero();
        for (uint32_t e = 0; e < depth; e++, from += 64, w += 4) {
            vi y = vb_load(from);
            if (key) y = vb_xor1(y, 0x80);
#pragma GCC unroll 4
            for (uint32_t i = 0; i < nq; i++) {
                if (!key) high[i] = dots(high[i], y, four_bytes(w + i * apart));
                low[i] = dots(low[i], y, four_bytes(w + i * apart + (key ? 0 : n)));
            }
        }
        for (uint32_t i = 0; i < nq; i++)
            sum[i][b] = vi_add(vi_shl(high[i], 8), low[i]);
    }
}

#include "dev/cpu/coded_vec.h"
#else
typedef int coded_neondot_unused;
#endif
