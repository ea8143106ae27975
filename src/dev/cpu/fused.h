/* fused.h - private to dev/cpu: attention of few queries over affine tiles of one row (affine.h), whose codes become products in
 * registers.  No strips are written.  Sums have the order of raw rows, so bits are those of strips. */
#pragma once
#include "dev/affine.h"
#include "dev/reader.h"

#define FUSED_STRIPS 4u /* most strips of a call */

bool fused_score_avx512(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                        struct kv_next *next, const float *q, uint32_t nq, float scale, float *p,
                        size_t ldp);
bool fused_add_avx512(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                      struct kv_next *next, const float *p, size_t ldp, uint32_t nq, bool fresh,
                      float *o, size_t ldo);
/* The same for groups of channels, and for codes of 8 bits. */
bool fused_score_each_avx512(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                             struct kv_next *next, const float *q, uint32_t nq, float scale,
                             float *p, size_t ldp);
bool fused_add_each_avx512(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                           struct kv_next *next, const float *p, size_t ldp, uint32_t nq,
                           bool fresh, float *o, size_t ldo);
