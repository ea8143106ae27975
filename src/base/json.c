/* json.c - bounded, duplicate-rejecting JSON reading over jansson. */
#include "base/json.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a longer text comes from a file, and gets no hints for mistakes of typing */
enum { HINT_MAX = 4096 };

/* Copies a text with double quotes for single ones.  Returns true if the copy is JSON. */
static bool requote(const char *text, size_t n, char out[HINT_MAX])
{
    if (n >= HINT_MAX || !memchr(text, '\'', n)) return false;
    for (size_t i = 0; i < n; i++)
        out[i] = text[i] == '\'' ? '"' : text[i];
    out[n] = 0;
    json_t *j = NULL;
    int e = json_load_safely(out, n, JSON_DECODE_ANY, &j, NULL);
    json_decref(j);
    return e == 0 && j;
}

/* True if an object's text has a name without quotes, as after a shell has removed the double quotes. */
static bool unquoted(const char *text, size_t n)
{
    size_t at = 0;
    while (at < n && strchr(" \t\r\n{", text[at]))
        at++;
    return at && n < HINT_MAX && !memchr(text, '"', n) && at < n &&
           ((text[at] >= 'a' && text[at] <= 'z') || (text[at] >= 'A' && text[at] <= 'Z'));
}

/* Says what is wrong with a text that is not JSON.  Mistakes that people make have sentences of their own. */
static int refuse_text(const char *text, size_t n, const char *what, const json_error_t *e)
{
    char fixed[HINT_MAX];
    if (requote(text, n, fixed))
        return ERR(FORMAT, "%s: JSON takes double quotes, not single quotes: '%.200s'", what,
                   fixed);
    if (unquoted(text, n))
        return ERR(FORMAT,
                   "%s: names in JSON stand in double quotes, as in '{\"nbits\": 4}'; the single "
                   "quotes around the whole keep a shell from removing them",
                   what);
    if (strstr(e->text, "near 'True'") || strstr(e->text, "near 'False'") ||
        strstr(e->text, "near 'None'"))
        return ERR(FORMAT, "%s: line %d: JSON spells these values true, false and null", what,
                   e->line);
    if (json_error_code(e) == json_error_stack_overflow)
        return ERR(FORMAT, "%s: line %d: arrays and objects are nested deeper than %d levels", what,
                   e->line, JSON_PARSER_MAX_DEPTH);
    if (json_error_code(e) == json_error_premature_end_of_input)
        return ERR(FORMAT,
                   "%s: line %d: the JSON text ends too early; a quote or a bracket is not closed",
                   what, e->line);
    return ERR(FORMAT, "%s: line %d: %s", what, e->line, e->text);
}

int json_parse(const char *text, size_t n, const char *what, json_t **out)
{
    json_error_t e;
    /* JSON text holds no NUL byte, but jansson accepts one after a number. */
    if (n && memchr(text, 0, n)) return ERR(FORMAT, "%s: a NUL byte in JSON text", what);
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_t *j = NULL;
    TRY(json_load_safely(text, n, flags, &j, &e));
    /* tokenizer_config.json spells "no limit" as a model_max_length of 10^30, which overflows jansson's integers. */
    if (!j && json_error_code(&e) == json_error_numeric_overflow)
        TRY(json_load_safely(text, n, flags | JSON_DECODE_INT_AS_REAL, &j, &e));
    if (!j) return refuse_text(text, n, what, &e);
    *out = j;
    return 0;
}

int json_read(const char *path, size_t max, json_t **out)
{
    char *text;
    size_t n;
    TRY(file_read(path, max, &text, &n));
    int e = json_parse(text, n, path, out);
    mem_free(text);
    return e;
}

/* If a callback fails while jansson writes a key, jansson drops the error.  So the sink records it. */
struct text_sink {
    struct buf text;
    int error;
};

static int append_text(const char *s, size_t n, void *ctx)
{
    struct text_sink *k = ctx;
    if (k->error == 0) k->error = buf_append(&k->text, s, n);
    return k->error;
}

int json_text(const json_t *j, char **out)
{
    struct text_sink k = {.error = 0};
    JSON_SCOPE(scope);
    buf_init(&k.text, SIZE_MAX / 2);
    int e = json_dump_callback(j, append_text, &k, JSON_ENCODE_ANY | JSON_COMPACT);
    if (e < 0 || k.error < 0 || json_lost_outside()) {
        buf_done(&k.text);
        return ERR(NOMEM, "out of memory writing JSON");
    }
    char *text = buf_take(&k.text);
    if (!text) return ERR_NOMEM;
    *out = text;
    return 0;
}

const char *json_found(const json_t *v, char out[JSON_FOUND])
{
    if (!v || json_is_null(v))
        snprintf(out, JSON_FOUND, "null");
    else if (json_is_boolean(v))
        snprintf(out, JSON_FOUND, "%s", json_is_true(v) ? "true" : "false");
    else if (json_is_integer(v))
        snprintf(out, JSON_FOUND, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(out, JSON_FOUND, "%g", json_real_value(v));
    else if (json_is_array(v))
        snprintf(out, JSON_FOUND, "a list of %zu", json_array_size(v));
    else if (json_is_object(v))
        snprintf(out, JSON_FOUND, "an object with %zu keys", json_object_size(v));
    else if (strlen(json_string_value(v)) != json_string_length(v))
        snprintf(out, JSON_FOUND, "a string with a NUL");
    else if (json_string_length(v) > 40)
        snprintf(out, JSON_FOUND, "a string of %zu bytes", json_string_length(v));
    else
        snprintf(out, JSON_FOUND, "the string \"%s\"", json_string_value(v));
    return out;
}

static json_t *present(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return v && !json_is_null(v) ? v : NULL;
}

int json_get_u32(const json_t *o, const char *what, const char *key, uint32_t min, uint32_t max,
                 uint32_t *out)
{
    json_t *v = present(o, key);
    if (!v) return 0;
    char found[JSON_FOUND];
    double d = json_number_value(v);
    if (!json_is_number(v) || json_is_boolean(v) || d != floor(d) || !(d >= min && d <= max))
        return ERR(FORMAT, "%s: \"%s\" must be an integer from %u to %u, not %s", what, key, min,
                   max, json_found(v, found));
    *out = (uint32_t)d;
    return 1;
}

int json_get_f64(const json_t *o, const char *what, const char *key, double *out)
{
    json_t *v = present(o, key);
    if (!v) return 0;
    char found[JSON_FOUND];
    if (!json_is_number(v))
        return ERR(FORMAT, "%s: \"%s\" must be a number, not %s", what, key, json_found(v, found));
    *out = json_number_value(v);
    return 1;
}

int json_get_bool(const json_t *o, const char *what, const char *key, bool *out)
{
    json_t *v = present(o, key);
    if (!v) return 0;
    char found[JSON_FOUND];
    if (!json_is_boolean(v))
        return ERR(FORMAT, "%s: \"%s\" must be true or false, not %s", what, key,
                   json_found(v, found));
    *out = json_is_true(v);
    return 1;
}

int json_get_str(const json_t *o, const char *what, const char *key, const char **out)
{
    json_t *v = present(o, key);
    if (!v) return 0;
    char found[JSON_FOUND];
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return ERR(FORMAT, "%s: \"%s\" must be a string (without NUL), not %s", what, key,
                   json_found(v, found));
    *out = json_string_value(v);
    return 1;
}
