/* inspect.h - what the files of kvik inspect share: members of a description, and the tables.  The int functions return exit
 * statuses. */
#pragma once
#include "cli/cli.h"

static inline const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}
static inline long long number(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

/* inspect_session.c */
bool inspect_is_session(const char *path);
int inspect_session(const char *path, bool json);

/* inspect_cache.c */
int inspect_caches(const kvik_model *m, bool json);
int inspect_architectures(bool json);

/* inspect_tensors.c */
int inspect_tensors(const json_t *tensors);
