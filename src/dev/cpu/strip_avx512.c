/* strip_avx512.c - strips out of affine tiles with AVX-512 (strip_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/strip.h"
#include "dev/cpu/vec_avx512.h"

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE vf vec_sub(vf x, vf y)
{
    return _mm512_sub_ps(x, y);
}
INLINE vf vec_round(enum dtype t, vf x)
{
    if (t == DT_F32) return x;
    if (t == DT_BF16) return vf_round_bf16(x);
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, NEAREST));
}
/* Rounded to 16 bits. */
INLINE __m256i vec_words(enum dtype t, vf x)
{
    if (t == DT_F16) return _mm512_cvtps_ph(x, NEAREST);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(vf_round_bf16(x)), 16));
}
INLINE void vec_put(enum dtype t, void *p, vf x)
{
    if (t == DT_F32)
        vf_store(p, x);
    else
        _mm256_storeu_si256(p, vec_words(t, x));
}
/* 16 words to look up by codes below 16. */
typedef __m256i vtab;
INLINE vtab vec_table(enum dtype t, vf x)
{
    return vec_words(t, x);
}
INLINE void vec_look_up(vtab table, v16 codes, void *dst)
{
    _mm256_storeu_si256(dst, _mm256_permutexvar_epi16(_mm256_cvtepu8_epi16(codes), table));
}

#define STRIP_READER strip_reader_avx512
#include "dev/cpu/strip_vec.h"
#else
typedef int strip_avx512_unused;
#endif
