/* cuda_product.c - products, embeddings and mixtures of experts. */
#include "dev/cuda/cuda.h"

#include <assert.h>

static bool quantized(enum dtype t)
{
    return dtype_block(t) > 1;
}

static struct k_weight weight_of(const struct dev_weight *w)
{
    size_t bytes = 0;
    (void)dtype_bytes(w->dtype, w->cols, &bytes);
    return (struct k_weight){w->data, bytes, (uint32_t)w->dtype};
}

void cuda_embed(struct dev_queue *d, const struct dev_weight *w, const int32_t *id, uint32_t n,
                float *out)
{
    size_t all = (size_t)n * w->cols;
    LAUNCH(d, k_embed, cuda_blocks(all), 1, weight_of(w), id, out, w->cols, all);
}

/* A product with a weight of bf16, whose inputs are rounded. */
static void rounded(struct dev_queue *d, const float *x, size_t ldx, uint32_t n,
                    const struct dev_mm *mm, float *y)
{
    const struct dev_weight *w = mm->w;
    struct k_tensor_args a = {weight_of(w), x, mm->bias, y, ldx, mm->ldy, w->rows, w->cols, n};
    if (d->no_tensor)
        LAUNCH(d, k_product, (w->rows + K_ROWS - 1) / K_ROWS, (n + K_TOKENS - 1) / K_TOKENS, a.w, x,
               a.bias, y, ldx, a.ldy, a.rows, a.k, n, true);
    else if (n <= K_FEW)
        LAUNCH(d, k_tensor, (w->rows + 15) / 16, 1, a.w, x, a.bias, y, ldx, a.ldy, a.rows, a.k, n);
    else
        LAUNCH(d, k_tensor_wide, (w->rows + 127) / 128, (n + K_MANY - 1) / K_MANY, a);
}

/* A product with a quantized weight and inputs as codes; the bits are the same on tensor cores. */
static void coded(struct dev_queue *d, uint32_t n, const struct dev_mm *mm, float *y)
{
    const struct dev_weight *w = mm->w;
    uint32_t groups = (w->cols + K_GROUP - 1) / K_GROUP;
    struct k_product_q_args a = {weight_of(w), d->group, mm->bias, y,     mm->ldy,
                                 w->rows,      w->cols,  n,        groups};
    if (d->no_tensor)
        LAUNCH(d, k_product_q, (w->rows + K_ROWS - 1) / K_ROWS, (n + K_TOKENS - 1) / K_TOKENS, a.w,
               a.x, a.bias, y, a.ldy, a.rows, a.k, n, groups);
    else if (n <= K_FEW)
        LAUNCH(d, k_tensor_q, (w->rows + 15) / 16, 1, a);
    else
        LAUNCH(d, k_tensor_q_wide, (w->rows + 127) / 128, (n + K_MANY - 1) / K_MANY, a);
}

/* Tokens are few enough for the room of their codes. */
static void some(struct dev_queue *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n,
                 const struct dev_mm *mm, uint32_t n_mm, uint32_t t0)
{
    uint32_t k = mm[0].w->cols, groups = (k + K_GROUP - 1) / K_GROUP;
    bool have = false;
    for (uint32_t i = 0; i < n_mm; i++) {
        const struct dev_weight *w = mm[i].w;
        float *y = mm[i].y + t0 * mm[i].ldy;
        if (mode == DEV_FAST && quantized(w->dtype)) {
            if (!have) LAUNCH(d, k_quantize, groups, n, x, ldx, d->group, k, groups);
            have = true;
            coded(d, n, &mm[i], y);
        } else if (mode == DEV_FAST && w->dtype == DT_BF16) {
            rounded(d, x, ldx, n, &mm[i], y);
        } else {
            LAUNCH(d, k_product, (w->rows + K_ROWS - 1) / K_ROWS, (n + K_TOKENS - 1) / K_TOKENS,
                   weight_of(w), x, mm[i].bias, y, ldx, mm[i].ldy, w->rows, k, n, false);
        }
    }
}

void cuda_matmul(struct dev_queue *d, enum dev_compute mode, const float *x, size_t ldx, uint32_t n,
                 const struct dev_mm *mm, uint32_t n_mm)
{
    if (!n || !n_mm) return;
    assert(mm[0].w->cols <= d->lim.k);
    /* a grid has as many rows of blocks */
    for (uint32_t t = 0, step = MIN(MAX(d->lim.tokens, 1), 65535); t < n; t += step)
        some(d, mode, x + t * ldx, ldx, MIN(n - t, step), mm, n_mm, t);
}

void cuda_choose(struct dev_queue *d, const float *score, uint32_t n, uint32_t n_experts,
                 uint32_t top, bool share, uint32_t *chosen, float *weight)
{
    LAUNCH(d, k_choose, cuda_blocks(n), 1, score, chosen, weight, n, n_experts, top, share);
}

/* The host must know which experts were chosen before it can launch their products: a layer of experts waits once. */
void cuda_experts(struct dev_queue *d, enum dev_compute mode, const struct dev_experts *a,
                  const float *x, uint32_t n, float *out)
{
    size_t all = (size_t)n * a->top;
    uint32_t *chosen = mem_array(2 * all, sizeof *chosen), *row = chosen ? chosen + all : NULL;
    float *weight = mem_array(2 * all, sizeof *weight), *by = weight ? weight + all : NULL;
    if (!chosen || !weight) {
        cuda_failed(d, ERR_NOMEM);
        n = 0;
    } else {
        cuda_get(d, chosen, a->chosen, all * sizeof *chosen);
        cuda_get(d, weight, a->weight, all * sizeof *weight);
    }
    if (n) cuda_fill(d, out, 0, (size_t)n * a->hidden * sizeof *out);
    for (uint32_t e = 0; e < a->n && n && !d->failed; e++) {
        uint32_t k = 0;
        for (size_t i = 0; i < all; i++) {
            if (chosen[i] != e) continue;
            row[k] = (uint32_t)(i / a->top);
            by[k++] = weight[i];
        }
        if (!k) continue;
        cuda_put(d, a->row, row, k * sizeof *row);
        cuda_put(d, a->by, by, k * sizeof *by);
        dev_rows(d, x, a->row, k, a->hidden, a->in);
        dev_expert_mlp(d, mode, a, &a->expert[e], k);
        LAUNCH(d, k_add_rows, cuda_blocks((size_t)k * a->hidden), 1, a->y, out, a->row, a->hidden,
               (size_t)k * a->hidden);
    }
    mem_free(chosen);
    mem_free(weight);
}
