/* field_types.c - refuses fields whose value has another type than their protocol says, so that none is silently without
 * effect. */
#include "serve/protocol.h"

#include <stdio.h>
#include <string.h>

static unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_TRUE:
    case JSON_FALSE:
        return FIELD_BOOL;
    case JSON_STRING:
        return FIELD_TEXT;
    case JSON_ARRAY:
        return FIELD_LIST;
    case JSON_OBJECT:
        return FIELD_OBJECT;
    default:
        return 0;
    }
}

/* Writes "a string or an object". */
static void name_types(unsigned types, char *out, size_t size)
{
    static const char *const names[] = {"true or false", "a string", "an array", "an object"};
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < countof(names); i++)
        if (types >> i & 1)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? " or " : "", names[i]);
}

int ask_types(const json_t *body, const struct field_type *t, size_t n)
{
    char wanted[64], found[JSON_FOUND];
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_object_get(body, t[i].name);
        if (!v || json_is_null(v) || type_of(v) & t[i].types) continue;
        name_types(t[i].types, wanted, sizeof wanted);
        return ERR(ARG, "field \"%s\" must be %s, not %s", t[i].name, wanted, json_found(v, found));
    }
    return 0;
}
