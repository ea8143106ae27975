/* experts.c - a mixture of experts.  For each expert its tokens are gathered, multiplied, and added back, each to its own
 * row.  So a step reads the weights of the chosen experts only, and each of them once. */
#include "dev/cpu/cpu.h"

#include <string.h>

/* Chooses the experts of one token. */
static void choose(const float *score, uint32_t n, uint32_t top, uint32_t *chosen, float *weight)
{
    for (uint32_t k = 0; k < top; k++) {
        uint32_t best = n;
        for (uint32_t e = 0; e < n; e++) {
            bool taken = false;
            for (uint32_t j = 0; j < k && !taken; j++)
                taken = chosen[j] == e;
            if (!taken && (best == n || score[e] > score[best])) best = e;
        }
        chosen[k] = best;
        weight[k] = score[best];
    }
}

static void divide(float *w, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += w[i];
    for (uint32_t i = 0; i < n; i++)
        w[i] /= sum;
}

void cpu_choose(struct dev_queue *d, const float *score, uint32_t n, uint32_t n_experts,
                uint32_t top, bool share, uint32_t *chosen, float *weight)
{
    (void)d;
    for (size_t t = 0; t < n; t++) {
        choose(score + t * n_experts, n_experts, top, chosen + t * top, weight + t * top);
        if (share) divide(weight + t * top, top);
    }
}

/* Gathers the tokens that chose expert e into a->row, a->by and a->in; returns their number. */
static uint32_t gather(const struct dev_experts *a, uint32_t e, const float *x, uint32_t n)
{
    uint32_t k = 0;
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t j = 0; j < a->top; j++) {
            if (a->chosen[(size_t)t * a->top + j] != e) continue;
            a->row[k] = t;
            a->by[k] = a->weight[(size_t)t * a->top + j];
            memcpy(a->in + (size_t)k * a->hidden, x + (size_t)t * a->hidden, a->hidden * sizeof *x);
            k++;
        }
    return k;
}

void cpu_experts(struct dev_queue *d, enum dev_compute mode, const struct dev_experts *a,
                 const float *x, uint32_t n, float *out)
{
    memset(out, 0, (size_t)n * a->hidden * sizeof *out);
    for (uint32_t e = 0; e < a->n; e++) {
        uint32_t k = gather(a, e, x, n);
        if (k == 0) continue;
        dev_expert_mlp(d, mode, a, &a->expert[e], k);
        for (uint32_t i = 0; i < k; i++) {
            float *to = out + (size_t)a->row[i] * a->hidden;
            const float *y = a->y + (size_t)i * a->hidden;
            for (uint32_t c = 0; c < a->hidden; c++)
                to[c] += y[c];
        }
    }
}
