/* schema_arg.c - the value of --json-schema: a file with a JSON schema, the schema itself, or "json_object". */
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"

#include <string.h>

enum { SCHEMA_MOST = 16 << 20 };

json_t *schema_read(const char *name, const char *v)
{
    json_t *j = NULL;
    char *text = NULL;
    size_t n;
    if (!strcmp(v, "json_object")) return json_string(v);
    if (*v == '{') return json_parse(v, strlen(v), name, &j) == 0 ? j : NULL;
    int e = file_read(v, SCHEMA_MOST, &text, &n);
    if (e < 0) {
        err_prefix(e, "%s takes a FILE with a JSON schema, or json_object", name);
        return NULL;
    }
    e = json_parse(text, n, v, &j);
    mem_free(text);
    return e == 0 ? j : NULL;
}
