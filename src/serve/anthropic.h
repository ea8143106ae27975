/* anthropic.h - a request of Anthropic's messages, read as a chat. */
#pragma once
#include "serve/protocol.h"

/* Reads the body of a request into an ask, with the ids of its prompt.  counts: the request only counts tokens, so
 * max_tokens may be missing. */
int anthropic_read(const struct server *s, const struct exchange *x, struct ask *k,
                   const json_t *body, bool counts);
