/* nul_fields.c - texts of a request that hold a NUL.
 *
 * JSON can spell a NUL in every text.  Prompts and contents of messages are read with their lengths, so there a NUL is a character.  Other
 * fields become texts that end with a NUL, so a NUL inside would cut them.  A request with such a field is refused. */
#include "serve/protocol.h"

#include <string.h>

/* Fields of all protocols whose texts end with a NUL inside the library. */
static const char *const fields[] = {"stop",
                                     "stop_sequences",
                                     "tools",
                                     "tool_choice",
                                     "response_format",
                                     "json_schema",
                                     "format",
                                     "text",
                                     "output_config",
                                     "logit_bias",
                                     "chat_template_kwargs",
                                     "options",
                                     "cache_config"};

enum { MOST_PATH = 160 }; /* bytes of a field's name in a sentence */

/* Appends ".key" or "[i]" to the path of a field.  A step that does not fit is left out. */
static size_t step_in(char path[MOST_PATH], size_t at, const char *key, size_t i)
{
    size_t left = MOST_PATH - at;
    int n = key ? snprintf(path + at, left, ".%s", key) : snprintf(path + at, left, "[%zu]", i);
    return at + MIN((size_t)MAX(n, 0), left - 1);
}

static bool find_nul(const json_t *v, char path[MOST_PATH], size_t at)
{
    const json_t *one;
    const char *key;
    size_t i;
    if (json_is_string(v)) return memchr(json_string_value(v), 0, json_string_length(v)) != NULL;
    json_array_foreach(v, i, one)
    {
        if (find_nul(one, path, step_in(path, at, NULL, i))) return true;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, one)
    {
        if (find_nul(one, path, step_in(path, at, key, 0))) return true;
    }
    path[at] = 0;
    return false;
}

int ask_refuse_nul(const json_t *body, const char *field)
{
    const char *const *list = field ? &field : fields;
    for (size_t i = 0; i < (field ? 1 : countof(fields)); i++) {
        char path[MOST_PATH];
        int n = snprintf(path, sizeof path, "%s", list[i]);
        if (find_nul(json_object_get(body, list[i]), path, (size_t)n))
            return ERR(ARG, "field \"%s\" has a NUL (\\u0000), which this field cannot have", path);
    }
    return 0;
}
