/* fused_avx2.h - fused_vec.h with AVX2: values as words in memory.  There are 16 registers, and sums of products need them all.  So
 * 64 channels of a strip are looked up first, and then the products load and convert them, which costs no more than registers. */
#pragma once
#include "dev/cpu/affine_avx2.h"
#include "dev/cpu/fused_vec.h"

/* 64 channels of a strip: of keys [channel][row]; of values [pair][8 channels][row], where pair p has rows p and p + 8. */
typedef uint16_t fused_keys[64][KV_STRIP];
typedef uint16_t fused_values[8][8][2][8];

INLINE __m256 floats_of(enum dtype t, const uint16_t *p)
{
    const __m128i *h = (const void *)p;
    return t == DT_F16 ? _mm256_cvtph_ps(_mm_loadu_si128(h)) : vec_from_bf16(h);
}
INLINE void put_words(uint16_t *p, __m256i x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x);
}
/* Returns the same pointer, but the compiler forgets what it loaded by it, and takes fewer registers.  A sum that does not stay in
 * its register takes three times as long. */
INLINE const float *again(const float *p)
{
    __asm__ volatile("" : "+r"(p));
    return p;
}

/* Adds the products of 64 channels of ns strips to their scores, and multiplies them by scale. */
INLINE void score_words(enum dtype t, const uint32_t nq, const uint32_t ns, const fused_keys *v,
                        struct kv_next *next, const float *q, bool fresh, float scale, float *p,
                        size_t ldp)
{
    vf acc[2][FUSED_MOST];
    UNROLL for (uint32_t s = 0; s < ns; s++) UNROLL for (uint32_t i = 0; i < nq; i++) acc[s][i] =
        fresh ? vf_zero() : vf_load(p + i * ldp + s * KV_STRIP);
    for (uint32_t c0 = 0; c0 < 64; c0 += 4) {
        prefetch_tiles(next, ns);
        UNROLL for (uint32_t c = c0; c < c0 + 4; c++, q += nq)
        {
            UNROLL for (uint32_t s = 0; s < ns; s++)
            {
                const vf x = {floats_of(t, v[s][c]), floats_of(t, v[s][c] + 8)};
                const float *qc = again(q);
                UNROLL for (uint32_t i = 0; i < nq; i++) acc[s][i] =
                    vf_fma(vf_set1(qc[i]), x, acc[s][i]);
            }
        }
    }
    UNROLL for (uint32_t s = 0; s < ns; s++) UNROLL for (uint32_t i = 0; i < nq; i++)
        vf_store(p + i * ldp + s * KV_STRIP, vf_mul(acc[s][i], vf_set1(scale)));
}

/* Adds rows [j0, j1) of a strip to nv vectors of 8 channels. */
INLINE void add_words(enum dtype t, const uint32_t nq, const uint32_t nv, const fused_values v,
                      struct kv_next *next, uint32_t c0, uint32_t j0, uint32_t j1, const float *p,
                      size_t ldp, bool fresh, float *o, size_t ldo)
{
    __m256 acc[FUSED_MOST][4];
    UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < nv; c++) acc[i][c] =
        fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(o + i * ldo + 8 * (c0 + c));
    for (uint32_t j = j0; j < j1; j++) {
        if (c0 == 0) prefetch_tiles(next, 1);
        UNROLL for (uint32_t c = 0; c < nv; c++)
        {
            const __m256 x = floats_of(t, v[j % 8][c0 + c][j / 8]);
            UNROLL for (uint32_t i = 0; i < nq; i++) acc[i][c] =
                _mm256_fmadd_ps(_mm256_set1_ps(p[i * ldp + j]), x, acc[i][c]);
        }
    }
    UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < nv; c++)
        _mm256_storeu_ps(o + i * ldo + 8 * (c0 + c), acc[i][c]);
}
