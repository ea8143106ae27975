/* attn_ref.c - the attention kernels, readable: one multiplication per line of the canonical order in
 * dev.h.  The SIMD siblings perform the same operations on 16 (rows or dims) at a time and give the
 * same bits, because each of their lanes sums the same values in the same order, and only tree16 adds lanes. */
#include "dev/cpu/attn.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"
#include "dev/cpu/mathfn.h"

#include <math.h>
#include <string.h>

enum { SCORE_MAX = 8 }; /* queries */

/* Reads n values that lie side by side: a type is looked at once for all queries, not once for each product. */
static void load(enum dtype t, const void *x, size_t i, uint32_t n, float *out)
{
    for (uint32_t r = 0; r < n; r++)
        out[r] = t == DT_F32   ? ((const float *)x)[i + r]
                 : t == DT_F16 ? half_f16_to_f32(((const uint16_t *)x)[i + r])
                               : half_bf16_to_f32(((const uint16_t *)x)[i + r]);
}

static void score(enum dtype t, const float *qt, uint32_t nq, uint32_t dim, const void *const *k,
                  const void *const *next, uint32_t s0, uint32_t s1, float scale, float *p)
{
    (void)next;
    for (uint32_t s = s0; s < s1; s++) {
        float acc[SCORE_MAX][KV_STRIP] = {{0}}, x[KV_STRIP];
        for (uint32_t d = 0; d < dim; d++) {
            load(t, k[s], (size_t)d * KV_STRIP, KV_STRIP, x);
            for (uint32_t i = 0; i < nq; i++)
                for (uint32_t r = 0; r < KV_STRIP; r++)
                    acc[i][r] = fmaf(qt[d * nq + i], x[r], acc[i][r]);
        }
        for (uint32_t i = 0; i < nq; i++)
            for (uint32_t r = 0; r < KV_STRIP; r++)
                p[i * KV_ATOM + s * KV_STRIP + r] = acc[i][r] * scale;
    }
}

static void soft(float *p, uint32_t a, uint32_t b, float softcap, float *state)
{
    float m = -INFINITY, l[KV_STRIP] = {0};
    for (uint32_t j = a; j < b; j++) {
        if (softcap != 0) p[j] = softcap * math_tanh(p[j] / softcap);
        m = p[j] > m ? p[j] : m;
    }
    for (uint32_t j = a; j < b; j++) {
        p[j] = math_exp(p[j] - m);
        l[j % KV_STRIP] += p[j];
    }
    for (uint32_t h = 8; h; h /= 2)
        for (uint32_t i = 0; i < h; i++)
            l[i] += l[i + h];
    state[0] = m;
    state[1] = l[0];
}

static void pv(enum dtype t, const float *p, uint32_t nq, const void *const *v,
               const void *const *next, uint32_t r0, uint32_t r1, uint32_t dim, bool fresh,
               float *o, size_t ld)
{
    (void)next;
    for (uint32_t i = 0; fresh && i < nq; i++)
        memset(o + i * ld, 0, dim * sizeof *o);
    for (uint32_t j = r0; j < r1; j++)
        for (uint32_t d0 = 0; d0 < dim; d0 += KV_STRIP) {
            float x[KV_STRIP];
            uint32_t n = MIN(dim - d0, KV_STRIP);
            load(t, v[j / KV_STRIP], (size_t)(j % KV_STRIP) * dim + d0, n, x);
            for (uint32_t i = 0; i < nq; i++)
                for (uint32_t d = 0; d < n; d++)
                    o[i * ld + d0 + d] = fmaf(p[i * KV_ATOM + j], x[d], o[i * ld + d0 + d]);
        }
}

static void merge(float *run, const float *part, uint32_t dim)
{
    if (run[1] == 0) {
        memcpy(run, part, (ATTN_HEAD + dim) * sizeof *run);
        return;
    }
    float m = part[0] > run[0] ? part[0] : run[0];
    float a = math_exp(run[0] - m), b = math_exp(part[0] - m);
    run[0] = m;
    run[1] = fmaf(run[1], a, part[1] * b);
    for (uint32_t d = ATTN_HEAD; d < ATTN_HEAD + dim; d++)
        run[d] = fmaf(run[d], a, part[d] * b);
}

static void done(const float *run, uint32_t dim, float *out)
{
    float inv = run[1] == 0 ? 0 : 1 / run[1];
    for (uint32_t d = 0; d < dim; d++)
        out[d] = run[1] == 0 ? 0 : run[ATTN_HEAD + d] * inv;
}

static const struct attn_kernels *kernels(void)
{
    static const struct attn_kernels ref = {
        .score_max = SCORE_MAX,
        .pv_max = 4,
        .score = score,
        .soft = soft,
        .pv = pv,
        .merge = merge,
        .done = done,
    };
    return &ref;
}
CPU_KERNEL(DEV_REF, CPU_ATTN_ATOM, CPU_ANY, kernels);
