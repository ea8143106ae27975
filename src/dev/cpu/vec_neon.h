/* vec_neon.h - the names of vec_avx512.h on four 128-bit registers: lanes 0..3 in a, 4..7 in b, 8..11 in c, 12..15 in d.
 * Nothing here is above the first 64-bit ARM (ARMv8.0).  For *_neon*.c files only.
 *
 * Shifts are written with the operators of the compiler's vectors, which take a number that is constant only after
 * inlining.  Selections stand where AVX has min and max (mathfn_neon.h). */
#pragma once
#include "base/base.h"
#include "dev/cpu/mathfn_neon.h"

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#ifndef VEC_ISA /* quads_neon.h serves two others */
#define VEC_ISA   DEV_NEON
#define VEC(name) name##_neon
#endif
#define VEC_ROWS   2 /* 32 registers, 8 vectors */
#define VEC_TOKENS 2
#define VEC_GEMV   2
#define VEC_GEMV_F 4
#define VEC_MANY   4
#define LANES      16
#define INLINE     static inline __attribute__((always_inline))

typedef struct {
    float32x4_t a, b, c, d;
} vf;
typedef struct {
    int32x4_t a, b, c, d;
} vi;
typedef vi vb;
typedef uint8x16_t v16;
typedef struct {
    uint16x8_t lo, hi;
} w16;

/* Of each register, or of the registers of two or three vectors. */
#define VEC_OF(type, f, x)                                                                         \
    (type)                                                                                         \
    {                                                                                              \
        f((x).a), f((x).b), f((x).c), f((x).d)                                                     \
    }
#define VEC_OF2(type, f, x, y)                                                                     \
    (type)                                                                                         \
    {                                                                                              \
        f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d)                         \
    }
#define VEC_OF3(type, f, x, y, z)                                                                  \
    (type)                                                                                         \
    {                                                                                              \
        f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b), f((x).c, (y).c, (z).c),                    \
            f((x).d, (y).d, (z).d)                                                                 \
    }
#define VEC_ALL(type, r)                                                                           \
    (type)                                                                                         \
    {                                                                                              \
        r, r, r, r                                                                                 \
    }

