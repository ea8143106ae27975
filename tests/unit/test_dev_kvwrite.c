/* test_dev_kvwrite.c - rows written into raw pages (rounding, layout, the null page), and tiles
 * through the codec hook. They are compared with conversions done in double and a layout written
 * out by hand. */
#include "test_dev_attn_toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define N_SPECIAL 40u

static struct dev_queue *open_device(enum dev_isa isa, uint32_t threads)
{
    struct dev_queue *d;
    struct dev_config c = {threads, dev_isa_names()[isa]};
    if (!dev_isa_supported(isa)) return NULL;
    assert_int_equal(dev_queue_open(&dev_host, &c, &d), 0);
    return d;
}

/* Returns the nearest value of a format with `bits` of mantissa and exponents from emin on; ties go
 * to even, and max is the largest value. */
static double nearest(double x, int bits, int emin, double max)
{
    int e;
    if (x == 0 || isnan(x)) return x;
    frexp(x, &e);
    double ulp = ldexp(1, (e - 1 < emin ? emin : e - 1) - bits), y = rint(x / ulp) * ulp;
    return y > max ? max : y < -max ? -max : y;
}

static const struct {
    enum dtype t;
    int bits, emin;
    double max;
} formats[] = {
    {DT_F32, 23, -126, INFINITY},
    {DT_F16, 10, -14, 65504},
    {DT_BF16, 7, -126, INFINITY},
};

static float special(uint32_t i)
{
    static const float x[N_SPECIAL] = {
        0.0f,          -0.0f,           1.0f,
        -1.0f,         65504.0f,        65519.0f,
        65520.0f,      -65520.0f,       1e6f,
        -1e30f,        INFINITY,        -INFINITY,
        0x1p-14f,      0x1p-24f,        0x1p-25f,
        0x1.8p-25f,    -0x1.1p-25f,     0x1.8p-24f,
        0x1p-126f,     0x1p-149f,       0x1.002p0f,
        0x1.006p0f,    0x1.0020001p0f,  0x1.ffcp0f,
        0x1.ffep0f,    0x1.01p0f,       0x1.03p0f,
        0x1.010002p0f, 0x1.fep0f,       0x1.ffp0f,
        3e38f,         0x1.fffffep127f, -0x1.fffffep127f,
        0x1.ffep-15f,  0x1.ffp-15f,     0x1.004p-14f,
        65488.0f,      65503.9f,        0.1f,
        -1234.567f,
    };
    if (i < N_SPECIAL) return x[i];
    uint32_t u = toy_random(); /* any bits, NaN included */
    return half_from_bits(u);
}

/* Writes all special and many random values through one plane, for every type and instruction set. */
static void test_rounding(void **state)
{
    (void)state;
    static float x[4096];
    for (uint32_t i = 0; i < 4096; i++)
        x[i] = special(i);
    for (size_t f = 0; f < countof(formats); f++)
        for (int isa = 0; isa < DEV_AVX512BF16; isa++)
            for (int layout = KV_STRIPS; layout <= KV_ROWMAJOR; layout++) {
                struct dev_queue *d = open_device((enum dev_isa)isa, 2);
                if (!d) continue;
                static float page[2][4096 * 16]; /* the null page and one more, one head */
                struct kv_view v = {.n_planes = 1, .first = true};
                uint32_t counts[3] = {1, 1, 0}, dst = 16 + 5, zero = 0;
                v.shape[0] = (struct kv_shape){1, 4096, formats[f].t, (enum kv_layout)layout};
                v.raw = (struct kv_form){(unsigned char *)page, sizeof page[0], 16, 1, &zero, {0}};
                v.counts = counts;
                v.dst = &dst;
                memset(page, 0x55, sizeof page);
                dev_kv_write(d, &v, 0, x, 4096);
                for (uint32_t i = 0; i < 4096; i++) {
                    double want =
                        nearest((double)x[i], formats[f].bits, formats[f].emin, formats[f].max);
                    if (formats[f].t == DT_BF16 && fabs(want) > (double)0x1.fffffep127f)
                        want = want > 0 ? INFINITY : -INFINITY;
                    double got =
                        (double)toy_load(formats[f].t, page[1], toy_at(&v.shape[0], 16, 0, 5, i));
                    if (isnan(want) ? !isnan(got) : got != want || signbit(got) != signbit(want))
                        fail_msg("%s, %s: %a becomes %a, wants %a", dtype_name(formats[f].t),
                                 dev_isa_name(d), (double)x[i], got, want);
                }
                dev_queue_close(d);
            }
}

/* Ragged dims, several heads, rows in shuffled pages, idle lanes: exactly the expected bytes
 * change. */
