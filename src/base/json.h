/* json.h - reads and writes JSON with jansson: duplicate keys are rejected, size and depth are bounded, errors name
 * a line number.  Callers use json_t directly and release it with json_decref. */
#pragma once
#include "base/base.h"
#include <jansson.h>

/* `what` names the source in errors ("config.json").  Depth limit: jansson's 2048. */
int json_parse(const char *text, size_t n, const char *what, json_t **out);
int json_read(const char *path, size_t max, json_t **out);
/* Notices missing memory: jansson does not always report it.  A function that builds values opens a scope, which
 * the end of the block closes, and asks json_whole at the end.  Scopes nest; a scope sees only failures after it
 * was opened. */
struct json_scope {
    uint64_t before;
};
#define JSON_SCOPE(s)                                                                              \
    struct json_scope s __attribute__((cleanup(json_scope_close)));                                \
    json_scope_open(&s)
void json_scope_open(struct json_scope *s);
void json_scope_close(struct json_scope *s);
/* Returns ERR_NOMEM if an allocation of jansson has failed in this thread since the scope was opened: values may
 * then be incomplete.  Else returns 0. */
int json_whole(const struct json_scope *s);
/* Writes the value as compact text (mem_free).  ERR_NOMEM also if an earlier allocation of jansson failed in the
 * open scopes of this thread; each failure is reported once. */
int json_text(const json_t *j, char **out);
/* Writes a short text of a value for an error: numbers and short strings as they stand, else their type and size. */
#define JSON_FOUND 64
const char *json_found(const json_t *v, char out[JSON_FOUND]);
/* The same text in memory that lives until the block around it ends. */
#define JSON_QUOTE(v) json_found(v, (char[JSON_FOUND]){0})
/* Typed getters.  Return 1 if the key is present; 0 if it is absent or null, and *out stays as it is.  A wrong
 * type or a value out of range is ERR_FORMAT; the sentence names `what`, the key, what is expected and what was
 * found. */
int json_get_u32(const json_t *o, const char *what, const char *key, uint32_t min, uint32_t max,
                 uint32_t *out);
int json_get_f64(const json_t *o, const char *what, const char *key, double *out);
int json_get_bool(const json_t *o, const char *what, const char *key, bool *out);
int json_get_str(const json_t *o, const char *what, const char *key, const char **out);
