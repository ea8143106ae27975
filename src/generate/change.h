/* change.h - applying options to a kvik_generation.  settings.c does it, and sets numbers; settings_owned.c sets
 * the memory that the struct owns. */
#pragma once
#include "generate/options.h"

/* One application of options.  `to` starts as a copy of the struct and shares its memory until a value is
 * replaced. */
struct generation_change {
    const char *what; /* the source, in errors */
    bool strict;
    const kvik_generation *from;
    kvik_generation to;
    json_t *unmet; /* owned */
    /* borrowed: negative_prompt_attention_mask, if this application has set it */
    const json_t *mask;
    bool negative; /* this application has set negative_prompt_ids */
};

/* Returns ERR_ARG: option o must be `must`, and v is not. */
int settings_bad(const struct generation_change *c, const kvik_option *o, const json_t *v,
                 const char *must);

/* Replaces the owned value at `offset` of c->to; value NULL: none.  n: number of elements of an array.  The old
 * value is freed if this application has made it. */
void settings_replace(struct generation_change *c, size_t offset, void *value, uint32_t n);
/* Frees the memory that `drop` owns and `keep` does not. */
void settings_drop_others(kvik_generation *drop, const kvik_generation *keep);

int settings_take_ids(struct generation_change *c, const kvik_option *o, const json_t *v,
                      size_t offset);
int settings_take_id_list(struct generation_change *c, const kvik_option *o, const json_t *v,
                          size_t offset);
int settings_take_lists(struct generation_change *c, const kvik_option *o, const json_t *v,
                        size_t offset);
int settings_take_biases(struct generation_change *c, const kvik_option *o, const json_t *v,
                         size_t offset);
int settings_take_strings(struct generation_change *c, const kvik_option *o, const json_t *v,
                          size_t offset);
int settings_take_object(struct generation_change *c, const kvik_option *o, const json_t *v,
                         size_t offset);
int settings_take_schema(struct generation_change *c, const kvik_option *o, const json_t *v,
                         size_t offset);
int settings_take_mask(struct generation_change *c, const kvik_option *o, const json_t *v);
/* Removes the negative prompt ids that c->mask hides.  Called after all keys. */
int settings_apply_mask(struct generation_change *c);