INLINE vf vf_set1(float x)
{
    float32x4_t v = vdupq_n_f32(x);
    return VEC_ALL(vf, v);
}
INLINE vf vf_zero(void)
{
    return vf_set1(0);
}
INLINE vf vf_load(const float *p)
{
    return (vf){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
INLINE void vf_store(float *p, vf v)
{
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
}
/* The first n - first lanes of a register; the others load as zero and are not stored. */
INLINE float32x4_t vec_load_n(const float *p, uint32_t n, uint32_t first)
{
    float32x4_t v = vdupq_n_f32(0);
    if (n >= first + 4) return vld1q_f32(p + first);
    if (n > first) v = vld1q_lane_f32(p + first, v, 0);
    if (n > first + 1) v = vld1q_lane_f32(p + first + 1, v, 1);
    if (n > first + 2) v = vld1q_lane_f32(p + first + 2, v, 2);
    return v;
}
INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return (vf){vec_load_n(p, n, 0), vec_load_n(p, n, 4), vec_load_n(p, n, 8),
                vec_load_n(p, n, 12)};
}
INLINE void vec_store_n(float *p, float32x4_t v, uint32_t n, uint32_t first)
{
    if (n >= first + 4) {
        vst1q_f32(p + first, v);
        return;
    }
    if (n > first) vst1q_lane_f32(p + first, v, 0);
    if (n > first + 1) vst1q_lane_f32(p + first + 1, v, 1);
    if (n > first + 2) vst1q_lane_f32(p + first + 2, v, 2);
}
INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    vec_store_n(p, v.a, n, 0);
    vec_store_n(p, v.b, n, 4);
    vec_store_n(p, v.c, n, 8);
    vec_store_n(p, v.d, n, 12);
}
INLINE vf vf_add(vf x, vf y)
{
    return VEC_OF2(vf, vaddq_f32, x, y);
}
INLINE vf vf_sub(vf x, vf y)
{
    return VEC_OF2(vf, vsubq_f32, x, y);
}
INLINE vf vf_mul(vf x, vf y)
{
    return VEC_OF2(vf, vmulq_f32, x, y);
}
INLINE vf vf_div(vf x, vf y)
{
    return VEC_OF2(vf, vdivq_f32, x, y);
}
INLINE vf vf_neg(vf x)
{
    return VEC_OF(vf, vnegq_f32, x);
}
INLINE vf vf_fma(vf x, vf y, vf c)
{
    return VEC_OF3(vf, vfmaq_f32, c, x, y);
}
/* x in lanes [lo, hi) of register `first`, else y. */
INLINE float32x4_t vec_pick(float32x4_t x, float32x4_t y, uint32_t lo, uint32_t hi, uint32_t first)
{
    const uint32_t lane[4] = {first, first + 1, first + 2, first + 3};
    uint32x4_t l = vld1q_u32(lane);
    uint32x4_t in = vandq_u32(vcgeq_u32(l, vdupq_n_u32(lo)), vcltq_u32(l, vdupq_n_u32(hi)));
    return vbslq_f32(in, x, y);
}
/* Lanes [lo, hi) of x, the others from `fill`. */
INLINE vf vf_keep(vf x, uint32_t lo, uint32_t hi, vf fill)
{
    return (vf){vec_pick(x.a, fill.a, lo, hi, 0), vec_pick(x.b, fill.b, lo, hi, 4),
                vec_pick(x.c, fill.c, lo, hi, 8), vec_pick(x.d, fill.d, lo, hi, 12)};
}
INLINE vf vf_fma_n(vf x, vf y, vf c, uint32_t n)
{
    return vf_keep(vf_fma(x, y, c), 0, n, c);
}
INLINE float32x4_t vec_max(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
INLINE float32x4_t vec_min(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcltq_f32(x, y), x, y);
}
INLINE vf vf_max(vf x, vf y) /* y where one is NaN, as x > y ? x : y */
{
    return VEC_OF2(vf, vec_max, x, y);
}
INLINE vf vf_min(vf x, vf y)
{
    return VEC_OF2(vf, vec_min, x, y);
}
INLINE float32x4_t vec_choose(float32x4_t x, float32x4_t y, float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(x, y), a, b);
}
INLINE float32x4_t vec_signed(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), y, x);
}
INLINE vf vf_choose(vf x, vf y, vf a, vf b) /* a where x < y, else b */
{
    return (vf){vec_choose(x.a, y.a, a.a, b.a), vec_choose(x.b, y.b, a.b, b.b),
                vec_choose(x.c, y.c, a.c, b.c), vec_choose(x.d, y.d, a.d, b.d)};
}
INLINE vf vf_signed(vf x, vf y) /* x, or -x where y has a sign; x has none */
{
    return VEC_OF2(vf, vec_signed, x, y);
}
INLINE vf vf_exp(vf x)
{
    return VEC_OF(vf, math_exp_neon, x);
}
INLINE float vf_top(vf x) /* of numbers */
{
    return vmaxvq_f32(vec_max(vec_max(x.a, x.c), vec_max(x.b, x.d)));
}
INLINE float vf_tree(vf v)
{
    float32x4_t s = vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
    float32x2_t h = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
INLINE float32x4_t vec_quarter(vf v) /* the first two steps of the tree */
{
    return vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
}
INLINE float32x4_t vec_halve(float32x4_t x, float32x4_t y)
{
    return vaddq_f32(vcombine_f32(vget_low_f32(x), vget_low_f32(y)),
                     vcombine_f32(vget_high_f32(x), vget_high_f32(y)));
}
INLINE void vf_trees(vf (*acc)[VEC_TOKENS], int tokens, float (*out)[4])
{
    for (int t = 0; t < tokens; t++) {
        float32x4_t xy = vec_halve(vec_quarter(acc[0][t]), vec_quarter(acc[1][t]));
        float32x4_t zw = vec_halve(vec_quarter(acc[2][t]), vec_quarter(acc[3][t]));
        vst1q_f32(out[t], vpaddq_f32(xy, zw));
    }
}
INLINE vf vf_from_int(vi v)
{
    return VEC_OF(vf, vcvtq_f32_s32, v);
}
INLINE vf vf_from_bytes(v16 v) /* unsigned */
{
    uint16x8_t lo = vmovl_u8(vget_low_u8(v)), hi = vmovl_high_u8(v);
    return (vf){vcvtq_f32_u32(vmovl_u16(vget_low_u16(lo))), vcvtq_f32_u32(vmovl_high_u16(lo)),
                vcvtq_f32_u32(vmovl_u16(vget_low_u16(hi))), vcvtq_f32_u32(vmovl_high_u16(hi))};
}

INLINE v16 v16_load(const void *p)
{
    return vld1q_u8(p);
}
INLINE void v16_store(void *p, v16 v)
{
    vst1q_u8(p, v);
}
INLINE v16 v16_from_u32(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t w[4] = {a, b, c, d};
    return vreinterpretq_u8_u32(vld1q_u32(w));
}
INLINE v16 v16_or(v16 a, v16 b)
{
    return vorrq_u8(a, b);
}
INLINE v16 v16_and1(v16 v, uint8_t m)
{
    return vandq_u8(v, vdupq_n_u8(m));
}
INLINE v16 v16_xor1(v16 v, uint8_t m)
{
    return veorq_u8(v, vdupq_n_u8(m));
}
INLINE v16 v16_shl(v16 v, int n)
{
    return v << (uint8_t)n;
}
INLINE v16 v16_shr(v16 v, int n)
{
    return v >> (uint8_t)n;
}
INLINE v16 v16_zip_lo(v16 a, v16 b)
{
    return vzip1q_u8(a, b);
}
INLINE v16 v16_zip_hi(v16 a, v16 b)
{
    return vzip2q_u8(a, b);
}
INLINE w16 w16_load(const void *p)
{
    return (w16){vreinterpretq_u16_u8(vld1q_u8(p)),
                 vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p + 16))};
}
INLINE void w16_store(void *p, w16 v)
{
    vst1q_u8(p, vreinterpretq_u8_u16(v.lo));
    vst1q_u8((uint8_t *)p + 16, vreinterpretq_u8_u16(v.hi));
}
INLINE w16 w16_zip_lo(w16 a, w16 b)
{
    return (w16){vzip1q_u16(a.lo, b.lo), vzip1q_u16(a.hi, b.hi)};
}
INLINE w16 w16_zip_hi(w16 a, w16 b)
{
    return (w16){vzip2q_u16(a.lo, b.lo), vzip2q_u16(a.hi, b.hi)};
}
INLINE void w16_store_lo(void *p, w16 a, w16 b)
{
    w16_store(p, (w16){a.lo, b.lo});
}
INLINE void w16_store_hi(void *p, w16 a, w16 b)
{
    w16_store(p, (w16){a.hi, b.hi});
}

