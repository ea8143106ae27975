/* test_cuda_guard.c - the kernels of src/dev/cuda over the shapes of test_dev_guard, on the emulated device: their operands end, or
 * in the second run begin, at unreadable pages, and their results are the bits of the scalar reference.  The one that is not,
 * bf16 on tensor cores, keeps its bound, and gives each token what it gives the token alone. */
#include "emulated_library.h"
#include "guard_shapes.h"

#include <math.h>

static struct dev *dev;
static struct dev_queue *ref, *gpu;
static uint32_t few; /* take every few-th product */

/* An array of the host and the device's of the same size. */
struct both {
    void *host, *at;
    size_t n;
};

static struct both both(size_t n)
{
    struct both b = {calloc(n + 1, 1), NULL, n};
    b.at = dev_mirror(gpu, b.host, n);
    assert_non_null(b.at);
    return b;
}

static void put(const struct both *b)
{
    dev_put(gpu, b->at, b->host, b->n);
}

static struct both floats(size_t n)
{
    struct both b = both(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        ((float *)b.host)[i] = guard_input(i) / 4 + 0.125f;
    put(&b);
    return b;
}

static void gone(struct both *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dev_mirror_close(gpu, b[i].at, b[i].n);
        free(b[i].host);
    }
}

static void *got(const struct both *b)
{
    void *x = malloc(b->n + 1);
    dev_get(gpu, x, b->at, b->n);
    assert_int_equal(dev_finish(gpu), 0);
    return x;
}

static void same(const struct both *b, const char *what, uint32_t x, uint32_t y)
{
    float *have = got(b);
    const float *want = b->host;
    for (size_t i = 0; i < b->n / sizeof *want; i++)
        if (memcmp(&have[i], &want[i], 4) != 0 && !(isnan(have[i]) && isnan(want[i])))
            fail_msg("%s, %u and %u: value %zu is %a, and the reference has %a", what, x, y, i,
                     (double)have[i], (double)want[i]);
    free(have);
}

static int open_all(void **state)
{
    (void)state;
    const struct dev_config c = {1, "ref"};
    struct dev_limits lim = {520, 1024, 1024, 8, 64, 512, 0};
    if (dev_queue_open(&dev_host, &c, &ref) < 0 || dev_reserve(ref, &lim) < 0) return -1;
    if (dev_open("cuda", &dev) < 0 || dev_queue_open(dev, &c, &gpu) < 0) {
        fprintf(stderr, "%s\n", err_last());
        exit(1); /* there is nothing to tear down */
    }
    return dev_reserve(gpu, &lim);
}

static int close_all(void **state)
{
    (void)state;
    dev_queue_close(gpu);
    dev_close(dev);
    dev_queue_close(ref);
    return 0;
}

/* The bound of products of bf16 on tensor cores: of the sum of the absolute values of what is added. */
static void near(const struct both *y, const struct both *w, const float *x, const float *b,
                 uint32_t n, uint32_t rows, uint32_t k)
{
    float *have = got(y), *row = malloc((k + 1) * sizeof *row);
    for (uint32_t o = 0; o < rows; o++) {
        dev_to_f32(DT_BF16, (const char *)w->host + (size_t)o * k * 2, row, k);
        for (uint32_t t = 0; t < n; t++) {
            double sum = (double)b[o], all = fabs(sum);
            for (uint32_t i = 0; i < k; i++) {
                sum += (double)row[i] * (double)x[(size_t)t * k + i];
                all += fabs((double)row[i] * (double)x[(size_t)t * k + i]);
            }
            double off = fabs((double)have[(size_t)t * rows + o] - sum);
            if (!(off <= all * (k + 16) * 0x1p-23))
                fail_msg("bf16, %u tokens, %u rows, %u columns: off by %g of %g", n, rows, k, off,
                         all);
        }
    }
    free(have);
    free(row);
}

/* Each token alone has the bits of all together. */
static void alone(const struct dev_weight *w, struct both *a, uint32_t n, uint32_t rows, uint32_t k)
{
    float *all = got(&a[2]);
    for (uint32_t t = 0; t < n; t += 1 + n / 3) {
        float *y = a[2].at;
        struct dev_mm one = {w, a[3].at, y + (size_t)t * rows, rows};
        dev_matmul(gpu, DEV_FAST, (float *)a[1].at + (size_t)t * k, k, 1, &one, 1);
    }
    float *again = got(&a[2]);
    if (memcmp(all, again, a[2].n) != 0)
        fail_msg("bf16, %u tokens, %u rows, %u columns: a token alone has other bits", n, rows, k);
    free(all);
    free(again);
}

static void product(enum dtype t, uint32_t n, uint32_t rows, uint32_t k)
{
    static uint32_t turn;
    size_t bytes;
    if (!dtype_bytes(t, k, &bytes) || turn++ % few) return;
    struct both a[] = {both(rows * bytes), floats((size_t)n * k), floats((size_t)n * rows),
                       floats(rows)};
    unsigned char *w = a[0].host;
    for (size_t i = 0; i < rows * bytes; i++)
        w[i] = guard_byte(i);
    put(&a[0]);
    struct dev_weight hw = {w, rows, k, t}, dw = {a[0].at, rows, k, t};
    for (int mode = DEV_EXACT; mode <= DEV_FAST; mode++) {
        struct dev_mm h = {&hw, a[3].host, a[2].host, rows}, d = {&dw, a[3].at, a[2].at, rows};
        dev_matmul(ref, (enum dev_compute)mode, a[1].host, k, n, &h, 1);
        dev_matmul(gpu, (enum dev_compute)mode, a[1].at, k, n, &d, 1);
        if (mode == DEV_EXACT || t != DT_BF16) {
            same(&a[2], dtype_name(t), n, rows);
        } else {
            near(&a[2], &a[0], a[1].host, a[3].host, n, rows, k);
            alone(&dw, a, n, rows, k);
        }
    }
    gone(a, countof(a));
}

