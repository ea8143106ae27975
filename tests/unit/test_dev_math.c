/* test_dev_math.c - exp, silu and tanh against double precision, and every elementwise operation of every
 * instruction set against the reference, bit for bit, at lengths around the width of a vector. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"
#include "dev/cpu/mathfn.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 362436069362436069ull;
static uint32_t rnd(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}
static float rnd_float(void)
{
    return ((float)(rnd() & 0xffffff) / 0x800000 - 1.0f) * ldexpf(1.0f, (int)(rnd() % 10) - 3);
}
static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = rnd_float();
}

/* Distance from the true value in units of the last place of the result. */
static double ulps(float got, double want)
{
    if (fabs(want) > 3.4028234663852886e38) return isinf(got) && (got > 0) == (want > 0) ? 0 : 1e9;
    int e;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

static void test_math(void **state)
{
    (void)state;
    double worst_exp = 0, worst_silu = 0, worst_tanh = 0;
    for (uint32_t u = 0; u < 0xff800000u; u += 4099) { /* floats of both signs, evenly by bits */
        float x = half_from_bits(u);
        if (isnan(x)) continue;
        worst_exp = fmax(worst_exp, ulps(math_exp(x), exp((double)x)));
        worst_tanh = fmax(worst_tanh, ulps(math_tanh(x), tanh((double)x)));
        if (x > -80 && x < 1e30f)
            worst_silu = fmax(worst_silu, ulps(math_silu(x), x / (1 + exp(-(double)x))));
    }
    assert_true(worst_exp < 1.1);
    assert_true(worst_tanh < 3);
    assert_true(worst_silu < 3);
    assert_true(math_exp(0.0f) == 1.0f && math_exp(-0.0f) == 1.0f);
    assert_true(math_exp(-INFINITY) == 0.0f && math_exp(INFINITY) == INFINITY);
    assert_true(math_exp(-1000.0f) == 0.0f && !signbit(math_exp(-1000.0f)));
    assert_true(isnan(math_exp(NAN)) && isnan(math_tanh(NAN)) && isnan(math_silu(NAN)));
    assert_true(math_tanh(INFINITY) == 1.0f && math_tanh(-INFINITY) == -1.0f);
    assert_true(math_tanh(0.0f) == 0.0f && signbit(math_tanh(-0.0f)));
    assert_true(math_silu(0.0f) == 0.0f && math_silu(200.0f) == 200.0f &&
                math_silu(-200.0f) == 0.0f);
}

/* Results of a reference device and of another must be equal; NaN equals NaN. */
static void same(const float *a, const float *b, size_t n, const char *isa, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, 4) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s %s: value %zu of %zu is %a, reference %a", isa, what, i, n, b[i], a[i]);
}

static const uint32_t dims[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 100, 576, 577, 1536};

static void test_silu_everywhere(struct dev *ref, struct dev *d)
{
    enum { N = 1 << 18 };
    float *x = malloc(2 * N * 4), *y = x + N, *up = malloc(N * 4);
    for (uint32_t i = 0; i < N; i++) {
        x[i] = y[i] =
            half_from_bits(i * 2654435761u + 1013904223u); /* infinities, NaN, subnormals too */
        up[i] = rnd_float();
    }
    dev_silu_mul(ref, x, up, 1, N);
    dev_silu_mul(d, y, up, 1, N);
    same(x, y, N, dev_isa_name(d), "silu of any bits");
    free(x);
    free(up);
}

static void check_maps(struct dev *ref, struct dev *d, uint32_t n, uint32_t dim)
{
    size_t values = (size_t)n * dim;
    float *x = malloc(values * 4), *y = malloc(values * 4), *w = malloc(dim * 4);
    float *a = malloc((values + 1) * 4), *b = malloc((values + 1) * 4);
    a[values] = b[values] = 42.0f;
    fill(x, values);
    fill(y, values);
    fill(w, dim);
    dev_rmsnorm(ref, x, w, 1e-5f, n, dim, a);
    dev_rmsnorm(d, x, w, 1e-5f, n, dim, b);
    same(a, b, values, dev_isa_name(d), "rmsnorm");
    memcpy(b, x, values * 4);
    dev_rmsnorm(d, b, w, 1e-5f, n, dim, b);
    same(a, b, values, dev_isa_name(d), "rmsnorm in place");
    dev_add(ref, a, y, n, dim);
    dev_add(d, b, y, n, dim);
    same(a, b, values, dev_isa_name(d), "add");
    dev_silu_mul(ref, a, y, n, dim);
    dev_silu_mul(d, b, y, n, dim);
    same(a, b, values, dev_isa_name(d), "silu_mul");
    assert_true(a[values] == 42.0f && b[values] == 42.0f);
    free(x);
    free(y);
    free(w);
    free(a);
    free(b);
}

