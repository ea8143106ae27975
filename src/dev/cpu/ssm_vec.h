/* ssm_vec.h - the kernels of conv.c and ssm.c on 16 lanes, stated once for AVX2, AVX-512 and NEON: ssm_avx2.c and
 * ssm_avx512.c include it after the vec_*.h that gives the vectors. */
#include "dev/cpu/mathfn_vec.h"
#include "dev/cpu/turn_vec.h"

INLINE vf part_load(const float *p, uint32_t lanes)
{
    return lanes == SCAN_LANES ? vf_load(p) : vf_load_n(p, lanes);
}
INLINE void part_store(float *p, vf v, uint32_t lanes)
{
    if (lanes == SCAN_LANES)
        vf_store(p, v);
    else
        vf_store_n(p, v, lanes);
}

static void VEC(conv)(const float *const *row, uint32_t taps, const float *w, size_t ldw,
                      const float *bias, uint32_t n, float *out)
{
    for (uint32_t i = 0, lanes; i < n; i += SCAN_LANES) {
        lanes = MIN(n - i, SCAN_LANES);
        vf y = part_load(bias + i, lanes);
        for (uint32_t k = 0; k < taps; k++)
            y = vf_fma(part_load(w + k * ldw + i, lanes), part_load(row[k] + i, lanes), y);
        part_store(out + i, vf_silu(y), lanes);
    }
}
CPU_KERNEL(VEC_ISA, CPU_CONV, CPU_ANY, VEC(conv));

/* Returns the time steps of one token for the lanes of a strip. */
INLINE vf time_steps(const struct cpu_scan *j, const float *dt)
{
    float each[SCAN_LANES] = {0};
    if (j->per == 1) return part_load(dt, j->lanes);
    if (j->head0 + j->lanes <= j->per) return vf_set1(dt[0]);
    for (uint32_t i = 0; i < j->lanes; i++)
        each[i] = dt[(j->head0 + i) / j->per];
    return vf_load(each);
}

/* Advances all states by one token.  In Mamba 1 each state has a decay of its own, and a is that of state 0; in
 * Mamba 2 all states share one. */
INLINE vf turn_states(const struct cpu_scan *j, vf dt, vf a, vf u, const float *b, const float *c)
{
    vf p[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (uint32_t n = 0; n < j->states; n++) {
        if (n) a = vf_exp(vf_mul(dt, part_load(j->a + n * j->lda, j->lanes)));
        p[n % 4] = turn_row(j->h + n * SCAN_LANES, a, u, b[n], c[n], p[n % 4]);
    }
    return vf_add(vf_add(p[0], p[2]), vf_add(p[1], p[3]));
}

static void VEC(scan)(const struct cpu_scan *j)
{
    const vf d = part_load(j->d, j->lanes), a0 = part_load(j->a, j->lanes);
    for (uint32_t t = 0; t < j->tokens; t++) {
        const float *b = j->b + t * j->ldb, *c = j->c + t * j->ldb;
        const vf x = part_load(j->x + t * j->ldx, j->lanes);
        const vf dt = time_steps(j, j->dt + t * j->lddt), u = vf_mul(dt, x);
        const vf a = vf_exp(vf_mul(dt, a0));
        const vf y = j->lda ? turn_states(j, dt, a, u, b, c) : turn(j->h, j->states, a, u, b, c);
        part_store(j->out + t * j->ldo, vf_fma(d, x, y), j->lanes);
    }
}
CPU_KERNEL(VEC_ISA, CPU_SCAN, CPU_ANY, VEC(scan));
