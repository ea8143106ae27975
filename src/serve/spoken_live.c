/* spoken_live.c - see spoken_live.h.
 *
 * A call can be reported while it comes only if its name stands before its arguments and these are an object.  Other
 * calls are reported when they are complete.  A part that was reported cannot be taken back.  So arguments that turn
 * out not to be JSON are reported as they are, as other servers do, and the client tells the model. */
#include "serve/spoken_live.h"

#include <string.h>

enum { MOST_BEFORE = 1024 }; /* most bytes before the arguments */

struct call_cursor {
    const char *p, *end;
};

static void skip(struct call_cursor *c)
{
    while (c->p < c->end && strchr(" \n\t\r", *c->p))
        c->p++;
}

static bool skip_word(struct call_cursor *c, const char *text)
{
    size_t n = strlen(text);
    skip(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, text, n) != 0) return false;
    c->p += n;
    return true;
}

/* Reads {"name": "NAME", "arguments": up to the object behind it. */
static bool read_head(struct call_cursor *c, char *name, size_t size)
{
    if (!skip_word(c, "{") || !skip_word(c, "\"name\"") || !skip_word(c, ":") ||
        !skip_word(c, "\""))
        return false;
    const char *end = memchr(c->p, '"', (size_t)(c->end - c->p));
    size_t n = end ? (size_t)(end - c->p) : 0;
    if (!n || n >= size || memchr(c->p, '\\', n)) return false;
    memcpy(name, c->p, n);
    name[n] = 0;
    c->p = end + 1;
    if (!skip_word(c, ",") || (!skip_word(c, "\"arguments\"") && !skip_word(c, "\"parameters\"")) ||
        !skip_word(c, ":"))
        return false;
    skip(c);
    return c->p < c->end && *c->p == '{';
}

static void tell_name(struct live *l, const struct spoken_options *o, const char *id,
                      const char *name, size_t from, bool wrapped)
{
    o->calls->call(o->ctx, id, name);
    l->at = LIVE_ARGUMENTS;
    l->from = from;
    l->wrapped = wrapped;
}

static void try_begin(struct live *l, const struct spoken_options *o, const char *name, bool known,
                      const char *body, size_t n)
{
    struct call_cursor c = {body, body + n};
    char own[256], id[128] = "";
    size_t from;
    if (name) {
        skip(&c);
        if (c.p < c.end && *c.p == '{') tell_name(l, o, NULL, name, (size_t)(c.p - body), false);
    } else if (read_head(&c, own, sizeof own)) {
        if (!known || spoken_function(o->tools, own))
            tell_name(l, o, NULL, own, (size_t)(c.p - body), true);
    } else if (spoken_parted(body, n, own, sizeof own, id, sizeof id, &from) && from < n &&
               body[from] == '{')
        tell_name(l, o, *id ? id : NULL, own, from, false);
}

/* Reads up to the end of the value; true if the end is there. */
static bool read_value(struct live *l, const char *body, size_t n)
{
    while (l->from < n) {
        char ch = body[l->from++];
        if (l->escaped)
            l->escaped = false;
        else if (l->quoted && ch == '\\')
            l->escaped = true;
        else if (ch == '"')
            l->quoted = !l->quoted;
        else if (!l->quoted && (ch == '{' || ch == '['))
            l->depth++;
        else if (!l->quoted && (ch == '}' || ch == ']') && --l->depth <= 0)
            return true;
    }
    return false;
}

void live_read(struct live *l, const struct spoken_options *o, const char *name, bool known,
               const char *body, size_t n)
{
    if (l->at == LIVE_NO && n && l->from < MOST_BEFORE) {
        /* the name does not come within MOST_BEFORE bytes: the call is reported at its end */
        l->from = n;
        try_begin(l, o, name, known, body, n);
    }
    if (l->at == LIVE_ARGUMENTS) {
        size_t from = l->from;
        bool over = read_value(l, body, n);
        if (l->from > from) o->calls->arguments(o->ctx, body + from, l->from - from);
        if (over) {
            l->at = l->wrapped ? LIVE_TAIL : LIVE_OVER;
            l->depth = l->wrapped; /* the object around the arguments is still open */
        }
    }
    if (l->at == LIVE_TAIL && read_value(l, body, n)) l->at = LIVE_OVER;
}

size_t live_end(struct live *l, const struct spoken_options *o, const char *body, size_t n)
{
    size_t from = l->from;
    o->calls->called(o->ctx);
    while (from < n && strchr(" \n\t\r;,", body[from]))
        from++;
    *l = (struct live){0};
    return from;
}
