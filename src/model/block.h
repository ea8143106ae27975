/* block.h - the two halves of a decoder layer in its usual form: attention with rotary positions, then a
 * gated MLP; and a whole stack of such layers.  An architecture whose layers have another form writes their words
 * itself. */
#pragma once
#include "model/model.h"

struct block_attn {
    struct mod_norm norm; /* of [hidden], before the projections; or NORM_NONE */
    struct dev_weight q, k, v, o;
    float *bq, *bk, *bv, *bo;       /* NULL: none */
    struct mod_norm q_norm, k_norm; /* before the rotation; or NORM_NONE */
    bool norm_whole; /* q_norm and k_norm: of all heads of a token together, else of each */
    struct mod_norm post_norm; /* of the result, before it is added; or NORM_NONE */
    float residual;            /* factor of the result, after post_norm; 0: none */
};
struct block_mlp {
    struct mod_norm norm; /* or NORM_NONE */
    struct dev_weight gate, up, down;
    float *bgate, *bup, *bdown;
    struct mod_norm post_norm; /* of the result, before it is added; or NORM_NONE */
    float residual;            /* factor of the result, after post_norm; 0: none */
    bool gelu;                 /* the gate's activation is GELU, else SiLU */
};
/* Bind one half of a layer under the names of Llama, which most families use, with RMS norms.  The site gives the
 * shapes of keys and values. */
int block_attn_bind(struct model *m, uint32_t layer, const struct kv_site *site,
                    struct block_attn *b);
int block_mlp_bind(struct model *m, uint32_t layer, uint32_t ffn, struct block_mlp *b);
int block_mlp_bind_projs(struct model *m, uint32_t layer, uint32_t ffn, struct block_mlp *b);
/* Binds the projections under `hf` ("model.layers.%u.mlp") and GGUF's blk.%u.ffn_<gate, up, down><suffix>. */
int block_mlp_bind_at(struct model *m, uint32_t layer, const char *hf, const char *suffix,
                      uint32_t ffn, struct block_mlp *b);

struct
    block_buffers { /* shared by all layers of a graph, as wide as the widest site of rows needs */
    float *norm, *q, *k, *v, *att, *gate, *up;
};
struct block_buffers block_buffers_new(struct graph *g, const struct model *m, uint32_t ffn);
struct block_form { /* how one layer attends */
    int rope;       /* number of the rope, -1: none */
    float scale, softcap;
    const float *sink_logit;
};
/* b->att = attention of x, which is normalized already, over a site; without the output projection. */
void block_attend(struct graph *g, uint32_t layer, uint32_t site, const struct block_attn *a,
                  const struct block_form *f, const struct block_buffers *b, const float *x);
/* h += residual * post_norm(attention(norm(h))), with mod_narrow after the attention.  Weights and site are
 * separate arguments, because layers that share weights have different sites. */
void block_attn_graph(struct graph *g, uint32_t layer, uint32_t site, const struct block_attn *a,
                      const struct block_form *f, const struct block_buffers *b);
/* h += residual * post_norm(down(act(gate(norm(h))) * up(norm(h)))) */
void block_mlp_graph(struct graph *g, const struct block_mlp *a, const struct block_buffers *b);

/* --- a whole decoder of such layers, which all use rope[0] */
struct block_layer { /* m->arch_weights[n_layers] */
    struct block_attn attn;
    struct block_mlp mlp;
    float score_scale; /* factor of the scores of attention; 0: 1 / sqrt(head_dim) */
};
/* Prepares the rope and binds both ends and all layers. */
int block_stack_bind(struct model *m);
/* Makes the biases of the projections agree with the configuration, as in Transformers: a missing bias is an
 * error, and a bias that the configuration excludes is dropped.  GGUF files have no key for it, so all biases that
 * are there count. */
int block_stack_biases(const struct model *m, struct block_layer *l, bool qkv, bool o);
/* Records the whole stack.  An architecture uses it as its `graph`. */
int block_stack_graph(const struct model *m, struct graph *g);
/* Sets the window of the layers from max_window_layers on to sliding_window, if use_sliding_window is true. */
int block_upper_window(struct model *m);
