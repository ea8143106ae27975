/* test_cuda.c - the kernels of src/dev/cuda on the CPU (tests/cuda/rt_emulated.c): each operation gives the bits of the scalar
 * reference over shapes with ends that are no whole block; and the order of streams, copies and memory is kept.  Golden cases
 * run on the same device (scripts/run-tests.sh), attention, states and experts among them. */
#include "dev/dev.h"
#include "emulated_library.h"
#include "share.h"

#include <math.h>

static struct dev *dev;
static struct dev_queue *ref, *gpu;
static struct emulated_counts *counted; /* NULL: on a GPU */

static uint32_t seed = 1;
static float drawn(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)(seed >> 8 & 0xffffu) / 8192.0f - 4.0f;
}

static float *floats(size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = drawn();
    return x;
}

static void *up(const void *host, size_t n)
{
    void *at = dev_alloc(gpu, n);
    assert_non_null(at);
    dev_put(gpu, at, host, n);
    return at;
}
#define UP(x, n) up((x), (n) * sizeof *(x))

/* What lies at `at` is that of n values of the host. */
static void same(const char *what, const void *at, const void *want, size_t n)
{
    unsigned char *got = malloc(n + 1);
    dev_get(gpu, got, at, n);
    assert_int_equal(dev_finish(gpu), 0);
    if (memcmp(got, want, n) != 0) fail_msg("%s: not the bits of the reference", what);
    free(got);
}

static int open_all(void **state)
{
    (void)state;
    setenv("KVIK_DEVICE", "cuda", 1);
    const struct dev_config c = {1, "ref"};
    struct dev_limits lim = {
        .tokens = 40, .k = 1100, .n = 600, .heads = 8, .head_dim = 64, .max_len = 600};
    if (dev_queue_open(&dev_host, &c, &ref) < 0 || dev_reserve(ref, &lim) < 0) return -1;
    counted = emulated_counted();
    if (dev_open(NULL, &dev) >= 0 && dev_queue_open(dev, &c, &gpu) >= 0)
        return dev_reserve(gpu, &lim);
    fprintf(stderr, "%s\n", err_last()); /* cmocka says only that something failed */
    return -1;
}

static int close_all(void **state)
{
    (void)state;
    dev_queue_close(gpu);
    dev_close(dev);
    dev_queue_close(ref);
    return 0;
}

static void test_map(void **state)
{
    (void)state;
    static const float odd[] = {NAN,   INFINITY, -INFINITY, 0.0f, -0.0f,
                                88.7f, -104.0f,  1e-40f,    9.9f, 0.61f};
    enum { N = 7, DIM = 133 };
    uint32_t ran = 0;
    for (int kind = 0; kind < DEV_MAPS; kind++)
        for (int shared = 0; shared < 2; shared++) {
            float *x = floats(N * DIM), *y = floats(N * DIM);
            memcpy(x, odd, sizeof odd);
            memcpy(y + 3, odd, sizeof odd);
            float *dx = UP(x, N * DIM), *dy = UP(y, N * DIM);
            dev_map(ref, (enum dev_map)kind, x, y, shared, 1.7f, 7.0f, N, DIM);
            dev_map(gpu, (enum dev_map)kind, dx, dy, shared, 1.7f, 7.0f, N, DIM);
            float *got = malloc(N * DIM * sizeof *got);
            dev_get(gpu, got, dx, N * DIM * sizeof *got);
            for (size_t i = 0; i < N * DIM; i++) /* which NaN it is, is not part of the order */
                if (memcmp(&got[i], &x[i], 4) != 0 && !(isnan(got[i]) && isnan(x[i])))
                    fail_msg("map %d, value %zu: %a, and the reference %a", kind, i, (double)got[i],
                             (double)x[i]);
            free(got);
            free(x);
            free(y);
            ran++;
        }
    assert_int_equal(ran, 2 * DEV_MAPS);
}

