/* filter_text.c - filters that make text.  Rows with FN_TEXT get a string as self. */
#include "base/utf8.h"
#include "chat/builtin.h"

#include <string.h>

/* The filters string, safe and escape. */
int f_string(struct builtin_call *c, struct val *out)
{
    if (c->row->how == TEXT_ESCAPED) return str_escape(c->r, c->self, out);
    *out = c->self;
    out->safe |= c->row->how == TEXT_SAFE;
    return 0;
}

int f_case(struct builtin_call *c, struct val *out)
{
    return str_convert(c->r, c->self, (enum str_case)c->row->how, out);
}

int f_strip(struct builtin_call *c, struct val *out)
{
    return text_strip(c->r, c->self, c->a[0], (enum strip_how)c->row->how, out);
}

/* The filter and the method replace; the method takes only strings. */
int f_replace(struct builtin_call *c, struct val *out)
{
    struct val s = c->self, part[2];
    int64_t count;
    bool method = c->row->how;
    for (unsigned i = 0; i < 2; i++)
        TRY(method ? args_str(c, i, &part[i]) : val_str(c->r, c->a[i], &part[i]));
    TRY(args_int(c, 2, -1, &count));
    if (method && s.safe) TRY(str_escape(c->r, part[1], &part[1]));
    s.safe &= method;
    return text_replace(c->r, s, part[0], part[1], count, out);
}

/* The filter and the method join.  The method takes only strings, and escapes them if the separator is safe. */
static int join_items(struct builtin_call *c, struct val items, struct val sep,
                      struct text_build *t)
{
    bool method = c->row->how;
    struct iter it;
    struct val item;
    size_t n = 0;
    int e;
    if (iter_init(items, &it) < 0)
        return method ? ERR(FORMAT, "can only join an iterable") : iter_init(items, &it);
    for (; (e = iter_next(c->r, &it, &item)) > 0; n++) {
        if (method && item.t != V_STR)
            return ERR(FORMAT, "sequence item %zu: expected str instance, %s found", n,
                       val_type_name(item));
        if (n) TRY(val_print(c->r, sep, t));
        if (args_has(c, 1)) TRY(val_path(c->r, item, c->a[1], val_none(), &item));
        if (method && sep.safe) TRY(str_escape(c->r, item, &item));
        TRY(val_print(c->r, item, t));
    }
    return e;
}

int f_join(struct builtin_call *c, struct val *out)
{
    struct val sep = c->self;
    struct text_build t;
    bool method = c->row->how;
    if (!method && c->a[0].t == V_MISSING) TRY(str_puts(c->r, "", &sep));
    if (!method && c->a[0].t != V_MISSING) TRY(val_str(c->r, c->a[0], &sep));
    text_init(&t, RENDER_MAX_MEMORY);
    int e = join_items(c, method ? c->a[0] : c->self, sep, &t);
    TRY(text_take(c->r, e, &t, out));
    out->safe = method && sep.safe;
    return 0;
}

static int indent_unit(struct builtin_call *c, struct val *out)
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

/* Ends every line with \n.  Blank lines are indented only if the caller asks for it. */
static int indent_lines(struct builtin_call *c, const struct str *unit, struct text_build *t)
{
    struct str *s = c->self.str;
    bool first = args_truth(c, 1, false), blank = args_truth(c, 2, false), more = true;
    for (size_t at = 0, line = 0, end, next; more; line++, at = next) {
        more = text_line(s, at, &end, &next) && next > end;
        TRY(render_work_bytes(c->r, unit->n + (end - at)));
        if (line) TRY(buf_putc(&t->b, '\n'));
        if (line ? blank || end > at : first) TRY(text_put(c->r, t, unit, 0, unit->n));
        TRY(text_put(c->r, t, s, at, end - at));
    }
    return 0;
}

int f_indent(struct builtin_call *c, struct val *out)
{
    struct val unit;
    struct text_build t;
    if (c->self.t == V_UNDEF) return val_fail_undef(c->self);
    if (c->self.t != V_STR)
        return ERR(FORMAT, "'%s' object has no attribute 'splitlines'", val_type_name(c->self));
    TRY(indent_unit(c, &unit));
    text_init(&t, RENDER_MAX_MEMORY);
    int e = indent_lines(c, unit.str, &t);
    TRY(text_take(c->r, e, &t, out));
    out->safe = c->self.safe;
    return 0;
}

int f_center(struct builtin_call *c, struct val *out)
{
    int64_t width;
    size_t n;
    struct val s = c->self, blank, left, right;
    TRY(args_int(c, 0, 80, &width));
    TRY(val_len(c->r, s, &n));
    int64_t fill = MAX(width - (int64_t)n, (int64_t)0), before = fill / 2 + (fill & width & 1);
    TRY(str_puts(c->r, " ", &blank));
    TRY(val_binary(c->r, OP_MUL, blank, val_int(before), &left));
    TRY(val_binary(c->r, OP_MUL, blank, val_int(fill - before), &right));
    TRY(str_join2(c->r, left, s, &s));
    TRY(str_join2(c->r, s, right, out));
    out->safe = c->self.safe;
    return 0;
}

int f_truncate(struct builtin_call *c, struct val *out)
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
    TRY(render_work_bytes(c->r, (s.t == V_STR ? s.str->n * 2 : 0) + end.str->n));
    int64_t n = (int64_t)chars, n_end = (int64_t)str_chars(end.str);
    if (length < n_end || leeway < 0)
        return ERR(FORMAT, "truncate needs a length of at least %lld and a leeway of at least 0",
                   (long long)n_end);
    *out = s;
    if (n <= length || n - length <= leeway) return 0;
    if (s.t != V_STR) return ERR(FORMAT, "cannot truncate a '%s'", val_type_name(s));
    size_t cut = str_offset(s.str, (size_t)(length - n_end));
    if (!args_truth(c, 1, false)) cut = MIN(cut, str_rfind(s.str->s, cut, " ", 1));
    TRY(str_sub(c->r, s, 0, cut, &s));
    return str_join2(c->r, s, end, out);
}

int f_wordcount(struct builtin_call *c, struct val *out)
{
    const struct str *s = c->self.str;
    int64_t n = 0;
    bool in = false;
    TRY(render_work_bytes(c->r, s->n * 4));
    for (size_t at = 0, len; at < s->n; at += len) {
        bool word = chr_is(utf8_decode(s->s + at, s->n - at, &len), IS_WORD);
        n += word && !in;
        in = word;
    }
    *out = val_int(n);
    return 0;
}

int f_percent(struct builtin_call *c, struct val *out)
{
    struct val arg;
    if (c->raw->n_kw)
        return ERR(UNSUPPORTED, "named arguments of the filter 'format' are not supported");
    TRY(seq_copy(c->r, SEQ_TUPLE, c->raw->v, c->raw->n, &arg));
    return format_percent(c->r, c->self, arg, out);
}
