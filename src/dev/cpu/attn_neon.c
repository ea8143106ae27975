/* attn_neon.c - attention with NEON (attn_vec.h has the kernels).  A vector is four registers, of which there are 32:
 * 6 queries of scores, 6 x 16 values of O. */
#if defined(__aarch64__)
#include "dev/cpu/vec_neon.h"

#define SCORE_MAX      6
#define SCORE_CASES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define PV_MAX         6
#define PV_VECS        1
#define PV_CASES(X)    X(1) X(2) X(3) X(4) X(5) X(6)

/* Nearest even, at most 65504 in size; NaN stays NaN. */
INLINE void vf_store_f16(void *p, vf x)
{
    w16_store(p, vec_to_f16(vf_max(vf_set1(-65504.0f), vf_min(vf_set1(65504.0f), x))));
}
INLINE void vf_store_bf16(void *p, vf x) /* of rounded values */
{
    w16_store(p, vec_to_bf16(x));
}

#include "dev/cpu/attn_vec.h"
#else
typedef int attn_neon_unused;
#endif
