/* group_neon.c - groups of values to codes with NEON (group_vec.h has the kernels). */
#if defined(__aarch64__)
#include "dev/cpu/group_kernels.h"
#include "dev/cpu/vec_neon.h"

INLINE vf vec_float(vi v)
{
    return VEC_OF(vf, vreinterpretq_f32_s32, v);
}
INLINE vf vec_round(enum dtype t, vf x)
{
    if (t == DT_F32) return x;
    if (t == DT_BF16) return vf_round_bf16(x);
    return vec_from_f16(vec_to_f16(x));
}
INLINE void vec_codes(uint8_t *q, vf x)
{
    vi v = vi_round(x);
    int16x8_t a = vmovn_high_s32(vmovn_s32(v.a), v.b), b = vmovn_high_s32(vmovn_s32(v.c), v.d);
    vst1q_u8(q, vreinterpretq_u8_s8(vmovn_high_s16(vmovn_s16(a), b)));
}

#include "dev/cpu/group_vec.h"
#else
typedef int group_neon_unused;
#endif
