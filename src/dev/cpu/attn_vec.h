/* attn_vec.h - the attention kernels of attn_ref.c on vectors of 16 lanes, stated once for AVX2 and
 * AVX-512: attn_avx2.c and attn_avx512.c include it after the vec_*.h that gives the vectors and after
 * saying how many queries fit their registers.
 *
 * Scores: lanes are the rows of a strip; one load of K serves all queries of the call.  Values: lanes are
 * dims; one load of V serves all queries.  Every lane of every accumulator is one chain of the canonical
 * order, so the number of chains that run side by side does not change the result. */
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/mathfn_vec.h"

#include <math.h>

#ifndef SCORE_PAIR
#define SCORE_PAIR 0 /* most queries of two strips at once */
#endif
#ifndef PV_FEW
#define PV_FEW       PV_MAX /* up to so many queries O has PV_VECS vectors each, above PV_VECS_MANY */
#define PV_VECS_MANY PV_VECS
#endif
#if defined(__clang__)
#define UNROLL      _Pragma("unroll")
#define UNROLL_SOME _Pragma("unroll 4")
#else
#define UNROLL      _Pragma("GCC unroll 16")
#define UNROLL_SOME _Pragma("GCC unroll 4")
#endif

/* Loads 16 values of a row or strip from element i on; t is constant where this is inlined. */
INLINE vf load16(enum dtype t, const void *p, size_t i)
{
    if (t == DT_F16) return vf_from_f16((const uint16_t *)p + i);
    if (t == DT_BF16) return vf_from_bf16((const uint16_t *)p + i);
    return vf_load((const float *)p + i);
}

/* Loads the first n of 16 values, and touches nothing behind them. */
INLINE vf load_n(enum dtype t, const void *p, size_t i, uint32_t n)
{
    uint16_t half[16] = {0};
    if (t == DT_F32) return vf_load_n((const float *)p + i, n);
    memcpy(half, (const uint16_t *)p + i, n * sizeof *half);
    return load16(t, half, 0);
}

/* Returns the same pointer, but the compiler forgets what it loaded by it.  Values that all vectors of a row need
 * are then loaded again, which costs less than registers that spill. */
INLINE const float *again(const float *p)
{
    __asm__("" : "+r"(p));
    return p;
}

/* Prefetches the lines of the n bytes at p.  An earlier call may have asked for some of these lines. */
INLINE void ask(const void *p, const uint32_t n)
{
    UNROLL for (uint32_t i = 0; i < n; i += 64) __builtin_prefetch((const char *)p + i, 0, 2);
}

/* Computes the scores of strips [s, s + ns).  A strip of few queries has too few chains to keep the processor busy,
 * so two strips go together. */
INLINE void score_some(enum dtype t, const uint32_t nq, const uint32_t ns, const float *qt,
                       uint32_t dim, const void *const *k, const void *const *next, uint32_t s,
                       float scale, float *p)
{
    const uint32_t size = t == DT_F32 ? 4 : 2;
    vf acc[2][SCORE_MAX];
    UNROLL for (uint32_t c = 0; c < ns; c++) UNROLL for (uint32_t i = 0; i < nq; i++) acc[c][i] =
        vf_zero();
    UNROLL_SOME for (uint32_t d = 0; d < dim; d++)
    {
        UNROLL for (uint32_t c = 0; c < ns; c++)
        {
            vf x = load16(t, k[s + c], (size_t)d * KV_STRIP);
            const float *q = again(qt + (size_t)d * nq);
            UNROLL for (uint32_t i = 0; i < nq; i++) acc[c][i] =
                vf_fma(vf_set1(q[i]), x, acc[c][i]);
            if (t == DT_F32 || d % 2 == 0)
                ask((const char *)next[s + c] + (size_t)d * KV_STRIP * size, 64);
        }
    }
    UNROLL for (uint32_t c = 0; c < ns; c++) UNROLL for (uint32_t i = 0; i < nq; i++)
        vf_store(p + i * KV_ATOM + (s + c) * KV_STRIP, vf_mul(acc[c][i], vf_set1(scale)));
}

INLINE void score_strips(enum dtype t, const uint32_t nq, const float *qt, uint32_t dim,
                         const void *const *k, const void *const *next, uint32_t s0, uint32_t s1,
                         float scale, float *p)
{
    uint32_t s = s0;
    if (nq <= SCORE_PAIR)
        for (; s + 2 <= s1; s += 2)
            score_some(t, nq, 2, qt, dim, k, next, s, scale, p);
    for (; s < s1; s++)
        score_some(t, nq, 1, qt, dim, k, next, s, scale, p);
}

INLINE void score_of(enum dtype t, const float *qt, uint32_t nq, uint32_t dim, const void *const *k,
                     const void *const *next, uint32_t s0, uint32_t s1, float scale, float *p)
{
    switch (nq) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        score_strips(t, n, qt, dim, k, next, s0, s1, scale, p);                                    \
        break;
        SCORE_CASES(CASE)
#undef CASE
    }
}

