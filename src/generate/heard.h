/* heard.h - what the encoder of an encoder-decoder model is given in a run, and the tokens that begin the decoder's
 * text.  Models without an encoder have no sources: their prompts are the text. */
#pragma once
#include "generate/generate.h"
#include "model/model.h"

struct gen_source {
    kvik_prompt text;       /* the decoder's prompt: ids, n, seq and append */
    int32_t *ids;           /* owned: the ids of `text` */
    int32_t *kept;          /* owned: the encoder's ids without masked ones */
    bool given;             /* there is an input */
    struct exec_source in;  /* it */
    const int32_t *columns; /* [n_columns] the encoder's ids as given, masked ones included */
    size_t n_columns;
};
/* Makes the sources of n prompts, or *out NULL if the model has no encoder; fields of an encoder are then refused. */
int sources_begin(const struct exec *x, const kvik_generation *g, const kvik_prompt *prompt,
                  uint32_t n, struct gen_source **out);
/* Makes the source of one encoder input, without a text. */
int source_alone(const struct exec *x, const kvik_source *in, struct gen_source **out);
void sources_end(struct gen_source *s, uint32_t n); /* NULL: nothing */
