/* method_str.c - methods of strings that cut, join, search and convert.  Positions count code
 * points, as in Python. */
#include "base/utf8.h"
#include "chat/filter.h"

#include <string.h>

/* [from, to) as bytes, of the optional arguments i and i + 1 that count code points. */
static int byte_range(struct call *c, unsigned i, size_t *from, size_t *to)
{
    struct str *s = c->self.str;
    int64_t n = (int64_t)str_chars(s), a, b;
    TRY(args_int(c, i, 0, &a));
    TRY(args_int(c, i + 1, n, &b));
    if (a < 0) a = MAX(a + n, (int64_t)0);
    if (b < 0) b = MAX(b + n, (int64_t)0);
    *to = str_offset(s, (size_t)MIN(b, n));
    *from = a > n ? SIZE_MAX : str_offset(s, (size_t)a);
    return run_work_bytes(c->r, s->chars == s->n ? 0 : s->n * 4);
}

static int find(struct call *c, bool back, int64_t *out)
{
    struct str *s = c->self.str;
    struct val sub;
    size_t from, to, hit;
    TRY(args_str(c, 0, &sub));
    TRY(byte_range(c, 1, &from, &to));
    *out = -1;
    if (from == SIZE_MAX || from > to) return 0;
    TRY(run_work_bytes(c->r, to - from));
    if (back)
        TRY(text_rfind(c->r, s->s + from, to - from, sub.str, &hit));
    else
        hit = str_find(s->s + from, to - from, sub.str->s, sub.str->n);
    if (back && !sub.str->n) hit = to - from;
    if (hit != SIZE_MAX) *out = (int64_t)utf8_count(s->s, from + hit);
    return 0;
}

static int m_find(struct call *c, struct val *out)
{
    int64_t at;
    TRY(find(c, false, &at));
    *out = val_int(at);
    return 0;
}

static int m_rfind(struct call *c, struct val *out)
{
    int64_t at;
    TRY(find(c, true, &at));
    *out = val_int(at);
    return 0;
}

static int m_index(struct call *c, struct val *out)
{
    int64_t at;
    TRY(find(c, false, &at));
    *out = val_int(at);
    return at < 0 ? run_fail(c->r, "substring not found") : 0;
}

static int m_rindex(struct call *c, struct val *out)
{
    int64_t at;
    TRY(find(c, true, &at));
    *out = val_int(at);
    return at < 0 ? run_fail(c->r, "substring not found") : 0;
}

static int m_count(struct call *c, struct val *out)
{
    struct str *s = c->self.str;
    struct val sub;
    size_t from, to, hit;
    int64_t n = 0;
    TRY(args_str(c, 0, &sub));
    TRY(byte_range(c, 1, &from, &to));
    if (from == SIZE_MAX || from > to) {
        *out = val_int(0);
        return 0;
    }
    TRY(run_work_bytes(c->r, to - from));
    if (!sub.str->n) n = (int64_t)utf8_count(s->s + from, to - from) + 1;
    while (sub.str->n) {
        hit = str_find(s->s + from, to - from, sub.str->s, sub.str->n);
        if (hit == SIZE_MAX) break;
        TRY(run_work_bytes(c->r, BYTES_PER_STEP / 2 + hit + sub.str->n));
        from += hit + sub.str->n;
        n++;
    }
    *out = val_int(n);
    return 0;
}

static bool affix(const char *s, size_t n, const struct str *a, bool end)
{
    return a->n <= n && memcmp(end ? s + n - a->n : s, a->s, a->n) == 0;
}

static int starts_ends(struct call *c, bool end, struct val *out)
{
    struct val a = c->a[0];
    size_t from, to;
    TRY(byte_range(c, 1, &from, &to));
    bool hit = false, fits = from != SIZE_MAX && from <= to;
    const char *s = c->self.str->s + (fits ? from : 0);
    if (a.t == V_UNDEF) return val_fail_undef(c->r, a);
    if (a.t == V_STR) {
        hit = fits && affix(s, to - from, a.str, end);
    } else if (val_is_tuple(a)) {
        for (size_t i = 0; i < a.seq->n && !hit; i++) {
            TRY(run_work(c->r, 1));
            if (a.seq->v[i].t != V_STR)
                return run_fail(c->r, "tuple for %s must only contain str, not %s", c->row->name,
                                val_type_name(a.seq->v[i]));
            hit = fits && affix(s, to - from, a.seq->v[i].str, end);
        }
    } else {
        return run_fail(c->r, "%s first arg must be str or a tuple of str, not %s", c->row->name,
                        val_type_name(a));
    }
    *out = val_bool(hit);
    return 0;
}

static int m_startswith(struct call *c, struct val *out)
{
    return starts_ends(c, false, out);
}

static int m_endswith(struct call *c, struct val *out)
{
    return starts_ends(c, true, out);
}

