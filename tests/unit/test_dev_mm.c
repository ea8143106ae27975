/* test_dev_mm.c - matrix products. The formats are compared with the values of the `gguf` package.
 * Every instruction set, token count, thread count and tiling is compared with a plain statement of
 * the canonical order. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 88172645463325252ull;
static uint32_t rnd(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}
static uint32_t rnd_to(uint32_t n)
{
    return rnd() % n;
}
static float rnd_float(void)
{
    return ((float)rnd_to(1 << 24) / (1 << 23) - 1.0f) * ldexpf(1.0f, (int)rnd_to(12) - 8);
}

static const enum dtype types[] = {DT_F32,  DT_F16,  DT_BF16, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,
                                   DT_Q8_0, DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_MXFP4};

static struct dev_queue *open_dev(int isa, uint32_t threads)
{
    struct dev_queue *d = NULL;
    assert_int_equal(
        dev_queue_open(&dev_host, &(struct dev_config){threads, dev_isa_names()[isa]}, &d), 0);
    return d;
}

/* Formats. */

static void check_embed(int isa, enum dtype t, const void *raw, const float *want, size_t n)
{
    struct dev_queue *d = open_dev(isa, 2);
    float *got = malloc(2 * n * 4);
    struct dev_weight w = {raw, 1, (uint32_t)n, t};
    memset(got, 0x55, 2 * n * 4);
    dev_embed(d, &w, (int32_t[]){0, 0}, 2, got);
    assert_memory_equal(got, want, n * 4);
    assert_memory_equal(got + n, want, n * 4);
    free(got);
    dev_queue_close(d);
}

static void test_formats(void **state)
{
    (void)state;
    for (size_t i = 1; i < countof(types); i++) {
        enum dtype t = types[i];
        char path[128];
        snprintf(path, sizeof path, "tests/fixtures/quant/%s.bin", dtype_name(t));
        FILE *f = fopen(path, "rb");
        if (!f) fail_msg("%s: run from the root of the tree", path);
        uint32_t n;
        assert_int_equal(fread(&n, 4, 1, f), 1);
        size_t bytes = (size_t)n * dtype_size(t), values = (size_t)n * dtype_block(t);
        unsigned char *raw = malloc(bytes + 1);
        float *want = malloc(values * 4), *got = malloc(values * 4);
        assert_int_equal(fread(raw + 1, 1, bytes, f), bytes); /* odd address */
        assert_int_equal(fread(want, 4, values, f), values);
        fclose(f);
        dev_to_f32(t, raw + 1, got, values);
        for (size_t v = 0; v < values; v++)
            if (memcmp(&got[v], &want[v], 4) != 0)
                fail_msg("%s value %zu: %a, want %a", dtype_name(t), v, got[v], want[v]);
        for (int isa = 0; isa < DEV_ISAS; isa++)
            if (dev_isa_supported((enum dev_isa)isa)) check_embed(isa, t, raw + 1, want, values);
        free(raw);
        free(want);
        free(got);
    }
}

static void test_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = half_f16_to_f32((uint16_t)h);
        if (isnan(f))
            assert_true((h & 0x7c00) == 0x7c00 && (h & 0x3ff));
        else
            assert_int_equal(half_f32_to_f16(f), h);
        float b = half_bf16_to_f32((uint16_t)h);
        if (!isnan(b)) assert_int_equal(half_f32_to_bf16(b), h);
    }
    static const struct {
        float f;
        uint16_t h, b;
    } t[] = {
        {65504.0f, 0x7bff, 0x4780},        {65519.0f, 0x7bff, 0x4780},
        {65520.0f, 0x7c00, 0x4780},        {0x1p-24f, 0x0001, 0x3380},
        {0x1p-25f, 0x0000, 0x3300},        {0x1.8p-25f, 0x0001, 0x3340},
        {1.0f + 0x1p-11f, 0x3c00, 0x3f80}, {1.0f + 0x1.8p-10f, 0x3c02, 0x3f80},
        {1.0f + 0x1p-8f, 0x3c04, 0x3f80},  {1.0f + 0x1.8p-7f, 0x3c0c, 0x3f82},
        {-0.0f, 0x8000, 0x8000},           {INFINITY, 0x7c00, 0x7f80},
        {3.4e38f, 0x7c00, 0x7f80},
    };
    for (size_t i = 0; i < countof(t); i++) {
        assert_int_equal(half_f32_to_f16(t[i].f), t[i].h);
        assert_int_equal(half_f32_to_bf16(t[i].f), t[i].b);
    }
}

