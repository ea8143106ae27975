/* strip_avx2.c - strips out of affine tiles with AVX2 and F16C (strip_vec.h has the kernels). */
#if defined(__x86_64__)
#include "dev/cpu/affine_avx2.h"
#include "dev/cpu/fused.h"
#include "dev/cpu/strip.h"

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

/* Wide strips: 64 channels of a row at a time.  The instruction looks up in both halves of a register by themselves, so two
 * rows go together: those whose words lie in the two halves of a column. */
#define STRIP_WIDE      1
#define STRIP_FIRST(p)  (p) /* the rows of pair p */
#define STRIP_SECOND(p) ((p) + 8)
/* A table of two rows: their low bytes and their high bytes.  Or codes of 64 channels of two rows; codes of 2 bits have no
 * second vector. */
typedef struct {
    __m256i lo, hi;
} vwide;
INLINE vwide vec_join(enum dtype t, vf x, vf y)
{
    const __m256i low = _mm256_set1_epi16(0xff);
    __m256i a = vec_words(t, x), b = vec_words(t, y);
    __m256i l = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
    __m256i h = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    return (vwide){_mm256_permute4x64_epi64(l, 0xd8), _mm256_permute4x64_epi64(h, 0xd8)};
}
/* Loads numbers i and i + pairs of the units of 16 rows. */
INLINE void vec_numbers(enum dtype t, const unsigned char *const *unit, size_t i, size_t pairs,
                        vf *a, vf *b)
{
    int32_t two[KV_STRIP]; /* the first number in the low half */
    _Pragma("GCC unroll 16") for (uint32_t r = 0; r < KV_STRIP; r++)
    {
        uint16_t second;
        memcpy(&two[r], unit[r] + 2 * i, sizeof two[r]);
        if (pairs == 1) continue;
        memcpy(&second, unit[r] + 2 * (i + pairs), sizeof second);
        two[r] = (int32_t)(((uint32_t)two[r] & 0xffff) | (uint32_t)second << 16);
    }
    vi x = vi_load(two);
    if (t == DT_F16) {
        *a = vf_low_f16(x);
        *b = vf_high_f16(x);
        return;
    }
    vi low = vi_shl(x, 16), high = vi_and(x, 0xffff0000u);
    *a = (vf){_mm256_castsi256_ps(low.a), _mm256_castsi256_ps(low.b)};
    *b = (vf){_mm256_castsi256_ps(high.a), _mm256_castsi256_ps(high.b)};
}
/* Looks up 32 values: words of the first 8 channels of each half, then of the others. */
INLINE void vec_words_of(const vwide *table, __m256i codes, __m256i *out)
{
    __m256i l = _mm256_shuffle_epi8(table->lo, codes), h = _mm256_shuffle_epi8(table->hi, codes);
    out[0] = _mm256_unpacklo_epi8(l, h);
    out[1] = _mm256_unpackhi_epi8(l, h);
}
/* Looks up 64 values of a row.  A vector has two groups of 16 channels: of 4 bits every second one, of 2 bits
 * neighbours. */
INLINE void vec_look_up_row(vwide table, const uint32_t bits, const unsigned char *codes,
                            unsigned char *dst)
{
    const __m256i mask = _mm256_set1_epi8((1 << bits) - 1);
    const size_t apart = bits == 4 ? 64 : 32;
    __m256i all =
        bits == 4 ? _mm256_loadu_si256((const __m256i *)(const void *)codes)
                  : _mm256_srlv_epi32(vec_two(codes, 0), _mm256_set_epi32(2, 2, 2, 2, 0, 0, 0, 0));
    for (int k = 0; k < 2; k++, all = _mm256_srli_epi16(all, 4), dst += bits == 4 ? 32 : 64) {
        __m256i x[2];
        vec_words_of(&table, _mm256_and_si256(all, mask), x);
        _mm256_storeu_si256((__m256i *)(void *)dst, _mm256_permute2x128_si256(x[0], x[1], 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(dst + apart),
                            _mm256_permute2x128_si256(x[0], x[1], 0x31));
    }
}
INLINE vwide vec_codes(const uint32_t bits, const unsigned char *a, const unsigned char *b)
{
    vwide x = {_mm256_set_m128i(v16_load(b), v16_load(a)), _mm256_setzero_si256()};
    if (bits == 4) x.hi = _mm256_set_m128i(v16_load(b + 16), v16_load(a + 16));
    return x;
}
/* Transposes 8 rows of 8 words in both halves, and writes 8 columns of 16 words. */
INLINE void vec_columns(const __m256i *row, unsigned char *dst)
{
    __m256i x[8], y[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) x[i] = row[i];
    _Pragma("GCC unroll 3") for (int round = 0; round < 3; round++)
    {
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
        {
            y[2 * i] = _mm256_unpacklo_epi16(x[i], x[i + 4]);
            y[2 * i + 1] = _mm256_unpackhi_epi16(x[i], x[i + 4]);
        }
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) x[i] = y[i];
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++)
        _mm256_storeu_si256((__m256i *)(void *)(dst + (size_t)i * 32), x[i]);
}
/* Writes 64 columns of 16 rows. */
INLINE void vec_look_up_columns(const vwide *table, const uint32_t bits, const vwide *codes,
                                unsigned char *dst)
{
    const __m256i mask = _mm256_set1_epi8((1 << bits) - 1);
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++, dst += (size_t)16 * 32)
    {
        const int shift = bits == 4 ? 4 * (k % 2) : 2 * k;
        __m256i first[8], second[8];
        _Pragma("GCC unroll 8") for (int p = 0; p < 8; p++)
        {
            __m256i x[2], c = bits == 4 && k >= 2 ? codes[p].hi : codes[p].lo;
            vec_words_of(&table[p], _mm256_and_si256(_mm256_srli_epi16(c, shift), mask), x);
            first[p] = x[0];
            second[p] = x[1];
        }
        vec_columns(first, dst);
        vec_columns(second, dst + (size_t)8 * 32);
    }
}

#define STRIP_FEW    , .score_few = fused_score_avx2, .add_few = fused_add_avx2
#define STRIP_RUN    FUSED_STRIPS
#define STRIP_READER strip_reader_avx2
#include "dev/cpu/strip_vec.h"
#else
typedef int strip_avx2_unused;
#endif