INLINE vf vf_from_u8(const uint8_t *p)
{
    return vf_from_bytes(v16_load(p));
}
INLINE vf vec_from_f16(w16 h)
{
    float16x8_t lo = vreinterpretq_f16_u16(h.lo), hi = vreinterpretq_f16_u16(h.hi);
    return (vf){vcvt_f32_f16(vget_low_f16(lo)), vcvt_high_f32_f16(lo),
                vcvt_f32_f16(vget_low_f16(hi)), vcvt_high_f32_f16(hi)};
}
INLINE vf vf_from_f16(const void *p)
{
    return vec_from_f16(w16_load(p));
}
INLINE w16 vec_to_f16(vf x) /* nearest even */
{
    float16x8_t lo = vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b);
    float16x8_t hi = vcvt_high_f16_f32(vcvt_f16_f32(x.c), x.d);
    return (w16){vreinterpretq_u16_f16(lo), vreinterpretq_u16_f16(hi)};
}
INLINE vf vf_from_bf16(const void *p)
{
    w16 h = w16_load(p);
    return (vf){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h.lo), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(h.lo, 16)),
                vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h.hi), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(h.hi, 16))};
}
/* The high halves of the lanes. */
INLINE w16 vec_to_bf16(vf x)
{
    uint32x4_t a = vreinterpretq_u32_f32(x.a), b = vreinterpretq_u32_f32(x.b);
    uint32x4_t c = vreinterpretq_u32_f32(x.c), d = vreinterpretq_u32_f32(x.d);
    return (w16){vshrn_high_n_u32(vshrn_n_u32(a, 16), b, 16),
                 vshrn_high_n_u32(vshrn_n_u32(c, 16), d, 16)};
}
INLINE float32x4_t vec_round_bf16(float32x4_t v)
{
    uint32x4_t u = vreinterpretq_u32_f32(v);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t r = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    r = vbslq_u32(vceqq_f32(v, v), r, quiet);
    return vreinterpretq_f32_u32(vandq_u32(r, vdupq_n_u32(0xffff0000)));
}
INLINE vf vf_round_bf16(vf v)
{
    return VEC_OF(vf, vec_round_bf16, v);
}
INLINE float f16_load(const void *p)
{
    float16_t h;
    memcpy(&h, p, sizeof h);
    return (float)h;
}
INLINE vf vf_pair(float a, float b)
{
    float32x4_t x = vdupq_n_f32(a), y = vdupq_n_f32(b);
    return (vf){x, x, y, y};
}
INLINE vf vf_pair_f16(const unsigned char *a, const unsigned char *b)
{
    return vf_pair(f16_load(a), f16_load(b));
}
INLINE void vf_pair2_f16(const unsigned char *a, const unsigned char *b, vf *d, vf *m)
{
    *d = vf_pair(f16_load(a), f16_load(b));
    *m = vf_pair(f16_load(a + 2), f16_load(b + 2));
}
INLINE vf vf_octets(const float *p)
{
    return vf_pair(p[0], p[1]);
}
INLINE vf vf_quads(const float *p)
{
    return (vf){vld1q_dup_f32(p), vld1q_dup_f32(p + 1), vld1q_dup_f32(p + 2), vld1q_dup_f32(p + 3)};
}
INLINE vf vf_spread(vf v, uint32_t g)
{
    float32x4_t s = vdupq_laneq_f32(g == 0 ? v.a : g == 1 ? v.b : g == 2 ? v.c : v.d, 0);
    return VEC_ALL(vf, s);
}