/* Products. */

static void set_f16(unsigned char *p, float f)
{
    uint16_t h = half_f32_to_f16(f);
    memcpy(p, &h, 2);
}

static void fill_floats(enum dtype t, unsigned char *p, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++, p += dtype_size(t)) {
        float f = rnd_float();
        uint16_t b = half_f32_to_bf16(f);
        if (t == DT_F32) memcpy(p, &f, 4);
        if (t == DT_F16) set_f16(p, f);
        if (t == DT_BF16) memcpy(p, &b, 2);
    }
}

/* Gives a block random scales of an ordinary size. */
static void set_scales(enum dtype t, unsigned char *p)
{
    if (t == DT_MXFP4) p[0] = (unsigned char)(118 + rnd_to(10));
    if (t == DT_Q3_K) set_f16(p + 108, rnd_float());
    if (t == DT_Q6_K) set_f16(p + 208, rnd_float());
    if (t == DT_Q2_K) set_f16(p + 80, rnd_float());
    if (t == DT_Q2_K) set_f16(p + 82, rnd_float());
    if (t == DT_MXFP4 || t == DT_Q2_K || t == DT_Q3_K || t == DT_Q6_K) return;
    set_f16(p, rnd_float());
    if (cpu_format[t].has_min) set_f16(p + 2, rnd_float());
}

/* Fills a row with random weights of ordinary scales. */
static void fill_row(enum dtype t, unsigned char *p, uint32_t k)
{
    if (dtype_block(t) == 1) {
        fill_floats(t, p, k);
        return;
    }
    for (uint32_t i = 0; i < k / dtype_block(t); i++, p += dtype_size(t)) {
        for (uint32_t j = 0; j < dtype_size(t); j++)
            p[j] = (unsigned char)rnd();
        set_scales(t, p);
    }
}

static float tree(const float *a)
{
    float s8[8], s4[4];
    for (int i = 0; i < 8; i++)
        s8[i] = a[i] + a[i + 8];
    for (int i = 0; i < 4; i++)
        s4[i] = s8[i] + s8[i + 4];
    float s0 = s4[0] + s4[2], s1 = s4[1] + s4[3];
    return s0 + s1;
}

/* Float products in the order of dev.h, statement by statement, for one element. */
static float plain_float(const float *x, const float *w, uint32_t k)
{
    float acc[16] = {0};
    for (uint32_t i = 0; i < k; i++)
        acc[i % 16] = fmaf(x[i], w[i], acc[i % 16]);
    return tree(acc);
}

/* The same with codes of x, a group of 256 columns after another. Codes and scales of w come from the formats'
 * decoders, which test_formats checks. */
