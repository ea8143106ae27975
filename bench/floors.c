/* floors.c - what a GPU can do at most, for make bench-cuda: how fast its memory is copied, how fast copies from and to pinned
 * memory of the host are, and how fast its tensor cores multiply matrices of bf16.
 *
 *     build/release/bench_floors [--dry]      $KVIK_CUDA_LIBRARY names the library; --dry: of tiny sizes
 *
 *     floor,by,amount,seconds,rate,unit
 *
 * A copy within the device reads and writes, and both count.  GEMM is cuBLAS's (cublasGemmEx, which is cuBLASLt inside) where its
 * library is found at run time; kvik does not need it, so where it is missing, GEMM is kvik's own kernel, and "by" says so: then
 * nothing shows how far that kernel is from the device.  kvik's own is in the list in any case. */
#include "dev/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, TIMES = 8 };
static const struct cuda_rt *rt;
static const char *device; /* its name */

static void die(const char *why)
{
    fprintf(stderr, "bench_floors: %s\n", why);
    exit(1);
}

static void line(const char *floor, const char *by, double amount, double seconds, const char *unit)
{
    double scale = *unit == 'G' ? 1e9 : 1e12;
    printf("%s,%s,%.4g,%.6g,%.4g,%s\n", floor, by, amount, seconds, amount / seconds / scale, unit);
}

/* --- copies */
static void copies(const char *floor, enum cuda_copy how, void *to, const void *from, size_t n)
{
    double t[ROUNDS];
    void *stream = rt->stream();
    const struct cuda_op op = {.act = CUDA_COPY, .how = how, .to = to, .from = from, .n = n};
    if (!stream) die(rt->error());
    for (int r = -1; r < ROUNDS; r++) { /* the first is not counted */
        double begin = now_seconds();
        int e = 0;
        for (int i = 0; i < TIMES && e >= 0; i++)
            e = rt->give(stream, &op);
        if (e < 0 || rt->wait(stream) < 0) die(rt->error());
        if (r >= 0) t[r] = now_seconds() - begin;
    }
    rt->stream_close(stream);
    line(floor, "copy", (double)n * TIMES * (how == CUDA_WITHIN ? 2 : 1), median_of(t, ROUNDS),
         "GB/s");
}

static void all_copies(size_t n)
{
    void *a = rt->alloc(CUDA_DEVICE, n), *b = rt->alloc(CUDA_DEVICE, n),
         *host = rt->alloc(CUDA_PINNED, n);
    if (!a || !b || !host) die(rt->error());
    memset(host, 0x5A, n);
    copies("to_device", CUDA_TO_DEVICE, a, host, n);
    copies("to_host", CUDA_TO_HOST, host, a, n);
    copies("hbm", CUDA_WITHIN, b, a, n);
    rt->release(CUDA_PINNED, host, 0);
    rt->release(CUDA_DEVICE, a, 0);
    rt->release(CUDA_DEVICE, b, 0);
}

/* --- GEMM of cuBLAS.  Declared here, since its headers are not there to build with: numbers are those of cublas_api.h and
 * library_types.h. */
enum { NONE = 0, TRANSPOSED = 1, R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, ANY = -1 };
struct blas {
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                int a_type, int lda, const void *b, int b_type, int ldb, const void *beta, void *c,
                int c_type, int ldc, int compute, int algo);
    void *handle, *stream;
};

static bool blas_open(struct blas *b)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < countof(names) && strcmp(device, "emulated") != 0; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    *(void **)&b->create = dlsym(library, "cublasCreate_v2");
    *(void **)&b->set_stream = dlsym(library, "cublasSetStream_v2");
    *(void **)&b->gemm = dlsym(library, "cublasGemmEx");
    b->stream = rt->stream();
    return b->create && b->set_stream && b->gemm && b->stream && b->create(&b->handle) == 0 &&
           b->set_stream(b->handle, b->stream) == 0;
}