static int m_strip(struct call *c, struct val *out)
{
    return text_strip(c->r, c->self, c->a[0], true, true, out);
}

static int m_lstrip(struct call *c, struct val *out)
{
    return text_strip(c->r, c->self, c->a[0], true, false, out);
}

static int m_rstrip(struct call *c, struct val *out)
{
    return text_strip(c->r, c->self, c->a[0], false, true, out);
}

static int m_removeprefix(struct call *c, struct val *out)
{
    struct val a;
    TRY(args_str(c, 0, &a));
    struct str *s = c->self.str;
    bool hit = affix(s->s, s->n, a.str, false);
    return str_sub(c->r, c->self, hit ? a.str->n : 0, s->n, out);
}

static int m_removesuffix(struct call *c, struct val *out)
{
    struct val a;
    TRY(args_str(c, 0, &a));
    struct str *s = c->self.str;
    bool hit = affix(s->s, s->n, a.str, true);
    return str_sub(c->r, c->self, 0, hit ? s->n - a.str->n : s->n, out);
}

static int m_split(struct call *c, struct val *out)
{
    int64_t most;
    TRY(args_int(c, 1, -1, &most));
    return text_split(c->r, c->self, c->a[0], most, false, out);
}

static int m_rsplit(struct call *c, struct val *out)
{
    int64_t most;
    TRY(args_int(c, 1, -1, &most));
    return text_split(c->r, c->self, c->a[0], most, true, out);
}

static int m_splitlines(struct call *c, struct val *out)
{
    struct seq *list;
    struct str *s = c->self.str;
    bool keep = args_truth(c, 0, false);
    TRY(seq_new(c->r, SEQ_LIST, 0, &list));
    for (size_t at = 0, end, next; at < s->n; at = next) {
        struct val line;
        text_line(s, at, &end, &next);
        TRY(run_work_bytes(c->r, BYTES_PER_STEP + next - at));
        TRY(str_sub(c->r, c->self, at, keep ? next : end, &line));
        TRY(seq_push(c->r, list, line));
    }
    *out = val_seq(list);
    return 0;
}

static int partition(struct call *c, bool back, struct val *out)
{
    struct str *s = c->self.str;
    struct val sep, part[3];
    size_t hit;
    TRY(args_str(c, 0, &sep));
    if (!sep.str->n) return run_fail(c->r, "empty separator");
    TRY(run_work_bytes(c->r, s->n));
    if (back)
        TRY(text_rfind(c->r, s->s, s->n, sep.str, &hit));
    else
        hit = str_find(s->s, s->n, sep.str->s, sep.str->n);
    bool none = hit == SIZE_MAX;
    TRY(str_sub(c->r, c->self, 0, none ? (back ? 0 : s->n) : hit, &part[0]));
    part[1] = sep;
    if (none) TRY(str_puts(c->r, "", &part[1]));
    TRY(str_sub(c->r, c->self, none ? (back ? 0 : s->n) : hit + sep.str->n, s->n, &part[2]));
    struct seq *t;
    TRY(seq_new(c->r, SEQ_TUPLE, 3, &t));
    memcpy(t->v, part, sizeof part);
    t->n = 3;
    *out = val_seq(t);
    return 0;
}

static int m_partition(struct call *c, struct val *out)
{
    return partition(c, false, out);
}

static int m_rpartition(struct call *c, struct val *out)
{
    return partition(c, true, out);
}

static int m_replace(struct call *c, struct val *out)
{
    struct val from, to;
    int64_t count;
    TRY(args_str(c, 0, &from));
    TRY(args_str(c, 1, &to));
    TRY(args_int(c, 2, -1, &count));
    if (c->self.safe) TRY(str_escape(c->r, to, &to)); /* Markup escapes what it takes in */
    return text_replace(c->r, c->self, from, to, count, out);
}

static int m_join(struct call *c, struct val *out)
{
    struct iter it;
    struct val item;
    struct text t;
    int e;
    size_t n = 0;
    if (iter_init(c->r, c->a[0], &it) < 0) return run_fail(c->r, "can only join an iterable");
    text_init(&t, RUN_MAX_MEMORY);
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        if (item.t != V_STR) {
            e = run_fail(c->r, "sequence item %zu: expected str instance, %s found", n,
                         val_type_name(item));
            break;
        }
        if (c->self.safe && (e = str_escape(c->r, item, &item)) < 0) break;
        if (n++) e = val_print(c->r, c->self, &t);
        if (e >= 0) e = val_print(c->r, item, &t);
        if (e < 0) break;
    }
    if (e >= 0)
        e = text_take(c->r, &t, out);
    else
        text_done(&t);
    if (e >= 0) out->safe = c->self.safe;
    return e;
}