static float plain_codes(enum dtype t, const float *x, const unsigned char *w, uint32_t k)
{
    float acc = 0;
    struct cpu_wchunk *c = malloc((k + 63) / 64 * sizeof *c);
    cpu_unpack_ref(t)(w, 0, k, c);
    uint32_t scaled = t == DT_Q2_K || t == DT_Q3_K || t == DT_Q6_K ? 16 : 32;
    for (uint32_t g = 0; g < k; g += 256) {
        uint32_t end = MIN(g + 256, k);
        float amax = 0, s = 0;
        for (uint32_t i = g; i < end; i++)
            amax = fmaxf(amax, fabsf(x[i]));
        float d = amax < 0x1p-100f ? 0 : amax / 32512.0f, by = d > 0 ? 32512.0f / amax : 0;
        for (uint32_t b = g; b < end; b += scaled) {
            int32_t isum = 0, xsum = 0;
            const float *dw = &c[b / 64].d[b % 64 / 4], *mw = &c[b / 64].m[b % 64 / 4];
            for (uint32_t i = b; i < b + scaled; i++) {
                int q = (int)nearbyintf(x[i] * by);
                assert_in_range(q + 32512, 0, 65024);
                isum += q * (c[i / 64].q[i % 64] - cpu_format[t].zero);
                xsum += q;
            }
            s = fmaf(*dw, (float)isum, s);
            if (cpu_format[t].has_min) s = fmaf(*mw, (float)xsum, s);
        }
        acc = fmaf(d, s, acc);
    }
    free(c);
    return acc;
}

struct problem {
    enum dtype type;
    uint32_t k, rows, n;
    unsigned char *w; /* odd address */
    size_t row_bytes;
    float *x, *bias, *want[2]; /* [mode], [n][rows] */
};

static void solve(struct problem *p)
{
    uint32_t k = p->k;
    float *row = malloc(k * 4), *xr = malloc(k * 4);
    for (uint32_t r = 0; r < p->rows; r++) {
        const unsigned char *src = p->w + r * p->row_bytes;
        dev_to_f32(p->type, src, row, k);
        for (uint32_t i = 0; i < p->n; i++) {
            const float *x = p->x + (size_t)i * k;
            for (uint32_t j = 0; j < k; j++)
                xr[j] = p->type == DT_BF16 ? half_bf16_to_f32(half_f32_to_bf16(x[j])) : x[j];
            p->want[DEV_EXACT][i * p->rows + r] = plain_float(x, row, k);
            p->want[DEV_FAST][i * p->rows + r] = cpu_format[p->type].quantized
                                                     ? plain_codes(p->type, x, src, k)
                                                     : plain_float(xr, row, k);
        }
    }
    free(row);
    free(xr);
}

static void make_problem(struct problem *p, enum dtype t, uint32_t k, uint32_t rows, uint32_t n)
{
    *p = (struct problem){.type = t, .k = k, .rows = rows, .n = n};
    assert_true(dtype_bytes(t, k, &p->row_bytes));
    p->w = (unsigned char *)malloc(rows * p->row_bytes + 1) + 1;
    p->x = malloc((size_t)n * k * 4);
    p->bias = malloc(rows * 4);
    for (uint32_t r = 0; r < rows; r++) {
        fill_row(t, p->w + r * p->row_bytes, k);
        p->bias[r] = rnd_float();
    }
    for (uint32_t i = 0; i < n * k; i++)
        p->x[i] = rnd_float();
    /* Blocks of zeros, and of very small values. */
    if (n > 1) memset(p->x, 0, MIN(k, 64) * 4);
    for (uint32_t i = 0; n > 2 && i < MIN(k, 64); i++)
        p->x[k + i] = (float)i * (i % 2 ? 5.0f : -5.0f) * 0x1p-149f;
    for (uint32_t i = 0; cpu_format[t].quantized && n > 3 && i < k; i++) /* very different scales */
        p->x[2 * k + i] *= i < 256 ? 0x1p-96f : 0x1p+30f;
    for (int mode = 0; mode < 2; mode++)
        p->want[mode] = malloc((size_t)n * rows * 4);
    solve(p);
}

static void free_problem(struct problem *p)
{
    free(p->w - 1);
    free(p->x);
    free(p->bias);
    free(p->want[0]);
    free(p->want[1]);
}

