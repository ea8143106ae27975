/* elementwise.c - norms, sums, gates and rotations: the splitting of tokens over threads.  The kernels
 * are in elementwise_ref.c and its siblings.  Small work stays on the caller's thread: waking the others
 * costs more. */
#include "dev/cpu/cpu.h"

#define SPLIT_VALUES 8192u /* values per task */

struct elem {
    const struct dev_queue *d;
    float *x;
    const float *y, *w, *b;
    float *out;
    float p, q; /* of a map; p: epsilon of a norm */
    uint32_t dim, tokens, per_task;
    cpu_fn fn;
    size_t ldx;
    uint32_t heads, rot;
    bool interleaved;
};

/* Splits n tokens of `dim` values into tasks of whole tokens. */
static void run(struct dev_queue *d, struct elem *e, pool_fn fn, uint32_t n, size_t dim)
{
    e->tokens = n;
    e->per_task = (uint32_t)MAX(SPLIT_VALUES / MAX(dim, 1), 1);
    pool_run(d->pool, (n + e->per_task - 1) / e->per_task, fn, e);
}

static void row_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct elem *e = ctx;
    (void)thread;
    uint32_t end = MIN((task + 1) * e->per_task, e->tokens);
    for (uint32_t t = task * e->per_task; t < end; t++) {
        size_t at = (size_t)t * e->dim;
        ((cpu_row_fn)e->fn)(e->y + at, e->w, e->b, e->p, e->dim, e->out + at);
    }
}

void cpu_norm(struct dev_queue *d, enum dev_norm kind, const float *x, const float *w,
              const float *b, float eps, uint32_t n, uint32_t dim, float *out)
{
    struct elem e = {.y = x, .w = w, .b = b, .out = out, .p = eps, .dim = dim};
    e.fn = cpu_kernel_get(d, (enum cpu_op)(CPU_RMSNORM + (int)(kind - DEV_RMSNORM)), CPU_ANY);
    run(d, &e, row_task, n, dim);
}

static void map_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct elem *e = ctx;
    (void)thread;
    uint32_t first = task * e->per_task, end = MIN(first + e->per_task, e->tokens);
    size_t at = (size_t)first * e->dim;
    ((cpu_map_fn)e->fn)(e->x + at, e->y ? e->y + at : NULL, e->p, e->q,
                        (size_t)(end - first) * e->dim);
}

/* Applies an operation whose second operand is the same row for every token. */
static void row_map_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct elem *e = ctx;
    (void)thread;
    uint32_t end = MIN((task + 1) * e->per_task, e->tokens);
    for (uint32_t t = task * e->per_task; t < end; t++)
        ((cpu_map_fn)e->fn)(e->x + (size_t)t * e->dim, e->y, e->p, e->q, e->dim);
}

void cpu_map(struct dev_queue *d, enum dev_map kind, float *x, const float *y, bool shared, float p,
             float q, uint32_t n, uint32_t dim)
{
    struct elem e = {.x = x, .y = y, .p = p, .q = q, .dim = dim};
    e.fn = cpu_kernel_get(d, (enum cpu_op)(CPU_ADD + (int)(kind - DEV_ADD)), CPU_ANY);
    run(d, &e, shared ? row_map_task : map_task, n, dim);
}

static void scale_rows_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct elem *e = ctx;
    (void)thread;
    uint32_t end = MIN((task + 1) * e->per_task, e->tokens);
    for (uint32_t t = task * e->per_task; t < end; t++)
        ((cpu_map_fn)e->fn)(e->x + (size_t)t * e->dim, NULL, e->y[t], 0, e->dim);
}

void cpu_scale_rows(struct dev_queue *d, float *x, const float *by, uint32_t n, uint32_t dim)
{
    struct elem e = {.x = x, .y = by, .dim = dim, .fn = cpu_kernel_get(d, CPU_SCALE, CPU_ANY)};
    run(d, &e, scale_rows_task, n, dim);
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

void cpu_rope(struct dev_queue *d, float *x, size_t ldx, uint32_t n, uint32_t heads, uint32_t dim,
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
