/* fused_avx512.h - what both files of fused.h share: rounding, the value of a code, prefetching.  After vec_avx512.h. */
#pragma once
#include "dev/cpu/fused.h"
#include "dev/cpu/vec_avx512.h"

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define UNROLL  _Pragma("GCC unroll 16")
#define MOST                                                                                       \
    4u /* queries: their sums of 64 channels, and what else a row needs, fit the registers */

/* Rounded to 16 bits. */
INLINE __m256i words_of(enum dtype t, vf x)
{
    if (t == DT_F16) return _mm512_cvtps_ph(x, NEAREST);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(vf_round_bf16(x)), 16));
}
INLINE vf from_words(enum dtype t, __m256i x)
{
    if (t == DT_F16) return _mm512_cvtph_ps(x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
INLINE vf rounded(enum dtype t, vf x)
{
    return t == DT_F16 ? from_words(t, words_of(t, x)) : vf_round_bf16(x);
}

/* The value of codes, before it is rounded for the last time. */
INLINE vf value_of(enum dtype t, bool zero_first, vf code, vf a, vf b)
{
    if (zero_first) return vf_mul(rounded(t, vf_sub(code, b)), a);
    return vf_sub(rounded(t, vf_mul(a, code)), b);
}

/* Prefetches at most n of the tiles that are read next. */
INLINE void prefetch_tiles(struct kv_next *next, uint32_t n)
{
    for (uint32_t i = 0; i < n && next->first < next->end; i++, next->first++) {
        const unsigned char *p = next->piece[next->first / next->per].tile[next->first % next->per];
        for (uint32_t k = 0; k < next->bytes; k += 64)
            __builtin_prefetch(p + k, 0, 2);
    }
}
