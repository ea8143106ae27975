/* token_text.h - the bytes of one token, as it stands inside a text. */
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "kvik.h"

/* Appends the bytes of a token.  Spaces are kept, also at the front.  The bytes may be a part of a character.
 * Returns 0 or an error code. */
int token_text(const kvik_tokenizer *t, int32_t id, struct buf *out);
/* Returns the bytes as an array of numbers. */
json_t *token_bytes(const struct buf *b);
/* Returns the bytes as a string; U+FFFD stands for each byte that is not part of a whole character. */
json_t *token_string(const struct buf *b);
