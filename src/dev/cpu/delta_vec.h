/* delta_vec.h - the kernel of delta.c on 16 lanes, stated once for AVX2 and AVX-512: delta_avx2.c and delta_avx512.c
 * include it after the vec_*.h that gives the vectors. */
#include "dev/cpu/ssm.h"

/* What all lanes find under a key. */
INLINE vf found(const float *h, const float *k, uint32_t keys)
{
    vf m[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    uint32_t i = 0;
    for (; i + 4 <= keys; i += 4)
        for (uint32_t c = 0; c < 4; c++)
            m[c] = vf_fma(vf_load(h + (i + c) * SCAN_LANES), vf_set1(k[i + c]), m[c]);
    for (; i < keys; i++)
        m[i % 4] = vf_fma(vf_load(h + i * SCAN_LANES), vf_set1(k[i]), m[i % 4]);
    return vf_add(vf_add(m[0], m[2]), vf_add(m[1], m[3]));
}

/* One row: it decays by a, takes up u * k, and adds to p. */
INLINE vf turn_row(float *at, vf a, vf u, float k, float q, vf p)
{
    vf h = vf_fma(vf_load(at), a, vf_mul(u, vf_set1(k)));
    vf_store(at, h);
    return vf_fma(h, vf_set1(q), p);
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
        vf p[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        uint32_t i = 0;
        for (; i + 4 <= j->keys; i += 4)
            for (uint32_t c = 0; c < 4; c++)
                p[c] = turn_row(j->h + (i + c) * SCAN_LANES, a, u, k[i + c], q[i + c], p[c]);
        for (; i < j->keys; i++)
            p[i % 4] = turn_row(j->h + i * SCAN_LANES, a, u, k[i], q[i], p[i % 4]);
        vf y = vf_mul(vf_set1(j->scale), vf_add(vf_add(p[0], p[2]), vf_add(p[1], p[3])));
        if (whole)
            vf_store(out, y);
        else
            vf_store_n(out, y, j->lanes);
    }
}
CPU_KERNEL(VEC_ISA, CPU_DELTA, CPU_ANY, VEC(delta));