static void check_rope(struct dev *ref, struct dev *d, uint32_t n, uint32_t dim, uint32_t rot,
                       bool inter)
{
    enum { HEADS = 3 };
    size_t ldx = (size_t)HEADS * dim + 5, values = n * ldx;
    float *a = malloc(values * 4), *b = malloc(values * 4);
    float *c = malloc(n * dim * 4), *s = malloc(n * dim * 4);
    fill(a, values);
    fill(c, n * dim);
    fill(s, n * dim);
    memcpy(b, a, values * 4);
    dev_rope(ref, a, ldx, n, HEADS, dim, rot, inter, c, s);
    float first = fmaf(b[0], c[0], -(b[inter ? 1 : rot / 2] * s[0]));
    assert_true(rot == 0 || a[0] == first);
    dev_rope(d, b, ldx, n, HEADS, dim, rot, inter, c, s);
    same(a, b, values, dev_isa_name(d), "rope");
    free(a);
    free(b);
    free(c);
    free(s);
}

static void test_elementwise(void **state)
{
    (void)state;
    struct dev *ref;
    assert_int_equal(dev_open(&(struct dev_config){1, "ref"}, &ref), 0);
    for (int isa = 1; isa < DEV_ISAS; isa++) {
        if (!dev_isa_supported((enum dev_isa)isa)) continue;
        for (uint32_t threads = 1; threads < 4; threads += 2) {
            struct dev *d;
            assert_int_equal(dev_open(&(struct dev_config){threads, dev_isa_names()[isa]}, &d), 0);
            test_silu_everywhere(ref, d);
            for (size_t i = 0; i < countof(dims); i++) {
                check_maps(ref, d, 1 + rnd() % 40, dims[i]);
                uint32_t dim = (dims[i] + 1) & ~1u;
                check_rope(ref, d, 1 + rnd() % 20, dim, dim, rnd() % 2);
                check_rope(ref, d, 1 + rnd() % 20, dim, dim / 4 * 2, rnd() % 2);
            }
            dev_close(d);
        }
    }
    dev_close(ref);
}

/* A known value each, so that the reference itself is not only compared with its own copies. */
static void test_known(void **state)
{
    (void)state;
    struct dev *d;
    assert_int_equal(dev_open(&(struct dev_config){1, "ref"}, &d), 0);
    float x[2] = {3, 4}, w[2] = {1, 2}, y[2];
    dev_rmsnorm(d, x, w, 0, 1, 2, y);
    assert_true(fabsf(y[0] - 3 / sqrtf(12.5f)) < 1e-6f && fabsf(y[1] - 8 / sqrtf(12.5f)) < 1e-6f);
    dev_add(d, x, w, 1, 2);
    assert_true(x[0] == 4 && x[1] == 6);
    float g[1] = {1}, u[1] = {2};
    dev_silu_mul(d, g, u, 1, 1);
    assert_true(fabsf(g[0] - 1.4621172f) < 1e-6f);
    float q[4] = {1, 2, 3, 4}, cs[2] = {0, 1}, sn[2] = {1, 0};
    dev_rope(d, q, 4, 1, 1, 4, 4, false, cs, sn); /* (1,3) by 90 degrees, (2,4) by none */
    assert_true(q[0] == -3 && q[1] == 2 && q[2] == 1 && q[3] == 4);
    dev_rope(d, q, 4, 1, 1, 4, 2, true, cs, sn); /* the first pair only */
    assert_true(q[0] == -2 && q[1] == -3 && q[2] == 1 && q[3] == 4);
    dev_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_math),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
