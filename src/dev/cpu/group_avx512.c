/* group_avx512.c - groups of values to codes with AVX-512 (group_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/group_kernels.h"
#include "dev/cpu/vec_avx512.h"

INLINE vf vec_float(vi v)
{
    return _mm512_castsi512_ps(v);
}
INLINE vf vec_round(enum dtype t, vf x)
{
    if (t == DT_F32) return x;
    if (t == DT_BF16) return vf_round_bf16(x);
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE void vec_codes(uint8_t *q, vf x)
{
    v16_store(q, _mm512_cvtepi32_epi8(vi_round(x)));
}

#include "dev/cpu/group_vec.h"
#else
typedef int group_avx512_unused;
#endif
