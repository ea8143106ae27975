/* json_memory.h - jansson without memory: see json_memory.c. */
#pragma once
#include "base/json.h"

/* Does what json_loadb does, and fails with ERR_NOMEM if jansson lacked memory.  *out is NULL if the text is not JSON. */
int json_load_safely(const char *text, size_t n, size_t flags, json_t **out, json_error_t *error);
