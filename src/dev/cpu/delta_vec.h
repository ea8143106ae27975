/* delta_vec.h - the kernel of delta.c on 16 lanes, stated once for AVX2, AVX-512 and NEON: delta_avx2.c and delta_avx512.c
 * include it after the vec_*.h that gives the vectors. */
#include "dev/cpu/turn_vec.h"

/* Returns the values that all lanes find under a key, in four chains as in turn(). */
INLINE vf found(const float *h, const float *k, uint32_t keys)
{
    vf m0 = vf_zero(), m1 = m0, m2 = m0, m3 = m0;
    uint32_t i = 0;
    for (; i + 4 <= keys; i += 4, h += 4 * SCAN_LANES) {
        m0 = vf_fma(vf_load(h), vf_set1(k[i]), m0);
        m1 = vf_fma(vf_load(h + SCAN_LANES), vf_set1(k[i + 1]), m1);
        m2 = vf_fma(vf_load(h + 2 * SCAN_LANES), vf_set1(k[i + 2]), m2);
        m3 = vf_fma(vf_load(h + 3 * SCAN_LANES), vf_set1(k[i + 3]), m3);
    }
    if (i < keys) m0 = vf_fma(vf_load(h), vf_set1(k[i]), m0);
    if (i + 1 < keys) m1 = vf_fma(vf_load(h + SCAN_LANES), vf_set1(k[i + 1]), m1);
    if (i + 2 < keys) m2 = vf_fma(vf_load(h + 2 * SCAN_LANES), vf_set1(k[i + 2]), m2);
    return vf_add(vf_add(m0, m2), vf_add(m1, m3));
}

static void VEC(delta)(const struct cpu_delta *j)
{
    const bool whole = j->lanes == SCAN_LANES;
    for (uint32_t t = 0; t < j->tokens; t++) {
        const float *q = j->q + t * j->ldq, *k = j->k + t * j->ldq, *value = j->v + t * j->ldv;
        float *out = j->out + t * j->ldo;
        const vf a = vf_exp(vf_set1(j->dt[t * j->lddt] * j->a));
        const vf v = whole ? vf_load(value) : vf_load_n(value, j->lanes);
        const vf u =
            vf_mul(vf_sub(v, vf_mul(a, found(j->h, k, j->keys))), vf_set1(j->beta[t * j->lddt]));
        const vf y = vf_mul(vf_set1(j->scale), turn(j->h, j->keys, a, u, k, q));
        if (whole)
            vf_store(out, y);
        else
            vf_store_n(out, y, j->lanes);
    }
}
CPU_KERNEL(VEC_ISA, CPU_DELTA, CPU_ANY, VEC(delta));
