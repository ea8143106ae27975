/* matmul.c - dev_matmul: converts x once per call into the form that the weights need, then hands out jobs
 * of (rows of one weight, some tokens).  K is never split: one job makes the whole sum of an output,
 * in the order of dev.h, so neither tiling nor threads change a bit of it.
 *
 * With quantized weights a token becomes codes of 16 bits.  Codes of 8 bits stray too far from exact compute (a mean
 * KLD of 2.8e-3 on SmolLM2, the bound is 5e-4). */
#include "dev/cpu/cpu.h"

#include <assert.h>
#include <stdatomic.h>

enum x_form { X_F32, X_Q, X_BF16 };
#define MAX_MM 64u
#define QUEUES 64u
/* Rows of a slice.  Kernels compute 4 or 8 rows at a time, and 16 of quantized weights. */
#define SLICE 16u
#define MOST  (256u << 10) /* bytes of weights of a job with one token, roughly */
#define LINE  64u          /* bytes of a line of the processor's cache */

/* The slices of one thread.  Their weights lie next to each other in memory, so the thread knows what it reads next.
 * A thread takes half of the remaining slices at a time, so that the last jobs are small.  A thread without slices
 * takes those of others. */
struct slices {
    _Alignas(LINE) _Atomic uint32_t next; /* a line of its own */
    uint32_t first, end;
};

struct matmul {
    struct dev_queue *d;
    const float *x;
    size_t ldx;
    uint32_t n, t0; /* tokens of this pass, and the first of them in the caller's y */
    const struct dev_mm *mm;
    uint32_t n_mm, k;
    enum dev_compute mode;
    bool form[3];
    uint32_t tile, tiles; /* tile: tokens of a tile; tiles: their number */
    /* Product i has slices [first[i], first[i + 1]).  A job has at most `slices` of them.  Each tile of product i
     * has jobs from job[i] on. */
    uint32_t first[MAX_MM + 1], job[MAX_MM + 1], slices;
    uint32_t x_per_task;
    uint32_t n_queues; /* 0: a task is a job */
    struct slices *queue;
};

static enum x_form form_of(enum dev_compute mode, enum dtype t)
{
    if (mode == DEV_EXACT) return X_F32;
    return cpu_format[t].quantized ? X_Q : t == DT_BF16 ? X_BF16 : X_F32;
}

static void convert_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct matmul *p = ctx;
    const struct dev_queue *d = p->d;
    (void)thread;
    uint32_t end = MIN((task + 1) * p->x_per_task, p->n);
    for (uint32_t t = task * p->x_per_task; t < end; t++) {
        const float *x = p->x + t * p->ldx;
        if (p->form[X_Q])
            ((cpu_quantize_fn)cpu_kernel_get(d, CPU_QUANTIZE, CPU_ANY))(x, p->k,
                                                                        d->xq + t * d->xq_groups);
        if (p->form[X_BF16])
            ((cpu_round_fn)cpu_kernel_get(d, CPU_ROUND_BF16, CPU_ANY))(x, p->k,
                                                                       d->xb + t * d->xb_stride);
    }
}

static void convert_x(struct matmul *p)
{
    for (uint32_t i = 0; i < p->n_mm; i++)
        p->form[form_of(p->mode, p->mm[i].w->dtype)] = true;
    if (!p->form[X_Q] && !p->form[X_BF16]) return;
    p->x_per_task = MAX(4096 / MAX(p->k, 1), 1); /* small tokens are not worth waking a thread */
    pool_run(p->d->pool, (p->n + p->x_per_task - 1) / p->x_per_task, convert_task, p);
}

static cpu_mm_fn kernel_for(const struct dev_queue *d, enum x_form form, enum dtype t, uint32_t n)
{
    static const enum cpu_op few[] = {CPU_GEMV_F32, CPU_FEW_Q, CPU_GEMV_BF16};
    static const enum cpu_op many[] = {CPU_MM_F32, CPU_MM_Q, CPU_MM_BF16};
    /* Where no kernel takes packed bf16, x was rounded to bf16 but is stored as f32. */
    if (form == X_BF16 && !cpu_kernel_get(d, CPU_MM_BF16, CPU_ANY)) form = X_F32;
    bool is_few = n <= (cpu_format[t].quantized ? CPU_FEW : 1);
    cpu_fn fn = is_few ? cpu_kernel_get(d, few[form], t) : NULL;
    return (cpu_mm_fn)(fn ? fn : cpu_kernel_get(d, many[form], form == X_Q ? t : CPU_ANY));
}