INLINE vi vi_set1(int32_t x)
{
    int32x4_t v = vdupq_n_s32(x);
    return VEC_ALL(vi, v);
}
INLINE vi vi_zero(void)
{
    return vi_set1(0);
}
INLINE vi vi_load(const int32_t *p)
{
    return (vi){vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}
INLINE void vi_store(void *p, vi v)
{
    vst1q_s32((int32_t *)p, v.a);
    vst1q_s32((int32_t *)p + 4, v.b);
    vst1q_s32((int32_t *)p + 8, v.c);
    vst1q_s32((int32_t *)p + 12, v.d);
}
INLINE vi vi_add(vi x, vi y)
{
    return VEC_OF2(vi, vaddq_s32, x, y);
}
INLINE vi vi_max(vi x, vi y)
{
    return VEC_OF2(vi, vmaxq_s32, x, y);
}
INLINE vi vi_and(vi v, uint32_t m)
{
    const int32x4_t k = vdupq_n_s32((int32_t)m);
    return (vi){v.a & k, v.b & k, v.c & k, v.d & k};
}
INLINE vi vi_shl(vi v, int n)
{
    return (vi){v.a << n, v.b << n, v.c << n, v.d << n};
}
INLINE int32x4_t vec_shr(int32x4_t v, int n)
{
    return vreinterpretq_s32_u32(vreinterpretq_u32_s32(v) >> (uint32_t)n);
}
INLINE vi vi_shr(vi v, int n)
{
    return (vi){vec_shr(v.a, n), vec_shr(v.b, n), vec_shr(v.c, n), vec_shr(v.d, n)};
}
INLINE vi vi_sar(vi v, int n)
{
    return (vi){v.a >> n, v.b >> n, v.c >> n, v.d >> n};
}
INLINE vi vi_bits(vf v)
{
    return VEC_OF(vi, vreinterpretq_s32_f32, v);
}
INLINE vi vi_round(vf v) /* nearest even */
{
    return VEC_OF(vi, vcvtnq_s32_f32, v);
}
INLINE int32x4_t vec_folded(vi v)
{
    return vaddq_s32(vaddq_s32(v.a, v.b), vaddq_s32(v.c, v.d));
}
INLINE int32_t vi_top(vi v)
{
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(v.a, v.b), vmaxq_s32(v.c, v.d)));
}
/* The sums of four vectors, and of two pairs of them. */
INLINE void vi_totals(const vi *v, int32_t *out, int32_t *pairs)
{
    int32x4_t x = vpaddq_s32(vec_folded(v[0]), vec_folded(v[1]));
    x = vpaddq_s32(x, vpaddq_s32(vec_folded(v[2]), vec_folded(v[3])));
    vst1q_s32(out, x);
    vst1_s32(pairs, vget_low_s32(vpaddq_s32(x, x)));
}
INLINE int32x4_t vec_dot16(int32x4_t acc, int32x4_t w, int32x4_t x)
{
    int16x8_t a = vreinterpretq_s16_s32(w), b = vreinterpretq_s16_s32(x);
    int32x4_t lo = vmull_s16(vget_low_s16(a), vget_low_s16(b)), hi = vmull_high_s16(a, b);
    return vaddq_s32(acc, vpaddq_s32(lo, hi));
}
INLINE vi vi_dot16(vi acc, vi w, vi x)
{
    return VEC_OF3(vi, vec_dot16, acc, w, x);
}
INLINE w16 vec_low_words(vi v)
{
    uint32x4_t a = vreinterpretq_u32_s32(v.a), b = vreinterpretq_u32_s32(v.b);
    uint32x4_t c = vreinterpretq_u32_s32(v.c), d = vreinterpretq_u32_s32(v.d);
    return (w16){vmovn_high_u32(vmovn_u32(a), b), vmovn_high_u32(vmovn_u32(c), d)};
}
INLINE void vi_put_words(int16_t *p, vi v)
{
    static const uint8_t order[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    w16 w = vec_low_words(v);
    const uint8x16_t o = vld1q_u8(order);
    v16_store(p, vqtbl1q_u8(vreinterpretq_u8_u16(w.lo), o));
    v16_store(p + 8, vqtbl1q_u8(vreinterpretq_u8_u16(w.hi), o));
}
INLINE vf vf_low_f16(vi v)
{
    return vec_from_f16(vec_low_words(v));
}
INLINE vf vf_high_f16(vi v)
{
    return vec_from_f16(vec_to_bf16(VEC_OF(vf, vreinterpretq_f32_s32, v)));
}

/* Transposes 16 bytes of each of four rows. */
INLINE void vec_rows4(const unsigned char *p, size_t stride, int32x4_t *out)
{
    int32x4_t r0 = vreinterpretq_s32_u8(vld1q_u8(p));
    int32x4_t r1 = vreinterpretq_s32_u8(vld1q_u8(p + stride));
    int32x4_t r2 = vreinterpretq_s32_u8(vld1q_u8(p + 2 * stride));
    int32x4_t r3 = vreinterpretq_s32_u8(vld1q_u8(p + 3 * stride));
    int64x2_t t = vreinterpretq_s64_s32(vtrn1q_s32(r0, r1)); /* columns 0, 2 */
    int64x2_t u = vreinterpretq_s64_s32(vtrn2q_s32(r0, r1)); /* columns 1, 3 */
    int64x2_t v = vreinterpretq_s64_s32(vtrn1q_s32(r2, r3));
    int64x2_t w = vreinterpretq_s64_s32(vtrn2q_s32(r2, r3));
    out[0] = vreinterpretq_s32_s64(vzip1q_s64(t, v));
    out[1] = vreinterpretq_s32_s64(vzip1q_s64(u, w));
    out[2] = vreinterpretq_s32_s64(vzip2q_s64(t, v));
    out[3] = vreinterpretq_s32_s64(vzip2q_s64(u, w));
}
INLINE void vi_rows4(const unsigned char *p, size_t stride, vi *out)
{
    int32x4_t a[4], b[4], c[4], d[4];
    vec_rows4(p, stride, a);
    vec_rows4(p + 4 * stride, stride, b);
    vec_rows4(p + 8 * stride, stride, c);
    vec_rows4(p + 12 * stride, stride, d);
    for (int i = 0; i < 4; i++)
        out[i] = (vi){a[i], b[i], c[i], d[i]};
}
/* Four bytes of each of four rows. */
INLINE int32x4_t vec_column(const unsigned char *p, size_t stride)
{
    int32_t w[4];
    memcpy(&w[0], p, 4);
    memcpy(&w[1], p + stride, 4);
    memcpy(&w[2], p + 2 * stride, 4);
    memcpy(&w[3], p + 3 * stride, 4);
    int32x4_t v = vdupq_n_s32(w[0]);
    v = vsetq_lane_s32(w[1], v, 1);
    v = vsetq_lane_s32(w[2], v, 2);
    return vsetq_lane_s32(w[3], v, 3);
}
INLINE vi vi_rows1(const unsigned char *p, size_t stride)
{
    return (vi){vec_column(p, stride), vec_column(p + 4 * stride, stride),
                vec_column(p + 8 * stride, stride), vec_column(p + 12 * stride, stride)};
}

INLINE vb vec_bytes(v16 a, v16 b, v16 c, v16 d)
{
    return (vb){vreinterpretq_s32_u8(a), vreinterpretq_s32_u8(b), vreinterpretq_s32_u8(c),
                vreinterpretq_s32_u8(d)};
}
INLINE v16 vb_quarter(vb v, uint32_t g)
{
    return vreinterpretq_u8_s32(g == 0 ? v.a : g == 1 ? v.b : g == 2 ? v.c : v.d);
}
INLINE vb vb_load2(const void *a, const void *b) /* 32 bytes each */
{
    const uint8_t *p = a, *q = b;
    return vec_bytes(vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(q), vld1q_u8(q + 16));
}
INLINE vb vb_load(const void *p)
{
    return vb_load2(p, (const uint8_t *)p + 32);
}
INLINE void vb_store(void *p, vb v)
{
    uint8_t *q = p;
    for (uint32_t g = 0; g < 4; g++)
        vst1q_u8(q + 16 * g, vb_quarter(v, g));
}
INLINE vb vb_and1(vb v, uint8_t m)
{
    const int32x4_t k = vreinterpretq_s32_u8(vdupq_n_u8(m));
    return (vb){v.a & k, v.b & k, v.c & k, v.d & k};
}
INLINE vb vb_xor1(vb v, uint8_t m)
{
    const int32x4_t k = vreinterpretq_s32_u8(vdupq_n_u8(m));
    return (vb){v.a ^ k, v.b ^ k, v.c ^ k, v.d ^ k};
}
INLINE vb vb_or(vb x, vb y)
{
    return VEC_OF2(vb, vorrq_s32, x, y);
}
/* Of words, as everywhere: dot_q_vec.h shifts by a whole byte. */
INLINE int32x4_t vec_shl16(int32x4_t v, int n)
{
    return vreinterpretq_s32_u16(vreinterpretq_u16_s32(v) << (uint16_t)n);
}
INLINE int32x4_t vec_shr16(int32x4_t v, int n)
{
    return vreinterpretq_s32_u16(vreinterpretq_u16_s32(v) >> (uint16_t)n);
}
INLINE vb vb_shl(vb v, int n)
{
    return (vb){vec_shl16(v.a, n), vec_shl16(v.b, n), vec_shl16(v.c, n), vec_shl16(v.d, n)};
}
INLINE vb vb_shr(vb v, int n)
{
    return (vb){vec_shr16(v.a, n), vec_shr16(v.b, n), vec_shr16(v.c, n), vec_shr16(v.d, n)};
}
/* 32 bytes y: (y >> lo) in the first half, (y >> hi) in the second; mask after. */
INLINE vb vb_split(const void *p, int lo, int hi)
{
    v16 x = v16_load(p), y = v16_load((const uint8_t *)p + 16);
    return vec_bytes(v16_shr(x, lo), v16_shr(y, lo), v16_shr(x, hi), v16_shr(y, hi));
}
/* Nibbles of two blocks of 16 bytes: low ones, high ones, of each. */
INLINE vb vb_nibbles(const void *a, const void *b)
{
    v16 x = v16_load(a), y = v16_load(b);
    return vec_bytes(v16_and1(x, 15), v16_shr(x, 4), v16_and1(y, 15), v16_shr(y, 4));
}
/* 16 in every byte whose bit is set. */
INLINE v16 vec_bits(uint32_t bits)
{
    static const uint8_t pick[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    v16 v = vcombine_u8(vdup_n_u8((uint8_t)bits), vdup_n_u8((uint8_t)(bits >> 8)));
    return vandq_u8(vtstq_u8(v, vld1q_u8(pick)), vdupq_n_u8(16));
}
/* Adds 16 where the bit is set. */
INLINE vb vb_or_bits(vb v, uint32_t a, uint32_t b)
{
    return vb_or(v, vec_bytes(vec_bits(a), vec_bits(a >> 16), vec_bits(b), vec_bits(b >> 16)));
}
INLINE vb vb_lookup(const uint8_t *table16, vb v)
{
    const v16 t = v16_load(table16);
    return vec_bytes(vqtbl1q_u8(t, vb_quarter(v, 0)), vqtbl1q_u8(t, vb_quarter(v, 1)),
                     vqtbl1q_u8(t, vb_quarter(v, 2)), vqtbl1q_u8(t, vb_quarter(v, 3)));
}
