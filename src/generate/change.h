/* change.h - one application of options to a kvik_generation, shared by settings.c (numbers, and the application itself)
 * and settings_owned.c (memory that the struct owns). */
#pragma once
#include "generate/options.h"

/* One application.  `to` starts as a copy of the struct and shares its memory until a value is replaced. */
struct change {
    const char *what; /* the source, in errors */
    bool strict;
    const kvik_generation *from;
    kvik_generation to;
    json_t *unmet;      /* owned */
    const json_t *mask; /* negative_prompt_attention_mask, if this application gave it; borrowed */
    bool negative;      /* this application gave negative_prompt_ids */
};

/* Returns ERR_ARG: the option must be `must`, not v. */
int settings_bad(const struct change *c, const kvik_option *o, const json_t *v, const char *must);

/* Replaces the owned value at `offset` of c->to (NULL: none); n: the count of an array.  The old value is freed if this
 * application made it. */
void settings_replace(struct change *c, size_t offset, void *value, uint32_t n);
/* Frees the memory that `drop` owns and `keep` does not. */
void settings_drop_others(kvik_generation *drop, const kvik_generation *keep);

int settings_take_ids(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_id_list(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_lists(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_biases(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_strings(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_object(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_schema(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_mask(struct change *c, const kvik_option *o, const json_t *v);
/* After all keys: removes the negative prompt ids that c->mask hides. */
int settings_apply_mask(struct change *c);