/* Times y[n][m] = x[n][k] . w[m][k], all of bf16; x has the first n rows of w.  Returns 0 where cuBLAS is missing or fails. */
static double blas_seconds(const uint16_t *host, int m, int n, int k)
{
    struct blas b = {0};
    double t[ROUNDS];
    const float one = 1, zero = 0;
    if (!blas_open(&b)) return 0;
    size_t w_n = (size_t)m * k * 2, x_n = (size_t)n * k * 2;
    void *w = rt->alloc(CUDA_DEVICE, w_n), *x = rt->alloc(CUDA_DEVICE, x_n),
         *y = rt->alloc(CUDA_DEVICE, (size_t)m * n * 2);
    struct cuda_op op = {.act = CUDA_COPY, .how = CUDA_TO_DEVICE, .to = w, .from = host, .n = w_n};
    if (!w || !x || !y || rt->give(b.stream, &op) < 0) die(rt->error());
    op.to = x;
    op.n = x_n;
    if (rt->give(b.stream, &op) < 0) die(rt->error());
    for (int r = -1; r < ROUNDS; r++) {
        if (rt->wait(b.stream) < 0) die(rt->error());
        double begin = now_seconds();
        if (b.gemm(b.handle, TRANSPOSED, NONE, m, n, k, &one, w, R_16BF, k, x, R_16BF, k, &zero, y,
                   R_16BF, m, COMPUTE_32F, ANY) != 0)
            return 0;
        if (rt->wait(b.stream) < 0) die(rt->error());
        if (r >= 0) t[r] = now_seconds() - begin;
    }
    rt->release(CUDA_DEVICE, w, 0);
    rt->release(CUDA_DEVICE, x, 0);
    rt->release(CUDA_DEVICE, y, 0);
    return median_of(t, ROUNDS);
}

/* --- GEMM of kvik */
/* The same product of kvik's own kernel, whose x is f32. */
static double own_seconds(struct dev *dev, const uint16_t *w, uint32_t m, uint32_t n, uint32_t k)
{
    const struct dev_limits lim = {
        .tokens = n, .k = k, .n = m, .heads = 1, .head_dim = 64, .max_len = 64};
    struct dev_queue *q;
    double t[ROUNDS];
    float *host = malloc((size_t)n * k * sizeof *host);
    if (!host || dev_queue_open(dev, NULL, &q) < 0 || dev_reserve(q, &lim) < 0) die(err_last());
    for (size_t i = 0; i < (size_t)n * k; i++)
        memcpy(&host[i], &(uint32_t){(uint32_t)w[i] << 16}, sizeof *host);
    struct dev_weight weight = {dev_weights(dev, w, (size_t)m * k * sizeof *w), m, k, DT_BF16};
    float *x = dev_alloc(q, (size_t)n * k * sizeof *x),
          *y = dev_alloc(q, (size_t)n * m * sizeof *y);
    const struct dev_mm mm = {&weight, NULL, y, m};
    if (!weight.data || !x || !y) die(err_last());
    dev_put(q, x, host, (size_t)n * k * sizeof *x);
    for (int r = -1; r < ROUNDS; r++) {
        if (dev_finish(q) < 0) die(err_last());
        double begin = now_seconds();
        dev_matmul(q, DEV_FAST, x, k, n, &mm, 1);
        if (dev_finish(q) < 0) die(err_last());
        if (r >= 0) t[r] = now_seconds() - begin;
    }
    dev_queue_close(q);
    free(host);
    return median_of(t, ROUNDS);
}

/* Random values of bf16: a device that multiplies equal ones takes less power, and runs faster. */
static uint16_t *draw(size_t n)
{
    uint16_t *w = malloc(n * sizeof *w);
    if (!w) die("out of memory");
    for (size_t i = 0, r = 1; i < n; i++) {
        r = r * 1664525u + 1013904223u;
        w[i] = (uint16_t)((r >> 12 & 0x80FF) | 0x3C00);
    }
    return w;
}

int main(int argc, char **argv)
{
    bool dry = argc > 1 && !strcmp(argv[1], "--dry");
    struct dev *dev;
    uint32_t m = dry ? 128 : 8192, n = dry ? 64 : 4096, k = dry ? 256 : 8192;
    double amount = 2.0 * m * n * k;
    if (dev_open("cuda", &dev) < 0) die(err_last());
    rt = ((const struct cuda_dev *)dev)->rt;
    device = ((const struct cuda_dev *)dev)->about.name;
    printf("floor,by,amount,seconds,rate,unit\n");
    all_copies((size_t)(dry ? 1 : 1024) << 20);
    uint16_t *w = draw((size_t)m * k);
    double own = own_seconds(dev, w, m, n, k), blas = blas_seconds(w, (int)m, (int)n, (int)k);
    free(w);
    line("gemm", blas > 0 ? "cuBLAS" : "own kernel (no cuBLAS)", amount, blas > 0 ? blas : own,
         "TFLOP/s");
    line("gemm_own", "own kernel", amount, own, "TFLOP/s");
    dev_close(dev);
    return 0;
}
