/* test_dev_math.c - exp, silu, softplus, gelu and tanh against double precision. Every elementwise operation
 * of every instruction set against the reference device, bit for bit, at lengths around the width
 * of a vector. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"
#include "dev/cpu/mathfn.h"
#include "share.h"

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

/* Returns the distance from the true value in units of the last place of the result. */
static double ulps(float got, double want)
{
    if (fabs(want) > 3.4028234663852886e38) return isinf(got) && (got > 0) == (want > 0) ? 0 : 1e9;
    int e;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

/* Compares the results of the reference device and of another device; NaN equals NaN. */
static void same(const float *a, const float *b, size_t n, const char *isa, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, 4) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s %s: value %zu of %zu is %a, reference %a", isa, what, i, n, b[i], a[i]);
}

static const uint32_t dims[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 100, 576, 577, 1536};

/* Every map has a number, so that tests can loop over them. */
enum {
    ADD,
    SILU_MUL,
    GELU_MUL,
    GELU,
    SWIGLU,
    SCALE,
    SCALE_ROWS,
    SOFTCAP,
    SIGMOID,
    MUL_ROW,
    SOFTPLUS,
    GELU_ERF,
    MAPS
};
static const char *const map_name[MAPS] = {"add",     "silu_mul", "gelu_mul",   "gelu",
                                           "swiglu",  "scale",    "scale_rows", "softcap",
                                           "sigmoid", "mul_row",  "softplus",   "gelu_erf_mul"};

static void apply(struct dev_queue *d, int map, float *x, const float *y, uint32_t n, uint32_t dim)
{
    switch (map) {
    case ADD:
        dev_add(d, x, y, n, dim);
        break;
    case SILU_MUL:
        dev_silu_mul(d, x, y, n, dim);
        break;
    case GELU_MUL:
        dev_gelu_mul(d, x, y, n, dim);
        break;
    case GELU:
        dev_gelu(d, x, n, dim);
        break;
    case SWIGLU:
        dev_swiglu_clamped(d, x, y, 1.702f, 7.0f, n, dim);
        break;
    case SCALE:
        dev_scale(d, x, 0.3f, n, dim);
        break;
    case SCALE_ROWS:
        dev_scale_rows(d, x, y, n, dim);
        break;
    case SOFTCAP:
        dev_softcap(d, x, 30.0f, n, dim);
        break;
    case MUL_ROW:
        dev_mul_row(d, x, y, n, dim);
        break;
    case GELU_ERF:
        dev_gelu_erf_mul(d, x, y, n, dim);
        break;
    case SOFTPLUS:
        dev_softplus(d, x, y, 1e-3f, 20.0f, n, dim);
        break;
    default:
        dev_sigmoid(d, x, n, dim);
    }
}

/* Returns the exact result of a map for one value, in double. */
static double exact(int map, double x, double y)
{
    double g = fmin(x, 7.0), u = fmax(fmin(y, 7.0), -7.0);
    switch (map) {
    case ADD:
        return x + y;
    case SILU_MUL:
        return x / (1 + exp(-x)) * y;
    case GELU_MUL:
    case GELU:
        x = x / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
        return map == GELU ? x : x * y;
    case SWIGLU:
        return (u + 1) * g / (1 + exp(-(double)1.702f * g));
    case SCALE:
        return x * (double)0.3f;
    case SCALE_ROWS:
        return x * y;
    case SOFTCAP:
        return 30 * tanh(x / 30);
    case MUL_ROW:
        return x * y;
    case GELU_ERF:
        return x / 2 * erfc(-x / sqrt(2.0)) * y;
    case SOFTPLUS:
        x = (double)(float)(x + y); /* the sum is rounded */
        return fmin(fmax(fmax(x, 0) + log1p(exp(-fabs(x))), (double)1e-3f), 20);
    default:
        return 1 / (1 + exp(-x));
    }
}

