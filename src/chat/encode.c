/* encode.c - chat_render and chat_encode: prompts for a tokenizer.  Foreign text is text of the caller: messages,
 * tools, documents, kwargs.  It never becomes a control token.  The engine knows which bytes of the output are
 * foreign.  If the text of a special token touches a foreign byte, even only at its end, the tokenizer reads it as
 * plain text.  Special tokens that the template wrote stay control tokens. */
#include "chat/prompt.h"
#include "tok/tok.h"

#include <stdlib.h>
#include <string.h>

#define PROMPT_MAX (2 * JINJA_MAX_OUTPUT)

struct plain_spans {
    struct tok_span *v; /* owned (mem_free); ascending, disjoint */
    size_t n, cap;
    size_t n_own; /* special tokens that the template wrote */
};
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

/* Lists the texts of the special tokens in order. */
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

/* Words w[lo..hi) share their first `at` bytes.  Narrows the range to the words whose next byte is c. */
static void narrow(const struct word *w, size_t *lo, size_t *hi, size_t at, unsigned char c)
{
    size_t a = *lo, b = *hi;
    while (a < b) { /* finds the first word with a byte >= c; words that end here sort first */
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

/* Finds the longest special token at s, and the longest one of at most `room` bytes; 0: none.  Compares at most
 * *left bytes, and subtracts those that it has compared. */
static void longest_at(const struct word *w, size_t n_w, const char *s, size_t n, size_t room,
                       uint64_t *left, size_t *any, size_t *own)
{
    size_t lo = 0, hi = n_w;
    *any = *own = 0;
    for (size_t at = 0; *left > 0 && at < n && lo < hi; at++) {
        --*left;
        narrow(w, &lo, &hi, at, (unsigned char)s[at]);
        if (lo == hi || w[lo].n != at + 1) continue;
        *any = at + 1;
        if (at < room) *own = at + 1;
    }
}

static int push_span(struct plain_spans *p, size_t from, size_t to)
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
    uint64_t left = TOK_SCAN_MOST(n);
    for (size_t i = 0; i < n_w; i++)
        first[(unsigned char)w[i].s[0]] = true;
    for (size_t at = 0, f = 0; at < n; at++) {
        size_t any, own;
        if (!first[(unsigned char)s[at]]) continue;
        while (f < n_foreign && foreign[f].to <= at)
            f++;
        size_t edge = f < n_foreign ? foreign[f].from : n;
        longest_at(w, n_w, s + at, n - at, edge > at ? edge - at : 0, &left, &any, &own);
        if (!left)
            return ERR(LIMIT,
                       "the special tokens of this tokenizer take too many steps on this text; "
                       "the tokenizer file is broken or hostile");
        if (any > own) TRY(push_span(out, MAX(at, edge), MIN(at + any, foreign[f].to)));
        if (!own) continue;
        out->n_own++;
        at += own - 1;
    }
    return 0;
}

static int guard_spans(const struct tok *t, const char *s, size_t n,
                       const struct jinja_span *foreign, size_t n_foreign, struct plain_spans *out)
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

static const char *const special_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};

/* Returns the named special tokens as template variables; NULL when out of memory. */
static json_t *special_vars(const struct tok *t)
{
    json_t *o = json_object();
    for (size_t i = 0; i < countof(special_names) && o; i++) {
        const char *s = tok_special_text(t, special_names[i]);
        if (!s) continue;
        if (json_object_set_new(o, special_names[i], json_string(s)) == 0) continue;
        json_decref(o);
        o = NULL;
    }
    return o;
}

static int render(const struct tok *t, const json_t *messages, const struct chat_options *o,
                  struct buf *out, struct rendered *marks)
{
    const char *text = o->template_text ? o->template_text : t ? tok_chat_template(t) : NULL;
    if (!text)
        return ERR(NOTFOUND,
                   "this model has no chat template; give one, or generate from plain text");
    json_t *special = special_vars(t);
    if (!special || (o->special && json_object_update(special, (json_t *)(uintptr_t)o->special))) {
        json_decref(special);
        return ERR(NOMEM, "out of memory");
    }
    int e = prompt_render(text, special, messages, o, out, marks);
    json_decref(special);
    return e;
}

