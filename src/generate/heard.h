/* heard.h - the sources of a run with an encoder-decoder model: the input of the encoder, and the tokens that
 * begin the decoder's text.  Models without an encoder have no sources; their prompts are the text. */
#pragma once
#include "generate/generate.h"
#include "model/model.h"

struct gen_source {
    kvik_prompt text;       /* the decoder's prompt: ids, n, seq and append */
    int32_t *ids;           /* owned: the ids of `text` */
    int32_t *kept;          /* owned: the encoder's ids without masked ones */
    bool given;             /* the prompt has an input for the encoder */
    struct exec_source in;  /* the input */
    const int32_t *columns; /* [n_columns] the encoder's ids as given, masked ones included */
    size_t n_columns;
};
/* Makes the sources of n prompts.  If the model has no encoder, *out is NULL, and prompts with an encoder's fields
 * are refused. */
int sources_begin(const struct exec *x, const kvik_generation *g, const kvik_prompt *prompt,
                  uint32_t n, struct gen_source **out);
/* Makes the source of one encoder input that has no text. */
int source_alone(const struct exec *x, const kvik_source *in, struct gen_source **out);
void sources_end(struct gen_source *s, uint32_t n); /* NULL: nothing */
