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
/* 16 words that codes below 16 look up. */
typedef __m256i vtab;
INLINE vtab vec_table(enum dtype t, vf x)
{
    return vec_words(t, x);
}
INLINE void vec_look_up(vtab table, v16 codes, void *dst)
{
    _mm256_storeu_si256(dst, _mm256_permutexvar_epi16(_mm256_cvtepu8_epi16(codes), table));
}

/* Looks up all codes of a chunk; the lowest bits of a byte are the code of one of its first 16 values.  The
 * instruction looks up by the low five bits of a word.  So its 32 words are the table twice, and codes of 4 bits
 * need no mask. */
#define STRIP_WIDE 1
INLINE void vec_look_up_chunk(vtab table, const uint32_t bits, v16 codes, unsigned char *dst)
{
    const __m512i twice = _mm512_broadcast_i64x4(table),
                  all = _mm512_broadcast_i64x4(_mm256_cvtepu8_epi16(codes));
    for (uint32_t k = 0; k < 8; k += 2 * bits, dst += 64) {
        const __m256i low = _mm256_set1_epi16((short)k),
                      high = _mm256_set1_epi16((short)(k + bits));
        __m512i at = _mm512_srlv_epi16(all, vb_join(low, high));
        if (bits < 4) at = _mm512_and_si512(at, _mm512_set1_epi16((1 << bits) - 1));
        _mm512_storeu_si512(dst, _mm512_permutexvar_epi16(at, twice));
    }
}
/* Transposes 16 rows of 32 words to 32 columns of 16, by the rounds of transpose_words for two blocks at a time. */
INLINE void vec_transpose32(const uint16_t *row, uint32_t stride, unsigned char *dst)
{
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
                  second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    __m512i x[16], y[16];
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) x[i] =
        _mm512_loadu_si512(row + (size_t)i * stride);
    _Pragma("GCC unroll 4") for (int round = 0; round < 4; round++)
    {
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++)
        {
            y[2 * i] = _mm512_unpacklo_epi16(x[i], x[i + 8]);
            y[2 * i + 1] = _mm512_unpackhi_epi16(x[i], x[i + 8]);
        }
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) x[i] = y[i];
    }
    _Pragma("GCC unroll 8") for (int c = 0; c < 8; c++)
    {
        __m512i a = _mm512_permutex2var_epi64(x[2 * c], first, x[2 * c + 1]);
        __m512i b = _mm512_permutex2var_epi64(x[2 * c], second, x[2 * c + 1]);
        _mm256_storeu_si256((__m256i *)(void *)(dst + c * 32), _mm512_castsi512_si256(a));
        _mm256_storeu_si256((__m256i *)(void *)(dst + (c + 8) * 32),
                            _mm512_extracti64x4_epi64(a, 1));
        _mm256_storeu_si256((__m256i *)(void *)(dst + (c + 16) * 32), _mm512_castsi512_si256(b));
        _mm256_storeu_si256((__m256i *)(void *)(dst + (c + 24) * 32),
                            _mm512_extracti64x4_epi64(b, 1));
    }
}

#define STRIP_READER strip_reader_avx512
#include "dev/cpu/strip_vec.h"
#else
typedef int strip_avx512_unused;
#endif