static void expect_same(const struct problem *p, const char *isa, int mode, uint32_t t0, uint32_t n,
                        bool bias, const float *y, size_t ldy)
{
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t r = 0; r < p->rows; r++) {
            float want = p->want[mode][(t0 + t) * p->rows + r], got = y[t * ldy + r];
            if (bias) want += p->bias[r];
            if (memcmp(&want, &got, 4) != 0)
                fail_msg("%s %s %s k=%u rows=%u n=%u: token %u row %u is %a, want %a", isa,
                         dtype_name(p->type), mode ? "fast" : "exact", p->k, p->rows, n, t0 + t, r,
                         got, want);
        }
}

/* Checks one device on one problem: all tokens at once, a few of them, and one alone; nothing is
 * written past the end. */
static void check(struct dev_queue *d, const struct problem *p, int mode, bool bias)
{
    size_t ldy = p->rows + rnd_to(5), values = p->n * ldy;
    float *y = malloc((values + 1) * 4);
    struct dev_weight w = {p->w, p->rows, p->k, p->type};
    struct dev_mm mm = {&w, bias ? p->bias : NULL, y, ldy};
    uint32_t few = 2 + rnd_to(3), counts[] = {p->n, 1 + rnd_to(p->n), 1, MIN(p->n, few)};
    for (size_t i = 0; i < countof(counts); i++) {
        uint32_t n = counts[i], t0 = rnd_to(p->n - n + 1);
        memset(y, 0xff, (values + 1) * 4);
        dev_matmul(d, (enum dev_compute)mode, p->x + (size_t)t0 * p->k, p->k, n, &mm, 1);
        expect_same(p, dev_isa_name(d), mode, t0, n, bias, y, ldy);
        for (uint32_t t = 0; t < n; t++) /* the gaps between the rows of y are untouched */
            for (size_t r = p->rows; r < ldy; r++)
                assert_true(half_bits(y[t * ldy + r]) == UINT32_MAX);
        assert_true(half_bits(y[n * ldy]) == UINT32_MAX);
    }
    free(y);
}

static uint32_t random_k(enum dtype t)
{
    uint32_t block = dtype_block(t);
    if (block == 1) return 1 + rnd_to(rnd_to(4) ? 90 : 5000);
    if (block == 256) return 256 * (1 + rnd_to(rnd_to(8) ? 3 : 18));
    return 32 * (1 + rnd_to(rnd_to(8) ? 20 : 140));
}

/* The devices live through all problems, so that each problem finds the scratch as the one before
 * left it. */
static void test_products(void **state)
{
    (void)state;
    int rounds = getenv("KVIK_TEST_LONG") ? 60 : 5;
    struct dev_queue *d[DEV_ISAS] = {NULL};
    for (int isa = 0; isa < DEV_ISAS; isa++) {
        if (!dev_isa_supported((enum dev_isa)isa)) continue;
        d[isa] = open_dev(isa, 1 + rnd_to(4));
        assert_int_equal(dev_reserve(d[isa], &(struct dev_limits){.tokens = 70, .k = 5120}), 0);
    }
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < countof(types); i++) {
            struct problem p;
            make_problem(&p, types[i], random_k(types[i]), 1 + rnd_to(30), 1 + rnd_to(70));
            for (int isa = 0; isa < DEV_ISAS; isa++) {
                if (!d[isa]) continue;
                check(d[isa], &p, DEV_EXACT, rnd_to(2));
                /* BF16 dot products have their own rounding, see test_bf16_alone. */
                if (isa != DEV_AVX512BF16 || p.type != DT_BF16)
                    check(d[isa], &p, DEV_FAST, rnd_to(2));
            }
            free_problem(&p);
        }
    for (int isa = 0; isa < DEV_ISAS; isa++)
        if (d[isa]) dev_queue_close(d[isa]);
}

/* The largest sums that a block can have: all bits of the codes and of their small scales set, or none, or every second, against
 * the largest codes of activations of one sign and of both.  32384 and -32385 have the extreme halves of a code that is
 * kept as two bytes. */
