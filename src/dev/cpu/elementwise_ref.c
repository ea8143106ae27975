/* elementwise_ref.c - norms, gates, sums and rotations, readable: what dev.h says about each, one value at
 * a time.  The siblings (elementwise_vec.h) do the same operations on 16. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/mathfn.h"

#include <math.h>

static float tree16(float *s)
{
    for (int step = 8; step; step /= 2)
        for (int l = 0; l < step; l++)
            s[l] += s[l + step];
    return s[0];
}

static void rmsnorm_ref(const float *x, const float *w, const float *b, float eps, uint32_t dim,
                        float *out)
{
    (void)b;
    float s[16] = {0};
    for (uint32_t i = 0; i < dim; i++)
        s[i % 16] = __builtin_fmaf(x[i], x[i], s[i % 16]);
    float r = 1.0f / sqrtf(tree16(s) / (float)dim + eps);
    for (uint32_t i = 0; i < dim; i++)
        out[i] = w ? x[i] * r * w[i] : x[i] * r;
}
CPU_KERNEL(DEV_REF, CPU_RMSNORM, CPU_ANY, rmsnorm_ref);

static void layernorm_ref(const float *x, const float *w, const float *b, float eps, uint32_t dim,
                          float *out)
{
    float s[16] = {0}, ss[16] = {0};
    for (uint32_t i = 0; i < dim; i++)
        s[i % 16] += x[i];
    float mean = tree16(s) / (float)dim;
    for (uint32_t i = 0; i < dim; i++)
        ss[i % 16] = __builtin_fmaf(x[i] - mean, x[i] - mean, ss[i % 16]);
    float r = 1.0f / sqrtf(tree16(ss) / (float)dim + eps);
    for (uint32_t i = 0; i < dim; i++) {
        float y = (x[i] - mean) * r;
        if (w) y *= w[i];
        out[i] = b ? y + b[i] : y;
    }
}
CPU_KERNEL(DEV_REF, CPU_LAYERNORM, CPU_ANY, layernorm_ref);

static void softmax_ref(const float *x, const float *w, const float *b, float eps, uint32_t dim,
                        float *out)
{
    (void)w, (void)b, (void)eps;
    float m = -INFINITY, l[16] = {0};
    for (uint32_t i = 0; i < dim; i++)
        m = x[i] > m ? x[i] : m;
    for (uint32_t i = 0; i < dim; i++) {
        out[i] = math_exp(x[i] - m);
        l[i % 16] += out[i];
    }
    float inv = 1.0f / tree16(l);
    for (uint32_t i = 0; i < dim; i++)
        out[i] *= inv;
}
CPU_KERNEL(DEV_REF, CPU_SOFTMAX, CPU_ANY, softmax_ref);

static void add_ref(float *x, const float *y, float p, float q, size_t n)
{
    (void)p, (void)q;
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}
CPU_KERNEL(DEV_REF, CPU_ADD, CPU_ANY, add_ref);

static void scale_ref(float *x, const float *y, float by, float q, size_t n)
{
    (void)y, (void)q;
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}
CPU_KERNEL(DEV_REF, CPU_SCALE, CPU_ANY, scale_ref);

static void mul_ref(float *x, const float *y, float p, float q, size_t n)
{
    (void)p, (void)q;
    for (size_t i = 0; i < n; i++)
        x[i] *= y[i];
}
CPU_KERNEL(DEV_REF, CPU_MUL, CPU_ANY, mul_ref);

static void softplus_ref(float *x, const float *bias, float lo, float hi, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* a NaN passes the comparisons */
        float y = math_softplus(x[i] + bias[i]);
        y = lo > y ? lo : y;
        x[i] = hi < y ? hi : y;
    }
}
CPU_KERNEL(DEV_REF, CPU_SOFTPLUS, CPU_ANY, softplus_ref);

