/* matmul.c - dev_matmul: converts x once per call into the form that the weights need, then hands out jobs
 * of (rows of one weight, at most CPU_TILE vectors).  K is never split: one job makes the whole sum of an output,
 * in the order of dev.h, so neither tiling nor threads change a bit of it.
 *
 * With quantized weights a token becomes two vectors of int8 codes: the codes of x, and the codes of the
 * rounding error of the first.  One term strays too far from exact compute (a mean KLD of 2.8e-3 on SmolLM2, the
 * bound is 5e-4); two terms are as good as 16 bits.  In decoding both terms share one reading of the weights. */
#include "dev/cpu/cpu.h"

#include <assert.h>

enum x_form { X_F32, X_Q8, X_BF16 };
#define MAX_MM 64u

struct plan {
    struct dev *d;
    const float *x;
    size_t ldx;
    uint32_t n, t0; /* tokens of this pass, and the first of them in the caller's y */
    const struct dev_mm *mm;
    uint32_t n_mm, k;
    enum dev_compute mode;
    bool form[3];
    uint32_t tile, tiles;       /* tokens of a tile; tiles */
    uint32_t rows[MAX_MM];      /* per job, by product */
    uint32_t first[MAX_MM + 1]; /* first job of each product within one token tile */
    uint32_t x_per_task;
};

static enum x_form form_of(enum dev_compute mode, enum dtype t)
{
    if (mode == DEV_EXACT) return X_F32;
    return cpu_format[t].quantized ? X_Q8 : t == DT_BF16 ? X_BF16 : X_F32;
}

/* Codes of x, then of the rest r = x - d * q, product and difference each rounded. */
static void quantize_two(const struct dev *d, const float *x, uint32_t k, struct cpu_xchunk *out)
{
    enum { PIECE = 2048 };
    cpu_quantize_fn quantize = (cpu_quantize_fn)cpu_kernel_get(d, CPU_QUANTIZE, CPU_ANY);
    float r[PIECE];
    for (uint32_t at = 0; at < k; at += PIECE) {
        uint32_t n = MIN(k - at, PIECE);
        struct cpu_xchunk *c = out + at / 64;
        quantize(x + at, n, c);
        for (uint32_t b = 0; b < n / 32; b++) {
            float scale = c[b / 2].d[b % 2 * 8];
            const int8_t *q = c[b / 2].q + b % 2 * 32;
            for (uint32_t i = 0; i < 32; i++)
                r[32 * b + i] = x[at + 32 * b + i] - scale * (float)q[i];
        }
        quantize(r, n, c + d->xq_chunks);
    }
}

static void convert_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct plan *p = ctx;
    const struct dev *d = p->d;
    (void)thread;
    uint32_t end = MIN((task + 1) * p->x_per_task, p->n);
    for (uint32_t t = task * p->x_per_task; t < end; t++) {
        const float *x = p->x + t * p->ldx;
        if (p->form[X_Q8]) quantize_two(d, x, p->k, d->xq + 2 * t * d->xq_chunks);
        if (p->form[X_BF16])
            ((cpu_round_fn)cpu_kernel_get(d, CPU_ROUND_BF16, CPU_ANY))(x, p->k,
                                                                       d->xb + t * d->xb_stride);
    }
}

static void convert_x(struct plan *p)
{
    for (uint32_t i = 0; i < p->n_mm; i++)
        p->form[form_of(p->mode, p->mm[i].w->dtype)] = true;
    if (!p->form[X_Q8] && !p->form[X_BF16]) return;
    p->x_per_task = MAX(4096 / MAX(p->k, 1), 1); /* small tokens are not worth waking a thread */
    pool_run(p->d->pool, (p->n + p->x_per_task - 1) / p->x_per_task, convert_task, p);
}

static cpu_mm_fn kernel_for(const struct dev *d, enum x_form form, enum dtype t, uint32_t n)
{
    static const enum cpu_op gemv[] = {CPU_GEMV_F32, CPU_FEW_Q8, CPU_GEMV_BF16};
    static const enum cpu_op many[] = {CPU_MM_F32, CPU_MM_Q8, CPU_MM_BF16};
    /* Where no kernel takes packed bf16, x was rounded to bf16 but is stored as f32. */
    if (form == X_BF16 && !cpu_kernel_get(d, CPU_MM_BF16, CPU_ANY)) form = X_F32;
    bool few = cpu_format[t].quantized ? n <= CPU_FEW : n == 1;
    cpu_fn one = few ? cpu_kernel_get(d, gemv[form], t) : NULL;
    return (cpu_mm_fn)(one ? one : cpu_kernel_get(d, many[form], CPU_ANY));
}