static void test_rows(void **state)
{
    (void)state;
    enum { N = 9 };
    for (uint32_t dim = 1; dim < 5000; dim = dim * 3 + 2) {
        float *x = floats(N * dim), *w = floats(dim), *b = floats(dim),
              *out = malloc(N * dim * sizeof *out);
        float *dx = UP(x, N * dim), *dw = UP(w, dim), *db = UP(b, dim), *dout = UP(x, N * dim);
        for (int kind = 0; kind < DEV_NORMS; kind++)
            for (int weights = 0; weights < 2; weights++) {
                bool soft = kind == DEV_SOFTMAX, with = weights && !soft;
                dev_norm(ref, (enum dev_norm)kind, x, with ? w : NULL, with ? b : NULL, 1e-5f, N,
                         dim, out);
                dev_norm(gpu, (enum dev_norm)kind, dx, with ? dw : NULL, with ? db : NULL, 1e-5f, N,
                         dim, dout);
                same("a norm", dout, out, N * dim * sizeof *out);
            }
        dev_scale_rows(ref, x, w, MIN(N, dim), dim);
        dev_scale_rows(gpu, dx, dw, MIN(N, dim), dim);
        same("scaled rows", dx, x, N * dim * sizeof *x);
        static const uint32_t id[] = {1, 2, 2, 5, 8};
        uint32_t *did = UP(id, countof(id));
        dev_rows(ref, x, id, countof(id), dim, x);
        dev_rows(gpu, dx, did, countof(id), dim, dx);
        same("rows in place", dx, x, N * dim * sizeof *x);
        dev_softmax(ref, x, N, dim);
        dev_softmax(gpu, dx, N, dim);
        same("a softmax in place", dx, x, N * dim * sizeof *x);
        free(x);
        free(w);
        free(b);
        free(out);
    }
}

static void test_places(void **state)
{
    (void)state;
    enum { N = 5, LDX = 90, HEADS = 3, DIM = 26, ROT = 20 };
    float *x = floats(N * LDX), *angle = floats(2 * N * ROT), *out = floats(N * LDX * 8);
    float *dx = UP(x, N * LDX), *da = UP(angle, 2 * N * ROT), *dout = UP(out, N * LDX * 8);
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        dev_rope(ref, x, LDX, N, HEADS, DIM, ROT, interleaved, angle, angle + N * ROT / 2);
        dev_rope(gpu, dx, LDX, N, HEADS, DIM, ROT, interleaved, da, da + N * ROT / 2);
        same("a rotation", dx, x, N * LDX * sizeof *x);
    }
    struct dev_cut c = {x + 1, LDX, 3, 25, 11, out + 2, 40},
                   dc = {dx + 1, LDX, 3, 25, 11, dout + 2, 40};
    dev_cut(ref, &c, N);
    dev_cut(gpu, &dc, N);
    same("columns", dout, out, N * LDX * 8 * sizeof *out);
    dev_unfold(ref, x, N * 9, 10, 3, 2, 23, out);
    dev_unfold(gpu, dx, N * 9, 10, 3, 2, 23, dout);
    same("inputs of a convolution", dout, out, N * LDX * 8 * sizeof *out);
    dev_move(ref, out + 100, x, 13, 4, 20);
    dev_move(gpu, dout + 100, dx, 13, 4, 20);
    same("moved bytes", dout, out, N * LDX * 8 * sizeof *out);
    uint32_t chosen[N * 4];
    float weight[N * 4];
    uint32_t *dchosen = UP(chosen, N * 4);
    float *dweight = UP(weight, N * 4);
    x[3] = NAN;
    x[20] = x[21];
    dev_put(gpu, dx, x, N * LDX * sizeof *x);
    for (int share = 0; share < 2; share++) {
        dev_choose(ref, x, N, 17, 4, share, chosen, weight);
        dev_choose(gpu, dx, N, 17, 4, share, dchosen, dweight);
        same("chosen experts", dchosen, chosen, sizeof chosen);
        same("weights of experts", dweight, weight, sizeof weight);
    }
    free(x);
    free(angle);
    free(out);
}

static const enum dtype types[] = {DT_F32,  DT_F16,  DT_BF16, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,
                                   DT_Q8_0, DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_MXFP4};