static void test_places(void **state)
{
    (void)state;
    static const uint32_t dims[] = {1, 12, 20, 64, 80, 130}, rows_of[] = {16, 32, 256};
    enum { TOKENS = 70, PAGES = 9 };
    for (int isa = 0; isa < DEV_AVX512BF16; isa++)
        for (size_t n = 0; n < countof(dims) * countof(rows_of) * 3; n++) {
            uint32_t dim = dims[n % 6], rows = rows_of[n / 6 % 3], heads = 1 + toy_random() % 3;
            enum dtype t = (enum dtype)(n / 18);
            struct dev_queue *d = open_device((enum dev_isa)isa, 1 + (uint32_t)n % 3);
            if (!d) continue;
            struct kv_view v = {.n_planes = 2, .first = true};
            size_t values = (size_t)rows * heads * dim, ldx = (size_t)heads * dim + n % 2;
            uint32_t counts[3] = {TOKENS, TOKENS, 0}, dst[TOKENS];
            v.raw.rows = rows;
            v.raw.offset[1] = values * toy_size(t) + 32;
            v.raw.grain = 2 * v.raw.offset[1];
            v.raw.base = toy_alloc(PAGES * v.raw.grain);
            v.counts = counts;
            v.dst = dst;
            float *x = toy_alloc(TOKENS * ldx * sizeof(float));
            for (size_t i = 0; i < TOKENS * ldx; i++)
                x[i] = toy_uniform() * 300;
            for (uint32_t i = 0; i < TOKENS; i++) /* distinct rows, except for the null page */
                dst[i] = i % 7 == 3 ? i % rows : rows + (i * 3 + n) % ((PAGES - 1) * rows);
            unsigned char *want = toy_alloc(PAGES * v.raw.grain);
            for (uint32_t p = 0; p < 2; p++) {
                v.shape[p] = (struct kv_shape){heads, dim, t, p ? KV_ROWMAJOR : KV_STRIPS};
                for (uint32_t i = 0; i < TOKENS; i++)
                    for (uint32_t h = 0; h < heads; h++)
                        for (uint32_t k = 0; k < dim; k++)
                            toy_store(t, want + dst[i] / rows * v.raw.grain + v.raw.offset[p],
                                      toy_at(&v.shape[p], rows, h, dst[i] % rows, k),
                                      x[i * ldx + (size_t)h * dim + k]);
                dev_kv_write(d, &v, p, x, ldx);
            }
            assert_memory_equal(v.raw.base + v.raw.grain, want + v.raw.grain,
                                (PAGES - 1) * v.raw.grain);
            v.first = false; /* later pieces write nothing */
            memset(v.raw.base, 0xff, PAGES * v.raw.grain);
            memset(want, 0xff, PAGES * v.raw.grain);
            dev_kv_write(d, &v, 0, x, ldx);
            assert_memory_equal(v.raw.base, want, PAGES * v.raw.grain);
            free(want);
            free(x);
            free(v.raw.base);
            dev_queue_close(d);
        }
}

/* Tiles named by enc, and only those, hold what the codec makes of the raw rows. Then attention
 * through the sealed form of a lossless codec gives the bits of the raw form. */
static void test_seal(void **state)
{
    (void)state;
    static const uint32_t rows_of[] = {16, 64, 128, 256};
    for (size_t n = 0; n < countof(rows_of) * 2; n++) {
        struct toy_config c = {.n_lanes = 2,
                               .n_heads = 6,
                               .n_kv = 2,
                               .dim = 20,
                               .dtype = DT_F16,
                               .rows = rows_of[n % 4],
                               .lead = n / 4 ? 140 : 0,
                               .max_len = 640,
                               .codec = &toy_lossless};
        struct toy t;
        toy_open(&t, &c);
        struct dev_queue *d = open_device(DEV_REF, 2);
        struct dev_limits lim = {64, 64, 64, 6, 20, 640, 128};
        assert_int_equal(dev_reserve(d, &lim), 0);
        struct kv_view native = t.view;
        native.codec[0] = native.codec[1] = NULL;
        toy_begin(&t);
        toy_feed(&t, 1, 520, 3);
        size_t page =
            t.view.sealed.grain - 64; /* the fence stands behind these bytes of the last one */
        size_t bytes = t.view.sealed.grain * (t.view.sealed.stride * 2) + page;
        unsigned char *want = toy_alloc(bytes);
        memcpy(want, t.sealed, bytes);
        /* Overwrite tiles 1 and 3, then seal them again from the raw rows; rows below lead are NaN. */
        toy_fill(&t, 1, 0, 0, 523);
        uint32_t enc[2][2] = {{1, 1}, {1, 3}};
        for (int i = 0; i < 2; i++)
            memset(toy_page(&t.view.sealed, 1, enc[i][1] * 128, 0) - 64, 0x11, page);
        memcpy(t.view.sealed.base, want, 64);
        t.counts[2] = 2;
        t.view.enc = &enc[0][0];
        t.view.first = false;
        dev_kv_seal(d, &t.view);
        assert_int_equal(*toy_page(&t.view.sealed, 1, 128, 1), 0x11);
        t.view.first = true;
        dev_kv_seal(d, &t.view);
        for (uint32_t tile = 0; tile < 4; tile++)
            for (uint32_t p = 0; p < 2; p++) {
                unsigned char *at = toy_page(&t.view.sealed, 1, tile * 128, p);
                assert_memory_equal(at, want + (at - t.sealed),
                                    toy_lossless.bytes(&toy_lossless, &t.view.shape[p]));
            }
        struct dev_attn a = {
            .q = t.q, .ldq = 120, .out = t.out, .ldo = 120, .n_heads = 6, .scale = 0.2f};
        float got[360];
        dev_attention(d, &t.view, &a);
        memcpy(got, t.out, sizeof got);
        dev_attention(d, &native, &a);
        assert_memory_equal(got, t.out, sizeof got);
        free(want);
        dev_queue_close(d);
        toy_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_seal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
