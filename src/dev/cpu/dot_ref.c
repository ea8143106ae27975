/* dot_ref.c - the canonical order of dev.h in plain C, which every faster kernel must equal bit for bit.
 *
 * Weights are decoded 256 values at a time for all tokens of the job.  Meanwhile the 16 lanes of each (token, row) wait in the thread's scratch,
 * or for quantized weights the sum waits in y. */
#include "dev/cpu/cpu.h"

#include <string.h>

static float tree16(const float *acc)
{
    float s[16];
    memcpy(s, acc, sizeof s);
    for (int step = 8; step; step /= 2)
        for (int l = 0; l < step; l++)
            s[l] += s[l + step];
    return s[0];
}

static void store_row(const struct cpu_mm *j, uint32_t row, float (*acc)[16])
{
    for (uint32_t t = 0; t < j->n; t++) {
        float y = tree16(acc[t]);
        j->y[t * j->ldy + row] = j->bias ? y + j->bias[row] : y;
    }
}

static void mm_f32_ref(const struct cpu_mm *j)
{
    float(*acc)[16] = (float(*)[16])j->scratch, *w = (float *)j->scratch + 16 * CPU_TILE;
    uint32_t block = dtype_block(j->dtype);
    for (uint32_t r = 0; r < j->rows; r++) {
        const unsigned char *row = j->w + r * j->row_bytes;
        memset(acc, 0, j->n * sizeof *acc);
        for (uint32_t k = 0; k < j->k; k += 256) {
            uint32_t m = MIN(j->k - k, 256);
            j->to_f32(row + (size_t)(k / block) * dtype_size(j->dtype), w, m);
            for (uint32_t t = 0; t < j->n; t++) {
                const float *x = (const float *)(j->x + t * j->ldx) + k;
                for (uint32_t i = 0; i < m; i++)
                    acc[t][i % 16] = __builtin_fmaf(x[i], w[i], acc[t][i % 16]);
            }
        }
        store_row(j, r, acc);
    }
}
CPU_KERNEL(DEV_REF, CPU_MM_F32, CPU_ANY, mm_f32_ref);

/* Returns the sum of (code of w) * (code of x) over `n` columns of a chunk from column `i` on.  It also sums the
 * codes of x. */
static int32_t dot(const struct cpu_wchunk *w, int zero, const struct cpu_xgroup *x, uint32_t at,
                   uint32_t i, uint32_t n, int32_t *xsum)
{
    int32_t sum = 0;
    *xsum = 0;
    for (uint32_t end = i + n; i < end; i++) {
        int q = x->q[cpu_x_place(at + i)];
        sum += (w->q[i] - zero) * q;
        *xsum += q;
    }
    return sum;
}

/* Returns the sum of one group of columns for one row and token. */
static float group_sum(const struct cpu_wchunk *w, const struct cpu_format *f,
                       const struct cpu_xgroup *x, uint32_t k)
{
    float s = 0;
    for (uint32_t i = 0; i < k; i += f->scaled) {
        const struct cpu_wchunk *c = w + i / 64;
        uint32_t lane = i % 64 / 4;
        int32_t xsum, sum = dot(c, f->zero, x, i / 64 * 64, i % 64, f->scaled, &xsum);
        s = __builtin_fmaf(c->d[lane], (float)sum, s);
        if (f->has_min) s = __builtin_fmaf(c->m[lane], (float)xsum, s);
    }
    return s;
}

void cpu_mm_q_ref(const struct cpu_mm *j)
{
    struct cpu_wchunk *w = (struct cpu_wchunk *)(void *)j->scratch;
    const struct cpu_format *f = &cpu_format[j->dtype];
    for (uint32_t r = 0; r < j->rows; r++)
        for (uint32_t k = 0; k < j->k; k += CPU_GROUP) {
            uint32_t m = MIN(j->k - k, CPU_GROUP);
            j->unpack(j->w + r * j->row_bytes, k, m, w);
            for (uint32_t t = 0; t < j->n; t++) {
                const struct cpu_xgroup *x =
                    (const struct cpu_xgroup *)(const void *)(j->x + t * j->ldx) + k / CPU_GROUP;
                float *y = j->y + t * j->ldy + r;
                float acc = __builtin_fmaf(x->d, group_sum(w, f, x, m), k ? *y : 0.0f);
                *y = j->bias && k + m == j->k ? acc + j->bias[r] : acc;
            }
        }
}
#define QUANTIZED(type) CPU_KERNEL(DEV_REF, CPU_MM_Q, DT_##type, cpu_mm_q_ref)
QUANTIZED(Q4_0);
QUANTIZED(Q4_1);
QUANTIZED(Q5_0);
QUANTIZED(Q5_1);
QUANTIZED(Q8_0);
QUANTIZED(Q2_K);
QUANTIZED(Q3_K);
QUANTIZED(Q4_K);
QUANTIZED(Q5_K);
QUANTIZED(Q6_K);
QUANTIZED(MXFP4);
