/* float8_neon.c - floats of 8 bits to strips with NEON (float8_vec.h has the kernel). */
#if defined(__aarch64__)
#include "dev/cpu/float8_strip.h"
#include "dev/cpu/vec_neon.h"

INLINE uint16x8_t vec_half(uint16x8_t w)
{
    uint16x8_t h = vshlq_n_u16(vandq_u16(w, vdupq_n_u16(0x7f)), 7);
    uint16x8_t nan = vceqq_u16(h, vdupq_n_u16(HALF_NAN));
    h = vorrq_u16(h, vshlq_n_u16(vandq_u16(w, vdupq_n_u16(0x80)), 8));
    return vorrq_u16(h, vandq_u16(nan, vdupq_n_u16(HALF_QUIET)));
}
INLINE vf vec_float8(v16 code)
{
    return vec_from_f16(
        (w16){vec_half(vmovl_u8(vget_low_u8(code))), vec_half(vmovl_high_u8(code))});
}
INLINE void vec_put(enum dtype t, void *p, vf x)
{
    if (t == DT_F32)
        vf_store(p, x);
    else
        w16_store(p, t == DT_F16 ? vec_to_f16(x) : vec_to_bf16(vf_round_bf16(x)));
}

#define FLOAT8_READER float8_reader_neon
#include "dev/cpu/float8_vec.h"
#else
typedef int float8_neon_unused;
#endif
