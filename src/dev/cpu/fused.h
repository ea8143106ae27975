/* fused.h - private to dev/cpu: attention of few queries over affine tiles (affine.h) without strips that other kernels read
 * again.  Sums have the order of raw rows, so bits are those of strips. */
#pragma once
#include "dev/affine.h"
#include "dev/reader.h"

#define FUSED_STRIPS 4u /* most strips of a call */

typedef bool fused_score_fn(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                            struct kv_next *next, const float *q, uint32_t nq, float scale,
                            float *p, size_t ldp);
typedef bool fused_add_fn(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                          struct kv_next *next, const float *p, size_t ldp, uint32_t nq, bool fresh,
                          float *o, size_t ldo);
fused_score_fn fused_score_avx2, fused_score_avx512;
fused_add_fn fused_add_avx2, fused_add_avx512;
/* The same for groups of channels, and for codes of 8 bits. */
fused_score_fn fused_score_each_avx2, fused_score_each_avx512;
fused_add_fn fused_add_each_avx2, fused_add_each_avx512;