static void test_products(void **state)
{
    (void)state;
    for (size_t t = 0; t < countof(guard_types); t++) {
        for (size_t k = 0; k < countof(guard_ks); k++)
            for (size_t n = 0; n < countof(guard_ns); n++)
                for (size_t o = 0; o < countof(guard_outs); o++)
                    product(guard_types[t], guard_ns[n], guard_outs[o], guard_ks[k]);
        uint32_t was = few;
        if (t % test_share()) continue;
        few = 1; /* more tokens, or more rows, than any tile */
        product(guard_types[t], 133, 1, 256);
        product(guard_types[t], 67, 140, 256);
        product(guard_types[t], 1, 1023, 256);
        few = was;
    }
}

static void test_tables(void **state)
{
    (void)state;
    static const int32_t id[] = {2, 0};
    for (size_t t = 0; t < countof(guard_types); t++) {
        size_t bytes;
        uint32_t k = 256, rows = 3;
        assert_true(dtype_bytes(guard_types[t], k, &bytes));
        struct both a[] = {both(rows * bytes), both(sizeof id), floats(2 * k)};
        for (size_t i = 0; i < rows * bytes; i++)
            ((unsigned char *)a[0].host)[i] = guard_byte(i);
        memcpy(a[1].host, id, sizeof id);
        put(&a[0]);
        put(&a[1]);
        struct dev_weight h = {a[0].host, rows, k, guard_types[t]},
                          d = {a[0].at, rows, k, guard_types[t]};
        dev_embed(ref, &h, a[1].host, 2, a[2].host);
        dev_embed(gpu, &d, a[1].at, 2, a[2].at);
        same(&a[2], dtype_name(guard_types[t]), 2, k);
        gone(a, countof(a));
    }
}

static void test_elementwise(void **state)
{
    (void)state;
    for (uint32_t dim = 1; dim < 70; dim = guard_dim(dim))
        for (uint32_t n = 0; n < 4; n++) {
            struct both a[] = {floats((size_t)n * dim), floats((size_t)n * dim), floats(dim),
                               floats(n)};
            for (int side = 0; side < 2; side++) {
                struct dev_queue *d = side ? gpu : ref;
                float *x = side ? a[0].at : a[0].host, *y = side ? a[1].at : a[1].host,
                      *w = side ? a[2].at : a[2].host, *r = side ? a[3].at : a[3].host;
                dev_rmsnorm(d, x, w, 1e-6f, n, dim, y);
                dev_layernorm(d, x, w, w, 1e-6f, n, dim, y);
                dev_add(d, x, y, n, dim);
                dev_silu_mul(d, x, y, n, dim);
                dev_gelu_mul(d, x, y, n, dim);
                dev_gelu(d, x, n, dim);
                dev_swiglu_clamped(d, x, y, 1.7f, 7, n, dim);
                dev_scale(d, x, 2, n, dim);
                dev_softcap(d, x, 30, n, dim);
                dev_softmax(d, x, n, dim);
                dev_sigmoid(d, x, n, dim);
                dev_gelu_erf_mul(d, x, y, n, dim);
                dev_gelu_erf(d, x, n, dim);
                dev_relu(d, x, n, dim);
                dev_mul(d, x, y, n, dim);
                dev_mul_row(d, x, w, n, dim);
                dev_scale_rows(d, x, r, n, dim);
                dev_softplus(d, x, w, 0, 20, n, dim);
            }
            same(&a[0], "values", n, dim);
            same(&a[1], "norms", n, dim);
            gone(a, countof(a));
        }
}

static void test_rotations(void **state)
{
    (void)state;
    for (uint32_t rot = 2; rot < 70; rot = guard_rot(rot))
        for (uint32_t n = 0; n < 3; n++) {
            const uint32_t heads = 1 + n, dim = rot + n, ldx = heads * dim + n;
            size_t all = n ? (size_t)(n - 1) * ldx + heads * dim : 0;
            struct both a[] = {floats(all), floats((size_t)n * rot / 2),
                               floats((size_t)n * rot / 2)};
            for (int interleaved = 0; interleaved < 2; interleaved++) {
                dev_rope(ref, a[0].host, ldx, n, heads, dim, rot, interleaved, a[1].host,
                         a[2].host);
                dev_rope(gpu, a[0].at, ldx, n, heads, dim, rot, interleaved, a[1].at, a[2].at);
                same(&a[0], "a rotation", n, rot);
            }
            gone(a, countof(a));
        }
}

static int run(const char *how)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_tables),
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_rotations)};
    setenv("KVIK_EMULATED", how, 1);
    return cmocka_run_group_tests_name(how, tests, open_all, close_all);
}

/* Operands end at fences in "late", and begin there in "backwards".  "real": on the GPU of $KVIK_CUDA_LIBRARY. */
int main(int argc, char **argv)
{
    bool real = argc > 1 && strcmp(argv[1], "real") == 0;
    if (!real) emulated_choose(argc ? argv[0] : "");
    few = getenv("KVIK_TEST_LONG")
              ? 1
              : 5 * test_share() * test_share(); /* each size of each kind occurs all the same */
    return run("late") + (real ? 0 : run("backwards"));
}
