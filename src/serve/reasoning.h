/* reasoning.h - whether a prompt lets the model reason. */
#pragma once
#include "serve/server.h"

/* True if a prompt, of which this is the end, ends with the mark that opens a reasoning: the template has opened it for
 * the model. */
bool reasoning_opens(const struct server *s, const char *end, size_t n);
/* Where `enable_thinking` is false and the template opens a reasoning all the same, *out is the template with the mark that
 * closes it behind it (mem_free); else NULL.  Returns 0 or an error code. */
int reasoning_template(const struct server *s, const kvik_chat *chat, const json_t *kwargs,
                       char **out);
