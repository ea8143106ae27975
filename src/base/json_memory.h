/* json_memory.h - jansson without memory: see json_memory.c. */
#pragma once
#include "base/json.h"

/* Does what json_loadb does, and fails with ERR_NOMEM if jansson lacked memory.  *out is NULL if the text is not JSON. */
/* error: NULL, or what json_loadb writes there. */
int json_load_safely(const char *text, size_t n, size_t flags, json_t **out, json_error_t *error);
/* True if an allocation of jansson has failed in this thread since its outermost open scope was opened, or since
 * the last call of this function. */
bool json_lost_outside(void);