static void test_extremes(void **state)
{
    (void)state;
    static const unsigned char bits[] = {0x00, 0xff, 0x80, 0x7f, 0x55, 0xaa, 0x0f, 0xf0, 0x81};
    static const int codes[][2] = {{32512, 32512}, {-32512, -32512}, {32512, -32512},
                                   {32384, 32384}, {-32385, -32385}, {32384, -32385}};
    enum { ROWS = 33, N = countof(codes) };
    for (size_t i = 0; i < countof(types); i++) {
        enum dtype t = types[i];
        if (!cpu_format[t].quantized) continue;
        uint32_t block = dtype_block(t), k = 512 + (block == 256 ? 0 : block);
        struct problem p;
        make_problem(&p, t, k, ROWS, N);
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t b = 0; b < k / block; b++) {
                unsigned char *at = p.w + r * p.row_bytes + b * dtype_size(t);
                memset(at, bits[r % countof(bits)], dtype_size(t));
                set_scales(t, at);
            }
        for (uint32_t j = 0; j < N * k;
             j++) /* a group begins with 1, so that its scale is 1 / 32512 */
            p.x[j] = j % k % 256 ? (float)codes[j / k][j % 2] / 32512 : 1;
        solve(&p);
        for (int isa = 0; isa < DEV_ISAS; isa++) {
            if (!dev_isa_supported((enum dev_isa)isa)) continue;
            struct dev_queue *d = open_dev(isa, 2);
            assert_int_equal(dev_reserve(d, &(struct dev_limits){.tokens = N, .k = k}), 0);
            check(d, &p, DEV_FAST, false);
            dev_queue_close(d);
        }
        free_problem(&p);
    }
}

/* Calls of one product and of more than a pass takes, with products of one row and of many, on fewer threads than jobs and on more
 * threads than can have jobs of their own. */
static void test_odd_jobs(void **state)
{
    (void)state;
    enum { MOST = 70, K = 512 };
    static const uint32_t threads[] = {1, 3, 65}, rows[] = {1, 15, 16, 17, 129},
                          counts[] = {1, 2, 3, 4, 5, MOST};
    static const enum dtype mix[] = {DT_Q8_0, DT_Q4_1, DT_F32, DT_Q6_K, DT_BF16};
    struct problem p[countof(rows)];
    struct dev_weight w[MOST];
    struct dev_mm mm[MOST];
    for (size_t i = 0; i < countof(rows); i++) {
        make_problem(&p[i], mix[i], K, rows[i], 1);
        memcpy(p[i].x, p[0].x, K * 4);
        solve(&p[i]);
    }
    for (int isa = 0; isa < DEV_AVX512BF16; isa++) {
        if (!dev_isa_supported((enum dev_isa)isa)) continue;
        for (size_t i = 0; i < countof(threads); i++) {
            struct dev_queue *d = open_dev(isa, threads[i]);
            assert_int_equal(dev_reserve(d, &(struct dev_limits){.tokens = 1, .k = K}), 0);
            for (size_t k = 0; k < countof(counts); k++) {
                const struct problem *q = p;
                const uint32_t n = counts[k];
                for (uint32_t j = 0; j < n; j++) {
                    q = &p[(n + j) % countof(rows)];
                    w[j] = (struct dev_weight){q->w, q->rows, K, q->type};
                    mm[j] = (struct dev_mm){&w[j], NULL, malloc(q->rows * 4), q->rows};
                }
                dev_matmul(d, DEV_FAST, p[0].x, K, 1, mm, n);
                for (uint32_t j = 0; j < n; j++) {
                    q = &p[(n + j) % countof(rows)];
                    expect_same(q, dev_isa_name(d), DEV_FAST, 0, 1, false, mm[j].y, q->rows);
                    free(mm[j].y);
                }
            }
            dev_queue_close(d);
        }
    }
    for (size_t i = 0; i < countof(rows); i++)
        free_problem(&p[i]);
}

/* The shapes of routed experts: a few gathered tokens, gaps between rows of x, and any K that a
 * float type allows. */
