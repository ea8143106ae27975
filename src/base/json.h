/* json.h - the one door to jansson: duplicate keys rejected, size and depth bounded, errors with a
 * line number.  Callers use json_t directly and release it with json_decref. */
#pragma once
#include "base/base.h"
#include <jansson.h>

/* `what` names the source in errors ("config.json").  Depth limit: jansson's 2048. */
int json_parse(const char *text, size_t n, const char *what, json_t **out);
int json_read(const char *path, size_t max, json_t **out);
/* The value as compact text (mem_free). */
int json_text(const json_t *j, char **out);
/* Typed getters: absent or null leaves *out alone and returns 0; present returns 1; a wrong type
 * or an out-of-range value is ERR_FORMAT naming `what` and the key. */
int json_get_u32(const json_t *o, const char *what, const char *key, uint32_t min, uint32_t max,
                 uint32_t *out);
int json_get_f64(const json_t *o, const char *what, const char *key, double *out);
int json_get_bool(const json_t *o, const char *what, const char *key, bool *out);
int json_get_str(const json_t *o, const char *what, const char *key, const char **out);
