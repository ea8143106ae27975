/* options.h - the option table as the rest of this floor sees it: where a value lives in kvik_generation, and
 * which names of the reference are known without being done here. */
#pragma once
#include "generate/generate.h"

enum option_kind {
    OPT_BOOL,
    OPT_UINT,
    OPT_SEED,
    OPT_INT,
    OPT_FLOAT,
    OPT_NAME,         /* one of the row's choices; owned, NULL: the default */
    OPT_CACHE,        /* cache_implementation */
    OPT_STRINGS,      /* one text or several */
    OPT_IDS,          /* one token or up to KVIK_MAX_EOS, in the struct */
    OPT_ID_LIST,      /* one token or any number, owned */
    OPT_MASK,         /* of negative_prompt_ids */
    OPT_LISTS,        /* [[id, ...], ...], owned */
    OPT_BIASES,       /* [[[id, ...], number], ...], owned */
    OPT_DECAY,        /* [start, factor]; the field is decay_start */
    OPT_EARLY,        /* enum kvik_early */
    OPT_CACHE_CONFIG, /* checked by kv */
    OPT_OBJECT        /* any JSON object */
};
struct option_slot {
    enum option_kind kind;
    size_t offset; /* in kvik_generation */
};
/* Index in kvik_options(), or -1.  '-' equals '_'. */
int option_find(const char *name);
const struct option_slot *option_slot_at(int i);

/* A reference name this version accepts only where it changes nothing. */
struct option_neutral {
    const char *name;
    const char
        *value; /* the one JSON value that works (null always does); NULL: any value, it has no
                          effect without features that are refused by their own names */
};
const struct option_neutral *option_neutral_find(const char *name);

/* Values the reference has for cache_implementation beyond the presets; NULL-terminated. */
extern const char *const option_cache_others[];
