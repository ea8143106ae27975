/* fused_avx512.c - attention of few queries over affine tiles of one row with AVX-512 (fused.h).
 *
 * A group of codes of 2 or 4 bits has at most 16 values.  They are computed once and fill a register, and one instruction lets
 * 16 codes pick from it.  So values (V) go from codes to products, channels in the lanes.  Scores have rows in the lanes: two
 * rows pick at once, as words, and 16 channels of 16 rows are transposed. */
#if defined(__x86_64__)
#include "dev/cpu/fused_avx512.h"

/* Computes the values of group g of all rows, [row][code], as floats or (words) in the type of rows. */
static __attribute__((noinline)) void tables(const struct kv_reading *r, const bool words,
                                             const struct rows *rows, uint32_t g, void *table)
{
    const struct kv_affine *f = r->codec->param;
    const size_t a = rows->numbers + (size_t)2 * g,
                 b = a + (size_t)2 * affine_pairs(f, r->shape->dim);
    for (uint32_t s = 0; s < rows->strips; s++) {
        unsigned char *out = (unsigned char *)table + (size_t)s * KV_STRIP * (words ? 32 : 64);
#define CASE(t, zero)                                                                              \
    if (r->shape->dtype == t && f->zero_first == zero) {                                           \
        vf x = row_numbers(t, rows->base[s], a), y = row_numbers(t, rows->base[s], b);             \
        if (words)                                                                                 \
            tables_of(t, zero, true, f->bits, x, y, out);                                          \
        else                                                                                       \
            tables_of(t, zero, false, f->bits, x, y, out);                                         \
    }
        FUSED_KINDS(CASE)
#undef CASE
    }
}

/* Transposes 16 channels of 8 pairs of rows, whose words come in turn.  x[c] gets columns c and, in its upper half, c + 4, and
 * x[c + 4] gets columns c + 8 and c + 12, for c < 4. */
INLINE void transpose(__m512i *x)
{
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
                  second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    __m512i y[8];
    UNROLL for (int p = 0; p < 8; p += 2)
    {
        y[p] = _mm512_unpacklo_epi32(x[p], x[p + 1]);
        y[p + 1] = _mm512_unpackhi_epi32(x[p], x[p + 1]);
    }
    UNROLL for (int p = 0; p < 8; p += 4)
    {
        UNROLL for (int h = 0; h < 2; h++)
        {
            x[p + 2 * h] = _mm512_unpacklo_epi64(y[p + h], y[p + 2 + h]);
            x[p + 2 * h + 1] = _mm512_unpackhi_epi64(y[p + h], y[p + 2 + h]);
        }
    }
    UNROLL for (int c = 0; c < 4; c++)
    {
        y[c] = _mm512_permutex2var_epi64(x[c], first, x[c + 4]);
        y[c + 4] = _mm512_permutex2var_epi64(x[c], second, x[c + 4]);
    }
    UNROLL for (int i = 0; i < 8; i++) x[i] = y[i];
}

/* Adds the products of channels [d, d + 128 / bits) of a strip to the scores. */
INLINE void score_chunk(enum dtype t, const uint32_t nq, uint32_t bits,
                        const unsigned char *const *base, size_t at, const uint16_t (*table)[16],
                        struct kv_next *next, const float *q, vf *acc)
{
    const __m512i mask = _mm512_set1_epi16(15), second = _mm512_set1_epi32(1 << 20);
    const __m128i shift = _mm_cvtsi32_si128((int)bits);
    __m512i codes[8];
    UNROLL for (uint32_t i = 0; i < 8; i++)
    {
        __m512i x = _mm512_cvtepu8_epi32(v16_load(base[2 * i] + at));
        __m512i y = _mm512_cvtepu8_epi32(v16_load(base[2 * i + 1] + at));
        codes[i] = _mm512_or_si512(x, _mm512_slli_epi32(y, 16));
    }
    for (uint32_t k = 0; k < 8 / bits; k++, q += 16 * nq) {
        __m512i x[8];
        prefetch_tiles(next, 2);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            /* codes & mask | second: the instruction picks of 32 words, the values of two rows */
            x[i] = _mm512_permutexvar_epi16(_mm512_ternarylogic_epi32(codes[i], mask, second, 0xea),
                                            _mm512_loadu_si512(table[2 * i]));
            codes[i] = _mm512_srl_epi16(codes[i], shift);
        }
        transpose(x);
        UNROLL for (uint32_t c = 0; c < 16; c++)
        {
            const __m512i two = x[c / 8 * 4 + c % 4];
            const vf v = from_words(t, c & 4 ? _mm512_extracti64x4_epi64(two, 1)
                                             : _mm512_castsi512_si256(two));
            UNROLL for (uint32_t i = 0; i < nq; i++) acc[i] =
                vf_fma(vf_set1(q[c * nq + i]), v, acc[i]);
        }
    }
}

