/* brace.c - '{} is {x}'.format(...).  Fields reach data only, by the rules of obj.name and obj[key] in
 * the template (CVE-2024-56326 was an indirect way to the real str.format; there is none here). */
#include "base/utf8.h"
#include "chat/format.h"

#include <string.h>

struct brace {
    struct run *r;
    const struct args *args;
    int64_t next; /* automatic numbering; -1 once numbers are explicit */
    const struct str *f;
    struct text out;
};

static int brace_first(struct brace *b, const char *s, size_t n, struct val *out)
{
    int64_t i = -1;
    if (n == 0) {
        if (b->next < 0)
            return run_fail(b->r, "cannot switch from manual field specification to automatic "
                                  "field numbering");
        i = b->next++;
    } else if (strspn(s, "0123456789") >= n && n < 10) {
        i = 0;
        for (size_t k = 0; k < n; k++)
            i = i * 10 + (s[k] - '0');
        if (b->next > 0)
            return run_fail(b->r, "cannot switch from automatic field numbering to manual field "
                                  "specification");
        b->next = -1;
    }
    if (i >= 0) {
        if ((uint64_t)i >= b->args->n)
            return run_fail(b->r, "Replacement index %lld out of range for positional args tuple",
                            (long long)i);
        *out = b->args->v[i];
        return 0;
    }
    for (size_t k = 0; k < b->args->n_kw; k++) {
        const struct str *name = b->args->kw[k].name;
        if (name->n != n || memcmp(name->s, s, n) != 0) continue;
        *out = b->args->kw[k].v;
        return 0;
    }
    return run_fail(b->r, "'%.*s'", (int)MIN(n, (size_t)60), s);
}

/* a.b[0][key] */
static int brace_value(struct brace *b, const char *s, size_t n, struct val *out)
{
    size_t at = 0;
    while (at < n && s[at] != '.' && s[at] != '[')
        at++;
    TRY(brace_first(b, s, at, out));
    while (at < n) {
        bool item = s[at] == '[';
        size_t from = ++at, k = 0;
        while (at < n && (item ? s[at] != ']' : s[at] != '.' && s[at] != '['))
            at++;
        struct val key;
        int64_t num = 0;
        while (k < at - from && k < 18 && s[from + k] >= '0' && s[from + k] <= '9')
            num = num * 10 + (s[from + k++] - '0');
        if (item && k && k == at - from)
            key = val_int(num);
        else
            TRY(str_view(b->r, s + from, at - from, &key));
        if (item)
            TRY(val_item(b->r, *out, key, out));
        else
            TRY(val_attr(b->r, *out, key, out));
        if (out->t == V_UNDEF) return val_fail_undef(b->r, *out);
        if (item) at++;
    }
    return 0;
}

static int brace_spec(struct brace *b, const char *s, size_t n, struct spec *out)
{
    size_t at = 0, len = 1;
    struct spec t = {.prec = -1};
    if (n) utf8_decode(s, n, &len);
    if (n > len && strchr("<>^=", s[len]) && s[len]) {
        t.fill = utf8_decode(s, n, &len);
        t.align = s[len];
        at = len + 1;
    } else if (n && s[0] && strchr("<>^=", s[0])) {
        t.align = s[at++];
    }
    for (; at < n && s[at] && strchr("+- ", s[at]); at++) {
        t.plus |= s[at] == '+';
        t.space |= s[at] == ' ';
    }
    t.alt = at < n && s[at] == '#';
    at += t.alt;
    t.zero = at < n && s[at] == '0';
    at += t.zero;
    for (; at < n && s[at] >= '0' && s[at] <= '9'; at++)
        t.width = MIN(t.width * 10 + (s[at] - '0'), WIDTH_MAX);
    if (at < n && (s[at] == ',' || s[at] == '_')) t.comma = s[at++] == ',';
    if (at < n && s[at] == '.') {
        t.prec = 0;
        for (at++; at < n && s[at] >= '0' && s[at] <= '9'; at++)
            t.prec = MIN(t.prec * 10 + (s[at] - '0'), WIDTH_MAX);
    }
    if (at < n) t.conv = s[at++];
    if (at < n) return run_fail(b->r, "Invalid format specifier");
    *out = t;
    return 0;
}

