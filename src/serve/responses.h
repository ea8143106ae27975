/* responses.h - a request of OpenAI's responses, read as a chat. */
#pragma once
#include "serve/protocol.h"

/* Reads the body of a request into an ask, with the ids of its prompt.  Returns 1 without reading a prompt if there
 * is no input: clients probe a server with such requests. */
int responses_read(const struct server *s, const struct exchange *x, struct ask *k,
                   const json_t *body);