INLINE void scores(enum dtype t, const uint32_t nq, const struct kv_reading *r,
                   const struct rows *rows, struct kv_next *next, const float *q, float scale,
                   float *p, size_t ldp)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, group = MIN(f->group, dim), bits = f->bits;
    uint16_t table[FUSED_STRIPS * KV_STRIP][16];
    for (uint32_t d0 = 0; d0 < dim; d0 += group) {
        const vf last = vf_set1(d0 + group == dim ? scale : 1); /* times 1 is exact */
        tables(r, true, rows, d0 / group, table);
        for (uint32_t s = 0; s < rows->strips; s++) {
            float *to = p + s * KV_STRIP;
            vf acc[FUSED_MOST];
            UNROLL for (uint32_t i = 0; i < nq; i++) acc[i] =
                d0 ? vf_load(to + i * ldp) : vf_zero();
            for (uint32_t d = d0; d < d0 + group; d += 128 / bits)
                score_chunk(t, nq, bits, rows->base[s], rows->codes + (size_t)d * bits / 8,
                            (const uint16_t(*)[16])table + s * KV_STRIP, next, q + (size_t)d * nq,
                            acc);
            UNROLL for (uint32_t i = 0; i < nq; i++) vf_store(to + i * ldp, vf_mul(acc[i], last));
        }
    }
}

/* Lets the k-th of the codes of each of 16 bytes pick.  The instruction reads four bits of a lane. */
INLINE vf pick(const unsigned char *codes, const uint32_t bits, uint32_t k, vf table)
{
    __m512i x = _mm512_cvtepu8_epi32(v16_load(codes));
    if (k) x = _mm512_srli_epi32(x, bits * k);
    return _mm512_permutexvar_ps(x, table);
}

INLINE void sums(const uint32_t bits, const uint32_t nq, const struct kv_reading *r,
                 const struct rows *rows, struct kv_next *next, uint32_t r0, uint32_t r1,
                 const float *p, size_t ldp, bool fresh, float *o, size_t ldo)
{
    const struct kv_affine *f = r->codec->param;
    const uint32_t dim = r->shape->dim, group = MIN(f->group, dim);
    float table[FUSED_STRIPS * KV_STRIP][16];
    for (uint32_t d = 0; d < dim; d += 64) {
        vf acc[FUSED_MOST][4];
        if (d % group == 0) tables(r, false, rows, d / group, table);
        UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < 4; c++) acc[i][c] =
            fresh ? vf_zero() : vf_load(o + i * ldo + d + 16 * c);
        for (uint32_t j = r0; j < r1; j++) {
            const unsigned char *codes =
                rows->base[j / KV_STRIP][j % KV_STRIP] + rows->codes + (size_t)d * bits / 8;
            const vf look = vf_load(table[j]);
            prefetch_tiles(next, 1);
            UNROLL for (uint32_t c = 0; c < 4; c++)
            {
                const vf v = pick(codes + c * bits / 8 * 16, bits, c % (8 / bits), look);
                UNROLL for (uint32_t i = 0; i < nq; i++) acc[i][c] =
                    vf_fma(vf_set1(p[i * ldp + j]), v, acc[i][c]);
            }
        }
        UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < 4; c++)
            vf_store(o + i * ldo + d + 16 * c, acc[i][c]);
    }
}

#define ADD_FIRST  2
#define ADD_SECOND 4
static bool add_second(const struct kv_reading *r)
{
    const struct kv_affine *f = r->codec->param;
    return f->bits == 4;
}
#include "dev/cpu/fused_rows.h"
#else
typedef int fused_avx512_unused;
#endif
