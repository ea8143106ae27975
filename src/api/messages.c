/* messages.c - messages that a program gives as structs, made into the JSON objects that chat templates see. */
#include "api/messages.h"
#include "generate/sizes.h"

#include <stdio.h>
#include <string.h>

static int set_text(json_t *o, size_t i, const char *key, const char *text)
{
    json_t *v = json_stringn(text, strlen(text));
    if (!v) return ERR(FORMAT, "message %zu: its %s is not valid UTF-8", i, key);
    return json_object_set_new(o, key, v) < 0 ? ERR(NOMEM, "out of memory") : 0;
}

/* Adds the keys of `more`, which cannot set a key that the struct sets. */
static int add_more(json_t *o, size_t i, const char *more)
{
    json_t *extra;
    char what[40];
    const char *key;
    json_t *value;
    snprintf(what, sizeof what, "message %zu, more", i);
    TRY(json_parse(more, strlen(more), what, &extra));
    int e = json_is_object(extra) ? 0 : ERR(ARG, "%s: must be a JSON object", what);
    if (e >= 0)
        json_object_foreach(extra, key, value) if (e >= 0 && json_object_get(o, key)) e =
            ERR(ARG, "%s: \"%s\" is a field of the struct; set it there alone", what, key);
    if (e >= 0 && json_object_update(o, extra) < 0) e = ERR(NOMEM, "out of memory");
    json_decref(extra);
    return e;
}

static int set_message(json_t *o, size_t i, const kvik_message *m)
{
    if (!m->role) return ERR(ARG, "message %zu has no role, such as \"user\"", i);
    TRY(set_text(o, i, "role", m->role));
    if (m->content) TRY(set_text(o, i, "content", m->content));
    return m->more ? add_more(o, i, m->more) : 0;
}

int messages_of(const kvik_message *message, size_t n, json_t **out)
{
    json_t *list = json_array();
    int e = list ? 0 : ERR(NOMEM, "out of memory");
    for (size_t i = 0; e >= 0 && i < n; i++) {
        kvik_message m = {0};
        json_t *o = json_object();
        if (!o || json_array_append_new(list, o) < 0) e = ERR(NOMEM, "out of memory");
        if (e >= 0) e = SIZED_NTH(&m, message, i, kvik_message);
        if (e >= 0) e = set_message(o, i, &m);
    }
    if (e < 0)
        json_decref(list);
    else
        *out = list;
    return e;
}

KVIK_API int kvik_messages_json(const kvik_message *message, size_t n, char **json)
{
    json_t *list;
    if ((!message && n) || !json) return ERR(ARG, "messages and a place for the text are needed");
    TRY(messages_of(message, n, &list));
    int e = json_text(list, json);
    json_decref(list);
    return e;
}
