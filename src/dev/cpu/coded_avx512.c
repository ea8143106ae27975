/* coded_avx512.c - coded tiles with AVX-512 VNNI (coded_vec.h has the rest).
 *
 * VPDPBUSD multiplies unsigned by signed bytes, four neighbours to a lane: 64 products.  Keys are unsigned and codes of
 * queries signed; values are signed and weights unsigned.  A weight of 16 bits is 256 * high + low, two instructions.  Codes
 * of 4 and of 2 bits become bytes in registers where few queries meet them. */
#if defined(__x86_64__)
#include "dev/cpu/tiles.h"
#include "dev/cpu/vec_avx512.h"

#define CODED_AT_ONCE 3u
#define CODED_BLOCKS  4u
#define CODED_FUSED   1
#define CODED_PUT4    1
#define CODED_TILES   1
#define UNROLL8       _Pragma("GCC unroll 8")

/* Writes codes as bytes.  Of the codes of weights it writes all high bytes first, then all low bytes. */
INLINE void codes_put(void *to, uint32_t n, uint32_t i, vi v, bool key)
{
    __mmask16 m = vec_mask(MIN(16, n - i));
    if (!key) _mm512_mask_cvtepi32_storeu_epi8((char *)to + i, m, vi_sar(v, 8));
    _mm512_mask_cvtepi32_storeu_epi8((char *)to + (key ? 0 : n) + i, m, v);
}
/* Writes the bytes of four vectors.  Packing transposes their 16-byte lanes, and the permutation undoes that. */
INLINE void codes_put4(void *to, uint32_t n, uint32_t i, const vi *v)
{
    const vi byte = _mm512_set1_epi16(255),
             order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    vi a = _mm512_packus_epi32(v[0], v[1]), b = _mm512_packus_epi32(v[2], v[3]);
    vi high = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
    vi low = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
    vb_store((char *)to + i, _mm512_permutexvar_epi32(order, high));
    vb_store((char *)to + n + i, _mm512_permutexvar_epi32(order, low));
}
INLINE vi codes_get(const void *from, uint32_t n, uint32_t i, uint32_t many)
{
    (void)n;
    return _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(vec_mask(many), (const char *)from + i));
}

INLINE vi four_bytes(const unsigned char *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return vi_set1(x);
}

/* Returns sum + products of unsigned bytes with signed ones.  This is assembly, because the compiler copies a sum
 * before and after its intrinsic. */
INLINE vi products(vi sum, vi bytes, vi with)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(with));
    return sum;
}

/* Multiplies group k of the lines at x, of nb blocks, with four codes of each of nq queries. */
INLINE void group_dot(const bool key, const uint32_t bits, vi level, const unsigned char *x,
                      size_t step, const uint32_t k, const unsigned char *c, size_t apart,
                      uint32_t n, const uint32_t nq, const uint32_t nb, vi (*high)[CODED_BLOCKS],
                      vi (*low)[CODED_BLOCKS])
{
    vi y[CODED_BLOCKS];
    UNROLL8 for (uint32_t b = 0; b < nb; b++)
    {
        y[b] = vb_load(x + b * step);
        if (bits < 8)
            y[b] = _mm512_shuffle_epi8(
                level, vb_and1(vb_shr(y[b], (int)(bits * k)), (uint8_t)((1u << bits) - 1)));
    }
    UNROLL8 for (uint32_t i = 0; i < nq; i++)
    {
        vi l = four_bytes(c + i * apart + (key ? 0 : n));
        UNROLL8 for (uint32_t b = 0; b < nb; b++) low[i][b] =
            key ? products(low[i][b], y[b], l) : products(low[i][b], l, y[b]);
        if (key) continue;
        vi h = four_bytes(c + i * apart);
        UNROLL8 for (uint32_t b = 0; b < nb; b++) high[i][b] = products(high[i][b], h, y[b]);
    }
}

INLINE void codes_dot(const bool key, const uint32_t bits, const uint8_t *level,
                      const unsigned char *x, size_t step, uint32_t depth, const unsigned char *c,
                      size_t apart, uint32_t n, const uint32_t nq, const uint32_t nb,
                      const bool asks, ptrdiff_t then, vi (*sum)[CODED_BLOCKS])
{
    vi high[CODED_AT_ONCE][CODED_BLOCKS], low[CODED_AT_ONCE][CODED_BLOCKS];
    const vi table = _mm512_broadcast_i32x4(v16_load(level));
    const uint32_t per = 8 / bits;
    UNROLL8 for (uint32_t i = 0; i < nq; i++) UNROLL8 for (uint32_t b = 0; b < nb; b++) high[i][b] =
        low[i][b] = vi_zero();
    for (; depth >= per; depth -= per, x += 64) {
        UNROLL8 for (uint32_t b = 0; asks && b < nb; b++)
            __builtin_prefetch(x + b * step + then, 0, 2);
        UNROLL8 for (uint32_t k = 0; k < per; k++, c += 4)
            group_dot(key, bits, table, x, step, k, c, apart, n, nq, nb, high, low);
    }
    for (uint32_t k = 0; k < depth; k++, c += 4)
        group_dot(key, bits, table, x, step, k, c, apart, n, nq, nb, high, low);
    UNROLL8 for (uint32_t i = 0; i < nq; i++) UNROLL8 for (uint32_t b = 0; b < nb; b++) sum[i][b] =
        key ? low[i][b] : vi_add(vi_shl(high[i][b], 8), low[i][b]);
}

#include "dev/cpu/coded_vec.h"
#else
typedef int coded_avx512_unused;
#endif