static void test_math(void **state)
{
    (void)state;
    double worst_exp = 0, worst_silu = 0, worst_tanh = 0, worst_gelu = 0, worst_softplus = 0;
    /* Floats of both signs, evenly spaced by their bits. */
    for (uint32_t u = 0; u < 0xff800000u; u += 4099) {
        float x = half_from_bits(u);
        if (isnan(x)) continue;
        worst_exp = fmax(worst_exp, ulps(math_exp(x), exp((double)x)));
        worst_tanh = fmax(worst_tanh, ulps(math_tanh(x), tanh((double)x)));
        if (x > -80 && x < 1e30f)
            worst_silu = fmax(worst_silu, ulps(math_silu(x), x / (1 + exp(-(double)x))));
        if (x > -80)
            worst_softplus = fmax(
                worst_softplus, ulps(math_softplus(x), fmax(x, 0) + log1p(exp(-fabs((double)x)))));
        if (x > -3 && x < 1e30f)
            worst_gelu = fmax(worst_gelu, ulps(math_gelu(x), exact(GELU, x, 0)));
    }
    assert_true(worst_exp < 1.1);
    assert_true(worst_tanh < 3);
    assert_true(worst_silu < 3);
    assert_true(worst_softplus < 3);
    assert_true(math_softplus(INFINITY) == INFINITY && math_softplus(-INFINITY) == 0);
    assert_true(isnan(math_softplus(NAN)) && math_softplus(200.0f) == 200.0f);
    assert_true(worst_gelu < 30); /* the error of u times u */
    assert_true(math_exp(0.0f) == 1.0f && math_exp(-0.0f) == 1.0f);
    assert_true(math_exp(-INFINITY) == 0.0f && math_exp(INFINITY) == INFINITY);
    assert_true(math_exp(-1000.0f) == 0.0f && !signbit(math_exp(-1000.0f)));
    assert_true(isnan(math_exp(NAN)) && isnan(math_tanh(NAN)) && isnan(math_silu(NAN)));
    assert_true(math_tanh(INFINITY) == 1.0f && math_tanh(-INFINITY) == -1.0f);
    assert_true(math_tanh(0.0f) == 0.0f && signbit(math_tanh(-0.0f)));
    assert_true(math_silu(0.0f) == 0.0f && math_silu(200.0f) == 200.0f &&
                math_silu(-200.0f) == 0.0f);
    assert_true(math_gelu(INFINITY) == INFINITY && math_gelu(-1e30f) == 0 && isnan(math_gelu(NAN)));
    assert_true(math_gelu(0.0f) == 0 && math_gelu(20.0f) == 20.0f);
}

static void test_accuracy(void **state)
{
    (void)state;
    enum { N = 4096 };
    struct dev_queue *d;
    float *x = malloc(N * 4), *y = malloc(N * 4), *out = malloc(N * 4);
    assert_int_equal(dev_queue_open(&dev_host, &(struct dev_config){1, NULL}, &d), 0);
    for (int map = 0; map < MAPS; map++) {
        for (int i = 0; i < N / 4; i++)
            y[i] = rnd_float();
        for (int i = 0; i < N; i++) {
            x[i] = out[i] = rnd_float() * (i % 2 ? 1 : 0.05f);
            y[i] = map == MUL_ROW || map == SOFTPLUS ? y[i % (N / 4)] : rnd_float();
        }
        apply(d, map, out, y, map == SCALE_ROWS ? N : 4, map == SCALE_ROWS ? 1 : N / 4);
        for (int i = 0; i < N; i++) {
            double want = exact(map, x[i], y[i]), off = fabs(out[i] - want);
            double slack = 2e-6 * (1 + fabs((double)x[i])); /* the error of the exponent */
            if (off > slack * fabs(want) + 1e-37)
                fail_msg("%s(%a, %a) is %a, not %a", map_name[map], x[i], y[i], out[i], want);
        }
    }
    /* gelu in its tail: u of -30 and below, where 1 + tanh(u) has no bits left in f32. */
    float tail[3] = {-5.0f, -7.0f, -9.0f};
    dev_gelu(d, tail, 1, 3);
    assert_true(fabs(tail[0] / exact(GELU, -5, 0) - 1) < 1e-5);
    assert_true(fabs(tail[1] / exact(GELU, -7, 0) - 1) < 1e-5);
    assert_true(fabs(tail[2] / exact(GELU, -9, 0) - 1) < 1e-5);
    free(x);
    free(y);
    free(out);
    dev_queue_close(d);
}

static void check_any_bits(struct dev_queue *ref, struct dev_queue *d)
{
    const uint32_t N = (1 << 16) / test_share() & ~15u;
    float *x = malloc(2 * N * 4), *y = x + N, *up = malloc(N * 4);
    for (int map = 0; map < MAPS; map++) {
        for (uint32_t i = 0; i < N; i++) {
            x[i] = y[i] = half_from_bits(i * 2654435761u + 1013904223u +
                                         /* Includes infinities, NaN and subnormals. */
                                         (uint32_t)map);
            up[i] = i % 7 ? rnd_float() : half_from_bits(rnd());
        }
        apply(ref, map, x, up, 16, N / 16);
        apply(d, map, y, up, 16, N / 16);
        same(x, y, N, dev_isa_name(d), map_name[map]);
    }
    free(x);
    free(up);
}

