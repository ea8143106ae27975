/* quantize_vec.h - activations become codes of 16 bits, 16 columns in a vector; quantize.c has the rule.  The files that hold
 * products of quantized weights include it behind dot_q_vec.h, since both must agree on the form of an activation. */
#include "dev/cpu/cpu.h"

#if !QUADS
INLINE void x_put(int16_t *q, vi v) /* 16 columns */
{
    vi_put_words(q, v);
}
#endif

/* Quantizes 16 `vecs` columns to codes, and sums them.  An infinity times 0 is a NaN, whose code the mask clears. */
INLINE void quantize_some(const float *x, const uint32_t vecs, vf by, uint32_t mask, int16_t *codes,
                          int32_t *sum, int32_t *sum32)
{
    vi q[4] = {vi_zero(), vi_zero(), vi_zero(), vi_zero()};
    UNROLL for (uint32_t i = 0; i < vecs; i++)
    {
        q[i] = vi_and(vi_round(vf_mul(vf_load(x + 16 * i), by)), mask);
        x_put(codes + 16 * i, q[i]);
    }
    vi_totals(q, sum, sum32);
}

static void VEC(quantize)(const float *x, uint32_t k, struct cpu_xgroup *out)
{
    for (; k; x += CPU_GROUP, out++) {
        uint32_t n = MIN(k, CPU_GROUP), i = 0;
        vi top = vi_zero();
        for (; i < n; i += 16)
            top = vi_max(top, vi_and(vi_bits(vf_load(x + i)), 0x7fffffffu));
        vf by = vf_set1(cpu_group_scale((uint32_t)vi_top(top), &out->d));
        const uint32_t mask = out->d > 0 ? UINT32_MAX : 0;
        for (i = 0; i + 64 <= n; i += 64)
            quantize_some(x + i, 4, by, mask, out->q + i, out->sum + i / 16, out->sum32 + i / 32);
        if (i < n)
            quantize_some(x + i, 2, by, mask, out->q + i, out->sum + i / 16, out->sum32 + i / 32);
        k -= n;
    }
}
CPU_KERNEL(VEC_ISA, CPU_QUANTIZE, CPU_ANY, VEC(quantize));
