/* float8_avx512.c - floats of 8 bits to strips with AVX-512 (float8_vec.h has the kernel). */
#if defined(__x86_64__)
#include "dev/cpu/float8_strip.h"
#include "dev/cpu/vec_avx512.h"

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE vf vec_float8(v16 code)
{
    __m256i w = _mm256_cvtepu8_epi16(code), low = _mm256_set1_epi16(0x7f);
    __m256i h = _mm256_slli_epi16(_mm256_and_si256(w, low), 7);
    __m256i nan = _mm256_cmpeq_epi16(h, _mm256_set1_epi16(HALF_NAN));
    h = _mm256_or_si256(h, _mm256_slli_epi16(_mm256_andnot_si256(low, w), 8));
    h = _mm256_or_si256(h, _mm256_and_si256(nan, _mm256_set1_epi16(HALF_QUIET)));
    return _mm512_cvtph_ps(h);
}
INLINE void vec_put(enum dtype t, void *p, vf x)
{
    if (t == DT_F32)
        vf_store(p, x);
    else if (t == DT_F16)
        _mm256_storeu_si256(p, _mm512_cvtps_ph(x, NEAREST));
    else
        _mm256_storeu_si256(
            p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(vf_round_bf16(x)), 16)));
}

#define FLOAT8_READER float8_reader_avx512
#include "dev/cpu/float8_vec.h"
#else
typedef int float8_avx512_unused;
#endif
