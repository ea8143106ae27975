/* test_dev_guard.c - no kernel touches a byte beyond its operands. Weights, activations and results
 * end where an unreadable page begins (and, in a second run, begin where one ends), on every
 * instruction set. The sanitizer builds leave the vector kernels of products and attention
 * uninstrumented, since compilers take minutes over them; for attention test_dev_attn_toy.h has such
 * ends. */
#include "guard_shapes.h"
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

/* The results of the scalar reference, which every other instruction set must repeat bit for bit. */
static struct dev_queue *ref;

/* With BF16 weights in fast mode the instructions of this set round in their own way. */
static bool rounds_alike(const struct dev_queue *d, enum dtype t)
{
    return t != DT_BF16 || strcmp(dev_isa_name(d), dev_isa_names()[DEV_AVX512BF16]) != 0;
}

/* n tokens, which may be none, of k values with weights of `rows` rows, which may be none. */
static void one_product(struct dev_queue *d, enum dtype t, uint32_t n, uint32_t rows, uint32_t k,
                        bool end)
{
    struct fence fw, fx, fy, fb;
    size_t bytes, size = (size_t)n * rows * sizeof(float);
    if (!dtype_bytes(t, k, &bytes)) return;
    unsigned char *w = fence_open(&fw, rows * bytes, end);
    float *x = fence_open(&fx, (size_t)n * k * sizeof *x, end);
    float *y = fence_open(&fy, size, end), *want = malloc(size + 1);
    float *b = fence_open(&fb, rows * sizeof *b, end);
    for (size_t i = 0; i < rows * bytes; i++)
        w[i] = guard_byte(i);
    for (size_t i = 0; i < (size_t)n * k; i++)
        x[i] = guard_input(i);
    struct dev_weight weight = {w, rows, k, t};
    for (int mode = DEV_EXACT; mode <= DEV_FAST; mode++) {
        struct dev_mm mm = {&weight, b, y, rows};
        dev_matmul(ref, (enum dev_compute)mode, x, k, n, &mm, 1);
        memcpy(want, y, size);
        dev_matmul(d, (enum dev_compute)mode, x, k, n, &mm, 1);
        if ((mode == DEV_EXACT || rounds_alike(d, t)) && memcmp(want, y, size) != 0)
            fail_msg("%s, %s, %u tokens, %u rows, %u columns: not the bits of the reference",
                     dev_isa_name(d), dtype_name(t), n, rows, k);
    }
    free(want);
    fence_close(&fw);
    fence_close(&fx);
    fence_close(&fy);
    fence_close(&fb);
}

static struct dev_queue *open_isa(int isa)
{
    struct dev_queue *d;
    struct dev_config c = {2, dev_isa_names()[isa]};
    struct dev_limits lim = {520, 1024, 1024, 8, 64, 512, 0};
    assert_int_equal(dev_queue_open(&dev_host, &c, &d), 0);
    assert_int_equal(dev_reserve(d, &lim), 0);
    return d;
}

static void each_isa(void (*run)(struct dev_queue *d))
{
    ref = open_isa(DEV_REF);
    for (int isa = 0; isa < DEV_ISAS; isa++) {
        if (!dev_isa_supported((enum dev_isa)isa)) continue;
        struct dev_queue *d = open_isa(isa);
        run(d);
        dev_queue_close(d);
    }
    dev_queue_close(ref);
}

static void products(struct dev_queue *d)
{
    const enum dtype *types = guard_types;
    const uint32_t *ks = guard_ks, *ns = guard_ns, *outs = guard_outs;
    for (size_t t = 0; t < countof(guard_types); t++)
        for (size_t k = 0; k < countof(guard_ks); k++)
            for (size_t n = 0; n < countof(guard_ns); n++)
                for (size_t o = 0; o < countof(guard_outs); o++)
                    one_product(d, types[t], ns[n], outs[o], ks[k], (n + o + k) % 3 != 0);
    for (size_t t = 0; t < countof(guard_types);
         t++) { /* more tokens, or more rows, than any tile */
        one_product(d, types[t], 517, 1, 256, true);
        one_product(d, types[t], 1, 1023, 256, true);
    }
}

