/* group.c - the scalar reference of the kernels of dev/group.h, and which kernels this processor takes. */
#include "dev/group.h"
#include "dev/cpu/group_kernels.h"
#include "dev/cpu/group_math.h"
#include "dev/row.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

static float between(float q, float top)
{
    q = q > 0 ? q : 0; /* also NaN */
    q = q < top ? q : top;
    return q + MATH_ROUND - MATH_ROUND;
}

void group_span_ref(const float *x, uint32_t n, float *lo, float *hi)
{
    *lo = *hi = x[0];
    for (uint32_t i = 1; i < n && !isnan(*lo); i++) {
        if (!(x[i] >= *lo)) *lo = x[i]; /* keeps a NaN */
        if (!(x[i] <= *hi)) *hi = x[i];
    }
}

static void steps(const float *x, uint32_t n, float step, float zero, float top, uint8_t *q)
{
    for (uint32_t i = 0; i < n; i++)
        q[i] = (uint8_t)between(x[i] * step + zero, top);
}

static void ranges(enum dtype t, const float *x, uint32_t n, float shift, float scale, float top,
                   uint8_t *q)
{
    for (uint32_t i = 0; i < n; i++)
        q[i] = (uint8_t)between(kv_row_round(t, kv_row_round(t, x[i] + shift) / scale), top);
}

static float shrink(float d)
{
    float size = fabsf(d), m;
    uint32_t u, v;
    memcpy(&u, &size, 4);
    u -= GROUP_HALF;
    v = (u & 0x7fffff) + GROUP_HALF;
    memcpy(&m, &v, 4);
    float f = m - 1, s = f / (f + 2), z = s * s;
    float q = fmaf(MATH_LOG_P4, z, MATH_LOG_P3);
    q = fmaf(q, z, MATH_LOG_P2);
    q = fmaf(q, z, MATH_LOG_P1);
    q = fmaf(q, z, MATH_LOG_P0);
    q = fmaf(s * z, q, s);
    float power = math_exp(fmaf((float)((int32_t)u >> 23), GROUP_EXP, q * GROUP_LOG));
    float e = size - GROUP_WEIGHT * power;
    return copysignf(e > 0 ? e : 0, d);
}

static float round_ref(const struct group_round *r, const float *x, uint32_t n, float *z, float *d)
{
    float sum[GROUP_LANES] = {0};
    (void)d;
    for (uint32_t i = 0; i < n; i++) {
        float q = between(x[i] * r->step + r->zero, r->top), e = q - r->stored;
        z[i] = q - (x[i] - shrink(x[i] - (q - r->zero) / r->step)) * r->step;
        if (r->dtype == DT_BF16)
            e = kv_row_round(DT_BF16, kv_row_round(DT_BF16, e) * r->scale);
        else
            e = e * r->scale;
        e = x[i] - e;
        sum[i % GROUP_LANES] = fmaf(e, e, sum[i % GROUP_LANES]);
    }
    for (uint32_t w = GROUP_LANES / 2; w; w /= 2)
        for (uint32_t l = 0; l < w; l++)
            sum[l] += sum[l + w];
    return sum[0];
}

static const struct group_kernels ref = {group_span_ref, steps, ranges, round_ref};

const struct group_kernels *const group_kernels[DEV_ISAS] = {
    [DEV_REF] = &ref,
#if defined(__x86_64__)
    [DEV_AVX2] = &group_avx2,
    [DEV_AVX512] = &group_avx512,
#elif defined(__aarch64__)
    [DEV_NEON] = &group_neon,
#endif
};

const struct group_kernels *group_here(void)
{
    static _Atomic(const struct group_kernels *) known; /* threads that ask at once get the same */
    const struct group_kernels *k = atomic_load_explicit(&known, memory_order_relaxed);
    if (k) return k;
    const char *most = getenv("KVIK_ISA");
    for (int i = DEV_ISAS - 1; i >= 0 && !k; i--) {
        bool over = most && *most && strcmp(most, dev_isa_names()[i]) != 0;
        if (!over) most = NULL;
        if (!over && group_kernels[i] && dev_isa_supported((enum dev_isa)i)) k = group_kernels[i];
    }
    k = k ? k : &ref;
    atomic_store_explicit(&known, k, memory_order_relaxed);
    return k;
}
