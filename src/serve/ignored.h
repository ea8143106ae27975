/* ignored.h - fields of other servers that have no effect here. */
#pragma once
#include "base/json.h"
#include "serve/serve.h"

/* Says in the log, once for each name, that a field of the request has no effect. */
void ignored_note(const struct serve_options *o, const json_t *body);
