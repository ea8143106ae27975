/* test_dev_guard.c - no kernel touches a byte beyond its operands. Weights, activations and results
 * end where an unreadable page begins (and, in a second run, begin where one ends), on every
 * instruction set. The sanitizer builds leave the vector kernels of products uninstrumented, since
 * compilers take minutes over them. */
#include "dev/dev.h"
#include "testing.h"

#include <sys/mman.h>

struct fence {
    unsigned char *map;
    size_t total, page;
};

/* Returns n bytes that end (or begin) at an unreadable page. */
static void *fence_open(struct fence *f, size_t n, bool at_end)
{
    f->page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (n + f->page - 1) / f->page * f->page;
    f->total = body + 2 * f->page;
    f->map = mmap(NULL, f->total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->map != MAP_FAILED);
    assert_int_equal(mprotect(f->map, f->page, PROT_NONE), 0);
    assert_int_equal(mprotect(f->map + f->page + body, f->page, PROT_NONE), 0);
    return f->map + f->page + (at_end ? body - n : 0);
}

static void fence_close(struct fence *f)
{
    munmap(f->map, f->total);
}

static const enum dtype types[] = {DT_F32,  DT_F16,  DT_BF16, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,
                                   DT_Q8_0, DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_MXFP4};

static void one_product(struct dev *d, enum dtype t, uint32_t n, uint32_t rows, uint32_t k,
                        bool end)
{
    struct fence fw, fx, fy, fb;
    size_t bytes;
    if (!dtype_bytes(t, k, &bytes)) return;
    unsigned char *w = fence_open(&fw, rows * bytes, end);
    float *x = fence_open(&fx, (size_t)n * k * sizeof *x, end);
    float *y = fence_open(&fy, (size_t)n * rows * sizeof *y, end);
    float *b = fence_open(&fb, rows * sizeof *b, end);
    for (size_t i = 0; i < rows * bytes; i++)
        w[i] = (unsigned char)(i * 7 % 61); /* all scales are small, whatever the format */
    for (size_t i = 0; i < (size_t)n * k; i++)
        x[i] = (float)(i % 13) - 6;
    struct dev_weight weight = {w, rows, k, t};
    struct dev_mm mm = {&weight, b, y, rows};
    dev_matmul(d, DEV_EXACT, x, k, n, &mm, 1);
    dev_matmul(d, DEV_FAST, x, k, n, &mm, 1);
    fence_close(&fw);
    fence_close(&fx);
    fence_close(&fy);
    fence_close(&fb);
}

static void each_isa(void (*run)(struct dev *d))
{
    for (int isa = 0; isa < DEV_ISAS; isa++) {
        struct dev *d;
        if (!dev_isa_supported((enum dev_isa)isa)) continue;
        struct dev_config c = {2, dev_isa_names()[isa]};
        assert_int_equal(dev_open(&c, &d), 0);
        struct dev_limits lim = {64, 1024, 1024, 8, 64, 512, 0};
        assert_int_equal(dev_reserve(d, &lim), 0);
        run(d);
        dev_close(d);
    }
}

static void products(struct dev *d)
{
    static const uint32_t ks[] = {1, 5, 16, 31, 32, 48, 96, 256, 512},
                          ns[] = {1, 2, 3, 4, 5, 9, 33}, outs[] = {1, 3, 4, 7, 17, 40};
    for (size_t t = 0; t < countof(types); t++)
        for (size_t k = 0; k < countof(ks); k++)
            for (size_t n = 0; n < countof(ns); n++)
                for (size_t o = 0; o < countof(outs); o++)
                    one_product(d, types[t], ns[n], outs[o], ks[k], (n + o + k) % 3 != 0);
}

static void rows_of_tables(struct dev *d)
{
    for (size_t t = 0; t < countof(types); t++) {
        struct fence fw, fo;
        size_t bytes;
        uint32_t k = 256, rows = 3;
        assert_true(dtype_bytes(types[t], k, &bytes));
        unsigned char *w = fence_open(&fw, rows * bytes, true);
        float *out = fence_open(&fo, 2 * k * sizeof *out, true);
        memset(w, 1, rows * bytes);
        struct dev_weight weight = {w, rows, k, types[t]};
        dev_embed(d, &weight, (int32_t[]){2, 0}, 2, out);
        fence_close(&fw);
        fence_close(&fo);
    }
}

static void elementwise(struct dev *d)
{
    for (uint32_t dim = 1; dim < 70; dim += dim < 20 ? 1 : 7)
        for (uint32_t n = 1; n < 4; n++) {
            struct fence fx, fy, fw;
            float *x = fence_open(&fx, (size_t)n * dim * sizeof *x, true);
            float *y = fence_open(&fy, (size_t)n * dim * sizeof *y, true);
            float *w = fence_open(&fw, dim * sizeof *w, true);
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
            fence_close(&fx);
            fence_close(&fy);
            fence_close(&fw);
        }
}

static void test_products(void **state)
{
    (void)state;
    each_isa(products);
}
static void test_rows_of_tables(void **state)
{
    (void)state;
    each_isa(rows_of_tables);
}
static void test_elementwise(void **state)
{
    (void)state;
    each_isa(elementwise);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_rows_of_tables),
        cmocka_unit_test(test_elementwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
