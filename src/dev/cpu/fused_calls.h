/* fused_calls.h - a function of its own for each type of rows and number of queries, in the tables score_of and add_of.  A file
 * includes it after `scores` and `sums`, after CALL, the struct that they take, and after ADD_FIRST and ADD_SECOND, the kinds of
 * `sums`. */
#include "dev/cpu/fused_vec.h"

typedef void score_fn(const struct kv_reading *r, const CALL *call, struct kv_next *next,
                      const float *q, float scale, float *p, size_t ldp);
typedef void add_fn(const struct kv_reading *r, const CALL *call, struct kv_next *next, uint32_t r0,
                    uint32_t r1, const float *p, size_t ldp, bool fresh, float *o, size_t ldo);
#define SCORE(t, nq)                                                                               \
    static void score_##t##_##nq(const struct kv_reading *r, const CALL *call,                     \
                                 struct kv_next *next, const float *q, float scale, float *p,      \
                                 size_t ldp)                                                       \
    {                                                                                              \
        scores(t, nq, r, call, next, q, scale, p, ldp);                                            \
    }
#define ADD(kind, nq)                                                                              \
    static void add_##kind##_##nq(const struct kv_reading *r, const CALL *call,                    \
                                  struct kv_next *next, uint32_t r0, uint32_t r1, const float *p,  \
                                  size_t ldp, bool fresh, float *o, size_t ldo)                    \
    {                                                                                              \
        sums(kind, nq, r, call, next, r0, r1, p, ldp, fresh, o, ldo);                              \
    }
FUSED_QUERIES(SCORE, DT_F16)
FUSED_QUERIES(SCORE, DT_BF16)
FUSED_QUERIES(ADD, ADD_FIRST)
FUSED_QUERIES(ADD, ADD_SECOND)
#define SCORE_NAME(t, nq)  score_##t##_##nq,
#define ADD_NAME(kind, nq) add_##kind##_##nq,
static score_fn *const score_of[2][FUSED_MOST] = {{FUSED_QUERIES(SCORE_NAME, DT_F16)},
                                                  {FUSED_QUERIES(SCORE_NAME, DT_BF16)}};
static add_fn *const add_of[2][FUSED_MOST] = {{FUSED_QUERIES(ADD_NAME, ADD_FIRST)},
                                              {FUSED_QUERIES(ADD_NAME, ADD_SECOND)}};
