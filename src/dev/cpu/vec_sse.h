/* vec_sse.h - 16 bytes as one vector (v16), and 16 words (w16), for vec_avx2.h, vec_eight_avx2.h and vec_avx512.h, which
 * include it after INLINE.  vec_neon.h has the same names. */
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m128i v16;
typedef __m256i w16; /* words 0..7 in its low half */

INLINE v16 v16_load(const void *p)
{
    return _mm_loadu_si128(p);
}
INLINE void v16_store(void *p, v16 v)
{
    _mm_storeu_si128(p, v);
}
INLINE v16 v16_from_u32(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return _mm_set_epi32((int)d, (int)c, (int)b, (int)a);
}
INLINE v16 v16_or(v16 a, v16 b)
{
    return _mm_or_si128(a, b);
}
INLINE v16 v16_and1(v16 v, uint8_t m)
{
    return _mm_and_si128(v, _mm_set1_epi8((char)m));
}
INLINE v16 v16_xor1(v16 v, uint8_t m)
{
    return _mm_xor_si128(v, _mm_set1_epi8((char)m));
}
INLINE v16 v16_shl(v16 v, int n) /* bits cross bytes: mask first */
{
    return _mm_slli_epi16(v, n);
}
INLINE v16 v16_shr(v16 v, int n) /* mask after */
{
    return _mm_srli_epi16(v, n);
}
/* Bytes of a and b in turn: of their first halves, of their second. */
INLINE v16 v16_zip_lo(v16 a, v16 b)
{
    return _mm_unpacklo_epi8(a, b);
}
INLINE v16 v16_zip_hi(v16 a, v16 b)
{
    return _mm_unpackhi_epi8(a, b);
}

INLINE w16 w16_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
/* In each half: words of a and b in turn, of the first four, of the last four. */
INLINE w16 w16_zip_lo(w16 a, w16 b)
{
    return _mm256_unpacklo_epi16(a, b);
}
INLINE w16 w16_zip_hi(w16 a, w16 b)
{
    return _mm256_unpackhi_epi16(a, b);
}
/* The low halves of a and b, or their high ones. */
INLINE void w16_store_lo(void *p, w16 a, w16 b)
{
    _mm256_storeu_si256(p, _mm256_permute2x128_si256(a, b, 0x20));
}
INLINE void w16_store_hi(void *p, w16 a, w16 b)
{
    _mm256_storeu_si256(p, _mm256_permute2x128_si256(a, b, 0x31));
}
/* Four bytes of each of four rows, in registers throughout: words stored one by one and loaded as a vector would stall. */
INLINE v16 vec_column(const unsigned char *p, size_t stride)
{
    int32_t w[4];
    memcpy(&w[0], p, 4);
    memcpy(&w[1], p + stride, 4);
    memcpy(&w[2], p + 2 * stride, 4);
    memcpy(&w[3], p + 3 * stride, 4);
    v16 v = _mm_cvtsi32_si128(w[0]);
    v = _mm_insert_epi32(v, w[1], 1);
    v = _mm_insert_epi32(v, w[2], 2);
    return _mm_insert_epi32(v, w[3], 3);
}
