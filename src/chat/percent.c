/* percent.c - 'x is %s' % x. */
#include "chat/format.h"

#include <math.h>
#include <string.h>

struct percent {
    struct run *r;
    struct val arg;
    size_t at; /* next item of a tuple */
    bool used;
    const struct str *f;
    struct text out;
};

static int percent_next(struct percent *p, struct val *out)
{
    if (val_is_tuple(p->arg)) {
        if (p->at >= p->arg.seq->n) return run_fail(p->r, "not enough arguments for format string");
        *out = p->arg.seq->v[p->at++];
        return 0;
    }
    if (p->used) return run_fail(p->r, "not enough arguments for format string");
    p->used = true;
    *out = p->arg;
    return 0;
}

static int percent_number(struct percent *p, const char **s, const char *end, int *out)
{
    struct val v;
    *out = 0;
    if (*s < end && **s == '*') {
        (*s)++;
        TRY(percent_next(p, &v));
        if (!val_is_int(v)) return run_fail(p->r, "* wants int");
        *out = (int)MAX((int64_t)-WIDTH_MAX, MIN(val_as_int(v), (int64_t)WIDTH_MAX));
    }
    for (; *s < end && **s >= '0' && **s <= '9'; (*s)++)
        *out = MIN(*out * 10 + (**s - '0'), WIDTH_MAX);
    return 0;
}

static int percent_put(struct percent *p, const struct spec *s, struct val v)
{
    struct val t;
    struct buf b;
    switch (s->conv) {
    case 's':
    case 'r':
    case 'a':
        if (s->conv == 's')
            TRY(val_str(p->r, v, &t));
        else {
            buf_init(&b, RUN_MAX_MEMORY);
            int e = val_repr(p->r, v, &b);
            if (e >= 0)
                e = str_take(p->r, &b, &t);
            else
                buf_done(&b);
            TRY(e);
        }
        return put_text(p->r, &p->out.b, s, t);
    case 'c':
        if (v.t == V_STR && str_chars(v.str) == 1) return put_text(p->r, &p->out.b, s, v);
        if (!val_is_int(v) || v.i < 0 || v.i > 0x10FFFF || (v.i >= 0xD800 && v.i < 0xE000))
            return run_fail(p->r, "%%c requires int or char");
        return buf_utf8(&p->out.b, (uint32_t)v.i);
    case 'd':
    case 'i':
    case 'u':
        if (!val_is_num(v))
            return run_fail(p->r, "%%%c format: a real number is required, not %s", s->conv,
                            val_type_name(v));
        if (v.t == V_FLOAT && !(fabs(v.f) < 9.2e18))
            return run_fail(p->r, "cannot convert float to integer");
        return put_int(p->r, &p->out.b, s, v.t == V_FLOAT ? (int64_t)v.f : val_as_int(v), 'd');
    case 'x':
    case 'X':
    case 'o':
        if (!val_is_int(v))
            return run_fail(p->r, "%%%c format: an integer is required, not %s", s->conv,
                            val_type_name(v));
        return put_int(p->r, &p->out.b, s, val_as_int(v), s->conv);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!val_is_num(v)) return run_fail(p->r, "must be real number, not %s", val_type_name(v));
        return put_float(p->r, &p->out.b, s, val_as_float(v), s->conv);
    default:
        return run_fail(p->r, "unsupported format character '%c' (0x%x)", s->conv,
                        (unsigned char)s->conv);
    }
}

static int percent_field(struct percent *p, const char **at, const char *end)
{
    const char *s = *at;
    struct spec spec = {.prec = -1};
    struct val v = {.t = V_MISSING};
    if (s < end && *s == '(') {
        const char *close = memchr(s, ')', (size_t)(end - s));
        struct val key, *hit;
        if (!close) return run_fail(p->r, "incomplete format key");
        if (p->arg.t != V_DICT) return run_fail(p->r, "format requires a mapping");
        TRY(str_view(p->r, s + 1, (size_t)(close - s) - 1, &key));
        TRY(dict_find(p->r, p->arg.dict, key, &hit));
        if (!hit) return run_fail(p->r, "'%.*s'", (int)MIN(close - s - 1, 60), s + 1);
        v = *hit;
        s = close + 1;
    }
    for (; s < end && strchr("-0+ #", *s) && *s; s++) {
        spec.left |= *s == '-';
        spec.zero |= *s == '0';
        spec.plus |= *s == '+';
        spec.space |= *s == ' ';
        spec.alt |= *s == '#';
    }
    TRY(percent_number(p, &s, end, &spec.width));
    if (spec.width < 0) {
        spec.left = true;
        spec.width = -spec.width;
    }
    if (s < end && *s == '.') {
        s++;
        TRY(percent_number(p, &s, end, &spec.prec));
        spec.prec = MAX(spec.prec, 0);
    }
    while (s < end && (*s == 'l' || *s == 'h' || *s == 'L'))
        s++;
    if (s >= end) return run_fail(p->r, "incomplete format");
    spec.conv = *s++;
    *at = s;
    if (spec.conv == '%') return buf_putc(&p->out.b, '%');
    if (v.t == V_MISSING) TRY(percent_next(p, &v));
    size_t from = p->out.b.len;
    TRY(percent_put(p, &spec, v));
    return val_foreign(v) || str_foreign(p->f) ? text_mark(p->r, &p->out, from) : 0;
}

static int percent_all(struct percent *p, const struct str *f)
{
    const char *s = f->s, *end = s + f->n;
    while (s < end) {
        const char *mark = memchr(s, '%', (size_t)(end - s));
        TRY(run_work(p->r, 1));
        TRY(buf_append(&p->out.b, s, (size_t)((mark ? mark : end) - s)));
        if (!mark) break;
        s = mark + 1;
        TRY(percent_field(p, &s, end));
    }
    bool left = val_is_tuple(p->arg) ? p->at < p->arg.seq->n
                                     : !p->used && p->arg.t != V_DICT && p->arg.t != V_RANGE &&
                                           p->arg.t != V_UNDEF && !val_is_list(p->arg);
    if (left) return run_fail(p->r, "not all arguments converted during string formatting");
    return 0;
}

int format_percent(struct run *r, struct val f, struct val arg, struct val *out)
{
    struct percent p = {.r = r, .arg = arg, .f = f.str};
    text_init(&p.out, RUN_MAX_MEMORY);
    int e = run_work_bytes(r, f.str->n);
    if (e >= 0) e = percent_all(&p, f.str);
    if (e >= 0)
        e = text_take(r, &p.out, out);
    else
        text_done(&p.out);
    if (e >= 0) out->safe = f.safe;
    return e;
}
