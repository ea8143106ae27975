/* seq2seq.h - encoder-decoder models: the two stacks of layers that BART, Whisper and T5 share.  An architecture
 * binds its embeddings and positions, writes the inputs of a stack into graph_h(), and calls these functions. */
#pragma once
#include "model/model.h"

struct s2s_attn {
    struct mod_norm norm;
    struct dev_weight q, k, v, o;
    float *bq, *bk, *bv, *bo; /* NULL: none */
};
struct s2s_mlp {
    struct mod_norm norm;
    struct dev_weight gate, up, down; /* gate: only if the stack is gated */
    float *bup, *bdown;               /* NULL: none */
};
struct s2s_layer {
    struct s2s_attn self, cross; /* cross: only in the decoder */
    struct s2s_mlp mlp;
};
enum s2s_act { S2S_RELU, S2S_GELU_TANH, S2S_GELU_ERF, S2S_SILU };
struct s2s_stack {
    const char *name; /* in keys and tensor names: "encoder" or "decoder" */
    uint32_t n_layers, heads, dim, ffn;
    float scale; /* of scores */
    enum s2s_act act;
    bool gated;                  /* the MLP has a gate */
    bool after;                  /* norms come after each half of a layer; else before it */
    const struct dev_bias *bias; /* of the attention in the stack; NULL: none */
    struct mod_norm last_norm;   /* norm after the last layer, unless norms come after the halves */
    struct s2s_layer *layer;     /* [n_layers] */
};

/* Declares the sites of a decoder whose sizes are known: for every layer a site of rows, then for every layer a
 * site of the frozen rows that its cross attention reads. */
int s2s_sites(struct model *m);
/* Reads the token that begins the decoder's text; -1 if the files do not name one. */
int s2s_start(struct model *m);
/* Reads the sizes of both stacks by the keys of BART and Whisper, into the stacks and into m, with the sites, the
 * start token and the factor of the embedding.  m->context may be set later. */
int s2s_config(struct model *m, struct s2s_stack *encoder, struct s2s_stack *decoder);
/* Binds all layers of a stack under BART's names.  cross: the layers have cross attention. */
int s2s_bind(struct model *m, struct s2s_stack *s, bool cross);

/* Records the layers of the encoder, and then the computation of the rows that every cross attention of the
 * decoder reads. */
void s2s_encode(const struct model *m, struct graph *g, const struct s2s_stack *encoder,
                const struct s2s_stack *decoder);
/* Records the layers of the decoder. */
void s2s_decode(const struct model *m, struct graph *g, const struct s2s_stack *decoder);
