/* elementwise.c - norms, sums, gates and rotations: the reference kernels and the splitting of tokens
 * over threads.  Small work stays on the caller's thread: waking the others costs more. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/mathfn.h"

#include <math.h>

#define SPLIT_VALUES 8192u /* values per task */

static void rmsnorm_ref(const float *x, const float *w, float eps, uint32_t dim, float *out)
{
    float s[16] = {0};
    for (uint32_t i = 0; i < dim; i++)
        s[i % 16] = __builtin_fmaf(x[i], x[i], s[i % 16]);
    for (int step = 8; step; step /= 2)
        for (int l = 0; l < step; l++)
            s[l] += s[l + step];
    float r = 1.0f / sqrtf(s[0] / (float)dim + eps);
    for (uint32_t i = 0; i < dim; i++)
        out[i] = x[i] * r * w[i];
}
CPU_KERNEL(DEV_REF, CPU_RMSNORM, CPU_ANY, rmsnorm_ref);

static void add_ref(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}
CPU_KERNEL(DEV_REF, CPU_ADD, CPU_ANY, add_ref);

static void silu_mul_ref(float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        gate[i] = math_silu(gate[i]) * up[i];
}
CPU_KERNEL(DEV_REF, CPU_SILU_MUL, CPU_ANY, silu_mul_ref);

static void rope_ref(float *x, uint32_t heads, uint32_t dim, uint32_t rot, bool interleaved,
                     const float *cos, const float *sin)
{
    uint32_t half = rot / 2;
    for (uint32_t h = 0; h < heads; h++, x += dim)
        for (uint32_t i = 0; i < half; i++) {
            float *a = x + (interleaved ? 2 * i : i), *b = interleaved ? a + 1 : a + half;
            float va = *a, vb = *b;
            *a = __builtin_fmaf(va, cos[i], -(vb * sin[i]));
            *b = __builtin_fmaf(vb, cos[i], va * sin[i]);
        }
}
CPU_KERNEL(DEV_REF, CPU_ROPE, CPU_ANY, rope_ref);

struct elem {
    const struct dev *d;
    float *x;
    const float *y, *w;
    float *out;
    float eps;
    uint32_t dim, tokens, per_task;
    cpu_fn fn;
    size_t ldx;
    uint32_t heads, rot;
    bool interleaved;
};

/* Splits n tokens of `dim` values into tasks of whole tokens. */
static void run(struct dev *d, struct elem *e, pool_fn fn, uint32_t n, size_t dim)
{
    e->tokens = n;
    e->per_task = (uint32_t)MAX(SPLIT_VALUES / MAX(dim, 1), 1);
    pool_run(d->pool, (n + e->per_task - 1) / e->per_task, fn, e);
}

static void rmsnorm_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct elem *e = ctx;
    (void)thread;
    uint32_t end = MIN((task + 1) * e->per_task, e->tokens);
    for (uint32_t t = task * e->per_task; t < end; t++) {
        size_t at = (size_t)t * e->dim;
        ((cpu_rmsnorm_fn)e->fn)(e->y + at, e->w, e->eps, e->dim, e->out + at);
    }
}

void dev_rmsnorm(struct dev *d, const float *x, const float *w, float eps, uint32_t n, uint32_t dim,
                 float *out)
{
    struct elem e = {.y = x,
                     .w = w,
                     .out = out,
                     .eps = eps,
                     .dim = dim,
                     .fn = cpu_kernel_get(d, CPU_RMSNORM, CPU_ANY)};
    run(d, &e, rmsnorm_task, n, dim);
}

static void map2_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct elem *e = ctx;
    (void)thread;
    uint32_t first = task * e->per_task, end = MIN(first + e->per_task, e->tokens);
    size_t at = (size_t)first * e->dim;
    ((cpu_map2_fn)e->fn)(e->x + at, e->y + at, (size_t)(end - first) * e->dim);
}

void dev_add(struct dev *d, float *x, const float *y, uint32_t n, uint32_t dim)
{
    struct elem e = {.x = x, .y = y, .dim = dim, .fn = cpu_kernel_get(d, CPU_ADD, CPU_ANY)};
    run(d, &e, map2_task, n, dim);
}

void dev_silu_mul(struct dev *d, float *gate, const float *up, uint32_t n, uint32_t dim)
{
    struct elem e = {
        .x = gate, .y = up, .dim = dim, .fn = cpu_kernel_get(d, CPU_SILU_MUL, CPU_ANY)};
    run(d, &e, map2_task, n, dim);
}

static void rope_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct elem *e = ctx;
    (void)thread;
    uint32_t end = MIN((task + 1) * e->per_task, e->tokens), half = e->rot / 2;
    for (uint32_t t = task * e->per_task; t < end; t++)
        ((cpu_rope_fn)e->fn)(e->x + t * e->ldx, e->heads, e->dim, e->rot, e->interleaved,
                             e->y + (size_t)t * half, e->w + (size_t)t * half);
}

void dev_rope(struct dev *d, float *x, size_t ldx, uint32_t n, uint32_t heads, uint32_t dim,
              uint32_t rot, bool interleaved, const float *cos, const float *sin)
{
    struct elem e = {.x = x,
                     .y = cos,
                     .w = sin,
                     .dim = dim,
                     .ldx = ldx,
                     .heads = heads,
                     .rot = rot,
                     .interleaved = interleaved,
                     .fn = cpu_kernel_get(d, CPU_ROPE, CPU_ANY)};
    run(d, &e, rope_task, n, (size_t)heads * dim);
}
