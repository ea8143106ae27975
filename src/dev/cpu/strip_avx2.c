/* strip_avx2.c - strips out of affine tiles with AVX2 and F16C (strip_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/strip.h"
#include "dev/cpu/vec_avx2.h"

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE vf vec_sub(vf x, vf y)
{
    return (vf){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
INLINE vf vec_round(enum dtype t, vf x)
{
    if (t == DT_F32) return x;
    if (t == DT_BF16) return vf_round_bf16(x);
    return (vf){_mm256_cvtph_ps(_mm256_cvtps_ph(x.a, NEAREST)),
                _mm256_cvtph_ps(_mm256_cvtps_ph(x.b, NEAREST))};
}
/* Rounded to 16 bits. */
INLINE __m256i vec_words(enum dtype t, vf x)
{
    if (t == DT_F16)
        return _mm256_set_m128i(_mm256_cvtps_ph(x.b, NEAREST), _mm256_cvtps_ph(x.a, NEAREST));
    x = vf_round_bf16(x);
    __m256i a = _mm256_srli_epi32(_mm256_castps_si256(x.a), 16);
    __m256i b = _mm256_srli_epi32(_mm256_castps_si256(x.b), 16);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}
INLINE void vec_put(enum dtype t, void *p, vf x)
{
    if (t == DT_F32)
        vf_store(p, x);
    else
        _mm256_storeu_si256(p, vec_words(t, x));
}
/* 16 words that codes below 16 look up: their low bytes and their high bytes. */
typedef struct {
    __m128i lo, hi;
} vtab;
INLINE vtab vec_table(enum dtype t, vf x)
{
    __m256i y = vec_words(t, x), low = _mm256_set1_epi16(0xff);
    __m256i l = _mm256_and_si256(y, low), h = _mm256_srli_epi16(y, 8);
    return (vtab){_mm_packus_epi16(_mm256_castsi256_si128(l), _mm256_extracti128_si256(l, 1)),
                  _mm_packus_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1))};
}
INLINE void vec_look_up(vtab table, v16 codes, void *dst)
{
    __m128i x = _mm_shuffle_epi8(table.lo, codes), y = _mm_shuffle_epi8(table.hi, codes);
    _mm_storeu_si128(dst, _mm_unpacklo_epi8(x, y));
    _mm_storeu_si128((__m128i *)dst + 1, _mm_unpackhi_epi8(x, y));
}

#define STRIP_READER strip_reader_avx2
#include "dev/cpu/strip_vec.h"
#else
typedef int strip_avx2_unused;
#endif