static void check_maps(struct dev_queue *ref, struct dev_queue *d, uint32_t n, uint32_t dim)
{
    size_t values = (size_t)n * dim;
    float *y = malloc(values * 4);
    float *a = malloc((values + 1) * 4), *b = malloc((values + 1) * 4);
    a[values] = b[values] = 42.0f;
    for (int map = 0; map < MAPS; map++) {
        fill(a, values);
        fill(y, values);
        memcpy(b, a, values * 4);
        apply(ref, map, a, y, n, dim);
        apply(d, map, b, y, n, dim);
        same(a, b, values, dev_isa_name(d), map_name[map]);
    }
    assert_true(a[values] == 42.0f && b[values] == 42.0f);
    free(y);
    free(a);
    free(b);
}

enum { RMS, RMS_ONES, LAYER, LAYER_BARE, SOFTMAX, ROWS };
static const char *const row_name[ROWS] = {"rmsnorm", "rmsnorm of ones", "layernorm",
                                           "layernorm without w and b", "softmax"};

static void apply_rows(struct dev_queue *d, int op, const float *x, const float *w, uint32_t n,
                       uint32_t dim, float *out)
{
    if (op == SOFTMAX) {
        if (out != x) memcpy(out, x, (size_t)n * dim * 4);
        dev_softmax(d, out, n, dim);
    } else if (op == RMS || op == RMS_ONES) {
        dev_rmsnorm(d, x, op == RMS ? w : NULL, 1e-5f, n, dim, out);
    } else {
        dev_layernorm(d, x, op == LAYER ? w : NULL, op == LAYER ? w + dim : NULL, 1e-5f, n, dim,
                      out);
    }
}

static void check_row(int op, const float *x, const float *w, uint32_t dim, const float *got)
{
    double mean = 0, ss = 0, sum = 0, top = -INFINITY, size = 0;
    for (uint32_t i = 0; i < dim; i++) {
        mean += x[i] / (double)dim;
        top = fmax(top, x[i]);
        size = fmax(size, fabs(x[i]));
    }
    for (uint32_t i = 0; i < dim; i++) {
        double c = op == LAYER || op == LAYER_BARE ? x[i] - mean : x[i];
        ss += c * c;
        sum += exp(x[i] - top);
    }
    double r = 1 / sqrt(ss / dim + 1e-5);
    for (uint32_t i = 0; i < dim; i++) {
        double want = x[i] * r, slack = 2e-6 * size * r;
        if (op == SOFTMAX) want = exp(x[i] - top) / sum, slack = 2e-6;
        if (op == LAYER || op == LAYER_BARE) want = (x[i] - mean) * r;
        if (op == RMS || op == LAYER) want *= w[i], slack *= fabs(w[i]);
        if (op == LAYER) want += w[dim + i], slack += 1e-6 * fabs(want);
        if (!(fabs(got[i] - want) <= slack + 2e-6 * fabs(want)))
            fail_msg("%s of %u values: value %u is %g, not %g", row_name[op], dim, i, got[i], want);
    }
}

static void check_rows(struct dev_queue *ref, struct dev_queue *d, uint32_t n, uint32_t dim)
{
    size_t values = (size_t)n * dim;
    float *x = malloc(values * 4), *w = malloc(2 * dim * 4);
    float *a = malloc((values + 1) * 4), *b = malloc((values + 1) * 4);
    a[values] = b[values] = 42.0f;
    fill(w, 2 * dim);
    for (int op = 0; op < ROWS; op++) {
        fill(x, values);
        apply_rows(ref, op, x, w, n, dim, a);
        for (uint32_t t = 0; t < n; t++)
            check_row(op, x + (size_t)t * dim, w, dim, a + (size_t)t * dim);
        apply_rows(d, op, x, w, n, dim, b);
        same(a, b, values, dev_isa_name(d), row_name[op]);
        memcpy(b, x, values * 4);
        apply_rows(d, op, b, w, n, dim, b);
        same(a, b, values, dev_isa_name(d), row_name[op]);
        memcpy(b, x, values * 4); /* a row computed alone: its neighbours do not matter */
        uint32_t t = rnd() % n;
        apply_rows(d, op, b + (size_t)t * dim, w, 1, dim, b + (size_t)t * dim);
        same(a + (size_t)t * dim, b + (size_t)t * dim, dim, dev_isa_name(d), row_name[op]);
        for (size_t i = 0; i < values; i += 1 + rnd() % 50)
            x[i] = half_from_bits(rnd()); /* numbers of all kinds, NaN included */
        apply_rows(ref, op, x, w, n, dim, a);
        apply_rows(d, op, x, w, n, dim, b);
        same(a, b, values, dev_isa_name(d), row_name[op]);
    }
    assert_true(a[values] == 42.0f && b[values] == 42.0f);
    free(x);
    free(w);
    free(a);
    free(b);
}