/* y = (codes of x) + (codes of the rest), + bias. */
static void two_terms(const struct dev *d, const struct cpu_mm *m, const struct cpu_xchunk *x)
{
    struct cpu_mm j = *m;
    j.ldx = d->xq_chunks * sizeof *x;
    j.x = (const unsigned char *)x;
    j.n = 2 * m->n;
    j.y = (float *)(m->scratch + CPU_THREAD_BYTES);
    j.ldy = m->rows;
    j.bias = NULL;
    kernel_for(d, X_Q8, m->dtype, j.n)(&j);
    for (uint32_t t = 0; t < m->n; t++) {
        const float *a = j.y + 2 * (size_t)t * j.ldy, *b = a + j.ldy;
        float *y = m->y + t * m->ldy;
        for (uint32_t o = 0; o < m->rows; o++)
            y[o] = a[o] + b[o];
        for (uint32_t o = 0; m->bias && o < m->rows; o++)
            y[o] += m->bias[o];
    }
}

static void mm_task(void *ctx, uint32_t task, uint32_t thread)
{
    const struct plan *p = ctx;
    struct dev *d = p->d;
    uint32_t jobs = p->first[p->n_mm], tile = task / jobs, i = 0;
    task %= jobs;
    while (task >= p->first[i + 1])
        i++;
    const struct dev_mm *m = &p->mm[i];
    enum dtype type = m->w->dtype;
    enum x_form form = form_of(p->mode, type);
    uint32_t row = (task - p->first[i]) * p->rows[i], t = tile * p->tile;
    struct cpu_mm j = {
        .dtype = type,
        .rows = MIN(p->rows[i], m->w->rows - row),
        .k = p->k,
        .n = MIN(p->tile, p->n - t),
        .y = m->y + (p->t0 + t) * m->ldy + row,
        .ldy = m->ldy,
        .bias = m->bias ? m->bias + row : NULL,
        .unpack = (cpu_unpack_fn)cpu_kernel_get(d, CPU_UNPACK, type),
        .to_f32 = (cpu_to_f32_fn)cpu_kernel_get(d, CPU_TO_F32, type),
        .scratch = d->thread + (size_t)thread * (CPU_THREAD_BYTES + CPU_Y_BYTES),
    };
    dtype_bytes(type, p->k, &j.row_bytes);
    j.w = (const unsigned char *)m->w->data + row * j.row_bytes;
    if (form == X_Q8) {
        two_terms(d, &j, d->xq + 2 * t * d->xq_chunks);
        return;
    }
    if (form == X_BF16) {
        j.ldx = d->xb_stride;
        j.x = d->xb + t * d->xb_stride;
    } else {
        j.ldx = p->ldx * sizeof *p->x;
        j.x = (const unsigned char *)(p->x + t * p->ldx);
    }
    kernel_for(d, form, type, j.n)(&j);
}

/* Rows per job: enough jobs to level the threads out, each of at least 8 rows (a kernel works on 4 or
 * 8 at once) and, when there is one token, not more than about 256 KiB of weights. */
static void split_rows(struct plan *p)
{
    uint32_t threads = pool_threads(p->d->pool), total = 0, want;
    for (uint32_t i = 0; i < p->n_mm; i++)
        total += p->mm[i].w->rows;
    p->tile = p->form[X_Q8] ? CPU_TILE / 2 : CPU_TILE;
    p->tiles = (p->n + p->tile - 1) / p->tile;
    want = threads == 1 ? 1 : MAX(threads * 6 / p->tiles, 1);
    p->first[0] = 0;
    for (uint32_t i = 0; i < p->n_mm; i++) {
        size_t row_bytes = 1;
        dtype_bytes(p->mm[i].w->dtype, p->k, &row_bytes);
        uint32_t cap = (uint32_t)MAX((256u << 10) / MAX(row_bytes, 1), 16);
        uint32_t rows = MIN(total / want, cap);
        p->rows[i] = MIN(MAX(rows + 7, 16) & ~7u, CPU_Y_ROWS);
        p->first[i + 1] = p->first[i] + (p->mm[i].w->rows + p->rows[i] - 1) / p->rows[i];
    }
}

static void matmul_pass(struct plan *p)
{
    convert_x(p);
    split_rows(p);
    pool_run(p->d->pool, p->tiles * p->first[p->n_mm], mm_task, p);
}

void dev_matmul(struct dev *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n,
                const struct dev_mm *mm, uint32_t n_mm)
{
    if (n == 0 || n_mm == 0) return;
    assert(d->scratch && mm[0].w->cols <= d->lim.k);
    for (uint32_t i = 1; i < n_mm; i++)
        assert(mm[i].w->cols == mm[0].w->cols);
    uint32_t step = d->x_tokens;
    for (uint32_t i = 0; i < n_mm; i++)
        if (form_of(mode, mm[i].w->dtype) == X_Q8) step = d->x_tokens / 2;
    for (uint32_t i = 0; i < n_mm; i += MAX_MM)
        for (uint32_t t = 0; t < n; t += step) {
            struct plan p = {.d = d,
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
