/* options.h - the table of options, for other files of this floor: where each value lies in kvik_generation, its
 * default, and the names of Transformers that are known but not implemented. */
#pragma once
#include "generate/generate.h"

enum option_kind {
    OPT_BOOL,
    OPT_UINT,
    OPT_SEED,
    OPT_INT,
    OPT_FLOAT,
    OPT_NAME,         /* one of the option's choices; owned, NULL: the default */
    OPT_CACHE,        /* cache_implementation */
    OPT_STRINGS,      /* one text or several */
    OPT_IDS,          /* one token id, or up to KVIK_MAX_EOS; the struct holds them */
    OPT_ID_LIST,      /* one token id or any number, owned */
    OPT_MASK,         /* mask for negative_prompt_ids */
    OPT_LISTS,        /* [[id, ...], ...], owned */
    OPT_BIASES,       /* [[[id, ...], number], ...], owned */
    OPT_DECAY,        /* [start, factor]; the field is decay_start */
    OPT_EARLY,        /* enum kvik_early */
    OPT_CACHE_CONFIG, /* keys of cache_config (model/preset.h) */
    OPT_OBJECT,       /* any JSON object */
    OPT_SCHEMA        /* a JSON schema, or the text "json_object" */
};
struct option_slot {
    enum option_kind kind;
    size_t offset; /* in kvik_generation */
    double value;  /* the default of a number or a truth value; 0 for kinds that own memory */
};
/* Returns the index for kvik_option_at, or -1.  '-' equals '_'. */
int option_find(const char *name);
/* Returns the default of an option that exists, as text. */
const char *option_default(const char *name);
const struct option_slot *option_slot_at(int i);

/* A name of Transformers that is accepted only at its neutral value. */
struct option_neutral {
    const char *name;
    /* The one JSON value that is accepted, besides null.  NULL: every value is accepted, because the option only
     * matters with features that are refused by their own names. */
    const char *value;
};
const struct option_neutral *option_neutral_find(const char *name);

/* Values of cache_implementation that Transformers has and kvik has not; NULL-terminated. */
extern const char *const option_cache_others[];
