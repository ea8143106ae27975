/* spoken.c - a scanner that looks for the marks of a dialect; see spoken.h.
 *
 * The scanner holds back text that may be the beginning of a mark.  It also holds back white space at the end of the text, because white space
 * beside a mark belongs to neither side. */
#include "base/buf.h"
#include "serve/spoken_live.h"

#include <string.h>

enum { MOST_HEAD = 4096, MOST_CALL = 64 << 20 };

struct spoken {
    struct spoken_options o;
    enum said state;
    struct buf hold; /* text that was not looked at yet, or may begin a mark */
    struct buf gap;  /* white space that waits for the next text */
    struct buf body; /* text of a call or a head, with the marks that belong to it */
    struct buf name; /* name of the function, if a head has named it */
    const struct dialect_mark *opened;
    struct live live; /* how far the call in `body` was reported */
    bool fresh;       /* a mark came before, so white space is left out */
    bool content;     /* some content was said */
};

int spoken_open(const struct spoken_options *o, struct spoken **out)
{
    struct spoken *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    s->o = *o;
    s->state = o->demanded ? SAID_CALL : o->reasoning ? SAID_REASONING : SAID_CONTENT;
    s->fresh = o->reasoning;
    buf_init(&s->hold, MOST_CALL);
    buf_init(&s->gap, MOST_CALL);
    buf_init(&s->body, MOST_CALL);
    buf_init(&s->name, MOST_HEAD);
    *out = s;
    return 0;
}

void spoken_free(struct spoken *s)
{
    if (!s) return;
    buf_done(&s->hold);
    buf_done(&s->gap);
    buf_done(&s->body);
    buf_done(&s->name);
    mem_free(s);
}