/* Weights of any bytes whose scales are small numbers: what the bytes of a scale are, depends on the type. */
static void fill_weights(enum dtype t, unsigned char *w, size_t n)
{
    static const uint8_t f16_at[][3] = {
        [DT_Q4_0] = {0},    [DT_Q4_1] = {0, 2},    [DT_Q5_0] = {0},        [DT_Q5_1] = {0, 2},
        [DT_Q8_0] = {0},    [DT_Q2_K] = {80, 82},  [DT_Q3_K] = {108, 108}, [DT_Q4_K] = {0, 2},
        [DT_Q5_K] = {0, 2}, [DT_Q6_K] = {208, 208}};
    for (size_t i = 0; i < n; i++)
        w[i] = (unsigned char)(seed >> 24), seed = seed * 1664525u + 1013904223u;
    size_t size = dtype_size(t);
    for (size_t b = 0; b + size <= n; b += size) {
        if (t == DT_F32) memcpy(w + b, &(float){drawn()}, 4);
        if (t == DT_F16 || t == DT_BF16) w[b + 1] = (w[b + 1] & 0x83) | 0x34;
        if (t == DT_MXFP4) w[b] = 120 + w[b] % 8;
        for (int i = 0; dtype_block(t) > 1 && t != DT_MXFP4 && i < 2; i++)
            w[b + f16_at[t][i] + 1] = (w[b + f16_at[t][i] + 1] & 0x83) | 0x24;
    }
}

static void product(enum dtype t, uint32_t n, uint32_t rows, uint32_t k)
{
    size_t bytes;
    if (!dtype_bytes(t, k, &bytes)) return;
    unsigned char *w = malloc(rows * bytes);
    fill_weights(t, w, rows * bytes);
    float *x = floats((size_t)n * k), *b = floats(rows), *y = floats((size_t)n * rows);
    if (n > 2) memset(x + k, 0, k * sizeof *x); /* a token of zeros */
    struct dev_weight hw = {w, rows, k, t}, dw = {dev_weights(dev, w, rows * bytes), rows, k, t};
    float *dx = UP(x, (size_t)n * k), *db = UP(b, rows), *dy = UP(y, (size_t)n * rows);
    assert_non_null(dw.data);
    for (int mode = DEV_EXACT; mode <= DEV_FAST; mode++)
        for (int bias = test_share() > 1; bias < 2; bias++) {
            struct dev_mm h = {&hw, bias ? b : NULL, y, rows},
                          d = {&dw, bias ? db : NULL, dy, rows};
            dev_matmul(ref, (enum dev_compute)mode, x, k, n, &h, 1);
            dev_matmul(gpu, (enum dev_compute)mode, dx, k, n, &d, 1);
            if (t == DT_BF16 && mode == DEV_FAST) continue; /* tensor cores: test_cuda_guard */
            same(dtype_name(t), dy, y, (size_t)n * rows * sizeof *y);
        }
    int32_t id[] = {(int32_t)rows - 1, 0, (int32_t)rows / 2};
    int32_t *did = UP(id, countof(id));
    float *e = floats(countof(id) * k), *de = UP(e, countof(id) * k);
    dev_embed(ref, &hw, id, countof(id), e);
    dev_embed(gpu, &dw, did, countof(id), de);
    same("embeddings", de, e, countof(id) * k * sizeof *e);
    free(w);
    free(x);
    free(b);
    free(y);
    free(e);
}

static void test_products(void **state)
{
    (void)state;
    for (size_t t = 0; t < countof(types); t++) {
        uint32_t block = dtype_block(types[t]), blocks = test_share() > 1 ? 1 : 2;
        product(types[t], 1, 1, block == 1 ? 5 : block);
        product(types[t], 3, 17, block == 256 ? 512 : 288);
        product(types[t], 43, 33, /* more tokens than a step was said to have */
                blocks * (block == 256 ? 512 : 256) + 32 * (block != 256));
    }
}

/* --- experts: few tokens do not wait for the choice, and have the bits of the reference; so have tokens among many */
enum {
    EXPERTS = 4,
    TOP = 2,
    FEW = 3,
    MANY = 21,
    WIDE = 256
}; /* MANY have more choices than a step has tokens */

static struct dev_weight matrix(enum dtype t, uint32_t rows, uint32_t cols,
                                struct dev_weight *there)
{
    size_t bytes;
    assert_true(dtype_bytes(t, cols, &bytes));
    unsigned char *w = malloc(rows * bytes);
    fill_weights(t, w, rows * bytes);
    *there = (struct dev_weight){dev_weights(dev, w, rows * bytes), rows, cols, t};
    assert_non_null(there->data);
    return (struct dev_weight){w, rows, cols, t};
}

