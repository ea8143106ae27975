/* elementwise_vec.h - the kernels of elementwise_ref.c on 16 lanes, stated once for AVX2, AVX-512 and NEON:
 * elementwise_avx2.c and elementwise_avx512.c include it after the vec_*.h that gives the vectors. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/mathfn_vec.h"

#include <math.h>

/* One row, vector by vector: `lanes` is 16 but for the last one; missing lanes read as zero. */
#define FOR_ROW(i, lanes, dim)                                                                     \
    for (uint32_t i = 0, lanes; i < (dim) && (lanes = MIN((dim)-i, 16u)); i += 16)

INLINE vf row_load(const float *p, uint32_t lanes)
{
    return lanes == 16 ? vf_load(p) : vf_load_n(p, lanes);
}
INLINE void row_store(float *p, vf v, uint32_t lanes)
{
    if (lanes == 16)
        vf_store(p, v);
    else
        vf_store_n(p, v, lanes);
}

static void VEC(rmsnorm)(const float *x, const float *w, const float *b, float eps, uint32_t dim,
                         float *out)
{
    (void)b;
    vf acc = vf_zero();
    FOR_ROW(i, lanes, dim)
    { /* a lane without a value adds +0, which changes no sum of squares */
        vf v = row_load(x + i, lanes);
        acc = vf_fma(v, v, acc);
    }
    vf r = vf_set1(1.0f / sqrtf(vf_tree(acc) / (float)dim + eps));
    FOR_ROW(i, lanes, dim)
    {
        vf v = vf_mul(row_load(x + i, lanes), r);
        if (w) v = vf_mul(v, row_load(w + i, lanes));
        row_store(out + i, v, lanes);
    }
}
CPU_KERNEL(VEC_ISA, CPU_RMSNORM, CPU_ANY, VEC(rmsnorm));

static void VEC(layernorm)(const float *x, const float *w, const float *b, float eps, uint32_t dim,
                           float *out)
{
    vf sum = vf_zero(), ss = vf_zero();
    FOR_ROW(i, lanes, dim)
    sum = vf_add(sum, row_load(x + i, lanes)); /* sums begin at +0, so that +0 changes none */
    const vf mean = vf_set1(vf_tree(sum) / (float)dim);
    FOR_ROW(i, lanes, dim)
    {
        vf v = vf_sub(row_load(x + i, lanes), mean);
        ss = lanes == 16 ? vf_fma(v, v, ss) : vf_fma_n(v, v, ss, lanes);
    }
    const vf r = vf_set1(1.0f / sqrtf(vf_tree(ss) / (float)dim + eps));
    FOR_ROW(i, lanes, dim)
    {
        vf v = vf_mul(vf_sub(row_load(x + i, lanes), mean), r);
        if (w) v = vf_mul(v, row_load(w + i, lanes));
        if (b) v = vf_add(v, row_load(b + i, lanes));
        row_store(out + i, v, lanes);
    }
}
CPU_KERNEL(VEC_ISA, CPU_LAYERNORM, CPU_ANY, VEC(layernorm));

static void VEC(softmax)(const float *x, const float *w, const float *b, float eps, uint32_t dim,
                         float *out)
{
    (void)w, (void)b, (void)eps;
    const vf none = vf_set1(-INFINITY);
    vf top = none, l = vf_zero();
    FOR_ROW(i, lanes, dim)
    top = vf_max(vf_keep(row_load(x + i, lanes), 0, lanes, none), top);
    const vf m = vf_set1(vf_top(top));
    FOR_ROW(i, lanes, dim)
    {
        vf e = vf_exp(vf_sub(row_load(x + i, lanes), m));
        row_store(out + i, e, lanes);
        l = vf_add(l, vf_keep(e, 0, lanes, vf_zero()));
    }
    const vf inv = vf_set1(1.0f / vf_tree(l));
    FOR_ROW(i, lanes, dim)
    row_store(out + i, vf_mul(row_load(out + i, lanes), inv), lanes);
}
CPU_KERNEL(VEC_ISA, CPU_SOFTMAX, CPU_ANY, VEC(softmax));

