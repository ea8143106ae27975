/* format.c - '%s: %d' % (name, n) and '{} {name}'.format(x, name=y).  Of Python's formats these are
 * what chat templates use: % with s, r, d, i, e, f and g, and fields of format() without attributes,
 * conversions or specifications.  Everything else is refused by name. */
#include "chat/builtin.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH_MAX 1000 /* characters, and digits after the point */

struct field {
    char flags[6];
    int width, prec; /* prec -1: none */
    char conv;
};
struct percent {
    struct run *r;
    struct val arg; /* a tuple of arguments, or one argument */
    size_t at;      /* arguments taken */
    struct text out;
};

static int next_arg(struct percent *p, struct val *out)
{
    bool tuple = val_is_tuple(p->arg);
    if (p->at >= (tuple ? p->arg.seq->n : 1))
        return run_fail(p->r, "not enough arguments for format string");
    *out = tuple ? p->arg.seq->v[p->at] : p->arg;
    p->at++;
    return 0;
}

static int read_number(const char **s, const char *end, int *out)
{
    for (*out = 0; *s < end && **s >= '0' && **s <= '9'; (*s)++) {
        *out = *out * 10 + (**s - '0');
        if (*out > WIDTH_MAX) return ERR(LIMIT, "a format of more than %d places", WIDTH_MAX);
    }
    return 0;
}

/* Reads the field behind a percent sign; *s moves behind it. */
static int read_field(struct percent *p, const char **s, const char *end, struct field *f)
{
    size_t n = 0;
    *f = (struct field){.prec = -1};
    for (; *s < end && **s && strchr("-+ 0", **s) && n < 5; (*s)++)
        f->flags[n++] = **s;
    TRY(read_number(s, end, &f->width));
    if (*s < end && **s == '.') {
        (*s)++;
        TRY(read_number(s, end, &f->prec));
    }
    if (*s >= end) return run_fail(p->r, "incomplete format");
    f->conv = *(*s)++;
    if (f->conv == '(' || f->conv == '*')
        return ERR(UNSUPPORTED, "%%%c in a %% format is not supported", f->conv);
    return 0;
}

static int put_text(struct percent *p, const struct field *f, struct val v)
{
    struct buf b;
    if (f->conv == 'r') {
        buf_init(&b, RUN_MAX_MEMORY);
        int e = val_repr(p->r, v, &b);
        TRY(str_take(p->r, e, &b, &v));
    }
    TRY(val_str(p->r, v, &v));
    if (f->prec >= 0) TRY(str_sub(p->r, v, 0, str_offset(v.str, (size_t)f->prec), &v));
    size_t n = str_chars(v.str), fill = (size_t)f->width > n ? (size_t)f->width - n : 0;
    bool left = strchr(f->flags, '-') != NULL;
    for (size_t i = 0; i < fill && !left; i++)
        TRY(buf_putc(&p->out.b, ' '));
    TRY(buf_append(&p->out.b, v.str->s, v.str->n));
    for (size_t i = 0; i < fill && left; i++)
        TRY(buf_putc(&p->out.b, ' '));
    return 0;
}

static int put_number(struct percent *p, const struct field *f, struct val v)
{
    char fmt[24], text[2 * WIDTH_MAX + 400];
    bool integer = f->conv == 'd' || f->conv == 'i';
    if (!val_is_num(v))
        return run_fail(p->r, "%%%c format: a real number is required, not %s", f->conv,
                        val_type_name(v));
    if (integer && v.t == V_FLOAT && !(fabs(v.f) < 9.2e18))
        return run_fail(p->r, "cannot convert float to integer");
    snprintf(fmt, sizeof fmt, "%%%s*.*%s%c", f->flags, integer ? "ll" : "", f->conv);
    if (integer)
        snprintf(text, sizeof text, fmt, f->width, f->prec,
                 (long long)(v.t == V_FLOAT ? (int64_t)v.f : val_as_int(v)));
    else
        float_format(val_as_float(v), fmt, f->width, f->prec, text, sizeof text);
    return buf_puts(&p->out.b, text);
}

static int put_field(struct percent *p, const struct field *f, bool foreign)
{
    struct val v;
    size_t from = p->out.b.len;
    if (f->conv == '%') return buf_putc(&p->out.b, '%');
    if (!f->conv || !strchr("srdiefg", f->conv))
        return ERR(UNSUPPORTED,
                   "unsupported format character '%c': %% formats know s, r, d, i, e, f, g and %%",
                   f->conv);
    TRY(next_arg(p, &v));
    TRY(f->conv == 's' || f->conv == 'r' ? put_text(p, f, v) : put_number(p, f, v));
    return foreign || val_foreign(v) ? text_mark(p->r, &p->out, from) : 0;
}

