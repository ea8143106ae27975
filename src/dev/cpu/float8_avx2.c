/* float8_avx2.c - floats of 8 bits to strips with AVX2 and F16C (float8_vec.h has the kernel). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx2.h"

#include "dev/cpu/float8_halves.h"

INLINE vf vec_float8(v16 code)
{
    __m256i h = float8_halves(code);
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
