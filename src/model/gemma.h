/* gemma.h - what the Gemma families share: an RMS norm before and after both halves of a layer, norm weights that are
 * stored as w - 1, embeddings times sqrt(hidden), an MLP with tanh-GELU, and optional caps of scores and logits. */
#pragma once
#include "model/block.h"

struct gemma { /* m->arch_weights */
    struct block_layer *layer;
    float scale, softcap;
};
/* Reads the keys of config.json or GGUF.  Absent keys have the defaults of the family's first models, because
 * later configurations leave them out.  Scores are scaled by query_pre_attn_scalar.  GGUF files lack this key; it
 * is then the head dimension, or hidden / heads for the model with `odd_layers` layers.  attn_cap and logit_cap
 * are the defaults of absent keys; 0: no cap. */
int gemma_read(struct model *m, uint32_t odd_layers, float attn_cap, float logit_cap);
/* Binds the ends and the layers.  The ropes must be read and prepared. */
int gemma_bind(struct model *m);
/* Records the stack.  Sliding layers use rope[1] if there are two ropes. */
int gemma_graph(const struct model *m, struct graph *g);
