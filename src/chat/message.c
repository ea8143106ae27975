/* message.c - one message as the JSON object that chat templates see. */
#include "chat/chat.h"

#include <stdio.h>
#include <string.h>

static int set_text(json_t *o, size_t i, const char *key, const char *text)
{
    JSON_SCOPE(scope);
    json_t *v = json_stringn(text, strlen(text));
    if (!v) TRY(json_whole(&scope));
    if (!v) return ERR(FORMAT, "message %zu: its %s is not valid UTF-8", i, key);
    return json_object_set_new(o, key, v) < 0 ? ERR(NOMEM, "out of memory") : 0;
}

/* Adds the keys of `more`.  A key that is set already is an error. */
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

int chat_message(json_t *o, size_t i, const char *role, const char *content, const char *more)
{
    if (!role) return ERR(ARG, "message %zu has no role, such as \"user\"", i);
    TRY(set_text(o, i, "role", role));
    if (content) TRY(set_text(o, i, "content", content));
    return more ? add_more(o, i, more) : 0;
}
