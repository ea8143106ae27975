/* multipart.c - cuts a multipart/form-data body into its parts; see multipart.h.
 *
 * A body is "--B", headers, an empty line, data, and again "--B"; "--B--" ends it.  Lines end with CRLF.  RFC 2046
 * also allows a text before the first part or behind the last one, folded headers, and other encodings of data.  All
 * of these are refused, because no client of today sends them, and a proxy might read them in another way. */
#include "serve/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { BOUNDARY = 70 };

/* The part of the body that is not read yet. */
struct cut {
    const char *at, *end;
    char line[2 + BOUNDARY + 2 + 1]; /* CRLF, "--" and the boundary */
    size_t n_line;
};

static bool begins(const char *s, const char *end, const char *with)
{
    size_t n = strlen(with);
    return (size_t)(end - s) >= n && !strncasecmp(s, with, n);
}

/* Finds the value of a parameter, `name="a b"` or name=a, behind a ';' of s[0, end).  Returns 1 if it is there, else
 * 0. */
static int parameter(const char *s, const char *end, const char *name, const char **value,
                     size_t *n)
{
    while (s < end) {
        while (s < end && (*s == ';' || *s == ' ' || *s == '\t'))
            s++;
        const char *key = s;
        while (s < end && *s != '=' && *s != ';')
            s++;
        size_t n_key = (size_t)(s - key);
        if (s == end || *s == ';') continue;
        bool quoted = ++s < end && *s == '"';
        const char *from = s += quoted;
        while (s < end && (quoted ? *s != '"' : *s != ';' && *s != ' '))
            s += quoted && *s == '\\' && s + 1 < end ? 2 : 1;
        if (s > end || (quoted && s == end))
            return ERR(FORMAT, "the body: a header has a quotation mark that does not end");
        size_t len = (size_t)(s - from);
        s += quoted;
        if (n_key != strlen(name) || strncasecmp(key, name, n_key) != 0) continue;
        *value = from;
        *n = len;
        return 1;
    }
    return 0;
}

static int boundary_of(const char *type, struct cut *c)
{
    const char *value, *end = type ? type + strlen(type) : NULL;
    size_t n;
    if (!type || !begins(type, end, "multipart/form-data"))
        return ERR(FORMAT, "the Content-Type must be multipart/form-data");
    const char *rest = strchr(type, ';');
    int e = rest ? parameter(rest, end, "boundary", &value, &n) : 0;
    if (e < 0) return e;
    if (!e || !n || n > BOUNDARY)
        return ERR(FORMAT, "the Content-Type must have a boundary of 1 to %d characters", BOUNDARY);
    for (size_t i = 0; i < n; i++)
        if (value[i] <= ' ' || value[i] > '~')
            return ERR(FORMAT,
                       "the boundary of the Content-Type has a character that it may not have");
    c->n_line = (size_t)snprintf(c->line, sizeof c->line, "\r\n--%.*s", (int)n, value);
    return 0;
}

/* Takes the rest of a boundary line.  Returns 1 if a part follows, 0 at the end of the body. */
static int behind_boundary(struct cut *c)
{
    if (begins(c->at, c->end, "\r\n")) {
        c->at += 2;
        return 1;
    }
    if (!begins(c->at, c->end, "--"))
        return ERR(FORMAT,
                   "the body: a boundary must be followed by a line end, or by -- at the end");
    c->at += 2;
    if (begins(c->at, c->end, "\r\n")) c->at += 2;
    return c->at == c->end ? 0 : ERR(FORMAT, "the body goes on behind its last boundary");
}

/* Copies a name, in which browsers write a quotation mark as %22. */
static int copy_name(const char *s, size_t n, char out[MULTIPART_NAME])
{
    if (!n || n >= MULTIPART_NAME)
        return ERR(FORMAT, "the body: the name of a part must have 1 to %d characters",
                   MULTIPART_NAME - 1);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < ' ' || s[i] == '"' || s[i] == '\\')
            return ERR(FORMAT, "the body: the name of a part has a character that it may not have");
    memcpy(out, s, n);
    out[n] = 0;
    return 0;
}

