/* guard.c - where the caller's text in a prompt spells a special token.  Every place where the text
 * of a special token touches foreign bytes becomes a plain span, also when only its end or its
 * beginning is foreign; places the template wrote itself stay control tokens. */
#include "chat/prompt.h"
#include "tok/tok.h"

#include <stdlib.h>
#include <string.h>

struct word {
    const char *s;
    size_t n;
};

static int by_text(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    int k = memcmp(x->s, y->s, MIN(x->n, y->n));
    return k ? k : (x->n > y->n) - (x->n < y->n);
}

/* The special tokens' texts in order. */
static int collect(const struct tok *t, struct word **out, size_t *n_out)
{
    uint32_t n = tok_n_added(t);
    struct word *w = mem_array(n, sizeof *w);
    size_t k = 0;
    if (!w) return ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        bool special = false;
        int32_t id;
        struct word x = {0};
        x.s = tok_added(t, i, &x.n, &id, &special);
        if (x.s && x.n && special) w[k++] = x;
    }
    qsort(w, k, sizeof *w, by_text);
    *out = w;
    *n_out = k;
    return 0;
}

/* Words w[lo..hi) share their first `at` bytes: keeps those whose next byte is c. */
static void narrow(const struct word *w, size_t *lo, size_t *hi, size_t at, unsigned char c)
{
    size_t a = *lo, b = *hi;
    while (a < b) { /* first with byte >= c; words that end here sort first */
        size_t mid = a + (b - a) / 2;
        if (w[mid].n <= at || (unsigned char)w[mid].s[at] < c)
            a = mid + 1;
        else
            b = mid;
    }
    *lo = a;
    b = *hi;
    while (a < b) {
        size_t mid = a + (b - a) / 2;
        if ((unsigned char)w[mid].s[at] <= c)
            a = mid + 1;
        else
            b = mid;
    }
    *hi = a;
}

/* The longest special token at s, and the longest one of at most `room` bytes; 0: none. */
static void longest_at(const struct word *w, size_t n_w, const char *s, size_t n, size_t room,
                       size_t *any, size_t *own)
{
    size_t lo = 0, hi = n_w;
    *any = *own = 0;
    for (size_t at = 0; at < n && lo < hi; at++) {
        narrow(w, &lo, &hi, at, (unsigned char)s[at]);
        if (lo == hi || w[lo].n != at + 1) continue;
        *any = at + 1;
        if (at < room) *own = at + 1;
    }
}

static int push(struct plain_spans *p, size_t from, size_t to)
{
    if (p->n && p->v[p->n - 1].to >= from) {
        p->v[p->n - 1].to = MAX(p->v[p->n - 1].to, to);
        return 0;
    }
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 16;
        struct tok_span *v = mem_grow(p->v, cap, sizeof *v);
        if (!v) return ERR_NOMEM;
        p->v = v;
        p->cap = cap;
    }
    p->v[p->n++] = (struct tok_span){from, to};
    return 0;
}

static int scan(const struct word *w, size_t n_w, const char *s, size_t n,
                const struct jinja_span *foreign, size_t n_foreign, struct plain_spans *out)
{
    bool first[256] = {false};
    for (size_t i = 0; i < n_w; i++)
        first[(unsigned char)w[i].s[0]] = true;
    for (size_t at = 0, f = 0; at < n; at++) {
        size_t any, own;
        if (!first[(unsigned char)s[at]]) continue;
        while (f < n_foreign && foreign[f].to <= at)
            f++;
        size_t edge = f < n_foreign ? foreign[f].from : n;
        longest_at(w, n_w, s + at, n - at, edge > at ? edge - at : 0, &any, &own);
        if (any > own) TRY(push(out, MAX(at, edge), MIN(at + any, foreign[f].to)));
        if (!own) continue;
        out->n_own++;
        at += own - 1;
    }
    return 0;
}

int guard_spans(const struct tok *t, const char *s, size_t n, const struct jinja_span *foreign,
                size_t n_foreign, struct plain_spans *out)
{
    struct word *w;
    size_t n_w;
    struct plain_spans p = {0};
    TRY(collect(t, &w, &n_w));
    int e = scan(w, n_w, s, n, foreign, n_foreign, &p);
    mem_free(w);
    if (e < 0)
        mem_free(p.v);
    else
        *out = p;
    return e;
}