static size_t row_bytes(const struct dev_mm *mm)
{
    size_t n = 0;
    dtype_bytes(mm->w->dtype, mm->w->cols, &n);
    return n;
}

/* Returns the product that a slice belongs to. */
static uint32_t product_of(const struct matmul *p, uint32_t slice)
{
    uint32_t i = 0;
    while (slice >= p->first[i + 1])
        i++;
    return i;
}

/* Returns the weights of product i from a slice on, and their rows up to slice `end`. */
static const unsigned char *slices_at(const struct matmul *p, uint32_t i, uint32_t slice,
                                      uint32_t end, size_t *n)
{
    size_t bytes = row_bytes(&p->mm[i]);
    uint32_t row = (slice - p->first[i]) * SLICE;
    *n = bytes * (MIN((end - p->first[i]) * SLICE, p->mm[i].w->rows) - row);
    return (const unsigned char *)p->mm[i].w->data + row * bytes;
}

/* Returns the first slice of thread q of n.  Each thread gets about as many bytes of weights. */
static uint32_t queue_first(const struct matmul *p, uint32_t q, uint32_t n)
{
    size_t all = 0, at = 0;
    for (uint32_t i = 0; i < p->n_mm; i++)
        all += row_bytes(&p->mm[i]) * p->mm[i].w->rows;
    size_t to = all / n * q;
    for (uint32_t i = 0; q < n && i < p->n_mm; i++) {
        size_t bytes = row_bytes(&p->mm[i]), slice = bytes * SLICE;
        if (to < at + bytes * p->mm[i].w->rows)
            return p->first[i] + (uint32_t)((to - at + slice / 2) / slice);
        at += bytes * p->mm[i].w->rows;
    }
    return p->first[p->n_mm];
}

/* Multiplies slices [s, end) of product i with the tokens of a tile. */
static void multiply(const struct matmul *p, uint32_t i, uint32_t s, uint32_t end, uint32_t tile,
                     struct cpu_mm *j)
{
    const struct dev_queue *d = p->d;
    const struct dev_mm *m = &p->mm[i];
    enum dtype type = m->w->dtype;
    enum x_form form = form_of(p->mode, type);
    uint32_t t = tile * p->tile, row = (s - p->first[i]) * SLICE;
    j->before = row;
    j->dtype = type;
    j->rows = MIN((end - s) * SLICE, m->w->rows - row);
    j->n = MIN(p->tile, p->n - t);
    j->y = m->y + (p->t0 + t) * m->ldy + row;
    j->ldy = m->ldy;
    j->bias = m->bias ? m->bias + row : NULL;
    j->unpack = (cpu_unpack_fn)cpu_kernel_get(d, CPU_UNPACK, type);
    j->to_f32 = (cpu_to_f32_fn)cpu_kernel_get(d, CPU_TO_F32, type);
    j->row_bytes = row_bytes(m);
    j->w = (const unsigned char *)m->w->data + row * j->row_bytes;
    if (form == X_Q) {
        j->ldx = d->xq_groups * sizeof *d->xq;
        j->x = (const unsigned char *)(d->xq + t * d->xq_groups);
    } else if (form == X_BF16) {
        j->ldx = d->xb_stride;
        j->x = d->xb + t * d->xb_stride;
    } else {
        j->ldx = p->ldx * sizeof *p->x;
        j->x = (const unsigned char *)(p->x + t * p->ldx);
    }
    kernel_for(d, form, type, j->n)(j);
}