int chat_render(const struct tok *t, const json_t *messages, const struct chat_options *o,
                struct buf *out)
{
    struct rendered marks = {0};
    TRY(render(t, messages, o, out, &marks));
    rendered_done(&marks);
    return 0;
}

static size_t count_special(const struct tok *t, const struct ids *v, size_t from)
{
    size_t k = 0;
    for (size_t i = from; i < v->n; i++)
        k += tok_is_special(t, v->id[i]);
    return k;
}

/* Encodes text that spells a special token with foreign bytes as plain text, and the rest as usual.  If the result
 * has more control tokens than the template wrote, a normalizer has made one of foreign text.  Then the text is
 * encoded again with all foreign text as plain text. */
static int encode_guarded(const struct tok *t, const char *s, size_t n, const struct rendered *m,
                          struct ids *out, struct tok_places *at)
{
    struct plain_spans plain = {0};
    size_t from = out->n, placed = at ? at->n : 0;
    TRY(guard_spans(t, s, n, m->foreign, m->n_foreign, &plain));
    int e = tok_encode_placed(t, s, n, 0, plain.v, plain.n, out, at);
    if (e >= 0 && count_special(t, out, from) > plain.n_own) {
        struct tok_span *all = mem_array(m->n_foreign, sizeof *all);
        for (size_t i = 0; all && i < m->n_foreign; i++)
            all[i] = (struct tok_span){m->foreign[i].from, m->foreign[i].to};
        out->n = from;
        if (at) at->n = placed;
        e = all ? tok_encode_placed(t, s, n, 0, all, m->n_foreign, out, at) : ERR_NOMEM;
        mem_free(all);
    }
    mem_free(plain.v);
    return e;
}

/* Flags the ids [from, out->n) whose texts, which begin at at->v, lie in a span. */
static int mark(const struct rendered *m, const struct ids *out, size_t from,
                const struct tok_places *at, size_t end, bool **marked)
{
    size_t n = out->n - from, first = 0;
    bool *v = mem_array(n ? n : 1, sizeof *v);
    if (!v) return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        size_t lo = at->v[i], hi = MAX(i + 1 < n ? at->v[i + 1] : end, lo + 1);
        while (first < m->n_span && m->span[first].to <= lo)
            first++;
        for (size_t k = first; k < m->n_span && m->span[k].from < hi && !v[i]; k++)
            v[i] = m->span[k].from < m->span[k].to;
    }
    *marked = v;
    return 0;
}

static int encode_messages(const struct tok *t, const json_t *messages,
                           const struct chat_options *o, struct ids *out, struct buf *text,
                           bool **marked)
{
    struct buf prompt;
    struct rendered marks = {0};
    struct tok_places places = {0}, *at = marked ? &places : NULL;
    size_t n_ids = out->n;
    buf_init(&prompt, PROMPT_MAX);
    int e = render(t, messages, o, &prompt, &marks);
    const char *s = prompt.data ? prompt.data : "";
    if (e >= 0 && o->allow_special)
        e = tok_encode_placed(t, s, prompt.len, 0, NULL, 0, out, at);
    else if (e >= 0)
        e = encode_guarded(t, s, prompt.len, &marks, out, at);
    if (e >= 0 && text) e = buf_append(text, s, prompt.len);
    if (e >= 0 && marked) e = mark(&marks, out, n_ids, at, prompt.len, marked);
    if (e < 0) out->n = n_ids;
    tok_places_done(&places);
    rendered_done(&marks);
    buf_done(&prompt);
    return e < 0 ? e : 0;
}

int chat_encode(const struct tok *t, const json_t *messages, const struct chat_options *o,
                struct ids *out, struct buf *text)
{
    return encode_messages(t, messages, o, out, text, NULL);
}

int chat_encode_marked(const struct tok *t, const json_t *messages, const struct chat_options *o,
                       struct ids *out, bool **marked)
{
    return encode_messages(t, messages, o, out, NULL, marked);
}
