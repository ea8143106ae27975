/* text.c - string values.  A substring shares the bytes of its source.  A string that ends where its buffer ends
 * is extended in place, so building a text piece by piece takes linear time.
 *
 * A string knows which of its bytes are foreign: those that came from the caller.  Cutting and joining keep this
 * exactly.  The result of any other computation is foreign as a whole if an input was. */
#include "base/utf8.h"
#include "chat/value.h"

#include <string.h>

static int ranges_add(struct render_state *r, struct ranges *g, size_t from, size_t to)
{
    if (from == to) return 0;
    if (g->n && g->v[g->n - 1].to == from) {
        g->v[g->n - 1].to = to;
        return 0;
    }
    ARENA_GROW(&r->mem, g);
    g->v[g->n++] = (struct jinja_span){from, to};
    return 0;
}

/* Returns the number of the first range that ends after `at`. */
static size_t ranges_at(const struct ranges *g, size_t at)
{
    size_t lo = 0, hi = g->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (g->v[mid].to <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Adds the foreign parts of s[from..from+n) to g.  In g's text these bytes lie at `at`. */
static int ranges_copy(struct render_state *r, struct ranges *g, size_t at, const struct str *s,
                       size_t from, size_t n)
{
    const struct str_buf *b = s->buf;
    if (!b) return 0;
    if (b->all) return ranges_add(r, g, at, at + n);
    size_t off = (size_t)(s->s - b->p) + from;
    for (size_t i = ranges_at(&b->foreign, off); i < b->foreign.n; i++) {
        struct jinja_span x = b->foreign.v[i];
        if (x.from >= off + n) break;
        TRY(render_work(r, 1));
        TRY(ranges_add(r, g, at + MAX(x.from, off) - off, at + MIN(x.to, off + n) - off));
    }
    return 0;
}

bool str_foreign(const struct str *s)
{
    const struct str_buf *b = s->buf;
    if (!b || !s->n) return false;
    if (b->all) return true;
    size_t off = (size_t)(s->s - b->p), i = ranges_at(&b->foreign, off);
    return i < b->foreign.n && b->foreign.v[i].from < off + s->n;
}

bool val_foreign(struct val v)
{
    if (v.t == V_STR) return str_foreign(v.str);
    return v.t == V_SEQ || v.t == V_DICT || v.t == V_SPACE;
}

void str_taint(struct render_state *r, struct val to, struct val from)
{
    if (val_foreign(from)) to.str->buf = &r->foreign;
}

void text_init(struct text_build *t, size_t max)
{
    *t = (struct text_build){0};
    buf_init(&t->b, max);
}

int text_put(struct render_state *r, struct text_build *t, const struct str *s, size_t from,
             size_t n)
{
    size_t at = t->b.len;
    TRY(buf_append(&t->b, s->s + from, n));
    return ranges_copy(r, &t->foreign, at, s, from, n);
}

int text_mark(struct render_state *r, struct text_build *t, size_t from)
{
    while (t->foreign.n && t->foreign.v[t->foreign.n - 1].to > from) {
        struct jinja_span *last = &t->foreign.v[t->foreign.n - 1];
        if (last->from < from)
            last->to = from;
        else
            t->foreign.n--;
    }
    return ranges_add(r, &t->foreign, from, t->b.len);
}

int text_take(struct render_state *r, int e, struct text_build *t, struct val *out)
{
    struct str_buf *b;
    TRY(str_take(r, e, &t->b, out));
    out->str->buf = NULL;
    if (!t->foreign.n) return 0;
    RUN_NEW(r, b, 1);
    *b = (struct str_buf){
        .p = (char *)out->str->s, .len = out->str->n, .cap = out->str->n, .foreign = t->foreign};
    out->str->buf = b;
    return 0;
}

int str_view(struct render_state *r, const char *s, size_t n, struct val *out)
{
    struct str *t;
    RUN_NEW(r, t, 1);
    t->s = s;
    t->n = n;
    t->chars = SIZE_MAX;
    t->buf = r->tainting ? &r->foreign : NULL;
    *out = (struct val){.t = V_STR, .str = t};
    return 0;
}

static int str_new(struct render_state *r, const char *s, size_t n, struct val *out)
{
    char *copy;
    RUN_NEW(r, copy, n);
    TRY(render_work_bytes(r, n));
    if (n) memcpy(copy, s, n);
    return str_view(r, copy, n, out);
}

int str_puts(struct render_state *r, const char *s, struct val *out)
{
    return str_view(r, s, strlen(s), out);
}

int str_take(struct render_state *r, int e, struct buf *b, struct val *out)
{
    if (e >= 0) e = str_new(r, b->data ? b->data : "", b->len, out);
    buf_done(b);
    return e;
}

int str_join2(struct render_state *r, struct val a, struct val b, struct val *out)
{
    struct str *x = a.str, *y = b.str;
    size_t n;
    if (!ck_add(x->n, y->n, &n)) n = SIZE_MAX; /* the limit below refuses it */
    struct str_buf *g = x->buf;
    bool room = g && g->p && x->s + x->n == g->p + g->len && g->cap - g->len >= y->n;
    if (!room) {
        if (n > RENDER_MAX_MEMORY)
            return ERR(LIMIT, "the texts that the template joins have %zu bytes, the limit is %u",
                       n, RENDER_MAX_MEMORY);
        RUN_NEW(r, g, 1);
        g->cap = n < 64 ? n : n * 2;
        RUN_NEW(r, g->p, g->cap);
        memcpy(g->p, x->s, x->n);
        g->len = x->n;
        TRY(ranges_copy(r, &g->foreign, 0, x, 0, x->n));
        TRY(render_work_bytes(r, x->n));
    }
    TRY(render_work_bytes(r, y->n));
    const char *start = room ? x->s : g->p;
    memcpy(g->p + g->len, y->s, y->n);
    TRY(ranges_copy(r, &g->foreign, g->len, y, 0, y->n));
    g->len += y->n;
    TRY(str_view(r, start, n, out));
    out->str->buf = g;
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

int str_sub(struct render_state *r, struct val s, size_t from, size_t to, struct val *out)
{
    bool ascii = s.str->chars == s.str->n;
    if (from == 0 && to == s.str->n) {
        *out = s;
        return 0;
    }
    TRY(str_view(r, s.str->s + from, to - from, out));
    if (ascii) out->str->chars = to - from;
    out->str->buf = s.str->buf;
    out->safe = s.safe;
    return 0;
}

bool str_is(const struct str *s, const char *lit)
{
    return strlen(lit) == s->n && memcmp(s->s, lit, s->n) == 0;
}

bool str_same(const struct str *a, const struct str *b)
{
    return a->n == b->n && memcmp(a->s, b->s, a->n) == 0;
}

int str_escape(struct render_state *r, struct val v, struct val *out)
{
    static const char from[] = "&<>'\"", *const into[] = {"&amp;", "&lt;", "&gt;", "&#39;",
                                                          "&#34;"};
    struct buf b;
    int e = 0;
    TRY(val_str(r, v, &v));
    *out = v;
    if (v.safe) return 0;
    TRY(render_work_bytes(r, v.str->n * 4));
    buf_init(&b, RENDER_MAX_MEMORY);
    for (size_t i = 0; i < v.str->n && e >= 0; i++) {
        const char *hit = v.str->s[i] ? strchr(from, v.str->s[i]) : NULL;
        e = hit ? buf_puts(&b, into[hit - from]) : buf_putc(&b, v.str->s[i]);
    }
    TRY(str_take(r, e, &b, out));
    str_taint(r, *out, v);
    out->safe = true;
    return 0;
}

size_t str_trim_end(const char *s, size_t from, size_t to)
{
    while (to > from) {
        size_t at = utf8_back(s, to), len;
        if (!chr_space(utf8_decode(s + at, to - at, &len))) break;
        to = at;
    }
    return to;
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
