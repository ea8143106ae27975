/* gather.c - copies rows and columns of activations from place to place without changing a bit.  These copies are
 * little work beside the products around them, so they stay on the caller's thread. */
#include "dev/cpu/cpu.h"

#include <string.h>

void cpu_cut(struct dev_queue *d, const struct dev_cut *a, uint32_t n)
{
    (void)d;
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < a->parts; i++)
            memcpy(a->out + t * a->ldo + i * a->width, a->x + t * a->ldx + i * a->stride,
                   a->width * sizeof *a->out);
}

void cpu_rows(struct dev_queue *d, const float *x, const uint32_t *id, uint32_t n, uint32_t dim,
              float *out)
{
    (void)d;
    for (size_t i = 0; i < n; i++) {
        const float *from = x + (size_t)id[i] * dim;
        if (from != out + i * dim) memcpy(out + i * dim, from, dim * sizeof *out);
    }
}

void cpu_unfold(struct dev_queue *d, const float *x, uint32_t n_x, uint32_t channels, uint32_t taps,
                uint32_t step, uint32_t n, float *out)
{
    (void)d;
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t c = 0; c < channels; c++)
            for (uint32_t j = 0; j < taps; j++) {
                uint32_t at = step * r + j; /* taps / 2 rows further than the row that is meant */
                bool inside = at >= taps / 2 && at - taps / 2 < n_x;
                *out++ = inside ? x[(size_t)(at - taps / 2) * channels + c] : 0;
            }
}
