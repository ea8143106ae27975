/* cuda_values.c - operations on activations: a launch each. */
#include "dev/cuda/cuda.h"

void cuda_norm(struct dev_queue *d, enum dev_norm kind, const float *x, const float *w,
               const float *b, float eps, uint32_t n, uint32_t dim, float *out)
{
    LAUNCH(d, k_norm, n, 1, x, w, b, out, eps, (uint32_t)kind, dim);
}

void cuda_map(struct dev_queue *d, enum dev_map kind, float *x, const float *y, bool shared,
              float p, float q, uint32_t n, uint32_t dim)
{
    size_t all = (size_t)n * dim;
    LAUNCH(d, k_map, cuda_blocks(all), 1, x, y, (uint32_t)kind, dim, shared, p, q, all);
}

void cuda_scale_rows(struct dev_queue *d, float *x, const float *by, uint32_t n, uint32_t dim)
{
    size_t all = (size_t)n * dim;
    LAUNCH(d, k_scale_rows, cuda_blocks(all), 1, x, by, dim, all);
}

void cuda_rope(struct dev_queue *d, float *x, size_t ldx, uint32_t n, uint32_t heads, uint32_t dim,
               uint32_t rot, bool interleaved, const float *cos, const float *sin)
{
    size_t all = (size_t)n * heads * (rot / 2);
    LAUNCH(d, k_rope, cuda_blocks(all), 1, x, ldx, cos, sin, heads, dim, rot / 2, interleaved, all);
}

void cuda_cut(struct dev_queue *d, const struct dev_cut *a, uint32_t n)
{
    size_t all = (size_t)n * a->parts * a->width;
    LAUNCH(d, k_cut, cuda_blocks(all), 1, a->x, a->out, a->ldx, a->ldo, all, a->stride, a->width,
           a->parts);
}

void cuda_rows(struct dev_queue *d, const float *x, const uint32_t *id, uint32_t n, uint32_t dim,
               float *out)
{
    LAUNCH(d, k_rows, cuda_blocks(dim), 1, x, out, id, n, dim);
}

void cuda_unfold(struct dev_queue *d, const float *x, uint32_t n_x, uint32_t channels,
                 uint32_t taps, uint32_t step, uint32_t n, float *out)
{
    size_t all = (size_t)n * channels * taps;
    LAUNCH(d, k_unfold, cuda_blocks(all), 1, x, out, n_x, channels, taps, step, all);
}
