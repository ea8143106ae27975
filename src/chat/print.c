/* print.c - values as Python's str() and repr() show them, floats in shortest form. */
#include "base/utf8.h"
#include "chat/node.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* printf and strtod follow the host's locale; numbers in templates do not. */
static locale_t c_locale(void)
{
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    return c ? uselocale(c) : (locale_t)0;
}

static void host_locale(locale_t old)
{
    if (!old) return;
    locale_t c = uselocale(old);
    freelocale(c);
}

bool float_parse(const char *s, size_t n, double *out)
{
    char tmp[512], *end;
    if (n == 0 || n >= sizeof tmp) return false;
    memcpy(tmp, s, n);
    tmp[n] = 0;
    locale_t old = c_locale();
    *out = strtod(tmp, &end);
    host_locale(old);
    return end == tmp + n;
}

void float_fixed(double f, int digits, char conv, bool alt, char *out, size_t n)
{
    char fmt[] = {'%', '#', '.', '*', conv, 0};
    if (!alt) memmove(fmt + 1, fmt + 2, sizeof fmt - 2);
    locale_t old = c_locale();
    snprintf(out, n, fmt, digits, f);
    host_locale(old);
}

/* Shortest digits that read back as f, laid out as Python does: exponents from 1e16 and below 1e-4. */
void float_repr(double f, char out[40])
{
    char d[40], digits[24];
    if (isnan(f) || isinf(f)) {
        snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    locale_t old = c_locale();
    /* 15 digits are the shortest form of all that need no more, except below the normal range */
    for (int p = fabs(f) < 1e-300 ? 0 : 14; p <= 16; p++) {
        snprintf(d, sizeof d, "%.*e", p, fabs(f));
        if (p == 16 || strtod(d, NULL) == fabs(f)) break;
    }
    host_locale(old);
    char *e = strchr(d, 'e');
    int exp = (int)strtol(e + 1, NULL, 10), n = 0;
    for (char *p = d; p < e; p++)
        if (*p != '.') digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    char *o = out;
    if (signbit(f)) *o++ = '-';
    if (exp < -4 || exp >= 16) {
        *o++ = digits[0];
        if (n > 1) *o++ = '.';
        memcpy(o, digits + 1, (size_t)n - 1);
        o += n - 1;
        snprintf(o, 8, "e%c%02u", exp < 0 ? '-' : '+', (unsigned)abs(exp) % 1000u);
        return;
    }
    if (exp < 0) {
        *o++ = '0';
        *o++ = '.';
        for (int i = -1; i > exp; i--)
            *o++ = '0';
    }
    for (int i = 0; i < n || i <= exp; i++) {
        if (exp >= 0 && i == exp + 1) *o++ = '.';
        *o++ = i < n ? digits[i] : '0';
    }
    if (exp >= 0 && n <= exp + 1) {
        *o++ = '.';
        *o++ = '0';
    }
    *o = 0;
}

static int repr_char(uint32_t c, const char *s, size_t len, char quote, struct buf *out)
{
    if (c == (uint32_t)quote || c == '\\') TRY(buf_putc(out, '\\'));
    if (c == '\n') return buf_puts(out, "\\n");
    if (c == '\r') return buf_puts(out, "\\r");
    if (c == '\t') return buf_puts(out, "\\t");
    if (c == UTF8_BAD) return buf_printf(out, "\\x%02x", (unsigned char)s[0]);
    if (chr_printable(c)) return buf_append(out, s, len);
    if (c < 0x100) return buf_printf(out, "\\x%02x", c);
    return buf_printf(out, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

static int repr_str(const struct str *s, struct buf *out)
{
    bool single = memchr(s->s, '\'', s->n) != NULL, both = memchr(s->s, '"', s->n) != NULL;
    char quote = single && !both ? '"' : '\'';
    TRY(buf_putc(out, quote));
    for (size_t at = 0, len; at < s->n; at += len) {
        uint32_t c = utf8_decode(s->s + at, s->n - at, &len);
        TRY(repr_char(c, s->s + at, len, quote, out));
    }
    return buf_putc(out, quote);
}

static int repr_dict(struct run *r, const struct dict *d, struct buf *out)
{
    TRY(buf_putc(out, '{'));
    for (size_t i = 0; i < d->n; i++) {
        if (i) TRY(buf_puts(out, ", "));
        TRY(val_repr(r, d->e[i].k, out));
        TRY(buf_puts(out, ": "));
        TRY(val_repr(r, d->e[i].v, out));
    }
    return buf_putc(out, '}');
}

static int repr_seq(struct run *r, const struct seq *s, struct buf *out)
{
    bool tuple = s->kind == SEQ_TUPLE || s->kind == SEQ_GROUP;
    bool view = s->kind == SEQ_KEYS || s->kind == SEQ_VALUES || s->kind == SEQ_ITEMS;
    if (s->kind == SEQ_GEN) return buf_puts(out, "<generator object>");
    if (s->kind == SEQ_REVERSED) return buf_puts(out, "<list_reverseiterator object>");
    if (view) TRY(buf_printf(out, "%s(", val_type_name(val_seq((struct seq *)s))));
    TRY(buf_putc(out, tuple ? '(' : '['));
    for (size_t i = 0; i < s->n; i++) {
        if (i) TRY(buf_puts(out, ", "));
        TRY(val_repr(r, s->v[i], out));
    }
    if (tuple && s->n == 1) TRY(buf_putc(out, ','));
    TRY(buf_putc(out, tuple ? ')' : ']'));
    return view ? buf_putc(out, ')') : 0;
}

static int repr_inner(struct run *r, struct val v, struct buf *out)
{
    char tmp[40];
    switch ((enum val_type)v.t) {
    case V_MISSING:
    case V_UNDEF:
        return buf_puts(out, "Undefined");
    case V_NONE:
        return buf_puts(out, "None");
    case V_BOOL:
        return buf_puts(out, v.b ? "True" : "False");
    case V_INT:
        return buf_printf(out, "%lld", (long long)v.i);
    case V_FLOAT:
        float_repr(v.f, tmp);
        return buf_puts(out, tmp);
    case V_STR:
        TRY(run_work_bytes(r, v.str->n * 4));
        if (!v.safe) return repr_str(v.str, out);
        TRY(buf_puts(out, "Markup("));
        TRY(repr_str(v.str, out));
        return buf_putc(out, ')');
    case V_SEQ:
        return repr_seq(r, v.seq, out);
    case V_RANGE:
        TRY(buf_printf(out, "range(%lld, %lld", (long long)v.range->from, (long long)v.range->to));
        if (v.range->step != 1) TRY(buf_printf(out, ", %lld", (long long)v.range->step));
        return buf_putc(out, ')');
    case V_DICT:
        return repr_dict(r, v.dict, out);
    case V_SPACE:
        TRY(buf_puts(out, "<Namespace "));
        TRY(repr_dict(r, v.dict, out));
        return buf_putc(out, '>');
    case V_MACRO:
        return buf_printf(out, "<Macro '%.*s'>", (int)v.macro->name->n, v.macro->name->s);
    default:
        return buf_printf(out, "<%s>", val_type_name(v));
    }
}

int val_repr(struct run *r, struct val v, struct buf *out)
{
    TRY(run_enter(r));
    int e = run_work(r, 1);
    if (e >= 0) e = repr_inner(r, v, out);
    run_leave(r);
    return e;
}

int val_print(struct run *r, struct val v, struct text *out)
{
    size_t from = out->b.len;
    if (v.t == V_UNDEF) return 0;
    if (v.t == V_STR) {
        TRY(run_work_bytes(r, v.str->n));
        return text_put(r, out, v.str, 0, v.str->n);
    }
    TRY(val_repr(r, v, &out->b));
    return val_foreign(v) ? text_mark(r, out, from) : 0;
}

int val_str(struct run *r, struct val v, struct val *out)
{
    if (v.t == V_STR) {
        *out = v;
        return 0;
    }
    struct text t;
    text_init(&t, RUN_MAX_MEMORY);
    int e = val_print(r, v, &t);
    if (e < 0) {
        text_done(&t);
        return e;
    }
    return text_take(r, &t, out);
}
