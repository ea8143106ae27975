/* infill.h - prompts of a text that stands between two others. */
#pragma once
#include "serve/protocol.h"

/* Makes k->ids of a text before the gap, which may come in two parts, and one behind it; of files beside it, if extra is not
 * NULL: an array of {"filename", "text"}.  Returns 0, an error code, or ERR_UNSUPPORTED: the model has no tokens for that. */
int infill_prompt(struct ask *k, const struct server *s, const json_t *extra, const json_t *prefix,
                  const json_t *more, const json_t *suffix);
