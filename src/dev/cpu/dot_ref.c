/* dot_ref.c - the canonical order of dev.h in plain C: what every faster kernel must equal bit for bit.
 * Weights are decoded 256 values at a time for all tokens of the job; the 16 lanes of a (token, row)
 * wait in the thread's scratch meanwhile. */
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

static void add_chunk(const struct cpu_wchunk *w, const struct cpu_xchunk *x,
                      const struct cpu_format *f, uint32_t lanes, float *acc)
{
    for (uint32_t l = 0; l < lanes; l++) {
        int isum = 0;
        for (uint32_t i = 4 * l; i < 4 * l + 4; i++)
            isum += (w->q[i] - f->zero) * x->q[i];
        acc[l] = __builtin_fmaf(w->d[l] * x->d[l], (float)isum, acc[l]);
        if (f->has_min) acc[l] = __builtin_fmaf(w->m[l], x->s[l], acc[l]);
    }
}

static void mm_q8_ref(const struct cpu_mm *j)
{
    float(*acc)[16] = (float(*)[16])j->scratch;
    struct cpu_wchunk *w = (struct cpu_wchunk *)(j->scratch + CPU_TILE * sizeof *acc);
    const struct cpu_format *f = &cpu_format[j->dtype];
    for (uint32_t r = 0; r < j->rows; r++) {
        memset(acc, 0, j->n * sizeof *acc);
        for (uint32_t k = 0; k < j->k; k += 256) {
            uint32_t m = MIN(j->k - k, 256);
            j->unpack(j->w + r * j->row_bytes, k, m, w);
            for (uint32_t t = 0; t < j->n; t++) {
                const struct cpu_xchunk *x =
                    (const struct cpu_xchunk *)(j->x + t * j->ldx) + k / 64;
                for (uint32_t i = 0; i < m; i += 64)
                    add_chunk(w + i / 64, x + i / 64, f, MIN((m - i) / 4, 16), acc[t]);
            }
        }
        store_row(j, r, acc);
    }
}
CPU_KERNEL(DEV_REF, CPU_MM_Q8, CPU_ANY, mm_q8_ref);
