/* moe.h - a mixture of experts: a router picks for each token a few of many gated MLPs, whose results are summed
 * with weights.  What a token gets depends on nothing but the token (rule 8): its experts see it in their own
 * product, and their results are added in ascending order of the experts, each product rounded first.
 * A step reads the weights of the chosen experts only. */
#pragma once
#include "model/model.h"

enum moe_route {
    MOE_SOFTMAX_TOP, /* probabilities over all experts, those of the chosen ones made to sum to 1 */
    MOE_TOP_SOFTMAX, /* probabilities over the chosen ones */
    MOE_SIGMOID_IN,  /* the sigmoid of a chosen one's logit multiplies what the expert is given */
};
struct moe_expert {
    struct dev_weight gate, up, down;
    float *bgate, *bup, *bdown; /* NULL: none */
};
struct moe { /* of one layer */
    enum moe_route route;
    bool clamped;       /* the gate is dev_swiglu_clamped(alpha, limit), else silu */
    float alpha, limit; /* of it */
    uint32_t n, top, ffn;
    struct dev_weight router;  /* [n][hidden] */
    float *router_bias;        /* [n] or NULL */
    struct moe_expert *expert; /* [n] */
};
#define MOE_MAX_EXPERTS 4096u

/* How many experts there are, and how many each token gets. */
int moe_read_counts(struct model *m, uint32_t *n, uint32_t *top);
/* Owned by the model; expert[] zeroed. */
int moe_new(struct model *m, uint32_t n, uint32_t top, uint32_t ffn, struct moe *moe);

struct moe_buffers; /* shared by all layers of a graph */
struct moe_buffers *moe_buffers_new(struct graph *g, uint32_t hidden, uint32_t n, uint32_t top,
                                    uint32_t ffn);
/* out = sum of the chosen experts of x; out is not x.  `moe` outlives the graph. */
void mod_moe(struct graph *g, const struct moe *moe, struct moe_buffers *b, const float *x,
             float *out);
