/* formats.h - chat formats built in under their usual names, for models whose files have no template. */
#pragma once
#include "base/base.h"

struct tok;
struct chat_format {
    const char *name;
    const char *text; /* the template */
    const char *end;  /* the token that ends a turn; NULL: the model's end-of-sequence token */
};
const struct chat_format *format_at(uint32_t i);         /* NULL after the last */
const struct chat_format *format_find(const char *name); /* NULL: unknown */
/* Returns the format whose special tokens the vocabulary has, or NULL. */
const struct chat_format *format_guess(const struct tok *t);
