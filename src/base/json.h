/* json.h - reads and writes JSON with jansson: duplicate keys are rejected, size and depth are bounded, errors name
 * a line number.  Callers use json_t directly and release it with json_decref. */
#pragma once
#include "base/base.h"
#include <jansson.h>

/* `what` names the source in errors ("config.json").  Depth limit: jansson's 2048. */
int json_parse(const char *text, size_t n, const char *what, json_t **out);
int json_read(const char *path, size_t max, json_t **out);
/* A function that builds values opens a scope, which the end of its block closes.  jansson does not always say that it has
 * lacked memory; json_whole does.  Scopes nest, and a scope knows nothing of what was before it. */
struct json_scope {
    uint64_t before;
};
#define JSON_SCOPE(s)                                                                              \
    struct json_scope s __attribute__((cleanup(json_scope_close)));                                \
    json_scope_open(&s)
void json_scope_open(struct json_scope *s);
void json_scope_close(struct json_scope *s);
/* Returns ERR_NOMEM if jansson has lacked memory in this thread since the scope was opened, so that values may be
 * incomplete; else 0. */
int json_whole(const struct json_scope *s);
/* The value as compact text (mem_free).  Fails with ERR_NOMEM also if jansson has lacked memory since the outermost open
 * scope of this thread was opened, or since json_text said so. */
int json_text(const json_t *j, char **out);
/* Writes a short text of a value for an error: numbers and short strings as they stand, else their type and size. */
#define JSON_FOUND 64
const char *json_found(const json_t *v, char out[JSON_FOUND]);
/* Typed getters.  Return 1 if the key is present, 0 and leave *out alone if it is absent or null.  A wrong type
 * or a value out of range is ERR_FORMAT; the sentence names `what`, the key, what is expected and what was found. */
int json_get_u32(const json_t *o, const char *what, const char *key, uint32_t min, uint32_t max,
                 uint32_t *out);
int json_get_f64(const json_t *o, const char *what, const char *key, double *out);
int json_get_bool(const json_t *o, const char *what, const char *key, bool *out);
int json_get_str(const json_t *o, const char *what, const char *key, const char **out);