static void rows_of_tables(struct dev_queue *d)
{
    for (size_t t = 0; t < countof(guard_types); t++) {
        struct fence fw, fo;
        size_t bytes;
        uint32_t k = 256, rows = 3;
        assert_true(dtype_bytes(guard_types[t], k, &bytes));
        unsigned char *w = fence_open(&fw, rows * bytes, true);
        float *out = fence_open(&fo, 2 * k * sizeof *out, true);
        memset(w, 1, rows * bytes);
        struct dev_weight weight = {w, rows, k, guard_types[t]};
        dev_embed(d, &weight, (int32_t[]){2, 0}, 2, out);
        fence_close(&fw);
        fence_close(&fo);
    }
}

static void elementwise(struct dev_queue *d)
{
    for (uint32_t dim = 1; dim < 70; dim = guard_dim(dim))
        for (uint32_t n = 0; n < 4; n++) {
            struct fence fx, fy, fw, fr;
            float *r = fence_open(&fr, n * sizeof *r, true);
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
            dev_gelu_erf_mul(d, x, y, n, dim);
            dev_gelu_erf(d, x, n, dim);
            dev_relu(d, x, n, dim);
            dev_mul(d, x, y, n, dim);
            dev_mul_row(d, x, w, n, dim);
            dev_scale_rows(d, x, r, n, dim);
            dev_softplus(d, x, w, 0, 20, n, dim);
            fence_close(&fx);
            fence_close(&fy);
            fence_close(&fw);
            fence_close(&fr);
        }
}

/* Heads of odd sizes, of which a part is rotated, in both orders of the pairs. */
static void rotations(struct dev_queue *d)
{
    for (uint32_t rot = 2; rot < 70; rot = guard_rot(rot))
        for (uint32_t n = 0; n < 3; n++) {
            const uint32_t heads = 1 + n, dim = rot + n, ldx = heads * dim + n;
            struct fence fx, fc, fs;
            size_t size = n ? ((size_t)(n - 1) * ldx + heads * dim) * sizeof(float) : 0;
            float *x = fence_open(&fx, size, true), *was = malloc(size + 1),
                  *want = malloc(size + 1);
            float *cos = fence_open(&fc, (size_t)n * rot / 2 * sizeof *cos, true);
            float *sin = fence_open(&fs, (size_t)n * rot / 2 * sizeof *sin, true);
            for (size_t i = 0; i < size / sizeof *x; i++)
                x[i] = (float)(i % 17) - 8;
            for (size_t i = 0; i < (size_t)n * rot / 2; i++) {
                cos[i] = 0.25f + (float)i;
                sin[i] = 0.75f - (float)i;
            }
            memcpy(was, x, size);
            for (int interleaved = 0; interleaved < 2; interleaved++) {
                memcpy(x, was, size);
                dev_rope(ref, x, ldx, n, heads, dim, rot, interleaved, cos, sin);
                memcpy(want, x, size);
                memcpy(x, was, size);
                dev_rope(d, x, ldx, n, heads, dim, rot, interleaved, cos, sin);
                assert_memory_equal(x, want, size);
            }
            free(was);
            free(want);
            fence_close(&fx);
            fence_close(&fc);
            fence_close(&fs);
        }
}

/* Conversions of whole blocks, from none on. */
static void conversions(void)
{
    static const enum dtype made[] = {DT_Q8_0, DT_Q4_0, DT_Q4_K};
    for (size_t t = 0; t < countof(guard_types); t++)
        for (uint32_t blocks = 0; blocks < 4; blocks++) {
            struct fence fs, fd;
            size_t n = (size_t)blocks * dtype_block(guard_types[t]), bytes = 0;
            if (n) assert_true(dtype_bytes(guard_types[t], n, &bytes));
            unsigned char *src = fence_open(&fs, bytes, true);
            float *out = fence_open(&fd, n * sizeof *out, true);
            memset(src, 1, bytes);
            dev_to_f32(guard_types[t], src, out, n);
            for (size_t i = 0; i < countof(made); i++)
                if (made[i] == guard_types[t]) (void)dev_encode(guard_types[t], out, src, n);
            fence_close(&fs);
            fence_close(&fd);
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
static void test_rotations(void **state)
{
    (void)state;
    each_isa(rotations);
}
static void test_conversions(void **state)
{
    (void)state;
    conversions();
}
static void test_elementwise(void **state)
{
    (void)state;
    each_isa(elementwise);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),    cmocka_unit_test(test_rows_of_tables),
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_rotations),
        cmocka_unit_test(test_conversions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