static int percent_all(struct percent *p, const struct str *f)
{
    const char *s = f->s, *end = s + f->n;
    while (s < end) {
        const char *mark = memchr(s, '%', (size_t)(end - s));
        struct field field;
        TRY(run_work(p->r, 1));
        TRY(text_put(p->r, &p->out, f, (size_t)(s - f->s), (size_t)((mark ? mark : end) - s)));
        if (!mark) break;
        s = mark + 1;
        TRY(read_field(p, &s, end, &field));
        TRY(run_work_bytes(p->r, (size_t)field.width));
        TRY(put_field(p, &field, str_foreign(f)));
    }
    bool left = val_is_tuple(p->arg) ? p->at < p->arg.seq->n
                                     : !p->at && p->arg.t != V_DICT && p->arg.t != V_UNDEF &&
                                           !val_is_indexed(p->arg);
    if (left) return run_fail(p->r, "not all arguments converted during string formatting");
    return 0;
}

int format_percent(struct run *r, struct val f, struct val arg, struct val *out)
{
    struct percent p = {.r = r, .arg = arg};
    text_init(&p.out, RUN_MAX_MEMORY);
    int e = run_work_bytes(r, f.str->n);
    if (e >= 0) e = percent_all(&p, f.str);
    TRY(text_take(r, e, &p.out, out));
    out->safe = f.safe;
    return 0;
}

/* The argument that the field s[0..n) names.  *next counts fields without a name; -1 once one had a
 * number. */
static int brace_value(struct call *c, const char *s, size_t n, int64_t *next, struct val *out)
{
    const struct args *args = c->raw;
    struct str name = {.s = s, .n = n};
    int64_t i = -1;
    for (size_t k = 0; k < n; k++)
        if (strchr(".[!:{", s[k]))
            return ERR(UNSUPPORTED,
                       "the field '{%.*s}' is not supported: fields of format() have no "
                       "attributes, conversions or specifications",
                       (int)MIN(n, (size_t)60), s);
    bool number = n < 6 && strspn(s, "0123456789") >= n;
    if (number && (n ? *next > 0 : *next < 0))
        return run_fail(c->r, "cannot switch between automatic and manual field numbering");
    if (number && n) {
        i = 0;
        for (size_t k = 0; k < n; k++)
            i = i * 10 + (s[k] - '0');
        *next = -1;
    } else if (number) {
        i = (*next)++;
    }
    if (i >= 0 && (uint64_t)i >= args->n)
        return run_fail(c->r, "Replacement index %lld out of range for positional args tuple",
                        (long long)i);
    if (i >= 0) {
        *out = args->v[i];
        return 0;
    }
    for (size_t k = 0; k < args->n_kw; k++)
        if (str_same(args->kw[k].name, &name)) {
            *out = args->kw[k].v;
            return 0;
        }
    return run_fail(c->r, "'%.*s'", (int)MIN(n, (size_t)60), s);
}

static int brace_all(struct call *c, struct text *out)
{
    const struct str *f = c->self.str;
    int64_t next = 0;
    for (size_t i = 0, n; i < f->n; i += n) {
        TRY(run_work_bytes(c->r, BYTES_PER_STEP / 8));
        char ch = f->s[i];
        bool brace = ch == '{' || ch == '}', twice = i + 1 < f->n && f->s[i + 1] == ch;
        n = brace && twice ? 2 : 1;
        if (!brace || twice) {
            TRY(text_put(c->r, out, f, i, 1));
            continue;
        }
        const char *s = f->s + i + 1, *close = memchr(s, '}', f->n - i - 1);
        if (ch == '}') return run_fail(c->r, "Single '}' encountered in format string");
        if (!close)
            return run_fail(c->r, i + 1 == f->n ? "Single '{' encountered in format string"
                                                : "expected '}' before end of string");
        struct val v;
        size_t from = out->b.len;
        TRY(brace_value(c, s, (size_t)(close - s), &next, &v));
        TRY(val_print(c->r, v, out));
        if (str_foreign(f)) TRY(text_mark(c->r, out, from));
        n = (size_t)(close - s) + 2;
    }
    return 0;
}

int m_format(struct call *c, struct val *out)
{
    struct text t;
    text_init(&t, RUN_MAX_MEMORY);
    int e = brace_all(c, &t);
    TRY(text_take(c->r, e, &t, out));
    out->safe = c->self.safe;
    return 0;
}
