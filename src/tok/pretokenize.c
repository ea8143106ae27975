/* pretokenize.c - pre-tokenizers.  Each one reads work.text, cut into work.parts, and cuts the parts further; some
 * also write a new text.  A pattern sees one part at a time as if it were the whole text, because look-behind and
 * anchors mean that in the reference.  Empty parts are dropped. */
#include "base/utf8.h"
#include "tok/tok_int.h"

#include <string.h>

uint32_t byte_to_char(uint8_t b)
{
    if (b <= 0x20) return 0x100u + b;
    if (b >= 0x7F && b <= 0xA0) return 0x121u + b - 0x7F;
    return b == 0xAD ? 0x143u : b;
}

int char_to_byte(uint32_t cp)
{
    if (cp >= 0x100 && cp <= 0x120) return (int)cp - 0x100;
    if (cp >= 0x121 && cp <= 0x142) return (int)cp - 0x121 + 0x7F;
    if (cp == 0x143) return 0xAD;
    return (cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xFF && cp != 0xAD) ? (int)cp : -1;
}

int parts_push(struct text_parts *p, size_t from, size_t to)
{
    if (p->n == p->cap) {
        size_t cap = MAX(p->cap * 2, (size_t)64);
        struct text_part *v = mem_grow(p->v, cap, sizeof *v);
        if (!v) return ERR_NOMEM;
        p->v = v;
        p->cap = cap;
    }
    p->v[p->n++] = (struct text_part){from, to};
    return 0;
}

/* The five behaviors as one rule: which stretches join the stretch before them. */
struct part_cutter {
    struct text_parts *out;
    enum pre_behavior behavior;
    bool open, was_hit;
    struct text_part now;
};

static int cut_flush(struct part_cutter *c)
{
    bool keep = c->open && c->now.from < c->now.to;
    c->open = false;
    return keep ? parts_push(c->out, c->now.from, c->now.to) : 0;
}

static int cut_feed(struct part_cutter *c, size_t from, size_t to, bool hit)
{
    bool join = false;
    if (c->behavior == CUT_REMOVED && hit) return 0;
    if (c->behavior == CUT_PREVIOUS) join = hit && !c->was_hit;
    if (c->behavior == CUT_NEXT) join = !hit && c->was_hit;
    if (c->behavior == CUT_CONTIGUOUS) join = hit == c->was_hit;
    c->was_hit = hit;
    if (join && c->open) {
        c->now.to = to;
        return 0;
    }
    TRY(cut_flush(c));
    c->now = (struct text_part){from, to};
    c->open = true;
    return 0;
}

static int cut_by_pattern(const struct pattern *p, enum pre_behavior how, bool invert,
                          const char *shadow, struct text_part at, struct encode_scratch *w)
{
    struct part_cutter c = {.out = &w->cut, .behavior = how};
    struct hits h = {
        .p = p, .s = w->text.data + at.from, .shadow = shadow + at.from, .n = at.to - at.from};
    struct hit hit;
    size_t done = 0;
    for (int found; (found = hits_next(&h, &w->matcher, &hit)) != 0; done = hit.to) {
        if (found < 0) return found;
        if (hit.from > done) TRY(cut_feed(&c, at.from + done, at.from + hit.from, invert));
        TRY(cut_feed(&c, at.from + hit.from, at.from + hit.to, !invert));
    }
    if (done < h.n) TRY(cut_feed(&c, at.from + done, at.to, invert));
    return cut_flush(&c);
}

static int cut_all(const struct pattern *p, enum pre_behavior how, bool invert,
                   struct encode_scratch *w)
{
    bool changed = false;
    if (!pattern_literal(p, &(size_t){0})) {
        buf_clear(&w->shadow);
        TRY(uni_shadow(w->text.data, w->text.len, &w->shadow, &changed));
    }
    w->cut.n = 0;
    for (size_t i = 0; i < w->parts.n; i++)
        TRY(cut_by_pattern(p, how, invert, changed ? w->shadow.data : w->text.data, w->parts.v[i],
                           w));
    return 0;
}

static void swap_parts(struct encode_scratch *w)
{
    struct text_parts t = w->parts;
    w->parts = w->cut;
    w->cut = t;
}

/* Puts a space in front of every part that begins with none.  The number of parts stays. */
static int add_spaces(struct encode_scratch *w)
{
    work_fresh(w);
    w->cut.n = 0;
    for (size_t i = 0; i < w->parts.n; i++) {
        struct text_part p = w->parts.v[i];
        size_t from = w->next.len;
        if (w->text.data[p.from] != ' ') TRY(work_put(w, " ", 1, p.from));
        TRY(work_keep(w, p.from, p.to));
        TRY(parts_push(&w->cut, from, w->next.len));
    }
    work_swap(w);
    swap_parts(w);
    return 0;
}

/* Maps the bytes of a part to characters and puts many at once.  Where places are wanted, each byte has its own
 * place and is put alone. */
static int map_part(struct encode_scratch *w, const struct text_part *p)
{
    char tmp[512];
    size_t n = 0;
    for (size_t k = p->from; k < p->to; k++) {
        n += utf8_encode(byte_to_char((uint8_t)w->text.data[k]), tmp + n);
        if (!w->placed && n + 4 <= sizeof tmp && k + 1 < p->to) continue;
        TRY(work_put(w, tmp, n, k));
        n = 0;
    }
    return 0;
}

