/* head.c - reads the head of a request before its body is; see head.h.  Lines end with \n or \r\n, as for libevent. */
#include "serve/head.h"

#include <string.h>
#include <strings.h>

size_t head_length(const char *text, size_t n, size_t from)
{
    const char *at = text + (from > 2 ? from - 2 : 0),
               *end = text + n; /* an earlier call may have seen the first two bytes of an end */
    while ((at = memchr(at, '\n', (size_t)(end - at)))) {
        at++;
        if (at < end && *at == '\n') return (size_t)(at - text) + 1;
        if (end - at > 1 && at[0] == '\r' && at[1] == '\n') return (size_t)(at - text) + 2;
    }
    return 0;
}

/* Cuts the path out of "POST /v1/completions?a=b HTTP/1.1". */
static const char *read_path(char *line)
{
    char *path = line + strcspn(line, " ");
    path += strspn(path, " ");
    path[strcspn(path, " ?")] = 0;
    return path;
}

/* Returns the value of a header without the spaces around it; NULL: the header has another name. */
static const char *value_of(char *line, const char *name)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':') return NULL;
    char *value = line + n + 1;
    value += strspn(value, " ");
    for (size_t len = strlen(value); len && strchr(" \t", value[len - 1]); len--)
        value[len - 1] = 0;
    return value;
}

bool head_plain(const char *text, size_t n)
{
    if (memchr(text, 0, n)) return false;
    for (const char *at = text; (at = memchr(at, '\r', n - (size_t)(at - text)));)
        if (*++at != '\n') return false;
    return true;
}

/* Takes the value of a header; of several headers of one name the first counts. */
static void read_header(char *line, struct head *out)
{
    const struct {
        const char *name, **value;
    } known[] = {{"Authorization", &out->authorization},
                 {"x-api-key", &out->key},
                 {"Content-Length", &out->length},
                 {"Transfer-Encoding", &out->coding}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!*known[i].value) *known[i].value = value_of(line, known[i].name);
}

void head_read(char *text, size_t n, struct head *out)
{
    char *end = text + n;
    *out = (struct head){.path = ""};
    for (char *line = text, *next; line < end; line = next) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) return;
        next = stop + 1;
        *stop = 0;
        if (stop > line && stop[-1] == '\r') stop[-1] = 0;
        if (line == text)
            out->path = read_path(line);
        else
            read_header(line, out);
    }
}
