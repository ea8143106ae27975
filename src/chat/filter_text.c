/* filter_text.c - filters that make text. */
#include "base/utf8.h"
#include "chat/filter.h"

#include <string.h>

/* The input as a string (numbers are printed); undefined is empty. */
static int self_text(struct call *c, struct val *out)
{
    return val_str(c->r, c->self, out);
}

static int do_case(struct call *c, enum str_case how, struct val *out)
{
    struct val s;
    TRY(self_text(c, &s));
    return str_convert(c->r, s, how, out);
}

static int f_upper(struct call *c, struct val *out)
{
    return do_case(c, CASE_UPPER, out);
}

static int f_lower(struct call *c, struct val *out)
{
    return do_case(c, CASE_LOWER, out);
}

static int f_capitalize(struct call *c, struct val *out)
{
    return do_case(c, CASE_CAPITAL, out);
}

static int title_part(struct run *r, const char *s, size_t n, enum str_case how, struct buf *out)
{
    struct val v;
    TRY(str_view(r, s, n, &v));
    TRY(str_convert(r, v, how, &v));
    return buf_append(out, v.str->s, v.str->n);
}

/* Words begin after white space, - ( { [ <; the first letter is raised, the rest lowered. */
static int f_title(struct call *c, struct val *out)
{
    struct val s;
    struct buf b;
    int e = 0;
    TRY(self_text(c, &s));
    buf_init(&b, RUN_MAX_MEMORY);
    for (size_t at = 0; at < s.str->n && e >= 0;) {
        size_t from = at, len;
        uint32_t ch = utf8_decode(s.str->s + at, s.str->n - at, &len);
        bool gap = chr_space(ch) || (ch < 128 && ch && strchr("-({[<", (int)ch));
        at += len;
        while (!gap && at < s.str->n) {
            ch = utf8_decode(s.str->s + at, s.str->n - at, &len);
            if (chr_space(ch) || (ch < 128 && ch && strchr("-({[<", (int)ch))) break;
            at += len;
        }
        size_t head = 0;
        utf8_decode(s.str->s + from, at - from, &head);
        e = title_part(c->r, s.str->s + from, head, CASE_UPPER, &b);
        if (e >= 0) e = title_part(c->r, s.str->s + from + head, at - from - head, CASE_LOWER, &b);
    }
    if (e >= 0) return str_take(c->r, &b, out);
    buf_done(&b);
    return e;
}

static int f_trim(struct call *c, struct val *out)
{
    struct val s;
    TRY(self_text(c, &s));
    return text_strip(c->r, s, c->a[0], true, true, out);
}

static int f_string(struct call *c, struct val *out)
{
    return self_text(c, out);
}

static int f_safe(struct call *c, struct val *out)
{
    TRY(self_text(c, out));
    out->safe = true;
    return 0;
}

static int f_escape(struct call *c, struct val *out)
{
    return str_escape(c->r, c->self, out);
}

static int f_forceescape(struct call *c, struct val *out)
{
    TRY(self_text(c, out));
    out->safe = false;
    return str_escape(c->r, *out, out);
}

static int f_replace(struct call *c, struct val *out)
{
    struct val s, from, to;
    int64_t count;
    TRY(self_text(c, &s));
    TRY(val_str(c->r, c->a[0], &from));
    TRY(val_str(c->r, c->a[1], &to));
    TRY(args_int(c, 2, -1, &count));
    s.safe = false;
    return text_replace(c->r, s, from, to, count, out);
}

static int f_join(struct call *c, struct val *out)
{
    struct iter it;
    struct val item, sep;
    struct text t;
    bool first = true;
    int e;
    if (c->a[0].t == V_MISSING)
        TRY(str_puts(c->r, "", &sep));
    else
        TRY(val_str(c->r, c->a[0], &sep));
    TRY(iter_init(c->r, c->self, &it));
    text_init(&t, RUN_MAX_MEMORY);
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        if (!first) e = val_print(c->r, sep, &t);
        first = false;
        if (e >= 0 && c->a[1].t != V_MISSING && c->a[1].t != V_NONE)
            e = val_path(c->r, item, c->a[1], (struct val){.t = V_MISSING}, &item);
        if (e >= 0) e = val_print(c->r, item, &t);
        if (e < 0) break;
    }
    if (e >= 0) return text_take(c->r, &t, out);
    text_done(&t);
    return e;
}

static int indent_unit(struct call *c, struct val *out)
{
    struct val one;
    int64_t width;
    if (c->a[0].t == V_STR) {
        *out = c->a[0];
        return 0;
    }
    TRY(args_int(c, 0, 4, &width));
    TRY(str_puts(c->r, " ", &one));
    return val_binary(c->r, OP_MUL, one, val_int(width), out);
}

