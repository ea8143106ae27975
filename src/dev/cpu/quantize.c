/* quantize.c - activations on their way into a product: codes of 16 bits per token and group of 256, or bf16.
 *
 * d = amax / 32512, q = nearest-even(x * (32512 / amax)).  A group of zeros, or of values below 2^-100 (whose
 * reciprocal could overflow), has d = 0 and codes 0.  A group with an infinity or NaN has d = NaN and codes 0, so that
 * it shows in the result.  The maximum is taken on the bits, where NaN and infinity order above all. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"

#include <string.h>

float cpu_group_scale(uint32_t bits, float *d)
{
    float amax = half_from_bits(bits);
    bool finite = bits < 0x7f800000u;
    if (!finite || amax < 0x1p-100f) {
        *d = finite ? 0.0f : half_from_bits(0x7fc00000u);
        return 0;
    }
    *d = amax / (float)CPU_X_CODE;
    return (float)CPU_X_CODE / amax;
}

static void quantize_ref(const float *x, uint32_t k, struct cpu_xgroup *out)
{
    const float round = 0x1.8p+23f;
    for (; k; x += CPU_GROUP, out++) {
        uint32_t n = MIN(k, CPU_GROUP), top = 0;
        for (uint32_t i = 0; i < n; i++)
            top = MAX(top, half_bits(x[i]) & 0x7fffffffu);
        float by = cpu_group_scale(top, &out->d);
        memset(out->sum, 0, sizeof out->sum);
        memset(out->sum32, 0, sizeof out->sum32);
        for (uint32_t i = 0; i < n; i++) {
            int q = by > 0 ? (int)((x[i] * by + round) - round) : 0;
            out->q[cpu_x_place(i)] = (int16_t)q;
            out->sum[i / 16] += q;
            out->sum32[i / 32] += q;
        }
        k -= n;
    }
}
CPU_KERNEL(DEV_REF, CPU_QUANTIZE, CPU_ANY, quantize_ref);

static void round_bf16_ref(const float *x, uint32_t k, void *out)
{
    float *o = out;
    for (uint32_t i = 0; i < k; i++)
        o[i] = half_bf16_to_f32(half_f32_to_bf16(x[i]));
}
CPU_KERNEL(DEV_REF, CPU_ROUND_BF16, CPU_ANY, round_bf16_ref);
