/* prompts.h - the prompts of a call, as token ids. */
#pragma once
#include "generate/handle.h"

struct prompts {
    /* [n] owned, with the ids that a text became, and with the arrays of copies */
    kvik_prompt *p;
    /* [n] the encoder's inputs of those prompts that have one; owned in the same way */
    kvik_source *source;
    uint32_t n;
    bool copied;
};
/* Reads n prompts of a program and encodes those that are texts.  copy: also copies the ids and masks of the
 * others, so that the program can free them.  prompts_end frees everything, also after an error. */
int prompts_begin(struct prompts *s, const kvik_cache *c, const kvik_prompt *given, uint32_t n,
                  bool copy);
void prompts_end(struct prompts *s);

/* Makes the owner of a salt (kv.h) from a cache_salt.  NULL and "" mean no owner. */
void gen_owner(const char *cache_salt, uint8_t out[KV_DIGEST]);

/* Reads one input of an encoder in the same way.  i: its number, for errors. */
int source_read(const kvik_cache *c, uint32_t i, const kvik_source *given, bool copy,
                kvik_source *out);
void source_done(const kvik_source *in, bool copied);
