/* float8_avx2.c - floats of 8 bits to strips with AVX2 and F16C (float8_vec.h has the kernel). */
#if defined(__x86_64__)
#include "dev/cpu/float8_strip.h"
#include "dev/cpu/vec_avx2.h"

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE vf vec_float8(v16 code)
{
    __m256i w = _mm256_cvtepu8_epi16(code), low = _mm256_set1_epi16(0x7f);
    __m256i h = _mm256_slli_epi16(_mm256_and_si256(w, low), 7);
    __m256i nan = _mm256_cmpeq_epi16(h, _mm256_set1_epi16(HALF_NAN));
    h = _mm256_or_si256(h, _mm256_slli_epi16(_mm256_andnot_si256(low, w), 8));
    h = _mm256_or_si256(h, _mm256_and_si256(nan, _mm256_set1_epi16(HALF_QUIET)));
    return (vf){_mm256_cvtph_ps(_mm256_castsi256_si128(h)),
                _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}
INLINE void vec_put(enum dtype t, void *p, vf x)
{
    __m256i words;
    if (t == DT_F32) {
        vf_store(p, x);
        return;
    }
    if (t == DT_F16) {
        words = _mm256_set_m128i(_mm256_cvtps_ph(x.b, NEAREST), _mm256_cvtps_ph(x.a, NEAREST));
    } else {
        x = vf_round_bf16(x);
        __m256i a = _mm256_srli_epi32(_mm256_castps_si256(x.a), 16);
        __m256i b = _mm256_srli_epi32(_mm256_castps_si256(x.b), 16);
        words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    }
    _mm256_storeu_si256(p, words);
}

#define FLOAT8_READER float8_reader_avx2
#include "dev/cpu/float8_vec.h"
#else
typedef int float8_avx2_unused;
#endif
