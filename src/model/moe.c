/* moe.c - see moe.h.  For each expert, its tokens are gathered, multiplied, and added back, each to its own row.  The
 * router's product is always exact, since a rounding there would change which experts run. */
#include "model/moe.h"

#include <string.h>

struct moe_buffers {
    uint32_t hidden;
    float *score;             /* [tokens][n] */
    float *weight;            /* [tokens][top] */
    uint32_t *chosen;         /* [tokens][top] */
    uint32_t *row;            /* [tokens] tokens of the expert at work */
    float *by;                /* [tokens] their weights */
    float *x, *gate, *up, *y; /* [tokens] gathered rows */
};

int moe_read_counts(struct model *m, uint32_t *n, uint32_t *top)
{
    const char *hf = "num_local_experts";
    if (!model_is_gguf(m) && json_object_get(m->config, "num_experts")) hf = "num_experts";
    TRY(model_need_u32(m, hf, "expert_count", 1, MOE_MAX_EXPERTS, n));
    return model_need_u32(m, "num_experts_per_tok", "expert_used_count", 1, *n, top);
}

int moe_new(struct model *m, uint32_t n, uint32_t top, uint32_t ffn, struct moe *moe)
{
    *moe = (struct moe){.n = n, .top = top, .ffn = ffn};
    moe->expert = model_own(m, n, sizeof *moe->expert);
    return moe->expert ? 0 : ERR_NOMEM;
}

struct moe_buffers *moe_buffers_new(struct graph *g, uint32_t hidden, uint32_t n, uint32_t top,
                                    uint32_t ffn)
{
    struct moe_buffers *b = graph_own(g, 1, sizeof *b);
    size_t tokens = graph_step_tokens(g);
    if (!b) return NULL;
    b->hidden = hidden;
    b->score = graph_buffer(g, n);
    b->weight = graph_buffer(g, top);
    b->chosen = graph_own(g, tokens * top, sizeof *b->chosen);
    b->row = graph_own(g, tokens, sizeof *b->row);
    b->by = graph_own(g, tokens, sizeof *b->by);
    b->x = graph_buffer(g, hidden);
    b->gate = graph_buffer(g, ffn);
    b->up = graph_buffer(g, ffn);
    b->y = graph_buffer(g, hidden);
    return b;
}

struct mixture {
    const struct moe *moe;
    struct moe_buffers *b;
    const float *x;
    float *out;
};

/* Chooses the `top` largest of score[n], largest first; equal scores: the lowest index first.  NaN is never preferred. */
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

static void renormalize(float *w, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += w[i];
    for (uint32_t i = 0; i < n; i++)
        w[i] /= sum;
}

static void route(struct pass *p, const struct mixture *a)
{
    const struct moe *moe = a->moe;
    struct moe_buffers *b = a->b;
    struct dev_mm mm = {&moe->router, moe->router_bias, b->score, moe->n};
    dev_matmul(p->dev, DEV_EXACT, a->x, b->hidden, p->n, &mm, 1);
    if (moe->route == MOE_SOFTMAX_TOP || moe->route == MOE_SOFTMAX_ALL)
        dev_softmax(p->dev, b->score, p->n, moe->n);
    for (uint32_t t = 0; t < p->n; t++) {
        size_t at = (size_t)t * moe->top;
        choose(b->score + (size_t)t * moe->n, moe->n, moe->top, b->chosen + at, b->weight + at);
        if (moe->route == MOE_SOFTMAX_TOP) renormalize(b->weight + at, moe->top);
    }
    if (moe->route == MOE_TOP_SOFTMAX) dev_softmax(p->dev, b->weight, p->n, moe->top);
    if (moe->route == MOE_SIGMOID_IN) dev_sigmoid(p->dev, b->weight, p->n, moe->top);
}

/* Gathers the tokens that chose expert e into b->row, b->by and b->x; returns their number. */
static uint32_t gather(const struct pass *p, const struct mixture *a, uint32_t e)
{
    struct moe_buffers *b = a->b;
    uint32_t k = 0, top = a->moe->top;
    for (uint32_t t = 0; t < p->n; t++)
        for (uint32_t j = 0; j < top; j++) {
            if (b->chosen[(size_t)t * top + j] != e) continue;
            b->row[k] = t;
            b->by[k] = b->weight[(size_t)t * top + j];
            memcpy(b->x + (size_t)k * b->hidden, a->x + (size_t)t * b->hidden,
                   b->hidden * sizeof *b->x);
            k++;
        }
    return k;
}

/* Computes b->y, the expert's MLP of the n rows of b->x. */
static void expert(struct pass *p, const struct mixture *a, const struct moe_expert *e, uint32_t n)
{
    const struct moe *moe = a->moe;
    const struct moe_buffers *b = a->b;
    enum dev_compute mode = p->x->compute;
    struct dev_mm in[] = {{&e->gate, e->bgate, b->gate, moe->ffn},
                          {&e->up, e->bup, b->up, moe->ffn}};
    struct dev_mm down = {&e->down, e->bdown, b->y, b->hidden};
    if (moe->route == MOE_SIGMOID_IN) dev_scale_rows(p->dev, b->x, b->by, n, b->hidden);
    dev_matmul(p->dev, mode, b->x, b->hidden, n, in, 2);
    if (moe->clamped)
        dev_swiglu_clamped(p->dev, b->gate, b->up, moe->alpha, moe->limit, n, moe->ffn);
    else
        dev_silu_mul(p->dev, b->gate, b->up, n, moe->ffn);
    dev_matmul(p->dev, mode, b->gate, moe->ffn, n, &down, 1);
    if (moe->route != MOE_SIGMOID_IN) dev_scale_rows(p->dev, b->y, b->by, n, b->hidden);
}

static int moe_run(struct pass *p, const void *arg)
{
    const struct mixture *a = arg;
    const struct moe_buffers *b = a->b;
    route(p, a);
    memset(a->out, 0, (size_t)p->n * b->hidden * sizeof *a->out);
    for (uint32_t e = 0; e < a->moe->n; e++) {
        uint32_t n = gather(p, a, e);
        if (n == 0) continue;
        expert(p, a, &a->moe->expert[e], n);
        for (uint32_t i = 0; i < n; i++) {
            float *out = a->out + (size_t)b->row[i] * b->hidden;
            const float *y = b->y + (size_t)i * b->hidden;
            for (uint32_t c = 0; c < b->hidden; c++)
                out[c] += y[c];
        }
    }
    return 0;
}

void mod_moe(struct graph *g, const struct moe *moe, struct moe_buffers *b, const float *x,
             float *out)
{
    struct mixture *a = graph_own(g, 1, sizeof *a);
    if (!a || !b) return;
    *a = (struct mixture){moe, b, x, out};
    graph_needs(g, b->hidden, MAX(moe->n, moe->ffn));
    graph_needs(g, moe->ffn, b->hidden);
    graph_op(g, moe_run, a);
}