/* x = op(x, y, p, q) over n values; inlined, with the operation, into each kernel below. */
INLINE void map(vf (*op)(vf x, vf y, vf p, vf q), float *x, const float *y, float p, float q,
                size_t n)
{
    const vf vp = vf_set1(p), vq = vf_set1(q);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        vf_store(x + i, op(vf_load(x + i), y ? vf_load(y + i) : vp, vp, vq));
    uint32_t rest = (uint32_t)(n - i);
    if (rest)
        vf_store_n(x + i, op(vf_load_n(x + i, rest), y ? vf_load_n(y + i, rest) : vp, vp, vq),
                   rest);
}
#define MAP(name, OP, operand)                                                                     \
    static void VEC(name)(float *x, const float *y, float p, float q, size_t n)                    \
    {                                                                                              \
        (void)y;                                                                                   \
        map(name##_of, x, operand, p, q, n);                                                       \
    }                                                                                              \
    CPU_KERNEL(VEC_ISA, OP, CPU_ANY, VEC(name))

INLINE vf add_of(vf x, vf y, vf p, vf q)
{
    (void)p, (void)q;
    return vf_add(x, y);
}
MAP(add, CPU_ADD, y);

INLINE vf scale_of(vf x, vf y, vf by, vf q)
{
    (void)y, (void)q;
    return vf_mul(x, by);
}
MAP(scale, CPU_SCALE, NULL);

INLINE vf mul_of(vf x, vf y, vf p, vf q)
{
    (void)p, (void)q;
    return vf_mul(x, y);
}
MAP(mul, CPU_MUL, y);

INLINE vf softplus_of(vf x, vf bias, vf lo, vf hi)
{
    vf v = vf_add(x, bias), t = vf_exp(vf_min(v, vf_neg(v)));
    vf s = vf_div(t, vf_add(vf_set1(2.0f), t)), z = vf_mul(s, s);
    vf q = vf_fma(vf_set1(MATH_LOG_P4), z, vf_set1(MATH_LOG_P3));
    q = vf_fma(q, z, vf_set1(MATH_LOG_P2));
    q = vf_fma(q, z, vf_set1(MATH_LOG_P1));
    q = vf_fma(q, z, vf_set1(MATH_LOG_P0));
    q = vf_fma(vf_mul(s, z), q, s);
    q = vf_add(vf_max(v, vf_zero()), vf_add(q, q));
    return vf_min(hi, vf_max(lo, q));
}
MAP(softplus, CPU_SOFTPLUS, y);

INLINE vf silu_mul_of(vf gate, vf up, vf p, vf q)
{
    (void)p, (void)q;
    return vf_mul(vf_silu(gate), up);
}
MAP(silu_mul, CPU_SILU_MUL, y);

INLINE vf gelu_of(vf x, vf y, vf p, vf q)
{
    (void)y, (void)p, (void)q;
    vf poly = vf_fma(vf_set1(MATH_GELU_CUBE), vf_mul(x, x), vf_set1(MATH_GELU_LINE));
    vf e = vf_exp(vf_neg(vf_mul(x, poly)));
    return vf_div(x, vf_add(vf_set1(1.0f), e));
}
MAP(gelu, CPU_GELU, NULL);

INLINE vf gelu_mul_of(vf gate, vf up, vf p, vf q)
{
    return vf_mul(gelu_of(gate, up, p, q), up);
}
MAP(gelu_mul, CPU_GELU_MUL, y);

INLINE vf gelu_erf_of(vf x, vf y, vf p, vf r)
{
    (void)y, (void)p, (void)r;
    const vf one = vf_set1(1.0f);
    vf u = vf_max(vf_neg(x), x), t = vf_div(one, vf_fma(vf_set1(MATH_ERFC_T), u, one));
    vf q = vf_fma(vf_set1(MATH_ERFC_P8), t, vf_set1(MATH_ERFC_P7));
    q = vf_fma(q, t, vf_set1(MATH_ERFC_P6));
    q = vf_fma(q, t, vf_set1(MATH_ERFC_P5));
    q = vf_fma(q, t, vf_set1(MATH_ERFC_P4));
    q = vf_fma(q, t, vf_set1(MATH_ERFC_P3));
    q = vf_fma(q, t, vf_set1(MATH_ERFC_P2));
    q = vf_fma(q, t, vf_set1(MATH_ERFC_P1));
    q = vf_fma(q, t, vf_set1(MATH_ERFC_P0));
    q = vf_mul(vf_mul(q, t), vf_exp(vf_mul(vf_mul(vf_set1(-0.5f), u), u)));
    /* beyond MATH_GELU_END, where u may be infinite, u / 2 counts as 0; a NaN stays through vf_max */
    vf half = vf_mul(vf_set1(0.5f), vf_choose(u, vf_set1(MATH_GELU_END), u, vf_zero()));
    return vf_sub(vf_max(x, vf_zero()), vf_mul(half, q));
}
MAP(gelu_erf, CPU_GELU_ERF, NULL);

INLINE vf gelu_erf_mul_of(vf x, vf up, vf p, vf r)
{
    return vf_mul(gelu_erf_of(x, up, p, r), up);
}
MAP(gelu_erf_mul, CPU_GELU_ERF_MUL, y);

INLINE vf relu_of(vf x, vf y, vf p, vf q)
{
    (void)y, (void)p, (void)q;
    return vf_max(vf_zero(), x); /* a NaN comes through max */
}
MAP(relu, CPU_RELU, NULL);

INLINE vf swiglu_of(vf gate, vf up, vf alpha, vf limit)
{
    const vf one = vf_set1(1.0f);
    vf g = vf_min(limit, gate), u = vf_max(vf_neg(limit), vf_min(limit, up));
    vf e = vf_exp(vf_neg(vf_mul(alpha, g)));
    return vf_mul(vf_add(u, one), vf_div(g, vf_add(one, e)));
}
MAP(swiglu, CPU_SWIGLU, y);

INLINE vf softcap_of(vf x, vf y, vf cap, vf q)
{
    (void)y, (void)q;
    return vf_mul(cap, vf_tanh(vf_div(x, cap)));
}
MAP(softcap, CPU_SOFTCAP, NULL);

INLINE vf sigmoid_of(vf x, vf y, vf p, vf q)
{
    (void)y, (void)p, (void)q;
    const vf one = vf_set1(1.0f);
    return vf_div(one, vf_add(one, vf_exp(vf_neg(x))));
}
MAP(sigmoid, CPU_SIGMOID, NULL);

INLINE void rotate(vf *a, vf *b, vf c, vf s)
{
    vf va = *a, vb_ = *b;
    *a = vf_fma(va, c, vf_neg(vf_mul(vb_, s)));
    *b = vf_fma(vb_, c, vf_mul(va, s));
}

/* Rotates the pairs from `from` on, one at a time; if pairs are interleaved, these are all pairs. */
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