static void test_tiny(void **state)
{
    (void)state;
    static const uint32_t ks[] = {1, 2, 7, 8, 15, 17, 24, 31, 33, 40, 47, 63, 65, 72, 80};
    struct dev_queue *d[DEV_ISAS] = {NULL};
    for (int isa = 0; isa < DEV_ISAS; isa++) {
        if (!dev_isa_supported((enum dev_isa)isa)) continue;
        d[isa] = open_dev(isa, 2);
        assert_int_equal(dev_reserve(d[isa], &(struct dev_limits){.tokens = 8, .k = 512}), 0);
    }
    for (size_t i = 0; i < countof(types); i++)
        for (uint32_t n = 1; n <= 8; n++) {
            uint32_t block = dtype_block(types[i]), mode = n % 2;
            uint32_t k = block == 1 ? ks[rnd_to(countof(ks))] : block * (1 + rnd_to(2));
            uint32_t rows = 1 + rnd_to(12), apart = k + rnd_to(9);
            struct problem p;
            make_problem(&p, types[i], k, rows, n);
            float *x = malloc((size_t)n * apart * 4), y[8 * 12];
            memset(x, 0xff, (size_t)n * apart * 4); /* NaN between the rows */
            for (uint32_t t = 0; t < n; t++)
                memcpy(x + t * apart, p.x + t * k, k * 4);
            struct dev_weight w = {p.w, rows, k, types[i]};
            for (int isa = 0; isa < DEV_ISAS; isa++) {
                if (!d[isa] || (isa == DEV_AVX512BF16 && types[i] == DT_BF16)) continue;
                dev_matmul(d[isa], (enum dev_compute)mode, x, apart, n,
                           &(struct dev_mm){&w, NULL, y, rows}, 1);
                expect_same(&p, dev_isa_name(d[isa]), (int)mode, 0, n, false, y, rows);
            }
            free(x);
            free_problem(&p);
        }
    for (int isa = 0; isa < DEV_ISAS; isa++)
        if (d[isa]) dev_queue_close(d[isa]);
}

/* Products that underflow to -0 in every lane: a tail must not change lanes of other elements. */
static void test_negative_zero(void **state)
{
    (void)state;
    for (int isa = 0; isa < DEV_ISAS; isa++) {
        if (!dev_isa_supported((enum dev_isa)isa)) continue;
        struct dev_queue *d = open_dev(isa, 1);
        float x[47], w[2 * 47], y[2][2];
        for (uint32_t i = 0; i < 2 * 47; i++)
            w[i] = -1e-30f;
        for (uint32_t i = 0; i < 47; i++)
            x[i] = 1e-30f;
        assert_int_equal(dev_reserve(d, &(struct dev_limits){.tokens = 2, .k = 64}), 0);
        for (uint32_t k = 16; k < 47; k++) {
            struct dev_weight dw = {w, 2, k, DT_F32};
            for (uint32_t n = 1; n < 3; n++) {
                dev_matmul(d, DEV_EXACT, x, 0, n, &(struct dev_mm){&dw, NULL, y[0], 2}, 1);
                for (uint32_t i = 0; i < 2 * n; i++)
                    assert_int_equal(half_bits(y[i / 2][i % 2]), 0x80000000u);
            }
        }
        dev_queue_close(d);
    }
}

