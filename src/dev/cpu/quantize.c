/* quantize.c - activations on their way into a product: int8 codes per token and block of 32, or bf16.
 *
 * d = amax / 127, q = nearest-even(x / d) clamped to [-127, 127]; a block of zeros (or one so small
 * that d underflows) has d = 0 and codes 0.  A block with an infinity or NaN gets d = NaN, so that it
 * shows in the result.  The maximum is taken on the bits, where NaN and infinity order above all. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"

#include <string.h>

static float block_scale(const float *x)
{
    uint32_t top = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t u = half_bits(x[i]) & 0x7fffffffu;
        top = u > top ? u : top;
    }
    if (top >= 0x7f800000u) return half_from_bits(0x7fc00000u);
    return half_from_bits(top) / 127.0f;
}

static int8_t code(float x, float d)
{
    const float round = 0x1.8p+23f;
    float v = x / d;
    v = v > 127.0f ? 127.0f : v;
    v = v < -127.0f ? -127.0f : v;
    return (int8_t)((v + round) - round);
}

static void quantize_ref(const float *x, uint32_t k, struct cpu_xchunk *out)
{
    for (uint32_t b = 0; b < k / 32; b++, x += 32) {
        struct cpu_xchunk *c = out + b / 2;
        uint32_t at = b % 2;
        float d = block_scale(x);
        for (uint32_t i = 0; i < 32; i++)
            c->q[32 * at + i] = d > 0 ? code(x[i], d) : 0; /* d is NaN: 0 */
        for (uint32_t l = 8 * at; l < 8 * at + 8; l++) {
            c->sum[l] = c->q[4 * l] + c->q[4 * l + 1] + c->q[4 * l + 2] + c->q[4 * l + 3];
            c->d[l] = d;
            c->s[l] = d * (float)c->sum[l];
        }
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
