/* prompts.h - the prompts of a call, as token ids. */
#pragma once
#include "generate/handle.h"

struct prompts {
    /* [n] owned; what the ids and masks of a copy, and the ids of a text, point to is owned too. */
    kvik_prompt *p;
    uint32_t n;
    bool copied;
};
/* Reads n prompts of a program and encodes those that are texts.  copy: the ids and masks of the others are copied, so
 * that the program can free them.  After an error prompts_end frees what there is. */
int prompts_begin(struct prompts *s, const kvik_cache *c, const kvik_prompt *given, uint32_t n,
                  bool copy);
void prompts_end(struct prompts *s);
