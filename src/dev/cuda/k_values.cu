/* k_values.cu - norms, gates, sums and rotations: what dev/cpu/elementwise_ref.c does, a thread for each value, or a
 * block for each row. */
#include "dev/cuda/k_block.h"
#include "dev/cuda/kernels.h"

enum {
#define MAP(which, name, parameters, arguments) MAP_##which,
#include "dev/ops.h"
    MAPS
};
enum {
#define NORM(which, name, parameters, arguments) NORM_##which,
#include "dev/ops.h"
    NORMS
};

/* A NaN of x passes these comparisons. */
K_FN float least(float limit, float x)
{
    return limit < x ? limit : x;
}
K_FN float most(float limit, float x)
{
    return limit > x ? limit : x;
}

K_FN float mapped(uint32_t kind, float x, float y, float p, float q)
{
    switch (kind) {
    case MAP_ADD:
        return x + y;
    case MAP_SCALE:
        return x * p;
    case MAP_SILU_MUL:
        return math_silu(x) * y;
    case MAP_GELU_MUL:
        return math_gelu(x) * y;
    case MAP_GELU_ERF_MUL:
        return math_gelu_erf(x) * y;
    case MAP_GELU:
        return math_gelu(x);
    case MAP_GELU_ERF:
        return math_gelu_erf(x);
    case MAP_RELU:
        return most(0, x);
    case MAP_SWIGLU: {
        float g = least(q, x), u = most(-q, least(q, y));
        return (u + 1.0f) * (g / (1.0f + math_exp(-(p * g))));
    }
    case MAP_SOFTCAP:
        return p * math_tanh(x / p);
    case MAP_SIGMOID:
        return 1.0f / (1.0f + math_exp(-x));
    case MAP_MUL:
        return x * y;
    default:
        return least(q, most(p, math_softplus(x + y)));
    }
}

KERNEL(k_map)
{
    EACH_VALUE(i, a.n)
    {
        float y = a.y ? a.y[a.shared ? i % a.dim : i] : 0;
        a.x[i] = mapped(a.kind, a.x[i], y, a.p, a.q);
    }
}

KERNEL(k_scale_rows)
{
    EACH_VALUE(i, a.n) a.x[i] *= a.by[i / a.dim];
}

KERNEL(k_rope)
{
    EACH_VALUE(i, a.n)
    {
        uint32_t pair = (uint32_t)(i % a.half);
        size_t head = i / a.half, token = head / a.heads, at = token * a.half + pair;
        float *x = a.x + token * a.ldx + head % a.heads * a.dim + (a.interleaved ? 2 * pair : pair);
        float *y = a.interleaved ? x + 1 : x + a.half;
        float u = *x, v = *y, c = a.cos[at], s = a.sin[at];
        *x = k_fma(u, c, -(v * s));
        *y = k_fma(v, c, u * s);
    }
}

enum { STAGED = 4096 };
/* Returns s after lane l of 16 has added its part of a row: squared distances from the mean, or the values. */
K_FN float lane_squares(const float *x, uint32_t l, uint32_t n, float mean, float s)
{
    K_UNROLL_16 for (uint32_t i = l; i < n; i += 16) s = k_fma(x[i] - mean, x[i] - mean, s);
    return s;
}
K_FN float lane_values(const float *x, uint32_t l, uint32_t n, float s)
{
    K_UNROLL_16 for (uint32_t i = l; i < n; i += 16) s += x[i];
    return s;
}
/* Computes the 16 lane sums of a row in s[16].  Only 16 threads add, so all threads first copy the row to shared
 * memory. */
#define LANES_OF(s, x, dim, square, mean)                                                          \
    do {                                                                                           \
        EACH_THREAD if (t < 16)(s)[t] = 0;                                                         \
        for (uint32_t k_c = 0; k_c < (dim); k_c += STAGED) {                                       \
            uint32_t k_n = (dim)-k_c < STAGED ? (dim)-k_c : STAGED;                                \
            EACH_THREAD                                                                            \
            {                                                                                      \
                for (uint32_t i = t; i < k_n; i += K_THREADS)                                      \
                    staged[i] = (x)[k_c + i];                                                      \
            }                                                                                      \
            EACH_THREAD if (t < 16)(s)[t] = square ? lane_squares(staged, t, k_n, mean, (s)[t])    \
                                                   : lane_values(staged, t, k_n, (s)[t]);          \
        }                                                                                          \
    } while (0)

/* Reduces s[16], the sums of the first 16 threads, by tree16.  All threads then find the result in s[0]. */
#define TREE_OF(s)                                                                                 \
    for (uint32_t step = 8; step; step /= 2)                                                       \
        EACH_THREAD                                                                                \
        {                                                                                          \
            if (t < step) (s)[t] += (s)[t + step];                                                 \
        }

KERNEL(k_norm)
{
    SHARED(float, s, 16);
    SHARED(float, top, K_THREADS);
    SHARED(float, staged, STAGED);
    const float *x = a.x + (size_t)BLOCK_X * a.dim;
    float *out = a.out + (size_t)BLOCK_X * a.dim;
    float mean = 0, r;
    if (a.kind == NORM_SOFTMAX) {
        EACH_THREAD
        {
            float m = -INFINITY;
            for (uint32_t i = t; i < a.dim; i += K_THREADS)
                m = x[i] > m ? x[i] : m;
            top[t] = m;
        }
        for (uint32_t step = K_THREADS / 2; step; step /= 2)
            EACH_THREAD if (t < step) top[t] = top[t + step] > top[t] ? top[t + step] : top[t];
        EACH_THREAD
        {
            for (uint32_t i = t; i < a.dim; i += K_THREADS)
                out[i] = math_exp(x[i] - top[0]);
        }
        LANES_OF(s, out, a.dim, false, 0);
        TREE_OF(s);
        r = 1.0f / s[0];
        EACH_THREAD
        {
            for (uint32_t i = t; i < a.dim; i += K_THREADS)
                out[i] *= r;
        }
        return;
    }
    if (a.kind == NORM_LAYERNORM) {
        LANES_OF(s, x, a.dim, false, 0);
        TREE_OF(s);
        mean = s[0] / (float)a.dim;
    }
    EACH_THREAD
    {
    } /* all have read the mean */
    LANES_OF(s, x, a.dim, true, mean);
    TREE_OF(s);
    r = 1.0f / sqrtf(s[0] / (float)a.dim + a.eps);
    EACH_THREAD
    {
        for (uint32_t i = t; i < a.dim; i += K_THREADS) {
            float y = (x[i] - mean) * r;
            if (a.w) y *= a.w[i];
            out[i] = a.kind == NORM_LAYERNORM && a.b ? y + a.b[i] : y;
        }
    }
}