/* Lines are joined by \n again; blank ones are only indented when asked. */
static int f_indent(struct call *c, struct val *out)
{
    struct val s, unit;
    struct text t;
    bool first = args_truth(c, 1, false), blank = args_truth(c, 2, false);
    if (c->self.t == V_UNDEF) return val_fail_undef(c->r, c->self);
    if (c->self.t != V_STR) /* the reference appends a newline first */
        return run_fail(c->r,
                        val_is_list(c->self) ? "'%s' object has no attribute 'splitlines'"
                        : val_is_tuple(c->self)
                            ? "can only concatenate %s (not \"str\") to tuple"
                            : "unsupported operand type(s) for +=: '%s' and 'str'",
                        val_type_name(c->self));
    s = c->self;
    TRY(indent_unit(c, &unit));
    text_init(&t, RUN_MAX_MEMORY);
    int e = 0;
    bool more = true;
    for (size_t at = 0, line = 0; more && e >= 0; line++) {
        size_t end, next;
        more = text_line(s.str, at, &end, &next) && next > end;
        bool put = line ? blank || end > at : first;
        e = run_work_bytes(c->r, unit.str->n + (end - at));
        if (line && e >= 0) e = buf_putc(&t.b, '\n');
        if (put && e >= 0) e = text_put(c->r, &t, unit.str, 0, unit.str->n);
        if (e >= 0) e = text_put(c->r, &t, s.str, at, end - at);
        at = next;
    }
    if (e >= 0)
        e = text_take(c->r, &t, out);
    else
        text_done(&t);
    if (e >= 0) out->safe = s.safe;
    return e;
}

static int f_center(struct call *c, struct val *out)
{
    int64_t width;
    struct val s;
    TRY(args_int(c, 0, 80, &width));
    TRY(self_text(c, &s));
    return text_pad(c->r, s, width, ' ', PAD_CENTER, out);
}

static int f_truncate(struct call *c, struct val *out)
{
    int64_t length, leeway;
    struct val s = c->self, end;
    size_t chars;
    TRY(args_int(c, 0, 255, &length));
    TRY(args_int(c, 3, 5, &leeway));
    if (c->a[2].t == V_MISSING)
        TRY(str_puts(c->r, "...", &end));
    else
        TRY(args_str(c, 2, &end));
    TRY(val_len(c->r, s, &chars));
    int64_t n = (int64_t)chars, n_end = (int64_t)str_chars(end.str);
    if (length < n_end)
        return run_fail(c->r, "expected length >= %lld, got %lld", (long long)n_end,
                        (long long)length);
    if (leeway < 0) return run_fail(c->r, "expected leeway >= 0, got %lld", (long long)leeway);
    *out = s;
    if (n <= length || n - length <= leeway) return 0;
    if (s.t != V_STR) return run_fail(c->r, "cannot truncate a '%s'", val_type_name(s));
    size_t cut = str_offset(s.str, (size_t)(length - n_end));
    if (!args_truth(c, 1, false)) {
        size_t space = str_rfind(s.str->s, cut, " ", 1);
        if (space != SIZE_MAX) cut = space;
    }
    TRY(str_sub(c->r, s, 0, cut, &s));
    return str_join2(c->r, s, end, out);
}

static int f_wordcount(struct call *c, struct val *out)
{
    struct val s;
    int64_t n = 0;
    bool in = false;
    TRY(self_text(c, &s));
    TRY(run_work_bytes(c->r, s.str->n * 4));
    for (size_t at = 0, len; at < s.str->n; at += len) {
        bool word = chr_is(utf8_decode(s.str->s + at, s.str->n - at, &len), IS_WORD);
        n += word && !in;
        in = word;
    }
    *out = val_int(n);
    return 0;
}

static int f_format(struct call *c, struct val *out)
{
    struct val s, arg;
    TRY(self_text(c, &s));
    if (c->raw->n && c->raw->n_kw)
        return run_fail(c->r, "can't handle positional and keyword arguments at the same time");
    if (c->raw->n_kw) {
        struct dict *d;
        TRY(dict_new(c->r, c->raw->n_kw, &d));
        for (size_t i = 0; i < c->raw->n_kw; i++) {
            struct val k = {.t = V_STR, .str = (struct str *)c->raw->kw[i].name};
            TRY(dict_put(c->r, d, k, c->raw->kw[i].v));
        }
        arg = (struct val){.t = V_DICT, .dict = d};
    } else {
        struct seq *t;
        TRY(seq_new(c->r, SEQ_TUPLE, c->raw->n, &t));
        if (c->raw->n) memcpy(t->v, c->raw->v, c->raw->n * sizeof *t->v);
        t->n = c->raw->n;
        arg = val_seq(t);
    }
    return format_percent(c->r, s, arg, out);
}

