/* prompts.h - the prompts of a call, as token ids. */
#pragma once
#include "generate/handle.h"

struct prompts {
    /* [n] owned; what the ids and masks of a copy, and the ids of a text, point to is owned too. */
    kvik_prompt *p;
    kvik_source *source; /* [n] the same, of prompts that have one */
    uint32_t n;
    bool copied;
};
/* Reads n prompts of a program and encodes those that are texts.  copy: the ids and masks of the others are copied, so
 * that the program can free them.  After an error prompts_end frees what there is. */
int prompts_begin(struct prompts *s, const kvik_cache *c, const kvik_prompt *given, uint32_t n,
                  bool copy);
void prompts_end(struct prompts *s);

/* Reads one input of an encoder in the same way; i is its place, for errors. */
int source_read(const kvik_cache *c, uint32_t i, const kvik_source *given, bool copy,
                kvik_source *out);
void source_done(const kvik_source *in, bool copied);