bool spoken_reasons(const struct spoken *s)
{
    return s->state == SAID_REASONING;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* --- Saying. */

static void cut(struct buf *b, size_t n)
{
    memmove(b->data, b->data + n, b->len - n);
    buf_cut(b, b->len - n);
}

static void tell(struct spoken *s, const char *text, size_t n)
{
    if (!n) return;
    if (s->state != SAID_REASONING) s->content = true;
    s->o.calls->text(s->o.ctx, s->state == SAID_REASONING ? PIECE_REASONING : PIECE_CONTENT, text,
                     n);
}

/* Says text of the present state, without the white space at its end. */
static int say(struct spoken *s, const char *text, size_t n)
{
    size_t end = n;
    if (s->state != SAID_CONTENT && s->state != SAID_REASONING)
        return buf_append(&s->body, text, n);
    while (s->fresh && n && is_space(*text))
        text++, n--;
    end = n;
    while (end && is_space(text[end - 1]))
        end--;
    if (!end) return buf_append(&s->gap, text, n);
    s->fresh = false;
    tell(s, s->gap.data, s->gap.len);
    buf_clear(&s->gap);
    tell(s, text, end);
    return buf_append(&s->gap, text + end, n - end);
}

/* Says the body and its marks as content, because it was no call. */
static int say_body(struct spoken *s, const struct dialect_mark *close)
{
    struct buf all;
    buf_init(&all, SIZE_MAX);
    int e = 0;
    if (s->opened && !s->opened->kept) e = buf_puts(&all, s->opened->text);
    if (e >= 0) e = buf_append(&all, s->body.data, s->body.len);
    if (e >= 0 && close && !close->kept && close->to == SAID_CONTENT)
        e = buf_puts(&all, close->text);
    s->state = SAID_CONTENT;
    s->fresh = false;
    if (e >= 0) e = say(s, all.data, all.len);
    buf_done(&all);
    return e;
}

static bool is_bare(const struct spoken *s)
{
    return !s->opened && !s->name.len;
}

static const char *name_of(const struct spoken *s)
{
    return s->name.len ? s->name.data : NULL;
}

/* Reports the new part of the call in `body`. */
static void advance(struct spoken *s)
{
    bool began = s->live.at != LIVE_NO;
    if (!s->o.live || !s->body.len) return;
    live_read(&s->live, &s->o, name_of(s), is_bare(s), s->body.data, s->body.len);
    if (!began && s->live.at != LIVE_NO)
        buf_clear(&s->gap); /* white space before a call is left out */
}

static void end_body(struct spoken *s)
{
    buf_clear(&s->body);
    buf_clear(&s->name);
    s->live = (struct live){0};
}

/* Ends a call: says the call, or its text if it is no call. */
static int end_call(struct spoken *s, const struct dialect_mark *close)
{
    const char *name = name_of(s);
    bool bare = is_bare(s), began;
    size_t i, from = 0;
    advance(s);
    began = s->live.at != LIVE_NO;
    if (began) {
        from = live_end(&s->live, &s->o, s->body.data, s->body.len);
        s->fresh = true;
        if (from == s->body.len) {
            end_body(s);
            return 0;
        }
        cut(&s->body, from);
        name = NULL;
    }
    json_t *list =
               spoken_read(name, s->body.data ? s->body.data : "", s->body.len, s->o.tools, bare),
           *one;
    if (!list) {
        if (began) s->opened = NULL;
        int e = say_body(s, began ? NULL : close);
        end_body(s);
        return e;
    }
    buf_clear(&s->gap);
    json_array_foreach(list, i, one)
    {
        const json_t *arguments = json_object_get(one, "arguments");
        s->o.calls->call(s->o.ctx, json_string_value(json_object_get(one, "id")),
                         json_string_value(json_object_get(one, "name")));
        s->o.calls->arguments(s->o.ctx, json_string_value(arguments),
                              json_string_length(arguments));
        s->o.calls->called(s->o.ctx);
    }
    json_decref(list);
    end_body(s);
    s->fresh = true;
    return 0;
}

/* --- Marks. */

static bool in_call(const struct spoken *s)
{
    return s->state == SAID_CALL || s->state == SAID_FUNCTION;
}

/* True if the mark counts in the present state: reasoning comes before all content, and calls are looked for only if
 * there are tools. */
static bool counts(const struct spoken *s, const struct dialect_mark *m)
{
    if (m->from != s->state) return false;
    if (m->from == SAID_CONTENT && m->to == SAID_REASONING && s->content) return false;
    return s->o.tools || !dialect_calls(m);
}

#define EACH_MARK(m, s)                                                                            \
    for (const struct dialect_mark *m = (s)->o.dialect->mark;                                      \
         m < (s)->o.dialect->mark + countof((s)->o.dialect->mark) && m->text; m++)                 \
        if (counts(s, m))

static bool blank(const char *p, const char *end)
{
    while (p < end && is_space(*p))
        p++;
    return p == end;
}

/* Finds the first mark in the held text. */
static const struct dialect_mark *first_mark(const struct spoken *s, size_t *at)
{
    const struct dialect_mark *first = NULL;
    *at = SIZE_MAX;
    EACH_MARK(m, s)
    {
        const char *p = memmem(s->hold.data, s->hold.len, m->text, strlen(m->text));
        if (p && m->from == SAID_CONTENT && m->to == SAID_REASONING && !blank(s->hold.data, p))
            continue;
        if (p && (size_t)(p - s->hold.data) < *at) {
            *at = (size_t)(p - s->hold.data);
            first = m;
        }
    }
    return first;
}

/* Returns how many bytes at the end of the held text may begin a mark. */
static size_t pending(const struct spoken *s)
{
    size_t most = 0;
    EACH_MARK(m, s)
    {
        size_t n = MIN(strlen(m->text) - 1, s->hold.len);
        while (n > most && memcmp(s->hold.data + s->hold.len - n, m->text, n) != 0)
            n--;
        most = MAX(most, n);
    }
    return most;
}

/* True if all further text is content. */
static bool no_mark(const struct spoken *s)
{
    if (s->state != SAID_CONTENT) return false;
    EACH_MARK(m, s)
    {
        return false;
    }
    return true;
}

/* Ends a head: it names a function, or a channel. */
static int end_head(struct spoken *s)
{
    static const char to[] = "to=functions.";
    const char *head = s->body.data ? s->body.data : "", *name = strstr(head, to);
    int e = 0;
    s->state = strstr(head, "analysis") ? SAID_REASONING : SAID_CONTENT;
    if (name && s->o.tools) {
        name += sizeof to - 1;
        e = buf_append(&s->name, name, strcspn(name, " <\n\t"));
        s->state = SAID_CALL;
    }
    buf_clear(&s->body);
    return e;
}

static int turn(struct spoken *s, const struct dialect_mark *m)
{
    int e = 0;
    if (in_call(s)) {
        if (m->kept) e = buf_puts(&s->body, m->text);
        if (m->kept && m->to == s->state) return e;
        if (e >= 0) e = end_call(s, m);
    } else if (m->from == SAID_HEAD && m->to == SAID_HEAD) {
        return buf_puts(&s->body, " ");
    } else if (m->from == SAID_HEAD) {
        e = end_head(s);
        buf_clear(&s->gap);
        s->fresh = true;
        s->opened = NULL;
        return e;
    }
    if (m->to == SAID_REASONING || m->from == SAID_REASONING) {
        buf_clear(&s->gap);
        s->fresh = true;
    }
    s->state = m->to;
    if (in_call(s) || s->state == SAID_HEAD) {
        s->opened = m;
        buf_clear(&s->body);
        if (m->kept && e >= 0) e = buf_puts(&s->body, m->text);
    }
    return e;
}

/* True if the answer may be a call without marks; all of it then waits for its end. */
static bool begins_bare(const struct spoken *s)
{
    size_t i = 0;
    if (!s->o.dialect->bare || !s->o.tools || s->content || s->state != SAID_CONTENT) return false;
    while (i < s->hold.len && is_space(s->hold.data[i]))
        i++;
    return i < s->hold.len && s->hold.data[i] == '{';
}

int spoken_put(struct spoken *s, const char *text, size_t n)
{
    const struct dialect_mark *m;
    size_t at;
    TRY(buf_append(&s->hold, text, n));
    if (!s->hold.len) return 0;
    if (begins_bare(s)) {
        s->state = SAID_CALL;
        s->opened = NULL;
    }
    while ((m = first_mark(s, &at))) {
        TRY(say(s, s->hold.data, at));
        TRY(turn(s, m));
        cut(&s->hold, at + strlen(m->text));
    }
    size_t keep = pending(s);
    TRY(say(s, s->hold.data, s->hold.len - keep));
    cut(&s->hold, s->hold.len - keep);
    if (in_call(s)) advance(s);
    if (no_mark(s)) {
        tell(s, s->gap.data, s->gap.len);
        buf_clear(&s->gap);
    }
    return 0;
}

int spoken_end(struct spoken *s)
{
    if (s->hold.len) TRY(say(s, s->hold.data, s->hold.len));
    buf_clear(&s->hold);
    if (in_call(s)) TRY(end_call(s, NULL));
    if (s->state == SAID_CONTENT) tell(s, s->gap.data, s->gap.len);
    buf_clear(&s->gap);
    return 0;
}
