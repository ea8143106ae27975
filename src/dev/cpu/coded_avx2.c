/* coded_avx2.c - coded tiles with AVX2 (coded_vec.h has the rest).
 *
 * VPMADDUBSW would saturate, so bytes become words, which VPMADDWD multiplies with codes of 16 bits: two neighbours to a
 * lane of 32 bits.  The two lanes of a row or dim are added at the end. */
#if defined(__x86_64__)
#include "dev/cpu/vec_avx2.h"

#define CODED_AT_ONCE 3u
#define CODED_BLOCKS  4u

INLINE void codes_put(void *to, uint32_t n, uint32_t i, vi v, bool key)
{
    (void)key;
    int16_t *c = (int16_t *)to + i;
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.a, v.b), 0xd8);
    if (n - i >= 16) {
        _mm256_storeu_si256((__m256i *)(void *)c, w);
        return;
    }
    int16_t all[16];
    _mm256_storeu_si256((__m256i *)(void *)all, w);
    memcpy(c, all, (n - i) * sizeof *c);
}
INLINE vi codes_get(const void *from, uint32_t n, uint32_t i, uint32_t many)
{
    (void)n;
    int16_t all[16] = {0};
    memcpy(all, (const int16_t *)from + i, many * sizeof *all);
    const __m128i *p = (const __m128i *)(const void *)all;
    return (vi){_mm256_cvtepi16_epi32(_mm_loadu_si128(p)),
                _mm256_cvtepi16_epi32(_mm_loadu_si128(p + 1))};
}

/* Multiplies eight lanes: the first half of a group, or the second. */
INLINE void half_dot(const bool key, const unsigned char *x, uint32_t depth, const unsigned char *c,
                     size_t apart, const uint32_t nq, const bool asks, ptrdiff_t then, __m256i *sum)
{
    const __m256i none = _mm256_setzero_si256();
    __m256i a[CODED_AT_ONCE], b[CODED_AT_ONCE];
    _Pragma("GCC unroll 8") for (uint32_t i = 0; i < nq; i++) a[i] = b[i] = none;
    for (uint32_t e = 0; e < depth; e++, x += 64, c += 8) {
        __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)x);
        if (asks) __builtin_prefetch(x + then, 0, 2);
        __m256i lo =
            key ? _mm256_unpacklo_epi8(y, none) : _mm256_srai_epi16(_mm256_unpacklo_epi8(y, y), 8);
        __m256i hi =
            key ? _mm256_unpackhi_epi8(y, none) : _mm256_srai_epi16(_mm256_unpackhi_epi8(y, y), 8);
        _Pragma("GCC unroll 8") for (uint32_t i = 0; i < nq; i++)
        {
            long long four;
            memcpy(&four, c + i * apart, sizeof four);
            __m256i w = _mm256_set1_epi64x(four);
            a[i] = _mm256_add_epi32(a[i], _mm256_madd_epi16(lo, w));
            b[i] = _mm256_add_epi32(b[i], _mm256_madd_epi16(hi, w));
        }
    }
    _Pragma("GCC unroll 8") for (uint32_t i = 0; i < nq; i++) sum[i] =
        _mm256_hadd_epi32(a[i], b[i]);
}

INLINE void codes_dot(const bool key, const uint32_t bits, const uint8_t *level,
                      const unsigned char *x, size_t step, uint32_t depth, const unsigned char *c,
                      size_t apart, uint32_t n, const uint32_t nq, const uint32_t nb,
                      const bool asks, ptrdiff_t then, vi (*sum)[CODED_BLOCKS])
{
    (void)n, (void)bits, (void)level;
    for (uint32_t b = 0; b < nb; b++) {
        __m256i first[CODED_AT_ONCE], second[CODED_AT_ONCE];
        half_dot(key, x + b * step, depth, c, apart, nq, asks, then, first);
        half_dot(key, x + b * step + 32, depth, c, apart, nq, false, 0, second);
        for (uint32_t i = 0; i < nq; i++)
            sum[i][b] = (vi){first[i], second[i]};
    }
}

#include "dev/cpu/coded_vec.h"
#else
typedef int coded_avx2_unused;
#endif