/* The BF16 path has its own rounding: near the canonical result, and the same for every batch. */
static void test_bf16_alone(void **state)
{
    (void)state;
    if (!dev_isa_supported(DEV_AVX512BF16)) skip();
    for (int round = 0; round < 12; round++) {
        struct problem p;
        make_problem(&p, DT_BF16, random_k(DT_BF16), 1 + rnd_to(40), 1 + rnd_to(70));
        struct dev_queue *d = open_dev(DEV_AVX512BF16, 2);
        assert_int_equal(dev_reserve(d, &(struct dev_limits){.tokens = p.n, .k = p.k}), 0);
        float *y = malloc(p.n * p.rows * 4);
        struct dev_weight w = {p.w, p.rows, p.k, p.type};
        dev_matmul(d, DEV_FAST, p.x, p.k, p.n, &(struct dev_mm){&w, NULL, y, p.rows}, 1);
        for (uint32_t i = 0; i < p.n * p.rows; i++)
            assert_true(fabsf(y[i] - p.want[DEV_FAST][i]) <= 1e-4f * (float)sqrt(p.k));
        memcpy(p.want[DEV_FAST], y, p.n * p.rows * 4);
        check(d, &p, DEV_FAST, false);
        check(d, &p, DEV_FAST, true);
        free(y);
        dev_queue_close(d);
        free_problem(&p);
    }
}

/* Several products of one x in one call, of mixed types, and more tokens than one pass converts. */
static void check_many(int isa, const float *x, uint32_t n, uint32_t k)
{
    static const enum dtype mix[] = {DT_Q4_1, DT_Q8_0, DT_BF16, DT_F32, DT_Q4_0};
    struct problem p[countof(mix)];
    struct dev_weight w[countof(mix)];
    struct dev_mm mm[countof(mix)];
    struct dev_queue *d = open_dev(isa, 3);
    assert_int_equal(dev_reserve(d, &(struct dev_limits){.tokens = n, .k = k}), 0);
    for (size_t i = 0; i < countof(mix); i++) {
        make_problem(&p[i], mix[i], k, 3 + 30 * (uint32_t)i, 1);
        w[i] = (struct dev_weight){p[i].w, p[i].rows, k, mix[i]};
        mm[i] = (struct dev_mm){&w[i], NULL, malloc(n * p[i].rows * 4), p[i].rows};
    }
    uint64_t calls = mem_calls();
    dev_matmul(d, DEV_FAST, x, k, n, mm, countof(mix));
    assert_int_equal(mem_calls(), calls); /* no allocation after reserve */
    for (size_t i = 0; i < countof(mix); i++)
        for (uint32_t t = 0; t < n; t += 7) {
            float one[200];
            dev_matmul(d, DEV_FAST, x + t * k, k, 1, &(struct dev_mm){&w[i], NULL, one, 200}, 1);
            assert_memory_equal(one, mm[i].y + t * p[i].rows, p[i].rows * 4);
        }
    for (size_t i = 0; i < countof(mix); i++) {
        free(mm[i].y);
        free_problem(&p[i]);
    }
    dev_queue_close(d);
}

static void test_many(void **state)
{
    (void)state;
    enum { N = 300, K = 96 };
    float *x = malloc(N * K * 4);
    for (int i = 0; i < N * K; i++)
        x[i] = rnd_float();
    for (int isa = 0; isa < DEV_ISAS; isa++)
        if (dev_isa_supported((enum dev_isa)isa)) check_many(isa, x, N, K);
    free(x);
}

/* An infinity or NaN in x shows in the results of its own token and of no other token. */
static void check_not_finite(int isa, enum dtype type)
{
    enum { N = 6, R = 9 };
    struct problem p;
    uint32_t block = dtype_block(type);
    make_problem(&p, type, block == 1 ? 19 : 2 * block, R, N);
    struct dev_queue *d = open_dev(isa, 2);
    assert_int_equal(dev_reserve(d, &(struct dev_limits){.tokens = N, .k = p.k}), 0);
    float y[2][N * R];
    struct dev_weight w = {p.w, p.rows, p.k, p.type};
    dev_matmul(d, DEV_FAST, p.x, p.k, N, &(struct dev_mm){&w, NULL, y[0], R}, 1);
    p.x[2 * p.k + 3] = NAN;
    p.x[4 * p.k + p.k - 1] = -INFINITY;
    dev_matmul(d, DEV_FAST, p.x, p.k, N, &(struct dev_mm){&w, NULL, y[1], R}, 1);
    for (int i = 0; i < N * R; i++)
        if (i / R == 2 || i / R == 4)
            assert_false(isfinite(y[1][i]));
        else
            assert_memory_equal(&y[0][i], &y[1][i], 4);
    dev_queue_close(d);
    free_problem(&p);
}

