/* json.h - reads and writes JSON with jansson: duplicate keys are rejected, size and depth are bounded, errors name
 * a line number.  Callers use json_t directly and release it with json_decref. */
#pragma once
#include "base/base.h"
#include <jansson.h>

/* `what` names the source in errors ("config.json").  Depth limit: jansson's 2048. */
int json_parse(const char *text, size_t n, const char *what, json_t **out);
int json_read(const char *path, size_t max, json_t **out);
/* A function that builds values calls json_begin first.  Then json_lost is true if jansson has lacked memory in this
 * thread since, so that the values may be incomplete. */
void json_begin(void);
bool json_lost(void);
/* The value as compact text (mem_free).  Fails with ERR_NOMEM if json_lost. */
int json_text(const json_t *j, char **out);
/* Typed getters.  Return 1 if the key is present, 0 and leave *out alone if it is absent or null.  A wrong type
 * or a value out of range is ERR_FORMAT; the sentence names `what` and the key. */
int json_get_u32(const json_t *o, const char *what, const char *key, uint32_t min, uint32_t max,
                 uint32_t *out);
int json_get_f64(const json_t *o, const char *what, const char *key, double *out);
int json_get_bool(const json_t *o, const char *what, const char *key, bool *out);
int json_get_str(const json_t *o, const char *what, const char *key, const char **out);
