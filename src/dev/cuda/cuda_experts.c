/* cuda_experts.c - mixtures of experts.
 *
 * A step of few tokens does not wait until the host knows which experts were chosen.  A slot is a token and one of
 * its choices, and the products of a slot find the weights of its expert in memory of the device (struct k_pick).
 * So a decode step stays one graph.  In a step of many tokens, slots would read each weight many times; there the
 * host gathers the tokens of each expert.  Both ways give the same bits: a product of a token does not depend on
 * other tokens, and results are added in ascending order of experts.  The addresses of a layer's weights go to the
 * device with the first step that meets the layer. */
#include "dev/cuda/cuda.h"

#include <string.h>

#define SLOTS 256u /* most slots of a step that does not wait for the host */

void cuda_choose(struct dev_queue *d, const float *score, uint32_t n, uint32_t n_experts,
                 uint32_t top, bool share, uint32_t *chosen, float *weight)
{
    LAUNCH(d, k_choose, cuda_blocks(n), 1, score, chosen, weight, n, n_experts, top, share);
}

/* Reads on the host which experts were chosen, and gathers the tokens of each.  Each weight is read once, but the
 * layer waits for the host. */
static void by_host(struct dev_queue *d, enum dev_compute mode, const struct dev_experts *a,
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

/* --- slots */
static struct k_expert address(const struct dev_expert *e)
{
    return (struct k_expert){{e->gate.data, e->up.data, e->down.data},
                             {e->bgate, e->bup, e->bdown}};
}

static bool same_form(const struct dev_weight *x, const struct dev_weight *y)
{
    return x->dtype == y->dtype && x->rows == y->rows && x->cols == y->cols;
}

/* True if all experts have weights of the same form.  Slots take the form of the first expert for that of all. */
static bool alike(const struct dev_experts *a)
{
    const struct dev_expert *e = a->expert;
    for (uint32_t i = 1; i < a->n; i++)
        if (!same_form(&e[i].gate, &e->gate) || !same_form(&e[i].up, &e->up) ||
            !same_form(&e[i].down, &e->down))
            return false;
    return true;
}

/* Returns the layer if it was met before and has the same weights, else NULL. */
static const struct cuda_layer *met(const struct dev_queue *d, const struct dev_experts *a)
{
    for (uint32_t i = 0; i < d->n_layers; i++) {
        const struct cuda_layer *l = &d->layer[i];
        uint32_t k = 0;
        for (; l->of == a->expert && l->n == a->n && k < a->n; k++) {
            struct k_expert e = address(&a->expert[k]);
            if (memcmp(&e, &l->here[k], sizeof e) != 0) break;
        }
        if (k == a->n) return l;
    }
    return NULL;
}

/* Writes the addresses of a layer's weights to the device and waits, because a remembered layer must have its
 * addresses there.  False after an error.  Experts of different forms need no addresses. */
static bool tell(struct dev_queue *d, const struct dev_experts *a, struct cuda_layer *l)
{
    if (!alike(a)) return true;
    l->there = cuda_alloc(d, a->n * sizeof *l->here);
    if (!l->there) return false;
    cuda_put(d, l->there, l->here, a->n * sizeof *l->here);
    cuda_wait(d);
    if (!d->failed) return true;
    cuda_mirror_close(d, l->there, 0);
    return false;
}

/* Returns where the device has the addresses of a layer's weights, or NULL: the experts differ in form, or there was
 * an error. */
static const struct k_expert *addresses(struct dev_queue *d, const struct dev_experts *a)
{
    const struct cuda_layer *l = met(d, a);
    if (l || d->failed) return l ? l->there : NULL;
    struct cuda_layer *all = mem_grow(d->layer, d->n_layers + 1u, sizeof *all), new = {0};
    if (!all) return NULL;
    d->layer = all;
    new = (struct cuda_layer){a->expert, a->n, mem_array(a->n, sizeof *new.here), NULL};
    if (!new.here) return NULL;
    for (uint32_t i = 0; i < a->n; i++)
        new.here[i] = address(&a->expert[i]);
    if (!tell(d, a, &new)) {
        mem_free(new.here);
        return NULL;
    }
    all[d->n_layers++] = new;
    return new.there;
}

/* Computes one of the three products of n slots.  The inputs of quantized weights were made codes before. */
static void slots(struct dev_queue *d, enum dev_compute mode, const struct dev_weight *w,
                  const struct k_pick *pick, const float *x, uint32_t n, float *y)
{
    struct k_weight of = cuda_weight(w);
    size_t few = (w->rows + 15) / 16;
    bool bf16 = mode == DEV_FAST && w->dtype == DT_BF16;
    struct k_product_q_args q = {
        of,   d->group, NULL, y, w->rows, w->rows, w->cols, n, (w->cols + K_GROUP - 1) / K_GROUP,
        *pick};
    CUDA_CLEAR(&q);
    if (mode == DEV_FAST && dtype_block(w->dtype) > 1 && d->no_tensor)
        cuda_launch(d, CUDA_k_product_q, few, n, &q, sizeof q);
    else if (mode == DEV_FAST && dtype_block(w->dtype) > 1)
        LAUNCH(d, k_tensor_q, few, n, q);
    else if (bf16 && !d->no_tensor)
        LAUNCH(d, k_tensor, few, n, of, x, NULL, y, w->cols, w->rows, w->rows, w->cols, n, *pick);
    else
        LAUNCH(d, k_product, few, n, of, x, NULL, y, w->cols, w->rows, w->rows, w->cols, n, bf16,
               *pick);
}

static void by_slots(struct dev_queue *d, enum dev_compute mode, const struct dev_experts *a,
                     const float *x, uint32_t n, float *out, const struct k_expert *at)
{
    const struct dev_expert *e = a->expert;
    uint32_t all = n * a->top, rows = a->weigh_input ? all : n;
    struct k_pick pick = {at, a->chosen, 0, a->weigh_input ? 1 : a->top};
    if (a->weigh_input) {
        LAUNCH(d, k_spread, cuda_blocks((size_t)all * a->hidden), 1, x, a->in, a->hidden, a->top,
               (size_t)all * a->hidden);
        dev_scale_rows(d, a->in, a->weight, all, a->hidden);
        x = a->in;
    }
    cuda_codes(d, mode, &e->gate, x, a->hidden, rows);
    slots(d, mode, &e->gate, &pick, x, all, a->gate);
    if (dtype_block(e->gate.dtype) == 1) cuda_codes(d, mode, &e->up, x, a->hidden, rows);
    pick.which = 1;
    slots(d, mode, &e->up, &pick, x, all, a->up);
    if (a->clamped)
        dev_swiglu_clamped(d, a->gate, a->up, a->alpha, a->limit, all, a->ffn);
    else
        dev_silu_mul(d, a->gate, a->up, all, a->ffn);
    cuda_codes(d, mode, &e->down, a->gate, a->ffn, all);
    pick.which = 2;
    pick.share = 1;
    slots(d, mode, &e->down, &pick, a->gate, all, a->y);
    if (!a->weigh_input) dev_scale_rows(d, a->y, a->weight, all, a->hidden);
    LAUNCH(d, k_sum_experts, cuda_blocks((size_t)n * a->hidden), 1, a->y, a->chosen, out, a->hidden,
           a->top, (size_t)n * a->hidden);
}

/* Each slot needs a row of the layer's scratch, so `room` limits them. */
void cuda_experts(struct dev_queue *d, enum dev_compute mode, const struct dev_experts *a,
                  const float *x, uint32_t n, float *out)
{
    size_t all = (size_t)n * a->top;
    const struct k_expert *at = addresses(d, a);
    if (at && all <= MIN(SLOTS, a->room))
        by_slots(d, mode, a, x, n, out, at);
    else
        by_host(d, mode, a, x, n, out);
}
