/* float8_avx512.c - floats of 8 bits to strips with AVX-512 (float8_vec.h has the kernel). */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx512.h"

#include "dev/cpu/float8_halves.h"

INLINE vf vec_float8(v16 code)
{
    return _mm512_cvtph_ps(float8_halves(code));
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
