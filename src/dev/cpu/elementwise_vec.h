/* elementwise_vec.h - the kernels of elementwise.c on 16 lanes, stated once for AVX2 and AVX-512:
 * elementwise_avx2.c and elementwise_avx512.c include it after the vec_*.h that gives the vectors. */
#include "dev/cpu/cpu.h"

#include <math.h>

static void VEC(rmsnorm)(const float *x, const float *w, float eps, uint32_t dim, float *out)
{
    uint32_t whole = dim & ~15u, rest = dim & 15u;
    vf acc = vf_zero();
    for (uint32_t i = 0; i < whole; i += 16) {
        vf v = vf_load(x + i);
        acc = vf_fma(v, v, acc);
    }
    if (rest) {
        vf v = vf_load_n(x + whole, rest);
        acc = vf_fma_n(v, v, acc, rest);
    }
    vf r = vf_set1(1.0f / sqrtf(vf_tree(acc) / (float)dim + eps));
    for (uint32_t i = 0; i < whole; i += 16)
        vf_store(out + i, vf_mul(vf_mul(vf_load(x + i), r), vf_load(w + i)));
    if (rest) {
        vf v = vf_mul(vf_mul(vf_load_n(x + whole, rest), r), vf_load_n(w + whole, rest));
        vf_store_n(out + whole, v, rest);
    }
}
CPU_KERNEL(VEC_ISA, CPU_RMSNORM, CPU_ANY, VEC(rmsnorm));

static void VEC(add)(float *x, const float *y, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        vf_store(x + i, vf_add(vf_load(x + i), vf_load(y + i)));
    for (; i < n; i++)
        x[i] += y[i];
}
CPU_KERNEL(VEC_ISA, CPU_ADD, CPU_ANY, VEC(add));

static void VEC(silu_mul)(float *gate, const float *up, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        vf_store(gate + i, vf_mul(vf_silu(vf_load(gate + i)), vf_load(up + i)));
    uint32_t rest = (uint32_t)(n - i);
    if (rest)
        vf_store_n(gate + i, vf_mul(vf_silu(vf_load_n(gate + i, rest)), vf_load_n(up + i, rest)),
                   rest);
}
CPU_KERNEL(VEC_ISA, CPU_SILU_MUL, CPU_ANY, VEC(silu_mul));

INLINE void rotate(vf *a, vf *b, vf c, vf s)
{
    vf va = *a, vb_ = *b;
    *a = vf_fma(va, c, vf_neg(vf_mul(vb_, s)));
    *b = vf_fma(vb_, c, vf_mul(va, s));
}

/* Pairs from `from` on, one at a time; all of them where they are interleaved. */
INLINE void rotate_rest(float *x, uint32_t from, uint32_t half, bool interleaved, const float *cos,
                        const float *sin)
{
    for (uint32_t i = from; i < half; i++) {
        float *a = x + (interleaved ? 2 * i : i), *b = interleaved ? a + 1 : a + half;
        float va = *a, vb_ = *b;
        *a = __builtin_fmaf(va, cos[i], -(vb_ * sin[i]));
        *b = __builtin_fmaf(vb_, cos[i], va * sin[i]);
    }
}

static void VEC(rope)(float *x, uint32_t heads, uint32_t dim, uint32_t rot, bool interleaved,
                      const float *cos, const float *sin)
{
    uint32_t half = rot / 2, whole = interleaved ? 0 : half & ~15u;
    for (uint32_t h = 0; h < heads; h++, x += dim) {
        for (uint32_t i = 0; i < whole; i += 16) {
            vf a = vf_load(x + i), b = vf_load(x + half + i);
            rotate(&a, &b, vf_load(cos + i), vf_load(sin + i));
            vf_store(x + i, a);
            vf_store(x + half + i, b);
        }
        rotate_rest(x, whole, half, interleaved, cos, sin);
    }
}
CPU_KERNEL(VEC_ISA, CPU_ROPE, CPU_ANY, VEC(rope));
