/* group_vec.h - the kernels of dev/group.h on 16 lanes, stated once for AVX2, AVX-512 and NEON: group_*.c include it
 * after the vec_*.h and after what differs (vec_float: bits as floats; vec_round: to a type of rows; vec_codes: 16 small
 * whole numbers to bytes). */
#include "dev/cpu/group_kernels.h"
#include "dev/cpu/group_math.h"

INLINE vf between(vf q, vf top)
{
    const vf big = vf_set1(MATH_ROUND);
    q = vf_min(vf_max(q, vf_zero()), top); /* NaN gives 0 */
    return vf_sub(vf_add(q, big), big);
}

static void span(const float *x, uint32_t n, float *lo, float *hi)
{
    vf most = vf_load(x), least = vf_neg(most), odd = vf_zero();
    for (uint32_t i = 0; i < n; i += 16) {
        vf v = vf_load(x + i);
        most = vf_max(v, most);
        least = vf_max(vf_neg(v), least);
        odd = vf_add(odd, vf_mul(v, vf_zero())); /* NaN where a value is not finite */
    }
    *lo = -vf_top(least);
    *hi = vf_top(most);
    /* The sign of a zero is that of the first one. */
    if (!(vf_tree(odd) == 0) || *lo == 0 || *hi == 0) group_span_ref(x, n, lo, hi);
}

static void steps(const float *x, uint32_t n, float step, float zero, float top, uint8_t *q)
{
    for (uint32_t i = 0; i < n; i += 16) {
        vf v = vf_add(vf_mul(vf_load(x + i), vf_set1(step)), vf_set1(zero));
        vec_codes(q + i, between(v, vf_set1(top)));
    }
}

INLINE void ranges_of(enum dtype t, const float *x, uint32_t n, float shift, float scale, float top,
                      uint8_t *q)
{
    for (uint32_t i = 0; i < n; i += 16) {
        vf v = vec_round(t, vf_add(vf_load(x + i), vf_set1(shift)));
        v = vec_round(t, vf_div(v, vf_set1(scale)));
        vec_codes(q + i, between(v, vf_set1(top)));
    }
}

static void ranges(enum dtype t, const float *x, uint32_t n, float shift, float scale, float top,
                   uint8_t *q)
{
    if (t == DT_F16)
        ranges_of(DT_F16, x, n, shift, scale, top, q);
    else if (t == DT_BF16)
        ranges_of(DT_BF16, x, n, shift, scale, top, q);
    else
        ranges_of(DT_F32, x, n, shift, scale, top, q);
}

INLINE vf size_of(vf d)
{
    return vf_max(vf_neg(d), d);
}

INLINE vf shrink(vf d)
{
    vf size = size_of(d);
    vi u = vi_add(vi_bits(size), vi_set1(-GROUP_HALF));
    vf m = vec_float(vi_add(vi_and(u, 0x7fffff), vi_set1(GROUP_HALF)));
    vf f = vf_sub(m, vf_set1(1)), s = vf_div(f, vf_add(f, vf_set1(2))), z = vf_mul(s, s);
    vf q = vf_fma(vf_set1(MATH_LOG_P4), z, vf_set1(MATH_LOG_P3));
    q = vf_fma(q, z, vf_set1(MATH_LOG_P2));
    q = vf_fma(q, z, vf_set1(MATH_LOG_P1));
    q = vf_fma(q, z, vf_set1(MATH_LOG_P0));
    q = vf_fma(vf_mul(s, z), q, s);
    vf power = vf_exp(
        vf_fma(vf_from_int(vi_sar(u, 23)), vf_set1(GROUP_EXP), vf_mul(q, vf_set1(GROUP_LOG))));
    vf e = vf_sub(size, vf_mul(vf_set1(GROUP_WEIGHT), power));
    return vf_signed(vf_max(e, vf_zero()), d);
}

/* Returns the value that will be read of a code. */
INLINE vf value_of(const struct group_round *r, vf q)
{
    vf e = vf_sub(q, vf_set1(r->stored));
    if (r->dtype != DT_BF16) return vf_mul(e, vf_set1(r->scale));
    return vf_round_bf16(vf_mul(vf_round_bf16(e), vf_set1(r->scale)));
}

/* Values have no large d, and keys of most models have some in every 16 values.  So one question is asked for a group,
 * and only large groups pay for the power. */
static float round_of(const struct group_round *r, const float *x, uint32_t n, float *z, float *d)
{
    const vf step = vf_set1(r->step), zero = vf_set1(r->zero), top = vf_set1(r->top);
    vf sum = vf_zero(), most = vf_zero();
    for (uint32_t i = 0; i < n; i += 16) {
        vf v = vf_load(x + i), q = between(vf_add(vf_mul(v, step), zero), top);
        vf apart = vf_sub(v, vf_div(vf_sub(q, zero), step)), e = vf_sub(v, value_of(r, q));
        if (n - i < 16) e = vf_keep(e, 0, n - i, vf_zero());
        most = vf_max(size_of(apart), most);
        sum = vf_fma(e, e, sum);
        vf_store(d + i, apart);
        vf_store(z + i, q);
    }
    const bool large = !(vf_top(most) < GROUP_SMALL);
    for (uint32_t i = 0; i < n; i += 16) {
        vf v = vf_load(x + i);
        if (large) v = vf_sub(v, shrink(vf_load(d + i)));
        vf_store(z + i, vf_sub(vf_load(z + i), vf_mul(v, step)));
    }
    return vf_tree(sum);
}

const struct group_kernels VEC(group) = {span, steps, ranges, round_of};