/* Everything outside letters, digits and _.-~ becomes %XX; / stays in paths, blanks are + in queries. */
static int url_quote(struct call *c, struct val v, bool query, struct buf *b)
{
    TRY(val_str(c->r, v, &v));
    TRY(run_work_bytes(c->r, v.str->n * 3));
    for (size_t i = 0; i < v.str->n; i++) {
        unsigned char ch = (unsigned char)v.str->s[i];
        bool plain = (ch >= '0' && ch <= '9') || ((ch | 32) >= 'a' && (ch | 32) <= 'z') ||
                     (ch && strchr("_.-~", ch)) || (ch == '/' && !query);
        if (ch == ' ' && query)
            TRY(buf_putc(b, '+'));
        else if (plain)
            TRY(buf_putc(b, (char)ch));
        else
            TRY(buf_printf(b, "%%%02X", ch));
    }
    return 0;
}

/* Pairs as a query: k=v&k=v. */
static int url_pairs(struct call *c, struct val pairs, struct buf *b)
{
    struct iter it;
    struct val item;
    int e;
    TRY(iter_init(c->r, pairs, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        struct seq *kv;
        if (iter_init(c->r, item, &(struct iter){.at = 0}) < 0)
            return run_fail(c->r, "cannot unpack non-iterable %s object", val_type_name(item));
        TRY(val_list(c->r, item, &kv));
        if (kv->n != 2)
            return run_fail(c->r,
                            kv->n < 2 ? "not enough values to unpack (expected 2, got %zu)"
                                      : "too many values to unpack (expected 2, got %zu)",
                            kv->n);
        if (b->len) TRY(buf_putc(b, '&'));
        TRY(url_quote(c, kv->v[0], true, b));
        TRY(buf_putc(b, '='));
        TRY(url_quote(c, kv->v[1], true, b));
    }
    return e;
}

static int f_urlencode(struct call *c, struct val *out)
{
    struct val v = c->self;
    struct buf b;
    buf_init(&b, RUN_MAX_MEMORY);
    int e = 0;
    if (v.t == V_DICT) e = dict_view(c->r, v.dict, SEQ_ITEMS, &v);
    if (e >= 0)
        e = v.t == V_SEQ || v.t == V_RANGE || v.t == V_UNDEF ? url_pairs(c, v, &b)
                                                             : url_quote(c, v, false, &b);
    if (e >= 0) return str_take(c->r, &b, out);
    buf_done(&b);
    return e;
}

static int f_tojson(struct call *c, struct val *out)
{
    struct dumps_style s = {.ascii = args_truth(c, 0, false), .sort = args_truth(c, 3, false)};
    s.indent = c->a[1].t == V_MISSING ? val_none() : c->a[1];
    if (s.indent.t != V_NONE && s.indent.t != V_STR && !val_is_int(s.indent))
        return run_fail(c->r, "indent must be a number, a text or none, not %s",
                        val_type_name(s.indent));
    struct val sep = c->a[2];
    if (sep.t != V_MISSING && sep.t != V_NONE) {
        if ((!val_is_tuple(sep) && !val_is_list(sep)) || sep.seq->n != 2 ||
            sep.seq->v[0].t != V_STR || sep.seq->v[1].t != V_STR)
            return run_fail(c->r, "separators must be two texts");
        s.item_sep = sep.seq->v[0];
        s.key_sep = sep.seq->v[1];
    }
    return val_dumps(c->r, c->self, &s, out);
}

const struct fn_row filters_text[] = {
    {"capitalize", f_capitalize, "", 0},
    {"center", f_center, "width", 0},
    {"e", f_escape, "", 0},
    {"escape", f_escape, "", 0},
    {"forceescape", f_forceescape, "", 0},
    {"format", f_format, NULL, 0},
    {"indent", f_indent, "width first blank", 0},
    {"join", f_join, "d attribute", 0},
    {"lower", f_lower, "", 0},
    {"replace", f_replace, "old new count", 2},
    {"safe", f_safe, "", 0},
    {"string", f_string, "", 0},
    {"title", f_title, "", 0},
    {"tojson", f_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", f_trim, "chars", 0},
    {"truncate", f_truncate, "length killwords end leeway", 0},
    {"upper", f_upper, "", 0},
    {"urlencode", f_urlencode, "", 0},
    {"wordcount", f_wordcount, "", 0},
    {NULL, NULL, NULL, 0},
};