static void score(enum dtype t, const float *qt, uint32_t nq, uint32_t dim, const void *const *k,
                  const void *const *next, uint32_t s0, uint32_t s1, float scale, float *p)
{
    if (!next) next = k;
    if (t == DT_F16)
        score_of(DT_F16, qt, nq, dim, k, next, s0, s1, scale, p);
    else if (t == DT_BF16)
        score_of(DT_BF16, qt, nq, dim, k, next, s0, s1, scale, p);
    else
        score_of(DT_F32, qt, nq, dim, k, next, s0, s1, scale, p);
}

/* Returns the capped scores of a strip's rows in [a, b); the lanes of other rows are minus infinity. */
INLINE vf soft_strip(float *p, uint32_t s, uint32_t a, uint32_t b, float softcap)
{
    vf x = vf_load(p + s);
    if (softcap != 0) {
        const vf cap = vf_set1(softcap);
        x = vf_mul(cap, vf_tanh(vf_div(x, cap)));
        vf_store(p + s, x);
    }
    if (s < a || s + KV_STRIP > b) x = vf_keep(x, a > s ? a - s : 0, b - s, vf_set1(-INFINITY));
    return x;
}

/* Turns the scores of a strip into probabilities, and adds the sum over the rows in [a, b) to l. */
INLINE vf soft_sum(float *p, uint32_t s, uint32_t a, uint32_t b, vf m, vf l)
{
    vf x = vf_exp(vf_sub(vf_load(p + s), m));
    vf_store(p + s, x);
    if (s < a || s + KV_STRIP > b) x = vf_keep(x, a > s ? a - s : 0, b - s, vf_zero());
    return vf_add(l, x);
}

static void soft(float *p, uint32_t a, uint32_t b, float softcap, float *state)
{
    uint32_t s0 = a / KV_STRIP * KV_STRIP, s = s0;
    vf top[4], l = vf_zero(); /* the order of a maximum does not matter, so four go side by side */
    UNROLL for (int i = 0; i < 4; i++) top[i] = vf_set1(-INFINITY);
    for (; s + 3 * KV_STRIP < b; s += 4 * KV_STRIP)
        UNROLL for (uint32_t i = 0; i < 4; i++) top[i] =
            vf_max(soft_strip(p, s + i * KV_STRIP, a, b, softcap), top[i]);
    for (; s < b; s += KV_STRIP)
        top[0] = vf_max(soft_strip(p, s, a, b, softcap), top[0]);
    state[0] = vf_top(vf_max(vf_max(top[0], top[1]), vf_max(top[2], top[3])));
    const vf m = vf_set1(state[0]);
    /* The loop over whole strips, of which most atoms consist, has no conditions. */
    s = s0;
    if (s < a) l = soft_sum(p, s, a, b, m, l), s += KV_STRIP;
    for (; s + KV_STRIP <= b; s += KV_STRIP)
        l = soft_sum(p, s, s, s + KV_STRIP, m, l);
    if (s < b) l = soft_sum(p, s, a, b, m, l);
    state[1] = vf_tree(l);
}

/* Computes columns [d0, d0 + 16 nv) of O; the last vector has `tail` columns (1 to 16). */
INLINE void pv_columns(enum dtype t, const uint32_t nq, const uint32_t nv, const uint32_t tail,
                       const float *p, const void *const *v, const void *const *next, uint32_t r0,
                       uint32_t r1, uint32_t dim, uint32_t d0, bool fresh, float *o, size_t ld)
{
    const uint32_t size = t == DT_F32 ? 4 : 2;
    vf acc[PV_MAX][PV_VECS];
    if (fresh)
        UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < nv; c++)
            acc[i][c] = vf_zero();
    else
        UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < nv; c++)
            acc[i][c] = vf_load(o + i * ld + d0 + 16 * c);
    for (uint32_t j = r0; j < r1;) {
        const void *strip = v[j / KV_STRIP];
        const char *ahead = next[j / KV_STRIP];
        uint32_t end = MIN(r1, j / KV_STRIP * KV_STRIP + KV_STRIP);
        size_t at = (size_t)(j % KV_STRIP) * dim + d0;
        UNROLL_SOME for (; j < end; j++, at += dim)
        {
            UNROLL for (uint32_t c = 0; c < nv; c++)
            {
                vf x = tail == 16 ? load16(t, strip, at + 16 * c)
                                  : load_n(t, strip, at + 16 * c, tail);
                const float *w = again(p + j);
                UNROLL for (uint32_t i = 0; i < nq; i++) acc[i][c] =
                    vf_fma(vf_set1(w[i * KV_ATOM]), x, acc[i][c]);
            }
            ask(ahead + at * size, 16 * nv * size);
        }
    }
    UNROLL for (uint32_t i = 0; i < nq; i++) UNROLL for (uint32_t c = 0; c < nv; c++)
        vf_store(o + i * ld + d0 + 16 * c, acc[i][c]);
}

