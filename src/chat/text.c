/* text.c - string values.  Substrings share bytes with their source.  Appending to a string that
 * ends where its growing buffer ends writes behind it, so a text built piece by piece in a
 * namespace costs its length once, not the square. */
#include "base/utf8.h"
#include "chat/value.h"

#include <string.h>

struct str_buf {
    char *p;
    size_t len, cap;
};

int str_view(struct run *r, const char *s, size_t n, struct val *out)
{
    struct str *t;
    RUN_NEW(r, t, 1);
    t->s = s;
    t->n = n;
    t->chars = SIZE_MAX;
    *out = (struct val){.t = V_STR, .str = t};
    return 0;
}

int str_new(struct run *r, const char *s, size_t n, struct val *out)
{
    char *copy;
    RUN_NEW(r, copy, n);
    TRY(run_work_bytes(r, n));
    if (n) memcpy(copy, s, n);
    return str_view(r, copy, n, out);
}

int str_puts(struct run *r, const char *s, struct val *out)
{
    return str_view(r, s, strlen(s), out);
}

int str_take(struct run *r, struct buf *b, struct val *out)
{
    int e = str_new(r, b->data ? b->data : "", b->len, out);
    buf_done(b);
    return e;
}

int str_join2(struct run *r, struct val a, struct val b, struct val *out)
{
    struct str *x = a.str, *y = b.str;
    size_t n;
    if (!ck_add(x->n, y->n, &n)) return ERR(LIMIT, "text too long");
    struct str_buf *g = x->grow;
    bool room = g && x->s + x->n == g->p + g->len && g->cap - g->len >= y->n;
    if (!room) {
        if (n > RUN_MAX_MEMORY) return ERR(LIMIT, "text too long");
        RUN_NEW(r, g, 1);
        g->cap = n < 64 ? n : n * 2;
        RUN_NEW(r, g->p, g->cap);
        memcpy(g->p, x->s, x->n);
        g->len = x->n;
        TRY(run_work_bytes(r, x->n));
    }
    TRY(run_work_bytes(r, y->n));
    const char *start = room ? x->s : g->p;
    memcpy(g->p + g->len, y->s, y->n);
    g->len += y->n;
    TRY(str_view(r, start, n, out));
    out->str->grow = g;
    if (x->chars != SIZE_MAX && y->chars != SIZE_MAX) out->str->chars = x->chars + y->chars;
    return 0;
}

size_t str_chars(struct str *s)
{
    if (s->chars == SIZE_MAX || (s->chars == 0 && s->n)) s->chars = utf8_count(s->s, s->n);
    return s->chars;
}

size_t str_offset(struct str *s, size_t ch)
{
    size_t chars = str_chars(s), at = 0, len;
    if (ch >= chars) return s->n;
    if (chars == s->n) return ch;
    while (ch-- && at < s->n) {
        utf8_decode(s->s + at, s->n - at, &len);
        at += len;
    }
    return at;
}

int str_sub(struct run *r, struct val s, size_t from, size_t to, struct val *out)
{
    bool ascii = s.str->chars == s.str->n;
    if (from == 0 && to == s.str->n) {
        *out = s;
        return 0;
    }
    TRY(str_view(r, s.str->s + from, to - from, out));
    if (ascii) out->str->chars = to - from;
    out->safe = s.safe;
    return 0;
}

bool str_is(const struct str *s, const char *lit)
{
    return strlen(lit) == s->n && memcmp(s->s, lit, s->n) == 0;
}

size_t str_find(const char *h, size_t n, const char *needle, size_t m)
{
    if (m == 0) return 0;
    const char *p = m <= n ? memmem(h, n, needle, m) : NULL;
    return p ? (size_t)(p - h) : SIZE_MAX;
}

size_t str_rfind(const char *h, size_t n, const char *needle, size_t m)
{
    if (m > n) return SIZE_MAX;
    for (size_t at = n - m + 1; at-- > 0;)
        if (memcmp(h + at, needle, m) == 0) return at;
    return SIZE_MAX;
}

int str_escape(struct run *r, struct val v, struct val *out)
{
    TRY(val_str(r, v, &v));
    *out = v;
    if (v.safe) return 0;
    struct buf b;
    buf_init(&b, RUN_MAX_MEMORY);
    int e = 0;
    for (size_t i = 0; i < v.str->n && e >= 0; i++) {
        switch (v.str->s[i]) {
        case '&':
            e = buf_puts(&b, "&amp;");
            break;
        case '<':
            e = buf_puts(&b, "&lt;");
            break;
        case '>':
            e = buf_puts(&b, "&gt;");
            break;
        case '\'':
            e = buf_puts(&b, "&#39;");
            break;
        case '"':
            e = buf_puts(&b, "&#34;");
            break;
        default:
            e = buf_putc(&b, v.str->s[i]);
        }
    }
    if (e < 0)
        buf_done(&b);
    else
        e = str_take(r, &b, out);
    out->safe = true;
    return e;
}
