/* reasoning.h - whether a prompt lets the model reason. */
#pragma once
#include "serve/server.h"

/* True if a prompt that ends with `end` ends with the mark that opens reasoning, which the template has written for
 * the model. */
bool reasoning_opens(const struct server *s, const char *end, size_t n);
/* If `enable_thinking` is false but the template opens reasoning in any case, *out is the template followed by the
 * mark that closes it (mem_free).  Else *out is NULL.  Returns 0 or an error code. */
int reasoning_template(const struct server *s, const kvik_chat *chat, const json_t *kwargs,
                       char **out);
