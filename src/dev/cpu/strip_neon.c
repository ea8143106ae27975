/* strip_neon.c - strips out of affine tiles with NEON (strip_vec.h has the kernels). */
#if defined(__aarch64__)
#include "dev/cpu/strip.h"
#include "dev/cpu/vec_neon.h"

INLINE vf vec_round(enum dtype t, vf x)
{
    if (t == DT_F32) return x;
    if (t == DT_BF16) return vf_round_bf16(x);
    return vec_from_f16(vec_to_f16(x));
}
/* Rounded to 16 bits. */
INLINE w16 vec_words(enum dtype t, vf x)
{
    return t == DT_F16 ? vec_to_f16(x) : vec_to_bf16(vf_round_bf16(x));
}
INLINE void vec_put(enum dtype t, void *p, vf x)
{
    if (t == DT_F32)
        vf_store(p, x);
    else
        w16_store(p, vec_words(t, x));
}
/* 16 words to look up by codes below 16: their low and their high bytes. */
typedef struct {
    v16 lo, hi;
} vtab;
INLINE vtab vec_table(enum dtype t, vf x)
{
    w16 y = vec_words(t, x);
    return (vtab){vmovn_high_u16(vmovn_u16(y.lo), y.hi),
                  vshrn_high_n_u16(vshrn_n_u16(y.lo, 8), y.hi, 8)};
}
INLINE void vec_look_up(vtab table, v16 codes, void *dst)
{
    v16 x = vqtbl1q_u8(table.lo, codes), y = vqtbl1q_u8(table.hi, codes);
    v16_store(dst, v16_zip_lo(x, y));
    v16_store((unsigned char *)dst + 16, v16_zip_hi(x, y));
}

#define STRIP_READER strip_reader_neon
#include "dev/cpu/strip_vec.h"
#else
typedef int strip_neon_unused;
#endif
