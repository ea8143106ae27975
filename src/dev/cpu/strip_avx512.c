/* strip_avx512.c - strips out of affine tiles with AVX-512 (strip_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/affine_avx512.h"
#include "dev/cpu/fused.h"
#include "dev/cpu/strip.h"

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

/* Wide strips: 64 channels of a row at a time.  The instruction looks up by the low five bits of a word.  So its 32
 * words are the table of one row twice, and codes need no mask, or the tables of two rows. */
#define STRIP_WIDE      1
#define STRIP_FIRST(p)  (2 * (p)) /* the rows of pair p */
#define STRIP_SECOND(p) (2 * (p) + 1)
typedef __m512i vwide;
INLINE vwide vec_join(enum dtype t, vf x, vf y)
{
    return vb_join(vec_words(t, x), vec_words(t, y));
}
/* Loads numbers i and i + pairs of the units of 16 rows. */
INLINE void vec_numbers(enum dtype t, const unsigned char *const *unit, size_t i, size_t pairs,
                        vf *a, vf *b)
{
    const __m512i at0 = _mm512_loadu_si512(unit), at1 = _mm512_loadu_si512(unit + 8);
    const int *first = (const int *)(2 * i), *second = (const int *)(2 * (i + pairs));
    __m512i x = vb_join(_mm512_i64gather_epi32(at0, first, 1),
                        _mm512_i64gather_epi32(at1, first, 1)),
            y;
    if (pairs == 1)
        y = _mm512_srli_epi32(x, 16);
    else
        y = vb_join(_mm512_i64gather_epi32(at0, second, 1), _mm512_i64gather_epi32(at1, second, 1));
    if (t == DT_F16) {
        *a = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
        *b = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(y));
    } else {
        *a = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
        *b = _mm512_castsi512_ps(_mm512_slli_epi32(y, 16));
    }
}
/* Looks up 64 values of a row.  A vector has two groups of 16 values: of 4 bits every second one, of 2 bits neighbours. */
INLINE void vec_look_up_row(vwide table, const uint32_t bits, const unsigned char *codes,
                            unsigned char *dst)
{
    if (bits == 4) {
        __m512i all =
            _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)codes));
        for (int k = 0; k < 2; k++, dst += 32, all = _mm512_srli_epi16(all, 4)) {
            __m512i x = _mm512_permutexvar_epi16(all, table);
            _mm256_storeu_si256((__m256i *)(void *)dst, _mm512_castsi512_si256(x));
            _mm256_storeu_si256((__m256i *)(void *)(dst + 64), _mm512_extracti64x4_epi64(x, 1));
        }
        return;
    }
    const __m512i all = _mm512_broadcast_i64x4(_mm256_cvtepu8_epi16(v16_load(codes)));
    for (short k = 0; k < 8; k += 4, dst += 64) {
        __m512i at =
            _mm512_srlv_epi16(all, vb_join(_mm256_set1_epi16(k), _mm256_set1_epi16(k + 2)));
        _mm512_storeu_si512(dst, _mm512_permutexvar_epi16(at, table));
    }
}
/* Loads the codes of 64 channels of two rows, a word of each in turn.  Codes of 2 bits fill half of a vector and stand
 * there twice. */
INLINE __m512i vec_codes(const uint32_t bits, const unsigned char *a, const unsigned char *b)
{
    if (bits == 4) {
        __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)a));
        __m512i y = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)b));
        return _mm512_or_si512(x, _mm512_slli_epi32(y, 16));
    }
    __m256i x = _mm256_cvtepu16_epi32(v16_load(a)), y = _mm256_cvtepu16_epi32(v16_load(b));
    return _mm512_broadcast_i64x4(_mm256_or_si256(x, _mm256_slli_epi32(y, 16)));
}
/* Returns the k-th of the four codes of every word, and beside it which of the two rows it belongs to. */
INLINE __m512i vec_index(const uint32_t bits, __m512i codes, int k)
{
    const __m512i mask = _mm512_set1_epi16((1 << bits) - 1), row = _mm512_set1_epi32(1 << 20);
    if (bits == 4)
        codes = _mm512_srli_epi16(codes, (unsigned)(4 * k));
    else
        codes = _mm512_srlv_epi16(codes, vb_join(_mm256_set1_epi16((short)(4 * k)),
                                                 _mm256_set1_epi16((short)(4 * k + 2))));
    return _mm512_ternarylogic_epi32(codes, mask, row, 0xea); /* codes & mask | row */
}
/* Writes 64 columns of 16 rows.  A vector has 16 channels of a pair of rows, their words in turn.  So pairs are
 * transposed as double words, in three rounds. */
INLINE void vec_look_up_columns(const vwide *table, const uint32_t bits, const __m512i *codes,
                                unsigned char *dst)
{
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
                  second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    const uint32_t apart = bits == 4 ? 32 : 16; /* channels of the halves of a vector */
    for (int k = 0; k < 4; k++) {
        __m512i x[8], y[8];
        uint32_t d = (uint32_t)(k >> 1) + (bits == 4 ? 16 : 32) * (uint32_t)(k & 1);
        _Pragma("GCC unroll 8") for (int p = 0; p < 8; p++) x[p] =
            _mm512_permutexvar_epi16(vec_index(bits, codes[p], k), table[p]);
        _Pragma("GCC unroll 4") for (int p = 0; p < 8; p += 2)
        {
            y[p] = _mm512_unpacklo_epi32(x[p], x[p + 1]);
            y[p + 1] = _mm512_unpackhi_epi32(x[p], x[p + 1]);
        }
        _Pragma("GCC unroll 4") for (int p = 0; p < 8; p += p % 2 ? 3 : 1)
        {
            x[p] = _mm512_unpacklo_epi64(y[p], y[p + 2]);
            x[p + 2] = _mm512_unpackhi_epi64(y[p], y[p + 2]);
        }
        _Pragma("GCC unroll 4") for (uint32_t p = 0; p < 4; p++)
        {
            /* Double word p % 2 * 2 + p / 2 of every 128 bits. */
            unsigned char *at = dst + (d + 4 * (p % 2) + 2 * (p / 2)) * 32;
            for (uint32_t h = 0; h < 2; h++, at += apart * 32) {
                __m512i c = _mm512_permutex2var_epi64(x[p], h ? second : first, x[p + 4]);
                _mm256_storeu_si256((__m256i *)(void *)at, _mm512_castsi512_si256(c));
                _mm256_storeu_si256((__m256i *)(void *)(at + 8 * 32),
                                    _mm512_extracti64x4_epi64(c, 1));
            }
        }
    }
}

#define STRIP_FEW    , .score_few = fused_score_avx512, .add_few = fused_add_avx512
#define STRIP_RUN    FUSED_STRIPS
#define STRIP_READER strip_reader_avx512
#include "dev/cpu/strip_vec.h"
#else
typedef int strip_avx512_unused;
#endif
