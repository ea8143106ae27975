/* spoken_words.c - calls in notations other than JSON: f(city="Paris", days=2) as in Python, and
 * call:f{city:<|"|>Paris<|"|>,days:2} as Gemma writes them. */
#include "base/buf.h"
#include "serve/spoken_call.h"

#include <ctype.h>
#include <string.h>

enum { MOST_DEEP = 64 };
#define QUOTE "<|\"|>" /* Gemma's */

struct words {
    const char *p, *end;
    int depth;
};

static void blanks(struct words *w)
{
    while (w->p < w->end && strchr(" \n\t\r", *w->p))
        w->p++;
}

static bool eat(struct words *w, const char *text)
{
    size_t n = strlen(text);
    blanks(w);
    if ((size_t)(w->end - w->p) < n || memcmp(w->p, text, n) != 0) return false;
    w->p += n;
    return true;
}

/* Reads a name or a number, up to the next punctuation mark. */
static size_t bare(struct words *w, const char **out)
{
    blanks(w);
    *out = w->p;
    while (w->p < w->end && !strchr(",:=(){}[]\"' \n\t\r", *w->p))
        w->p++;
    return (size_t)(w->p - *out);
}

/* Reads a text in Python's quotes, behind the first quote. */
static json_t *quoted(struct words *w, char quote)
{
    static const char from[] = "ntr\\\"'", to[] = "\n\t\r\\\"'";
    struct buf b;
    buf_init(&b, SIZE_MAX);
    for (; w->p < w->end && *w->p != quote; w->p++) {
        const char *known = *w->p == '\\' && w->p + 1 < w->end ? strchr(from, w->p[1]) : NULL;
        if (known && *known) w->p++;
        buf_putc(&b, known && *known ? to[known - from] : *w->p);
    }
    json_t *v = w->p < w->end ? json_stringn(b.data ? b.data : "", b.len) : NULL;
    if (v) w->p++;
    buf_done(&b);
    return v;
}

/* Reads a text in quotes of any kind; NULL: there is none, or it does not end. */
static json_t *text(struct words *w)
{
    if (eat(w, QUOTE)) {
        const char *end = memmem(w->p, (size_t)(w->end - w->p), QUOTE, strlen(QUOTE));
        json_t *v = end ? json_stringn(w->p, (size_t)(end - w->p)) : NULL;
        if (end) w->p = end + strlen(QUOTE);
        return v;
    }
    if (eat(w, "\"")) return quoted(w, '"');
    return eat(w, "'") ? quoted(w, '\'') : NULL;
}

static bool at_text(struct words *w)
{
    struct words look = *w;
    return eat(&look, "\"") || eat(&look, "'") || eat(&look, QUOTE);
}

static json_t *value(struct words *w);

/* Reads KEY `mark` VALUE, .. up to `close`. */
static json_t *pairs(struct words *w, const char *mark, const char *close)
{
    json_t *o = json_object();
    while (o && !eat(w, close)) {
        const char *name;
        json_t *key = at_text(w) ? text(w) : NULL, *v = NULL;
        size_t n = key ? json_string_length(key) : bare(w, &name);
        if (key) name = json_string_value(key);
        bool good = n && eat(w, mark) && (v = value(w)) && json_object_setn_new(o, name, n, v) == 0;
        json_decref(key);
        if (!good || (!eat(w, ",") && (w->p == w->end || *w->p != *close))) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

static json_t *items(struct words *w)
{
    json_t *list = json_array();
    while (list && !eat(w, "]")) {
        json_t *v = value(w);
        if (!v || json_array_append_new(list, v) < 0 ||
            (!eat(w, ",") && (w->p == w->end || *w->p != ']'))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *value(struct words *w)
{
    const char *p;
    json_t *v = NULL;
    if (at_text(w)) return text(w);
    if (w->depth == MOST_DEEP) return NULL;
    w->depth++;
    if (eat(w, "{"))
        v = pairs(w, ":", "}");
    else if (eat(w, "["))
        v = items(w);
    else {
        size_t n = bare(w, &p);
        if (n == 4 && !memcmp(p, "True", 4)) v = json_true();
        if (n == 5 && !memcmp(p, "False", 5)) v = json_false();
        if (n == 4 && !memcmp(p, "None", 4)) v = json_null();
        if (n && !v) v = json_loadb(p, n, JSON_DECODE_ANY, NULL);
    }
    w->depth--;
    return v;
}

static bool add_words(json_t *list, const char *name, size_t n, json_t *object)
{
    char *all = object ? json_dumps(object, 0) : NULL;
    json_t *one = all ? json_pack("{s:s%, s:s}", "name", name, n, "arguments", all) : NULL;
    free(all); /* check-ok: memory of jansson, which is freed by free */
    json_decref(object);
    return one && json_array_append_new(list, one) == 0;
}

bool spoken_words(json_t *list, const char *p, size_t n)
{
    struct words w = {p, p + n, 0};
    const char *name;
    bool gemma = eat(&w, "call:"), listed = !gemma && eat(&w, "[");
    do {
        size_t len = bare(&w, &name);
        if (!len || !isalpha((unsigned char)*name)) return false;
        if (!eat(&w, gemma ? "{" : "(")) return false;
        if (!add_words(list, name, len, gemma ? pairs(&w, ":", "}") : pairs(&w, "=", ")")))
            return false;
    } while (listed && eat(&w, ","));
    if (listed && !eat(&w, "]")) return false;
    blanks(&w);
    return w.p == w.end;
}
