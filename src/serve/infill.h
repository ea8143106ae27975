/* infill.h - prompts of a text that stands between two others. */
#pragma once
#include "serve/protocol.h"

/* Makes k->ids: a text before the gap, in one or two parts, and a text behind the gap.  extra: NULL, or an array of
 * further files, {"filename", "text"}.  Returns 0 or an error code; ERR_UNSUPPORTED: the model has no tokens for
 * infilling. */
int infill_prompt(struct ask *k, const struct server *s, const json_t *extra, const json_t *prefix,
                  const json_t *more, const json_t *suffix);
