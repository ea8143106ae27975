/* format.c - '%s: %d' % (name, n), and '{}: {}'.format(name, n).  Supported are the formats that chat templates
 * use: %s, %r, %d, %i, %f, %.2f, %% and the field {}.  Others are refused by name. */
#include "chat/builtin.h"

#include <math.h>
#include <string.h>

struct percent {
    struct render_state *r;
    struct val arg; /* a tuple of arguments, or one argument */
    size_t at;      /* arguments taken */
    struct text_build out;
};

static int next_arg(struct percent *p, struct val *out)
{
    bool tuple = val_is_tuple(p->arg);
    if (p->at >= (tuple ? p->arg.seq->n : 1))
        return ERR(FORMAT, "not enough arguments for format string");
    *out = tuple ? p->arg.seq->v[p->at] : p->arg;
    p->at++;
    return 0;
}

static int put_number(struct percent *p, char conv, int prec, struct val v)
{
    char text[500];
    if (!val_is_num(v) && conv == 'f')
        return ERR(FORMAT, "must be real number, not %s", val_type_name(v));
    if (!val_is_num(v))
        return ERR(FORMAT, "%%%c format: a real number is required, not %s", conv,
                   val_type_name(v));
    if (conv == 'f') {
        float_fixed(val_as_float(v), prec, text, sizeof text);
        return buf_puts(&p->out.b, text);
    }
    if (v.t == V_FLOAT && !(fabs(v.f) < 9.2e18))
        return ERR(FORMAT, "cannot convert float to integer");
    return buf_printf(&p->out.b, "%lld",
                      (long long)(v.t == V_FLOAT ? (int64_t)v.f : val_as_int(v)));
}

/* Appends the field at the beginning of s[0..n), whose percent sign was read.  *used: bytes of the field. */
static int put_field(struct percent *p, const char *s, size_t n, size_t *used)
{
    bool point = n > 2 && s[0] == '.' && s[1] >= '0' && s[1] <= '9';
    char conv = point ? s[2] : n ? s[0] : 0;
    struct val v;
    *used = point ? 3 : 1;
    if (!n) return ERR(FORMAT, "incomplete format");
    if (conv == '%' && !point) return buf_putc(&p->out.b, '%');
    if (!conv || !strchr(point ? "f" : "srdif", conv))
        return ERR(UNSUPPORTED,
                   "unsupported format character '%c': %% formats know %%s, %%r, %%d, %%i, %%f and "
                   "%%.2f",
                   conv);
    TRY(next_arg(p, &v));
    if (conv == 's') return val_print(p->r, v, &p->out);
    if (conv == 'r') return val_repr(p->r, v, &p->out.b);
    return put_number(p, conv, point ? s[1] - '0' : 6, v);
}

static int percent_all(struct percent *p, const struct str *f)
{
    size_t at = 0, used;
    for (;; at += used) {
        const char *s = f->s + at, *mark = memchr(s, '%', f->n - at);
        size_t n = mark ? (size_t)(mark - s) : f->n - at;
        TRY(render_work(p->r, 1));
        TRY(text_put(p->r, &p->out, f, at, n));
        if (!mark) break;
        at += n + 1;
        size_t from = p->out.b.len;
        TRY(put_field(p, mark + 1, f->n - at, &used));
        bool raw =
            /* only %s knows which of its bytes are foreign; others are foreign as a whole */
            p->out.b.len > from && f->s[at] != 's';
        if (str_foreign(f) || (raw && val_foreign(p->arg))) TRY(text_mark(p->r, &p->out, from));
    }
    bool left = val_is_tuple(p->arg) ? p->at < p->arg.seq->n
                                     : !p->at && p->arg.t != V_DICT && p->arg.t != V_UNDEF &&
                                           !val_is_indexed(p->arg);
    if (left) return ERR(FORMAT, "not all arguments converted during string formatting");
    return 0;
}

int format_percent(struct render_state *r, struct val f, struct val arg, struct val *out)
{
    struct percent p = {.r = r, .arg = arg};
    text_init(&p.out, RENDER_MAX_MEMORY);
    int e = render_work_bytes(r, f.str->n);
    if (e >= 0) e = percent_all(&p, f.str);
    TRY(text_take(r, e, &p.out, out));
    out->safe = f.safe;
    return 0;
}

static int brace_all(struct builtin_call *c, struct text_build *out)
{
    const struct str *f = c->self.str;
    size_t next = 0;
    for (size_t i = 0; i < f->n; i++) {
        char ch = f->s[i], after = i + 1 < f->n ? f->s[i + 1] : 0;
        TRY(render_work_bytes(c->r, BYTES_PER_STEP / 8));
        if (ch == '{' && after == '}') {
            if (next >= c->raw->n)
                return ERR(FORMAT, "Replacement index %zu out of range for positional args tuple",
                           next);
            size_t from = out->b.len;
            TRY(val_print(c->r, c->raw->v[next++], out));
            if (str_foreign(f)) TRY(text_mark(c->r, out, from));
            i++;
        } else if (ch != '{' && ch != '}') {
            TRY(text_put(c->r, out, f, i, 1));
        } else if (ch == after) {
            TRY(text_put(c->r, out, f, i++, 1));
        } else if (ch == '}' || !after) {
            return ERR(FORMAT, "Single '%c' encountered in format string", ch);
        } else {
            return ERR(UNSUPPORTED, "format() with a field other than {} is not supported");
        }
    }
    return 0;
}

int m_format(struct builtin_call *c, struct val *out)
{
    struct text_build t;
    text_init(&t, RENDER_MAX_MEMORY);
    int e = brace_all(c, &t);
    TRY(text_take(c->r, e, &t, out));
    out->safe = c->self.safe;
    return 0;
}
