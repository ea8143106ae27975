/* cuda_product.c - products and embeddings. */
#include "dev/cuda/cuda.h"

#include <assert.h>

struct k_weight cuda_weight(const struct dev_weight *w)
{
    size_t bytes = 0;
    (void)dtype_bytes(w->dtype, w->cols, &bytes);
    return (struct k_weight){w->data, bytes, (uint32_t)w->dtype};
}

void cuda_embed(struct dev_queue *d, const struct dev_weight *w, const int32_t *id, uint32_t n,
                float *out)
{
    size_t all = (size_t)n * w->cols;
    LAUNCH(d, k_embed, cuda_blocks(all), 1, cuda_weight(w), id, out, w->cols, all);
}

/* Computes a product with a weight of bf16, whose inputs are rounded to bf16. */
static void rounded(struct dev_queue *d, const float *x, size_t ldx, uint32_t n,
                    const struct dev_mm *mm, float *y)
{
    const struct dev_weight *w = mm->w;
    struct k_tensor_args a = {cuda_weight(w), x,       mm->bias, y, ldx,
                              mm->ldy,        w->rows, w->cols,  n, {0}};
    if (d->no_tensor)
        LAUNCH(d, k_product, (w->rows + K_ROWS - 1) / K_ROWS, (n + K_TOKENS - 1) / K_TOKENS, a.w, x,
               a.bias, y, ldx, a.ldy, a.rows, a.k, n, true, {0});
    else if (n <= K_FEW)
        LAUNCH(d, k_tensor, (w->rows + 15) / 16, 1, a.w, x, a.bias, y, ldx, a.ldy, a.rows, a.k, n,
               {0});
    else
        LAUNCH(d, k_tensor_wide, (w->rows + 127) / 128, (n + K_MANY - 1) / K_MANY, a);
}

/* Computes a product of a quantized weight and inputs that are codes.  Tensor cores give the same bits. */
static void coded(struct dev_queue *d, uint32_t n, const struct dev_mm *mm, float *y)
{
    const struct dev_weight *w = mm->w;
    uint32_t groups = (w->cols + K_GROUP - 1) / K_GROUP;
    struct k_product_q_args a = {cuda_weight(w), d->group, mm->bias, y,      mm->ldy,
                                 w->rows,        w->cols,  n,        groups, {0}};
    if (d->no_tensor)
        LAUNCH(d, k_product_q, (w->rows + K_ROWS - 1) / K_ROWS, (n + K_TOKENS - 1) / K_TOKENS, a.w,
               a.x, a.bias, y, a.ldy, a.rows, a.k, n, groups, {0});
    else if (n <= K_FEW)
        LAUNCH(d, k_tensor_q, (w->rows + 15) / 16, 1, a);
    else
        LAUNCH(d, k_tensor_q_wide, (w->rows + 127) / 128, (n + K_MANY - 1) / K_MANY, a);
}

void cuda_codes(struct dev_queue *d, enum dev_compute mode, const struct dev_weight *w,
                const float *x, size_t ldx, uint32_t n)
{
    uint32_t groups = (w->cols + K_GROUP - 1) / K_GROUP;
    if (mode == DEV_FAST && dtype_block(w->dtype) > 1)
        LAUNCH(d, k_quantize, groups, n, x, ldx, d->group, w->cols, groups);
}

/* Computes products for no more tokens than the room for codes can hold. */
static void some(struct dev_queue *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n,
                 const struct dev_mm *mm, uint32_t n_mm, uint32_t t0)
{
    uint32_t k = mm[0].w->cols;
    bool have = false;
    for (uint32_t i = 0; i < n_mm; i++) {
        const struct dev_weight *w = mm[i].w;
        float *y = mm[i].y + t0 * mm[i].ldy;
        if (mode == DEV_FAST && dtype_block(w->dtype) > 1) {
            if (!have) cuda_codes(d, mode, w, x, ldx, n);
            have = true;
            coded(d, n, &mm[i], y);
        } else if (mode == DEV_FAST && w->dtype == DT_BF16) {
            rounded(d, x, ldx, n, &mm[i], y);
        } else {
            LAUNCH(d, k_product, (w->rows + K_ROWS - 1) / K_ROWS, (n + K_TOKENS - 1) / K_TOKENS,
                   cuda_weight(w), x, mm[i].bias, y, ldx, mm[i].ldy, w->rows, k, n, false, {0});
        }
    }
}

void cuda_matmul(struct dev_queue *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n,
                 const struct dev_mm *mm, uint32_t n_mm)
{
    if (!n || !n_mm) return;
    assert(mm[0].w->cols <= d->lim.k);
    /* a grid has at most 65535 blocks in y, one for each token */
    for (uint32_t t = 0, step = MIN(MAX(d->lim.tokens, 1), 65535); t < n; t += step)
        some(d, mode, x + t * ldx, ldx, MIN(n - t, step), mm, n_mm, t);
}