static int pad(struct call *c, enum pad how, struct val *out)
{
    int64_t width;
    uint32_t fill = ' ';
    size_t len;
    TRY(args_int(c, 0, 0, &width));
    if (c->a[1].t != V_MISSING) {
        struct val f;
        TRY(args_str(c, 1, &f));
        if (str_chars(f.str) != 1)
            return run_fail(c->r, "The fill character must be exactly one character long");
        fill = utf8_decode(f.str->s, f.str->n, &len);
        if (fill == UTF8_BAD) fill = '?';
    }
    return text_pad(c->r, c->self, width, fill, how, out);
}

static int m_ljust(struct call *c, struct val *out)
{
    return pad(c, PAD_LEFT, out);
}

static int m_rjust(struct call *c, struct val *out)
{
    return pad(c, PAD_RIGHT, out);
}

static int m_center(struct call *c, struct val *out)
{
    return pad(c, PAD_CENTER, out);
}

static int m_zfill(struct call *c, struct val *out)
{
    struct str *s = c->self.str;
    int64_t width;
    struct val sign, rest;
    TRY(args_int(c, 0, 0, &width));
    if (!s->n || (s->s[0] != '-' && s->s[0] != '+'))
        return text_pad(c->r, c->self, width, '0', PAD_RIGHT, out);
    if (width <= (int64_t)str_chars(s)) {
        *out = c->self;
        return 0;
    }
    TRY(str_sub(c->r, c->self, 0, 1, &sign));
    TRY(str_sub(c->r, c->self, 1, s->n, &rest));
    TRY(text_pad(c->r, rest, width - 1, '0', PAD_RIGHT, &rest));
    return str_join2(c->r, sign, rest, out);
}

static int m_expandtabs(struct call *c, struct val *out)
{
    struct str *s = c->self.str;
    struct buf b;
    int64_t size, col = 0;
    int e = 0;
    TRY(args_int(c, 0, 8, &size));
    buf_init(&b, RUN_MAX_MEMORY);
    for (size_t i = 0; i < s->n && e >= 0; i++) {
        char ch = s->s[i];
        if (ch == '\t') {
            int64_t fill = size > 0 ? size - col % size : 0;
            e = run_work_bytes(c->r, (size_t)fill);
            for (col += fill; fill > 0 && e >= 0; fill--)
                e = buf_putc(&b, ' ');
        } else {
            e = buf_putc(&b, ch);
            col = ch == '\n' || ch == '\r' ? 0 : col + (((unsigned char)ch & 0xC0) != 0x80);
        }
    }
    if (e >= 0) return str_take(c->r, &b, out);
    buf_done(&b);
    return e;
}

static int m_format(struct call *c, struct val *out)
{
    return format_brace(c->r, c->self, c->raw, out);
}

static int m_format_map(struct call *c, struct val *out)
{
    struct val map = c->a[0];
    if (map.t != V_DICT) return run_fail(c->r, "format_map() needs a mapping");
    struct args args = {0};
    RUN_NEW(c->r, args.kw, map.dict->n);
    for (size_t i = 0; i < map.dict->n; i++)
        if (map.dict->e[i].k.t == V_STR)
            args.kw[args.n_kw++] = (struct kwarg){map.dict->e[i].k.str, map.dict->e[i].v};
    return format_brace(c->r, c->self, &args, out);
}

const struct fn_row methods_str[] = {
    {"center", m_center, "width fillchar", 1},
    {"count", m_count, "sub start end", 1},
    {"endswith", m_endswith, "suffix start end", 1},
    {"expandtabs", m_expandtabs, "tabsize", 0},
    {"find", m_find, "sub start end", 1},
    {"format", m_format, NULL, 0},
    {"format_map", m_format_map, "mapping", 1},
    {"index", m_index, "sub start end", 1},
    {"join", m_join, "iterable", 1},
    {"ljust", m_ljust, "width fillchar", 1},
    {"lstrip", m_lstrip, "chars", 0},
    {"partition", m_partition, "sep", 1},
    {"removeprefix", m_removeprefix, "prefix", 1},
    {"removesuffix", m_removesuffix, "suffix", 1},
    {"replace", m_replace, "old new count", 2},
    {"rfind", m_rfind, "sub start end", 1},
    {"rindex", m_rindex, "sub start end", 1},
    {"rjust", m_rjust, "width fillchar", 1},
    {"rpartition", m_rpartition, "sep", 1},
    {"rsplit", m_rsplit, "sep maxsplit", 0},
    {"rstrip", m_rstrip, "chars", 0},
    {"split", m_split, "sep maxsplit", 0},
    {"splitlines", m_splitlines, "keepends", 0},
    {"startswith", m_startswith, "prefix start end", 1},
    {"strip", m_strip, "chars", 0},
    {"zfill", m_zfill, "width", 1},
    {NULL, NULL, NULL, 0},
};
