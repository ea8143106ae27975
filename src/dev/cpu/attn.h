/* attn.h - private to dev/cpu: the contract between the attention driver (attn.c and the files of attn_job.h),
 * which walks atoms and owns every decision that fixes the reduction order, and its kernels (attn_ref.c
 * and the ISA siblings), which do arithmetic on the strips of one atom and know nothing of tables or threads.
 *
 * A partial result ("state") is one block of floats per query: [0] M, [1] L, [ATTN_HEAD ..] O[dim], padded to
 * a multiple of 16.  L == 0 means that no atom has been merged yet (a real L is at least 1, or NaN). */
#pragma once
#include "dev/reader.h"

#define ATTN_STRIPS (KV_ATOM / KV_STRIP) /* of one span */
#define ATTN_WAVE   64u                  /* atoms of a decode wave: bounds the scratch */
#define ATTN_BLOCK  48u                  /* queries of a prefill block: p and O of all stay in L2 */
#define ATTN_MOST   (2 * ATTN_BLOCK) /* ... where readers open tiles, which then serve more of them */
#define ATTN_HEAD   16u              /* floats of a state before O, so that O is aligned */
#define ATTN_TURNED 2u               /* flag of a state: the function `end` must still run on O */
/* queries of a block that read an opened tile together; more would share the cost of reading it further, but their p
 * would no longer fit in L2 */
#define ATTN_AT_ONCE 48u

struct attn_kernels {
    uint32_t score_max, pv_max; /* most queries one call takes */
    /* Computes scores of nq queries with strips [s0, s1) of K, times scale: p[i][16 * s + row].  All 16 rows of a
     * strip are computed, visible or not; rows do not affect each other.  qt: [dim][nq].  p: rows of KV_ATOM.  While
     * strip s is computed, next[s] is prefetched; next may be NULL. */
    void (*score)(enum dtype t, const float *qt, uint32_t nq, uint32_t dim, const void *const *k,
                  const void *const *next, uint32_t s0, uint32_t s1, float scale, float *p);
    /* Turns the scores of rows [a, b) of one query into p = exp(s - max), after the softcap.  Stores max and the sum
     * in state[0..1]. */
    void (*soft)(float *p, uint32_t a, uint32_t b, float softcap, float *state);
    /* O[i][d] += p[i][j] * v[j][d], j ascending over rows [r0, r1); O at stride ld.  v: strips; next: as above.
     * fresh: O counts as 0, whatever it is. */
    void (*pv)(enum dtype t, const float *p, uint32_t nq, const void *const *v,
               const void *const *next, uint32_t r0, uint32_t r1, uint32_t dim, bool fresh,
               float *o, size_t ld);
    void (*merge)(float *run, const float *part, uint32_t dim); /* run <- run + part */
    void (*done)(const float *run, uint32_t dim, float *out);   /* out = O * (1/L), 0 if L is 0 */
};
/* Registered whole, as CPU_ATTN_ATOM of CPU_ANY, by a function that returns it. */
typedef const struct attn_kernels *(*attn_kernels_fn)(void);

/* The rows [*a, *b) of one phase of a token's walk, absolute and inside the piece.  lossy: a plane has a codec that
 * loses something; then raw rows come in pieces of their own, after all sealed ones. */
enum attn_phase { ATTN_SEALED, ATTN_SINKS, ATTN_LEAD, ATTN_TAIL, ATTN_PHASES };
void attn_phase_rows(const struct kv_view *v, bool lossy, uint32_t token, uint32_t phase,
                     uint32_t *a, uint32_t *b);

/* Adds the bias of the distance to the scores of rows [a, b), absolute, of one query; p[0] is row a's. */
static inline void attn_bias(const struct dev_bias *bias, uint32_t head, uint32_t pos, uint32_t a,
                             uint32_t b, float *p)
{
    if (!bias) return;
    const float *w = bias->w + (size_t)head * (bias->back + 1 + (size_t)bias->ahead) + bias->back;
    for (uint32_t j = a; j < b; j++) {
        int64_t apart = (int64_t)j - pos;
        apart = MIN(MAX(apart, -(int64_t)bias->back), (int64_t)bias->ahead);
        p[j - a] += w[apart];
    }
}

/* Rounds n values to one type of cache row; registered as CPU_KV_ROUND of that type. */
typedef void (*kv_round_fn)(const float *x, uint32_t n, void *out);
