/* moe.c - see moe.h.  The router's product is always exact, since a rounding there would change which experts run. */
#include "model/moe.h"

struct moe_buffers {
    uint32_t hidden;
    float *score;             /* [tokens][n] */
    float *weight;            /* [tokens][top] */
    uint32_t *chosen;         /* [tokens][top] */
    uint32_t *row;            /* [tokens] tokens of the expert at work */
    float *by;                /* [tokens] weights of these tokens for the expert */
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

/* Makes a buffer of ids. */
static uint32_t *ids(struct graph *g, size_t width)
{
    return (uint32_t *)(void *)graph_buffer(g, width);
}

struct moe_buffers *moe_buffers_new(struct graph *g, uint32_t hidden, uint32_t n, uint32_t top,
                                    uint32_t ffn)
{
    struct moe_buffers *b = graph_own(g, 1, sizeof *b);
    if (!b) return NULL;
    b->hidden = hidden;
    b->score = graph_buffer(g, n);
    b->weight = graph_buffer(g, top);
    b->chosen = ids(g, top);
    b->row = ids(g, 1);
    b->by = graph_buffer(g, 1);
    b->x = graph_buffer(g, hidden);
    b->gate = graph_buffer(g, ffn);
    b->up = graph_buffer(g, ffn);
    b->y = graph_buffer(g, hidden);
    return b;
}

struct mixture {
    enum moe_route route;
    struct dev_weight router;
    const float *router_bias;
    float *score, *weight;
    uint32_t *chosen;
    struct dev_experts at; /* as the device takes it */
    const float *x;
    float *out;
};

static void route(struct pass *p, const struct mixture *a)
{
    uint32_t n = a->at.n, top = a->at.top;
    struct dev_mm mm = {&a->router, a->router_bias, a->score, n};
    dev_matmul(p->queue, DEV_EXACT, a->x, a->at.hidden, p->n, &mm, 1);
    if (a->route == MOE_SOFTMAX_TOP || a->route == MOE_SOFTMAX_ALL)
        dev_softmax(p->queue, a->score, p->n, n);
    dev_choose(p->queue, a->score, p->n, n, top, a->route == MOE_SOFTMAX_TOP, a->chosen, a->weight);
    if (a->route == MOE_TOP_SOFTMAX) dev_softmax(p->queue, a->weight, p->n, top);
    if (a->route == MOE_SIGMOID_IN) dev_sigmoid(p->queue, a->weight, p->n, top);
}

static int moe_run(struct pass *p, const void *arg)
{
    const struct mixture *a = arg;
    route(p, a);
    dev_experts(p->queue, p->x->compute, &a->at, a->x, p->n, a->out);
    return 0;
}

void mod_moe(struct graph *g, const struct moe *moe, struct moe_buffers *b, const float *x,
             float *out)
{
    struct mixture *a = graph_own(g, 1, sizeof *a);
    struct dev_expert *expert = graph_own(g, moe->n, sizeof *expert);
    if (!a || !expert || !b) return;
    for (uint32_t i = 0; i < moe->n; i++) {
        const struct moe_expert *e = &moe->expert[i];
        size_t wide = moe->ffn * sizeof(float), row = b->hidden * sizeof(float);
        expert[i] =
            (struct dev_expert){graph_matrix(g, &e->gate),      graph_matrix(g, &e->up),
                                graph_matrix(g, &e->down),      graph_weights(g, e->bgate, wide),
                                graph_weights(g, e->bup, wide), graph_weights(g, e->bdown, row)};
    }
    *a = (struct mixture){.route = moe->route,
                          .router = graph_matrix(g, &moe->router),
                          .router_bias = graph_weights(g, moe->router_bias, moe->n * sizeof(float)),
                          .score = b->score,
                          .weight = b->weight,
                          .chosen = b->chosen,
                          .at = {.expert = expert,
                                 .n = moe->n,
                                 .top = moe->top,
                                 .hidden = b->hidden,
                                 .ffn = moe->ffn,
                                 .clamped = moe->clamped,
                                 .alpha = moe->alpha,
                                 .limit = moe->limit,
                                 .weigh_input = moe->route == MOE_SIGMOID_IN,
                                 .chosen = b->chosen,
                                 .weight = b->weight,
                                 .room = graph_step_tokens(g),
                                 .in = b->x,
                                 .gate = b->gate,
                                 .up = b->up,
                                 .y = b->y,
                                 .by = b->by,
                                 .row = b->row},
                          .x = x,
                          .out = out};
    graph_needs(g, b->hidden, MAX(moe->n, moe->ffn));
    graph_needs(g, moe->ffn, b->hidden);
    graph_op(g, moe_run, a);
}