static int brace_put(struct brace *b, const struct spec *s, struct val v)
{
    char conv = s->conv;
    if (val_is_num(v) && !(v.t == V_BOOL && !conv)) {
        bool real = conv && strchr("eEfFgG%", conv);
        if (val_is_int(v) && !real) {
            if (conv && !strchr("dxXobn", conv))
                return run_fail(b->r, "Unknown format code '%c' for object of type 'int'", conv);
            return put_int(b->r, &b->out.b, s, val_as_int(v), conv ? conv : 'd');
        }
        if (conv && !real)
            return run_fail(b->r, "Unknown format code '%c' for object of type 'float'", conv);
        if (!conv) conv = s->prec < 0 ? 'r' : 'g';
        return put_float(b->r, &b->out.b, s, val_as_float(v), conv);
    }
    struct spec t = *s;
    bool plain = !s->align && !s->width && s->prec < 0 && !conv;
    if (v.t != V_STR && !plain)
        return run_fail(b->r, "unsupported format string passed to %s.__format__",
                        val_type_name(v));
    if (conv && conv != 's')
        return run_fail(b->r, "Unknown format code '%c' for object of type 'str'", conv);
    TRY(val_str(b->r, v, &v));
    t.left = true;
    if (s->zero && !s->align) t.fill = '0';
    return put_text(b->r, &b->out.b, &t, v);
}

/* Fields inside a format spec ({:{width}}) are one level deep, as in Python. */
static int brace_nested(struct brace *b, const char *s, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '{') {
            TRY(buf_putc(out, s[i]));
            continue;
        }
        const char *close = memchr(s + i, '}', n - i);
        struct val v;
        if (!close) return run_fail(b->r, "expected '}' before end of string");
        TRY(brace_value(b, s + i + 1, (size_t)(close - s) - i - 1, &v));
        TRY(val_str(b->r, v, &v));
        TRY(buf_append(out, v.str->s, v.str->n));
        i = (size_t)(close - s);
    }
    return 0;
}

static int brace_field(struct brace *b, const char *s, size_t n)
{
    size_t name = 0, bracket = 0;
    while (name < n && (bracket || (s[name] != '!' && s[name] != ':'))) {
        bracket = s[name] == '[' || (bracket && s[name] != ']');
        name++;
    }
    struct val v;
    struct spec spec = {.prec = -1};
    size_t from = b->out.b.len;
    TRY(brace_value(b, s, name, &v));
    bool foreign = val_foreign(v) || str_foreign(b->f) || memchr(s + name, '{', n - name);
    if (name < n && s[name] == '!') {
        if (name + 1 >= n || (s[name + 1] != 'r' && s[name + 1] != 's' && s[name + 1] != 'a'))
            return run_fail(b->r, "Unknown conversion specifier");
        if (s[name + 1] == 's')
            TRY(val_str(b->r, v, &v));
        else {
            struct buf t;
            buf_init(&t, RUN_MAX_MEMORY);
            int e = val_repr(b->r, v, &t);
            if (e >= 0)
                e = str_take(b->r, &t, &v);
            else
                buf_done(&t);
            TRY(e);
        }
        name += 2;
    }
    if (name < n && s[name] != ':')
        return run_fail(b->r, "expected ':' after conversion specifier");
    struct buf nested;
    buf_init(&nested, WIDTH_MAX);
    int e = name < n ? brace_nested(b, s + name + 1, n - name - 1, &nested) : 0;
    if (e >= 0) e = brace_spec(b, nested.data ? nested.data : "", nested.len, &spec);
    buf_done(&nested);
    if (e >= 0) e = brace_put(b, &spec, v);
    return e >= 0 && foreign ? text_mark(b->r, &b->out, from) : e;
}

static int brace_all(struct brace *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        TRY(run_work_bytes(b->r, BYTES_PER_STEP / 8));
        if ((s[i] == '{' || s[i] == '}') && i + 1 < n && s[i + 1] == s[i]) {
            TRY(text_put(b->r, &b->out, b->f, i++, 1));
            continue;
        }
        if (s[i] == '}') return run_fail(b->r, "Single '}' encountered in format string");
        if (s[i] != '{') {
            TRY(text_put(b->r, &b->out, b->f, i, 1));
            continue;
        }
        size_t depth = 1, end = i + 1;
        while (end < n && (depth += (s[end] == '{') - (s[end] == '}')) > 0)
            end++;
        if (end >= n)
            return run_fail(b->r, i + 1 == n ? "Single '{' encountered in format string"
                                             : "expected '}' before end of string");
        TRY(brace_field(b, s + i + 1, end - i - 1));
        i = end;
    }
    return 0;
}

int format_brace(struct run *r, struct val f, const struct args *args, struct val *out)
{
    struct brace b = {.r = r, .args = args, .f = f.str};
    text_init(&b.out, RUN_MAX_MEMORY);
    int e = brace_all(&b, f.str->s, f.str->n);
    if (e >= 0)
        e = text_take(r, &b.out, out);
    else
        text_done(&b.out);
    if (e >= 0) out->safe = f.safe;
    return e;
}
