/* moe.h - a mixture of experts: a router picks a few of many gated MLPs for each token, and their results are summed with
 * weights.  A token's result depends on the token alone (dev.h, canonical order): results are added in ascending order
 * of the experts, each product rounded first.  A step reads the weights of the chosen experts only. */
#pragma once
#include "model/model.h"

enum moe_route {
    MOE_SOFTMAX_TOP, /* softmax over all experts, then the chosen weights are divided by their sum */
    MOE_SOFTMAX_ALL, /* softmax over all experts; the chosen weights stay as they are */
    MOE_TOP_SOFTMAX, /* softmax over the chosen experts */
    MOE_SIGMOID_IN,  /* the sigmoid of a chosen expert's logit multiplies the expert's input */
};
struct moe_expert {
    struct dev_weight gate, up, down;
    float *bgate, *bup, *bdown; /* NULL: none */
};
struct moe { /* the experts of one layer */
    enum moe_route route;
    bool clamped;       /* the gate is dev_swiglu_clamped(alpha, limit), else silu */
    float alpha, limit; /* of the clamped gate */
    uint32_t n, top, ffn;
    struct dev_weight router;  /* [n][hidden] */
    float *router_bias;        /* [n] or NULL */
    struct moe_expert *expert; /* [n] */
};
#define MOE_MAX_EXPERTS 4096u

/* Reads the number of experts and the number that each token gets. */
int moe_read_counts(struct model *m, uint32_t *n, uint32_t *top);
/* Initializes *moe.  The model owns expert[], which is zeroed. */
int moe_new(struct model *m, uint32_t n, uint32_t top, uint32_t ffn, struct moe *moe);

/* Names of the experts of a layer.  Files have a tensor for each expert and matrix, <single>.<e>.<gate, up,
 * down>.weight; or stacked tensors, <stacked>.gate_up_proj and down_proj; or GGUF's ffn_gate_exps, ffn_up_exps and
 * ffn_down_exps. */
struct moe_names {
    const char *single, *gate, *up, *down, *stacked;
};
int moe_bind(struct model *m, uint32_t layer, const struct moe_names *n, struct moe *moe);

struct moe_buffers; /* shared by all layers of a graph */
struct moe_buffers *moe_buffers_new(struct graph *g, uint32_t hidden, uint32_t n, uint32_t top,
                                    uint32_t ffn);
/* out = weighted sum of the chosen experts of x; out must not be x, and `moe` must outlive the graph. */
void mod_moe(struct graph *g, const struct moe *moe, struct moe_buffers *b, const float *x,
             float *out);