static void mixture(enum dtype t, enum dev_compute mode, bool weigh_input)
{
    const uint32_t hidden = dtype_block(t) == 256 ? WIDE : 64,
                   ffn = dtype_block(t) == 256 ? WIDE : 32;
    static float in[2][MANY * WIDE], gate[MANY * WIDE], up_[MANY * WIDE], y[MANY * WIDE], by[MANY];
    static uint32_t row[MANY];
    struct dev_expert here[EXPERTS] = {0}, there[EXPERTS] = {0};
    float *bias = floats(WIDE), *dbias = UP(bias, WIDE);
    for (int e = 0; e < EXPERTS; e++) {
        here[e].gate = matrix(t, ffn, hidden, &there[e].gate);
        here[e].up = matrix(t, ffn, hidden, &there[e].up);
        here[e].down = matrix(t, hidden, ffn, &there[e].down);
        if (e % 2) here[e].bgate = here[e].bup = here[e].bdown = bias;
        if (e % 2) there[e].bgate = there[e].bup = there[e].bdown = dbias;
    }
    float *x = floats(MANY * hidden), *score = floats(MANY * EXPERTS),
          *want = floats(MANY * hidden);
    uint32_t chosen[MANY * TOP];
    float weight[MANY * TOP];
    dev_choose(ref, score, MANY, EXPERTS, TOP, true, chosen, weight);
    struct dev_experts h = {.expert = here,
                            .n = EXPERTS,
                            .top = TOP,
                            .hidden = hidden,
                            .ffn = ffn,
                            .weigh_input = weigh_input,
                            .room = MANY,
                            .chosen = chosen,
                            .weight = weight,
                            .in = in[0],
                            .gate = gate,
                            .up = up_,
                            .y = y,
                            .by = by,
                            .row = row};
    struct dev_experts d = h;
    d.expert = there;
    d.chosen = UP(chosen, MANY * TOP);
    d.weight = UP(weight, MANY * TOP);
    d.in = UP(in[0], MANY * hidden), d.gate = UP(gate, MANY * ffn), d.up = UP(up_, MANY * ffn);
    d.y = UP(y, MANY * hidden), d.by = UP(by, MANY), d.row = UP(row, MANY);
    float *dx = UP(x, MANY * hidden), *few = UP(want, FEW * hidden),
          *many = UP(want, MANY * hidden);
    dev_experts(ref, mode, &h, x, MANY, want);
    for (int k = 0; k < 6; k++) { /* a step that fails leaves nothing that the next one reads */
        mem_fail_at(k, false);
        dev_experts(gpu, mode, &d, dx, MANY, many);
        mem_fail_at(-1, false);
        (void)dev_finish(gpu);
    }
    dev_experts(gpu, mode, &d, dx, FEW, few);
    uint64_t waits = counted ? counted->waits : 0;
    dev_experts(gpu, mode, &d, dx, FEW, few);
    if (counted) assert_int_equal(counted->waits, waits);
    dev_experts(gpu, mode, &d, dx, MANY, many);
    if (t == DT_BF16 && mode == DEV_FAST) /* tensor cores have bits of their own */
        dev_get(gpu, want, many, FEW * hidden * sizeof *want);
    else
        same("many tokens of a mixture", many, want, MANY * hidden * sizeof *want);
    same(dtype_name(t), few, want, FEW * hidden * sizeof *want);
    for (int e = 0; e < EXPERTS; e++) {
        free((void *)(uintptr_t)here[e].gate.data);
        free((void *)(uintptr_t)here[e].up.data);
        free((void *)(uintptr_t)here[e].down.data);
    }
    free(bias);
    free(x);
    free(score);
    free(want);
}

static void test_experts(void **state)
{
    static const enum dtype some[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_K, DT_MXFP4};
    (void)state;
    for (size_t i = 0; i < countof(some); i++)
        for (int weigh_input = 0; weigh_input < 2; weigh_input++) {
            if (test_share() > 1 && weigh_input != (int)(i / 2 % 2)) continue;
            if (i % 2) mixture(some[i], DEV_EXACT, weigh_input);
            mixture(some[i], DEV_FAST, weigh_input);
        }
}