static void test_not_finite(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(types); i++)
        for (int isa = 0; isa < DEV_ISAS; isa++)
            if (dev_isa_supported((enum dev_isa)isa)) check_not_finite(isa, types[i]);
}

static void test_open(void **state)
{
    (void)state;
    struct dev_queue *d = (struct dev_queue *)&seed;
    assert_int_equal(dev_queue_open(&dev_host, &(struct dev_config){1, "sse9"}, &d),
                     ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "ref"));
    assert_ptr_equal(d, &seed);
    setenv("KVIK_ISA", "ref", 1);
    assert_int_equal(dev_queue_open(&dev_host, &(struct dev_config){2, NULL}, &d), 0);
    unsetenv("KVIK_ISA");
    assert_string_equal(dev_isa_name(d), "ref");
    assert_int_equal(dev_threads(d), 2);
    assert_int_equal(dev_reserve(d, &(struct dev_limits){.tokens = 4, .k = 64}), 0);
    size_t small = d->scratch_bytes;
    assert_int_equal(dev_reserve(d, &(struct dev_limits){.tokens = 9, .k = 32}), 0);
    assert_true(d->scratch_bytes > small);
    assert_int_equal(dev_reserve(d, &(struct dev_limits){.k = UINT32_MAX}), ERR_LIMIT);
    mem_fail_at(0, false);
    assert_int_equal(dev_reserve(d, &(struct dev_limits){.tokens = 64, .k = 64}), ERR_NOMEM);
    mem_fail_at(-1, false);
    dev_queue_close(d);
    for (int i = 0; i < 4; i++) { /* each allocation of open fails in turn */
        struct dev_queue *e = NULL;
        mem_fail_at(i, false);
        int r = dev_queue_open(&dev_host, &(struct dev_config){2, "ref"}, &e);
        mem_fail_at(-1, false);
        assert_true(r == 0 ? e != NULL : r == ERR_NOMEM && !e);
        if (e) dev_queue_close(e);
    }
}

/* KVIK_THREADS is the number of threads where none is given; a given number wins. */
static void test_threads_named(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0", "two", "2x", "-1", "1025", "99999999999999999999"};
    char *kept = getenv("KVIK_THREADS") ? strdup(getenv("KVIK_THREADS")) : NULL;
    struct dev_queue *d = (struct dev_queue *)&seed;
    for (size_t i = 0; i < countof(wrong); i++) {
        setenv("KVIK_THREADS", wrong[i], 1);
        assert_int_equal(dev_queue_open(&dev_host, &(struct dev_config){0, NULL}, &d), ERR_ARG);
        assert_non_null(strstr(err_last(), "KVIK_THREADS"));
        assert_ptr_equal(d, &seed);
    }
    for (uint32_t given = 0; given < 3; given++) {
        setenv("KVIK_THREADS", "5", 1);
        assert_int_equal(dev_queue_open(&dev_host, &(struct dev_config){given, NULL}, &d), 0);
        assert_int_equal(dev_threads(d), given ? given : 5);
        dev_queue_close(d);
    }
    setenv("KVIK_THREADS", "", 1);
    assert_int_equal(dev_queue_open(&dev_host, NULL, &d), 0);
    assert_true(dev_threads(d) >= 1);
    dev_queue_close(d);
    if (kept)
        setenv("KVIK_THREADS", kept, 1);
    else
        unsetenv("KVIK_THREADS");
    free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half),          cmocka_unit_test(test_formats),
        cmocka_unit_test(test_products),      cmocka_unit_test(test_bf16_alone),
        cmocka_unit_test(test_many),          cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_negative_zero), cmocka_unit_test(test_open),
        cmocka_unit_test(test_threads_named), cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_extremes),      cmocka_unit_test(test_odd_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
