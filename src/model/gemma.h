/* gemma.h - what the Gemma families share: an RMS norm before and after both halves of a layer, weights of
 * norms stored as w - 1, embeddings times sqrt(hidden), a tanh-GELU MLP, scores and logits that may be capped. */
#pragma once
#include "model/block.h"

struct gemma { /* m->arch_weights */
    struct block_layer *layer;
    float embed_scale, scale, softcap;
};
/* Keys of config.json or GGUF, with the defaults of the first models of the family, which later configurations
 * leave out.  Scores are scaled by query_pre_attn_scalar; GGUF files do not say it: it is the head dimension, but
 * hidden / heads for the model of `odd_layers` layers.  A cap of 0 on entry: none if the key is absent. */
int gemma_read(struct model *m, uint32_t odd_layers, float attn_cap, float logit_cap);
/* Ends and layers, after the ropes are read and prepared. */
int gemma_bind(struct model *m);
/* Sliding layers rotate by rope[1], if there are two. */
int gemma_graph(const struct model *m, struct graph *g);