INLINE void pv_rows(enum dtype t, const uint32_t nq, const float *p, const void *const *v,
                    const void *const *next, uint32_t r0, uint32_t r1, uint32_t dim, bool fresh,
                    float *o, size_t ld)
{
    const uint32_t vecs = nq <= PV_FEW ? PV_VECS : PV_VECS_MANY;
    uint32_t d = 0;
    for (; d + 16 * vecs <= dim; d += 16 * vecs)
        pv_columns(t, nq, vecs, 16, p, v, next, r0, r1, dim, d, fresh, o, ld);
    for (; d + 16 <= dim; d += 16)
        pv_columns(t, nq, 1, 16, p, v, next, r0, r1, dim, d, fresh, o, ld);
    if (d < dim) pv_columns(t, nq, 1, dim - d, p, v, next, r0, r1, dim, d, fresh, o, ld);
}

INLINE void pv_of(enum dtype t, const float *p, uint32_t nq, const void *const *v,
                  const void *const *next, uint32_t r0, uint32_t r1, uint32_t dim, bool fresh,
                  float *o, size_t ld)
{
    switch (nq) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        pv_rows(t, n, p, v, next, r0, r1, dim, fresh, o, ld);                                      \
        break;
        PV_CASES(CASE)
#undef CASE
    }
}

static void pv(enum dtype t, const float *p, uint32_t nq, const void *const *v,
               const void *const *next, uint32_t r0, uint32_t r1, uint32_t dim, bool fresh,
               float *o, size_t ld)
{
    if (!next) next = v;
    if (t == DT_F16)
        pv_of(DT_F16, p, nq, v, next, r0, r1, dim, fresh, o, ld);
    else if (t == DT_BF16)
        pv_of(DT_BF16, p, nq, v, next, r0, r1, dim, fresh, o, ld);
    else
        pv_of(DT_F32, p, nq, v, next, r0, r1, dim, fresh, o, ld);
}

static void merge(float *run, const float *part, uint32_t dim)
{
    uint32_t n = ATTN_HEAD + (dim + 15) / 16 * 16;
    if (run[1] == 0) {
        memcpy(run, part, n * sizeof *run);
        return;
    }
    float m = part[0] > run[0] ? part[0] : run[0];
    float da = run[0] - m, db = part[0] - m; /* one of them is 0, whose exp is exactly 1 */
    float a = da == 0 ? 1 : math_exp(da), b = db == 0 ? 1 : math_exp(db);
    run[0] = m;
    run[1] = fmaf(run[1], a, part[1] * b);
    for (uint32_t d = ATTN_HEAD; d < n; d += 16)
        vf_store(run + d,
                 vf_fma(vf_load(run + d), vf_set1(a), vf_mul(vf_load(part + d), vf_set1(b))));
}

static void done(const float *run, uint32_t dim, float *out)
{
    float inv = run[1] == 0 ? 0 : 1 / run[1];
    for (uint32_t d = 0; d < dim; d += 16) {
        vf x = run[1] == 0 ? vf_zero() : vf_mul(vf_load(run + ATTN_HEAD + d), vf_set1(inv));
        if (d + 16 <= dim)
            vf_store(out + d, x);
        else
            vf_store_n(out + d, x, dim - d);
    }
}

static const struct attn_kernels *kernels(void)
{
    static const struct attn_kernels vec = {
        .score_max = SCORE_MAX,
        .pv_max = PV_MAX,
        .score = score,
        .soft = soft,
        .pv = pv,
        .merge = merge,
        .done = done,
    };
    return &vec;
}
CPU_KERNEL(VEC_ISA, CPU_ATTN_ATOM, CPU_ANY, kernels);

/* --- Rounding of rows for the cache. */
static void round_f16(const float *x, uint32_t n, void *out)
{
    uint16_t *y = out;
    for (; n >= 16; n -= 16, x += 16, y += 16)
        vf_store_f16(y, vf_load(x));
    if (n) {
        uint16_t half[16];
        vf_store_f16(half, vf_load_n(x, n));
        memcpy(y, half, n * sizeof *half);
    }
}

static void round_bf16(const float *x, uint32_t n, void *out)
{
    uint16_t *y = out;
    for (; n >= 16; n -= 16, x += 16, y += 16)
        vf_store_bf16(y, vf_round_bf16(vf_load(x)));
    if (n) {
        uint16_t half[16];
        vf_store_bf16(half, vf_round_bf16(vf_load_n(x, n)));
        memcpy(y, half, n * sizeof *half);
    }
}
CPU_KERNEL(VEC_ISA, CPU_KV_ROUND, DT_F16, round_f16);
CPU_KERNEL(VEC_ISA, CPU_KV_ROUND, DT_BF16, round_bf16);