/* Computes half of the slices that are left in a queue, product by product. */
static bool run_some(const struct matmul *p, struct slices *q, bool own, struct cpu_mm *j)
{
    uint32_t at = atomic_load_explicit(&q->next, memory_order_relaxed);
    if (at >= q->end) return false;
    uint32_t n = MIN((q->end - at + 1) / 2, p->slices);
    at = atomic_fetch_add_explicit(&q->next, n, memory_order_relaxed);
    if (at >= q->end) return false;
    j->asked = own && at > q->first;
    for (uint32_t end = MIN(at + n, q->end), to; at < end; at = to) {
        uint32_t i = product_of(p, at), last = MIN(p->first[i + 1], q->end);
        to = MIN(end, last);
        j->then = NULL;
        if (to < last)
            j->then = slices_at(p, i, to, last, &j->then_bytes);
        else if (to < q->end)
            j->then = slices_at(p, i + 1, to, MIN(p->first[i + 2], q->end), &j->then_bytes);
        multiply(p, i, at, to, 0, j);
        j->asked = true;
    }
    return true;
}

static void mm_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct matmul *p = ctx;
    struct cpu_mm j = {.k = p->k, .scratch = p->d->thread + (size_t)thread * CPU_THREAD_BYTES};
    for (uint32_t i = 0; i < p->n_queues; i++)
        while (run_some(p, &p->queue[(thread + i) % p->n_queues], i == 0, &j))
            ;
    if (p->n_queues) return;
    uint32_t i = 0, job = task % p->job[p->n_mm];
    while (job >= p->job[i + 1])
        i++;
    uint32_t at = p->first[i] + (job - p->job[i]) * p->slices;
    multiply(p, i, at, MIN(at + p->slices, p->first[i + 1]), task / p->job[p->n_mm], &j);
}

/* Splits the products into jobs of at most about 256 KiB of weights, and enough of them to occupy all threads
 * evenly. */
static void split_rows(struct matmul *p)
{
    uint32_t threads = pool_threads(p->d->pool);
    size_t most = 1;
    p->tiles = (p->n + CPU_TILE - 1) / CPU_TILE;
    p->tile = (p->n + p->tiles - 1) / p->tiles;
    p->first[0] = p->job[0] = 0;
    for (uint32_t i = 0; i < p->n_mm; i++) {
        p->first[i + 1] = p->first[i] + (p->mm[i].w->rows + SLICE - 1) / SLICE;
        most = MAX(most, SLICE * row_bytes(&p->mm[i]));
    }
    p->n_queues = p->tiles == 1 && threads <= QUEUES ? threads : 0;
    uint32_t want = p->n_queues ? 1 : MAX(threads * 6 / p->tiles, 1);
    p->slices = MAX((uint32_t)MIN(p->first[p->n_mm] / want, MOST / most), 1);
    for (uint32_t i = 0; i < p->n_mm; i++)
        p->job[i + 1] = p->job[i] + (p->first[i + 1] - p->first[i] + p->slices - 1) / p->slices;
}

static void matmul_pass(struct matmul *p)
{
    struct slices queue[QUEUES];
    uint32_t threads = pool_threads(p->d->pool);
    convert_x(p);
    split_rows(p);
    if (!p->n_queues) {
        pool_run(p->d->pool, p->tiles * p->job[p->n_mm], mm_task, p);
        return;
    }
    p->queue = queue;
    for (uint32_t q = 0; q < threads; q++) {
        queue[q].first = q ? queue[q - 1].end : 0;
        queue[q].end = queue_first(p, q + 1, threads);
        atomic_store_explicit(&queue[q].next, queue[q].first, memory_order_relaxed);
    }
    pool_run(p->d->pool, threads, mm_task, p);
}

void cpu_matmul(struct dev_queue *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n,
                const struct dev_mm *mm, uint32_t n_mm)
{
    if (n == 0 || n_mm == 0) return;
    assert(d->scratch && mm[0].w->cols <= d->lim.k);
    for (uint32_t i = 1; i < n_mm; i++)
        assert(mm[i].w->cols == mm[0].w->cols);
    uint32_t step = d->x_tokens;
    for (uint32_t i = 0; i < n_mm; i += MAX_MM)
        for (uint32_t t = 0; t < n; t += step) {
            struct matmul p = {.d = d,
                               .x = x + t * ldx,
                               .ldx = ldx,
                               .n = MIN(n - t, step),
                               .t0 = t,
                               .mm = mm + i,
                               .n_mm = MIN(n_mm - i, MAX_MM),
                               .k = mm[0].w->cols,
                               .mode = mode};
            matmul_pass(&p);
        }
}