static void silu_mul_ref(float *gate, const float *up, float p, float q, size_t n)
{
    (void)p, (void)q;
    for (size_t i = 0; i < n; i++)
        gate[i] = math_silu(gate[i]) * up[i];
}
CPU_KERNEL(DEV_REF, CPU_SILU_MUL, CPU_ANY, silu_mul_ref);

static void gelu_erf_mul_ref(float *gate, const float *up, float p, float q, size_t n)
{
    (void)p, (void)q;
    for (size_t i = 0; i < n; i++)
        gate[i] = math_gelu_erf(gate[i]) * up[i];
}
CPU_KERNEL(DEV_REF, CPU_GELU_ERF_MUL, CPU_ANY, gelu_erf_mul_ref);

static void gelu_mul_ref(float *gate, const float *up, float p, float q, size_t n)
{
    (void)p, (void)q;
    for (size_t i = 0; i < n; i++)
        gate[i] = math_gelu(gate[i]) * up[i];
}
CPU_KERNEL(DEV_REF, CPU_GELU_MUL, CPU_ANY, gelu_mul_ref);

static void gelu_ref(float *x, const float *y, float p, float q, size_t n)
{
    (void)y, (void)p, (void)q;
    for (size_t i = 0; i < n; i++)
        x[i] = math_gelu(x[i]);
}
CPU_KERNEL(DEV_REF, CPU_GELU, CPU_ANY, gelu_ref);

static void gelu_erf_ref(float *x, const float *y, float p, float q, size_t n)
{
    (void)y, (void)p, (void)q;
    for (size_t i = 0; i < n; i++)
        x[i] = math_gelu_erf(x[i]);
}
CPU_KERNEL(DEV_REF, CPU_GELU_ERF, CPU_ANY, gelu_erf_ref);

static void relu_ref(float *x, const float *y, float p, float q, size_t n)
{
    (void)y, (void)p, (void)q;
    for (size_t i = 0; i < n; i++)
        x[i] = 0 > x[i] ? 0 : x[i]; /* a NaN passes the comparison */
}
CPU_KERNEL(DEV_REF, CPU_RELU, CPU_ANY, relu_ref);

static void swiglu_ref(float *gate, const float *up, float alpha, float limit, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* a NaN passes the comparisons */
        float g = limit < gate[i] ? limit : gate[i];
        float u = limit < up[i] ? limit : up[i];
        u = -limit > u ? -limit : u;
        gate[i] = (u + 1.0f) * (g / (1.0f + math_exp(-(alpha * g))));
    }
}
CPU_KERNEL(DEV_REF, CPU_SWIGLU, CPU_ANY, swiglu_ref);

static void softcap_ref(float *x, const float *y, float cap, float q, size_t n)
{
    (void)y, (void)q;
    for (size_t i = 0; i < n; i++)
        x[i] = cap * math_tanh(x[i] / cap);
}
CPU_KERNEL(DEV_REF, CPU_SOFTCAP, CPU_ANY, softcap_ref);

static void sigmoid_ref(float *x, const float *y, float p, float q, size_t n)
{
    (void)y, (void)p, (void)q;
    for (size_t i = 0; i < n; i++)
        x[i] = 1.0f / (1.0f + math_exp(-x[i]));
}
CPU_KERNEL(DEV_REF, CPU_SIGMOID, CPU_ANY, sigmoid_ref);

static void rope_ref(float *x, uint32_t heads, uint32_t dim, uint32_t rot, bool interleaved,
                     const float *cos, const float *sin)
{
    uint32_t half = rot / 2;
    for (uint32_t h = 0; h < heads; h++, x += dim)
        for (uint32_t i = 0; i < half; i++) {
            float *a = x + (interleaved ? 2 * i : i), *b = interleaved ? a + 1 : a + half;
            float va = *a, vb = *b;
            *a = __builtin_fmaf(va, cos[i], -(vb * sin[i]));
            *b = __builtin_fmaf(vb, cos[i], va * sin[i]);
        }
}
CPU_KERNEL(DEV_REF, CPU_ROPE, CPU_ANY, rope_ref);