static int disposition(const char *s, const char *end, struct form_part *p)
{
    const char *name;
    size_t n;
    if (*p->name) return ERR(FORMAT, "the body: a part has two headers Content-Disposition");
    while (s < end && *s == ' ')
        s++;
    if (!begins(s, end, "form-data"))
        return ERR(FORMAT, "the body: the Content-Disposition of a part must be form-data");
    s += strlen("form-data");
    int e = parameter(s, end, "name", &name, &n);
    if (e == 0) e = ERR(FORMAT, "the body: a part has no name");
    if (e >= 0) e = copy_name(name, n, p->name);
    if (e >= 0) e = parameter(s, end, "filename", &p->file, &p->n_file);
    return MIN(e, 0);
}

static int encoding(const char *s, const char *end)
{
    static const char *const plain[] = {"binary", "8bit", "7bit"};
    while (s < end && *s == ' ')
        s++;
    for (size_t i = 0; i < countof(plain); i++)
        if ((size_t)(end - s) == strlen(plain[i]) && begins(s, end, plain[i])) return 0;
    return ERR(UNSUPPORTED, "the body: the data of parts must not be encoded (%.*s)",
               (int)MIN(end - s, 40), s);
}

static int headers(struct cut *c, struct form_part *p)
{
    const char *most = c->end - c->at > MULTIPART_HEADERS ? c->at + MULTIPART_HEADERS : c->end;
    for (;;) {
        const char *line = c->at, *end = memmem(line, (size_t)(most - line), "\r\n", 2);
        if (!end)
            return ERR(FORMAT, "the body: the headers of a part do not end within %d bytes",
                       MULTIPART_HEADERS);
        if (memchr(line, 0, (size_t)(end - line)))
            return ERR(FORMAT, "the body: a header of a part has a NUL");
        c->at = end + 2;
        if (end == line) break;
        if (begins(line, end, "content-disposition:"))
            TRY(disposition(line + strlen("content-disposition:"), end, p));
        else if (begins(line, end, "content-transfer-encoding:"))
            TRY(encoding(line + strlen("content-transfer-encoding:"), end));
        else if (!memchr(line, ':', (size_t)(end - line)))
            return ERR(FORMAT, "the body: a header of a part has no colon");
    }
    return *p->name ? 0 : ERR(FORMAT, "the body: a part has no Content-Disposition");
}

int multipart_read(const char *type, const char *body, size_t size,
                   struct form_part part[MULTIPART_PARTS], uint32_t *n)
{
    struct cut c = {.at = body, .end = body + size};
    uint32_t have = 0;
    int more;
    TRY(boundary_of(type, &c));
    if (size < c.n_line - 2 || memcmp(body, c.line + 2, c.n_line - 2) != 0)
        return ERR(FORMAT, "the body does not begin with the boundary of its Content-Type");
    c.at += c.n_line - 2;
    while ((more = behind_boundary(&c)) > 0) {
        if (have == MULTIPART_PARTS)
            return ERR(LIMIT, "the body has more than %d parts", MULTIPART_PARTS);
        struct form_part *p = &part[have++];
        *p = (struct form_part){0};
        TRY(headers(&c, p));
        const char *end = memmem(c.at, (size_t)(c.end - c.at), c.line, c.n_line);
        if (!end) return ERR(FORMAT, "the body ends before the end of the part \"%s\"", p->name);
        p->data = c.at;
        p->n = (size_t)(end - c.at);
        c.at = end + c.n_line;
    }
    if (more < 0) return more;
    *n = have;
    return 0;
}

const struct form_part *multipart_find(const struct form_part *part, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(part[i].name, name)) return &part[i];
    return NULL;
}