/* What the host wrote is free when a call returns; copies beside come after what was before them. */
static void test_order(void **state)
{
    (void)state;
    enum { N = 3000 };
    float *x = floats(N), *want = malloc(N * sizeof *want), *back = malloc(N * sizeof *back);
    memcpy(want, x, N * sizeof *x);
    float *a = dev_alloc(gpu, N * sizeof *a), *b = dev_alloc(gpu, N * sizeof *b);
    dev_put(gpu, a, x, N * sizeof *x);
    memset(x, 0, N * sizeof *x);
    dev_scale(gpu, a, 2.0f, 1, N);
    uint32_t out = dev_get_begin(gpu, back, a, N * sizeof *back);
    dev_move(gpu, b, a, N * sizeof *a, 1, 0);
    assert_int_equal(dev_copied(gpu, out), 0);
    for (size_t i = 0; i < N; i++)
        assert_true(back[i] == 2 * want[i]);
    uint32_t in = dev_put_begin(gpu, a, want, N * sizeof *want);
    dev_scale(gpu, b, 0.5f, 1, N);
    assert_int_equal(dev_copied(gpu, in), 0);
    same("what a copy beside brought", a, want, N * sizeof *want);
    same("what an operation made meanwhile", b, want, N * sizeof *want);
    if (counted) { /* a copy of which only the event is refused is over when the error is there */
        counted->refuse = 2;
        assert_int_equal(dev_put_begin(gpu, a, x, N * sizeof *x), 0);
        memset(x, 1, N * sizeof *x);
        assert_int_equal(dev_finish(gpu), ERR_IO);
        in = dev_put_begin(gpu, a, want, N * sizeof *want);
        assert_int_equal(dev_copied(gpu, in), 0);
        assert_int_equal(dev_finish(gpu), 0);
    }
    for (size_t i = 0; i < 40; i++) { /* far more than is staged at once */
        size_t n = (size_t)1 << 18;
        float *big = floats(n), *at = dev_alloc(gpu, n * sizeof *big);
        dev_put(gpu, at, big, n * sizeof *big);
        if (i % 13 == 0) same("a large array", at, big, n * sizeof *big);
        free(big);
    }
    free(x);
    free(want);
    free(back);
}

static void test_missing(void **state)
{
    (void)state;
    struct dev *none;
    char *kept = strdup(getenv("KVIK_CUDA_LIBRARY"));
    setenv("KVIK_CUDA_LIBRARY", "/there/is/no/library.so", 1);
    assert_int_equal(dev_open("cuda", &none), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "make cuda builds the library"));
    setenv("KVIK_CUDA_LIBRARY", "libm.so.6", 1);
    assert_int_equal(dev_open("cuda", &none), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "of another version"));
    setenv("KVIK_CUDA_LIBRARY", kept, 1);
    if (strstr(kept, "emulated")) {
        setenv("KVIK_EMULATED", "none", 1);
        assert_int_equal(dev_open("cuda", &none), ERR_UNSUPPORTED);
        assert_non_null(strstr(err_last(), "there is no driver"));
        unsetenv("KVIK_EMULATED");
    }
    assert_int_equal(dev_open("tpu", &none), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_last(), "it can be cpu or cuda"));
    free(kept);
}

/* Runs the tests with a way of running (rt_emulated.c); the library stands beside the test. */
static int run(const char *how, const char *library)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_places),  cmocka_unit_test(test_products),
        cmocka_unit_test(test_experts), cmocka_unit_test(test_order),
        cmocka_unit_test(test_missing),
    };
    setenv("KVIK_EMULATED", how, 1);
    setenv("KVIK_CUDA_LIBRARY", library, 1);
    return cmocka_run_group_tests_name(how, tests, open_all, close_all);
}

/* "real": the library that $KVIK_CUDA_LIBRARY names, on a GPU.  "--device": only says which device that is. */
int main(int argc, char **argv)
{
    char library[4096];
    const char *given = getenv("KVIK_CUDA_LIBRARY");
    if (argc > 1 && !strcmp(argv[1], "--device")) {
        int e = open_all(NULL);
        if (e >= 0) puts(dev_isa_name(gpu));
        return e < 0;
    }
    if (argc > 1 && !strcmp(argv[1], "real") && given) {
        snprintf(library, sizeof library, "%s", given);
        return run("late", library);
    }
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    snprintf(library, sizeof library, "%.*s/libkvik-cuda-emulated.so",
             slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
    int failed = run("late", library); /* what a call has freed is used then */
    return test_share() > 1 ? failed : failed + run("eager", library) + run("backwards", library);
}