static int map_bytes(struct encode_scratch *w)
{
    work_fresh(w);
    for (size_t i = 0; i < w->parts.n; i++) {
        struct text_part *p = &w->parts.v[i];
        size_t from = w->next.len;
        TRY(map_part(w, p));
        *p = (struct text_part){from, w->next.len};
    }
    work_swap(w);
    return 0;
}

static int pre_bytes(const struct pre *p, struct encode_scratch *w)
{
    if (p->prefix_space) TRY(add_spaces(w));
    if (p->pattern) {
        TRY(cut_all(p->pattern, CUT_ISOLATED, false, w));
        swap_parts(w);
    }
    return map_bytes(w);
}

static int pre_meta(const struct pre *p, struct encode_scratch *w)
{
    work_fresh(w);
    w->cut.n = 0;
    for (size_t i = 0; i < w->parts.n; i++) {
        struct text_part at = w->parts.v[i];
        const char *s = w->text.data + at.from;
        size_t n = at.to - at.from, from = w->next.len;
        bool marked = s[0] == ' ' || (n >= p->n_meta && memcmp(s, p->meta, p->n_meta) == 0);
        bool wanted =
            p->scheme == META_ALWAYS || (p->scheme == META_FIRST && at.from == 0 && w->at_start);
        if (wanted && !marked) TRY(work_put(w, p->meta, p->n_meta, at.from));
        for (size_t k = 0; k < n; k++) {
            bool mark =
                s[k] == ' ' || (n - k >= p->n_meta && memcmp(s + k, p->meta, p->n_meta) == 0);
            if (mark && p->split && w->next.len > from) {
                TRY(parts_push(&w->cut, from, w->next.len));
                from = w->next.len;
            }
            if (s[k] == ' ')
                TRY(work_put(w, p->meta, p->n_meta, at.from + k));
            else
                TRY(work_keep(w, at.from + k, at.from + k + 1));
        }
        if (w->next.len > from) TRY(parts_push(&w->cut, from, w->next.len));
    }
    work_swap(w);
    swap_parts(w);
    return 0;
}

/* Returns the class of a character for the Whitespace pre-tokenizer, which cuts between classes.  0: white space,
 * 1: word, 2: anything else. */
static int word_class(uint32_t cp)
{
    if (uni_is_word(cp)) return 1;
    return uni_is_space(cp) ? 0 : 2;
}

static int cut_words(struct text_part at, struct encode_scratch *w)
{
    int was = 0;
    size_t from = at.from;
    for (size_t i = at.from, len; i < at.to; i += len) {
        int now = word_class(utf8_decode(w->text.data + i, at.to - i, &len));
        if (now == was) continue;
        if (was) TRY(parts_push(&w->cut, from, i));
        from = i;
        was = now;
    }
    return was ? parts_push(&w->cut, from, at.to) : 0;
}

static int cut_by_class(const struct pre *p, struct text_part at, struct encode_scratch *w)
{
    struct part_cutter c = {.out = &w->cut, .behavior = p->behavior};
    size_t done = at.from;
    for (size_t i = at.from, len; i < at.to; i += len) {
        uint32_t cp = utf8_decode(w->text.data + i, at.to - i, &len);
        bool hit = p->kind == PRE_DIGITS   ? uni_is_numeric(cp)
                   : p->kind == PRE_SPACES ? uni_is_space(cp)
                                           : uni_is_punct(cp);
        if (!hit) continue;
        if (i > done) TRY(cut_feed(&c, done, i, false));
        TRY(cut_feed(&c, i, i + len, true));
        done = i + len;
    }
    if (done < at.to) TRY(cut_feed(&c, done, at.to, false));
    return cut_flush(&c);
}

static int pretokenize_step(const struct pre *p, struct encode_scratch *w)
{
    w->cut.n = 0;
    switch (p->kind) {
    case PRE_BYTES:
        return pre_bytes(p, w);
    case PRE_META:
        return pre_meta(p, w);
    case PRE_SPLIT:
        TRY(cut_all(p->pattern, p->behavior, p->invert, w));
        break;
    case PRE_WORDS:
        for (size_t i = 0; i < w->parts.n; i++)
            TRY(cut_words(w->parts.v[i], w));
        break;
    case PRE_DIGITS:
    case PRE_SPACES:
    case PRE_PUNCT:
        for (size_t i = 0; i < w->parts.n; i++)
            TRY(cut_by_class(p, w->parts.v[i], w));
        break;
    }
    swap_parts(w);
    return 0;
}

int pretokenize_run(const struct pre *v, uint32_t n, struct encode_scratch *w)
{
    w->parts.n = 0;
    if (w->text.len > 0) TRY(parts_push(&w->parts, 0, w->text.len));
    for (uint32_t i = 0; i < n && w->parts.n > 0; i++) {
        TRY(pretokenize_step(&v[i], w));
        TRY(work_made(w, TOK_MAX_STEPS + i));
    }
    return 0;
}
