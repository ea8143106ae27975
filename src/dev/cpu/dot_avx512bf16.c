/* dot_avx512bf16.c - bf16 weights with VDPBF16PS, a path with its own rounding (dev.h): lane l sums the
 * pairs (k, k + 1), k = 32c + 2l, ascending in c, each instruction rounding and flushing as it does; a tail
 * shorter than 32 is padded with zeros.  The order is the same for one token and for many. */
#if defined(__x86_64__)
#include "dev/cpu/cpu.h"
#include "dev/cpu/vec_avx512.h"

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

INLINE __m512bh pairs(const unsigned char *p)
{
    return (__m512bh)_mm512_loadu_si512(p);
}
INLINE __m512bh pairs_n(const unsigned char *p, uint32_t n)
{
    return (__m512bh)_mm512_maskz_loadu_epi16((1u << n) - 1, p);
}

/* Computes `rows` rows from r0 for `tokens` tokens.  Rows past the end repeat the last row and are dropped. */
INLINE void block(const struct cpu_mm *j, uint32_t r0, int rows, uint32_t t0, int tokens)
{
    const unsigned char *w[8], *x[4];
    __m512 acc[8][4];
    UNROLL for (int r = 0; r < rows; r++)
    {
        w[r] = j->w + MIN(r0 + (uint32_t)r, j->rows - 1) * j->row_bytes;
        UNROLL for (int t = 0; t < tokens; t++) acc[r][t] = _mm512_setzero_ps();
    }
    UNROLL for (int t = 0; t < tokens; t++) x[t] = j->x + (t0 + (uint32_t)t) * j->ldx;
    size_t whole = (size_t)(j->k & ~31u) * 2, i = 0;
    for (; i < whole; i += 64) {
        __m512bh xv[4];
        UNROLL for (int t = 0; t < tokens; t++) xv[t] = pairs(x[t] + i);
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m512bh wv = pairs(w[r] + i);
            UNROLL for (int t = 0; t < tokens; t++) acc[r][t] =
                _mm512_dpbf16_ps(acc[r][t], xv[t], wv);
        }
    }
    if (j->k % 32) {
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m512bh wv = pairs_n(w[r] + i, j->k % 32);
            UNROLL for (int t = 0; t < tokens; t++) acc[r][t] =
                _mm512_dpbf16_ps(acc[r][t], pairs_n(x[t] + i, j->k % 32), wv);
        }
    }
    for (int t = 0; t < tokens; t++)
        for (int r = 0; r < rows && r0 + (uint32_t)r < j->rows; r++) {
            float y = vf_tree(acc[r][t]);
            j->y[(t0 + (uint32_t)t) * j->ldy + r0 + (uint32_t)r] =
                j->bias ? y + j->bias[r0 + (uint32_t)r] : y;
        }
}

/* Short rows are read one at a time, as in dot_vec.h, so that memory is one stream. */
static void gemv_bf16_pairs(const struct cpu_mm *j)
{
    uint32_t r = 0;
    if (j->row_bytes >= 6144)
        for (; r < j->rows; r += 8)
            block(j, r, 8, 0, 1);
    for (; r < j->rows; r++)
        block(j, r, 1, 0, 1);
}
CPU_KERNEL(DEV_AVX512BF16, CPU_GEMV_BF16, DT_BF16, gemv_bf16_pairs);

static void mm_bf16_pairs(const struct cpu_mm *j)
{
    for (uint32_t r = 0; r < j->rows; r += 4) {
        uint32_t t = 0;
        for (; t + 4 <= j->n; t += 4)
            block(j, r, 4, t, 4);
        for (; t < j->n; t++)
            block(j, r, 4, t, 1);
    }
}
CPU_KERNEL(DEV_AVX512BF16, CPU_MM_BF16, CPU_ANY, mm_bf16_pairs);

/* Rounds to nearest even in integers.  The conversion instruction would flush subnormals, and so do the products;
 * but one rule for all paths is easier to state. */
static void pack_bf16(const float *x, uint32_t k, void *out)
{
    unsigned char *o = out;
    for (uint32_t i = 0; i < k; i += 16) {
        uint32_t n = MIN(k - i, 16);
        __m512i v = _mm512_castps_si512(vf_round_bf16(vf_load_n(x + i, n)));
        _mm256_mask_storeu_epi16(o + 2 * i, vec_mask(n),
                                 _mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
    }
}
CPU_KERNEL(DEV_AVX512BF16, CPU_ROUND_BF16, CPU_ANY, pack_bf16);
#else
typedef int dot_avx512bf16_unused;
#endif