static void check_rope(struct dev_queue *ref, struct dev_queue *d, uint32_t n, uint32_t dim,
                       uint32_t rot, bool inter)
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
    struct dev_queue *ref;
    assert_int_equal(dev_queue_open(&dev_host, &(struct dev_config){1, "ref"}, &ref), 0);
    for (int isa = 1; isa < DEV_ISAS; isa++) {
        if (!dev_isa_supported((enum dev_isa)isa)) continue;
        for (uint32_t threads = 1; threads < 4; threads += 2) {
            struct dev_queue *d;
            if (test_share() > 1 && threads != (isa % 2 ? 1 : 3)) continue;
            assert_int_equal(
                dev_queue_open(&dev_host, &(struct dev_config){threads, dev_isa_names()[isa]}, &d),
                0);
            check_any_bits(ref, d);
            for (size_t i = 0; i < countof(dims); i++) {
                check_maps(ref, d, 1 + rnd() % 40, dims[i]);
                check_rows(ref, d, 1 + rnd() % 40, dims[i]);
                uint32_t dim = (dims[i] + 1) & ~1u;
                check_rope(ref, d, 1 + rnd() % 20, dim, dim, rnd() % 2);
                check_rope(ref, d, 1 + rnd() % 20, dim, dim / 4 * 2, rnd() % 2);
            }
            dev_queue_close(d);
        }
    }
    dev_queue_close(ref);
}

/* A known result for each map, so that the reference device is not only compared with copies of
 * itself. */
static void test_known(void **state)
{
    (void)state;
    struct dev_queue *d;
    assert_int_equal(dev_queue_open(&dev_host, &(struct dev_config){1, "ref"}, &d), 0);
    float x[2] = {3, 4}, w[2] = {1, 2}, y[2];
    dev_rmsnorm(d, x, w, 0, 1, 2, y);
    assert_true(fabsf(y[0] - 3 / sqrtf(12.5f)) < 1e-6f && fabsf(y[1] - 8 / sqrtf(12.5f)) < 1e-6f);
    dev_add(d, x, w, 1, 2);
    assert_true(x[0] == 4 && x[1] == 6);
    float g[1] = {1}, u[1] = {2};
    dev_silu_mul(d, g, u, 1, 1);
    assert_true(fabsf(g[0] - 1.4621172f) < 1e-6f);
    g[0] = 1;
    dev_gelu(d, g, 1, 1);
    assert_true(fabsf(g[0] - 0.8411920f) < 1e-6f);
    g[0] = 9, u[0] = -8; /* both beyond the limit: 7 * sigmoid(1.702 * 7) * (-7 + 1) */
    dev_swiglu_clamped(d, g, u, 1.702f, 7, 1, 1);
    assert_true(fabsf(g[0] + 41.999719f) < 1e-4f);
    float p[3] = {1, 2, 3};
    dev_layernorm(d, p, NULL, NULL, 0, 1, 3, p);
    assert_true(fabsf(p[0] + 1.2247449f) < 1e-6f && p[1] == 0 && p[2] == -p[0]);
    float sm[2] = {0, logf(3)};
    dev_softmax(d, sm, 1, 2);
    assert_true(fabsf(sm[0] - 0.25f) < 1e-6f && fabsf(sm[1] - 0.75f) < 1e-6f);
    float q[4] = {1, 2, 3, 4}, cs[2] = {0, 1}, sn[2] = {1, 0};
    dev_rope(d, q, 4, 1, 1, 4, 4, false, cs, sn); /* (1,3) by 90 degrees, (2,4) by none */
    assert_true(q[0] == -3 && q[1] == 2 && q[2] == 1 && q[3] == 4);
    dev_rope(d, q, 4, 1, 1, 4, 2, true, cs, sn); /* only the first pair is rotated */
    assert_true(q[0] == -2 && q[1] == -3 && q[2] == 1 && q[3] == 4);
    dev_queue_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_math),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
