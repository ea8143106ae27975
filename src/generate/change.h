/* change.h - one application of options onto a kvik_generation, as settings.c (scalars, the application itself)
 * and settings_owned.c (what the struct owns) share it. */
#pragma once
#include "generate/options.h"

/* What one application changes: `to` starts as a copy of the struct and shares what it owns until replaced. */
struct change {
    const char *what; /* the source, in errors */
    bool strict;
    const kvik_generation *from;
    kvik_generation to;
    json_t *unmet;      /* owned */
    const json_t *mask; /* of negative prompt ids given by this application; borrowed */
    bool negative;      /* they were given */
};

/* ERR(ARG): the option must be `must`, not v. */
int settings_bad(const struct change *c, const kvik_option *o, const json_t *v, const char *must);
#define SETTINGS_SHOWN 48 /* characters of a value quoted in an error */
const char *settings_show(const json_t *v, char out[SETTINGS_SHOWN]);

/* Puts an owned value (NULL: none) in the place of the one at `offset` of c->to, which is freed if it is of this
 * application; n: what it counts, for arrays. */
void settings_replace(struct change *c, size_t offset, void *value, uint32_t n);
/* Frees what `drop` owns and `keep` does not. */
void settings_drop_others(kvik_generation *drop, const kvik_generation *keep);

int settings_take_ids(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_id_list(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_lists(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_biases(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_strings(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_object(struct change *c, const kvik_option *o, const json_t *v, size_t offset);
int settings_take_mask(struct change *c, const kvik_option *o, const json_t *v);
/* After all keys: drops the ids under c->mask. */
int settings_apply_mask(struct change *c);
