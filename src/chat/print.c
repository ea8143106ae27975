/* print.c - values as text: Python's str() and repr(), and the filter tojson, which is json.dumps with
 * ensure_ascii, indent, separators and sort_keys. */
#include "base/utf8.h"
#include "chat/value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
        TRY(val_repr(r, d->v[i].k, out));
        TRY(buf_puts(out, ": "));
        TRY(val_repr(r, d->v[i].v, out));
    }
    return buf_putc(out, '}');
}

static int repr_seq(struct run *r, const struct seq *s, struct buf *out)
{
    bool tuple = s->kind == SEQ_TUPLE;
    if (!tuple && s->kind != SEQ_LIST)
        return ERR(UNSUPPORTED, "printing a %s is not supported; apply the filter 'list'",
                   val_type_name(val_seq((struct seq *)s)));
    TRY(buf_putc(out, tuple ? '(' : '['));
    for (size_t i = 0; i < s->n; i++) {
        if (i) TRY(buf_puts(out, ", "));
        TRY(val_repr(r, s->v[i], out));
    }
    return buf_puts(out, !tuple ? "]" : s->n == 1 ? ",)" : ")");
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
    case V_DICT:
        return repr_dict(r, v.dict, out);
    default:
        return ERR(UNSUPPORTED, "printing a %s is not supported", val_type_name(v));
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
    return text_take(r, e, &t, out);
}

struct dumper {
    struct run *r;
    bool ascii, sort;
    struct val indent;                    /* V_NONE, int or str */
    const struct str *item_sep, *key_sep; /* NULL: the default */
    struct buf out;
    unsigned level;
};

static int dump(struct dumper *d, struct val v);

static int dump_str(struct dumper *d, const struct str *s)
{
    static const char from[] = "\"\\\n\r\t\b\f", into[] = "\"\\nrtbf";
    TRY(run_work_bytes(d->r, s->n * 4));
    TRY(buf_putc(&d->out, '"'));
    for (size_t at = 0, len; at < s->n; at += len) {
        uint32_t c = utf8_decode(s->s + at, s->n - at, &len);
        const char *p = c && c < 128 ? strchr(from, (int)c) : NULL;
        if (p) {
            char esc[2] = {'\\', into[p - from]};
            TRY(buf_append(&d->out, esc, 2));
        } else if (c < 0x20 || (d->ascii && c >= 0x7f && c < 0x10000 && c != 0x7f)) {
            TRY(buf_printf(&d->out, "\\u%04x", c));
        } else if (d->ascii && c >= 0x10000 && c != UTF8_BAD) {
            TRY(buf_printf(&d->out, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF)));
        } else {
            TRY(buf_append(&d->out, s->s + at, len));
        }
    }
    return buf_putc(&d->out, '"');
}

static int dump_line(struct dumper *d)
{
    struct val in = d->indent;
    if (in.t == V_NONE) return 0;
    TRY(buf_putc(&d->out, '\n'));
    for (unsigned i = 0; i < d->level; i++) {
        TRY(run_work(d->r, 1));
        if (in.t == V_STR)
            TRY(buf_append(&d->out, in.str->s, in.str->n));
        else
            for (int64_t k = val_as_int(in); k > 0; k--)
                TRY(buf_putc(&d->out, ' '));
    }
    return 0;
}

static int dump_sep(struct dumper *d, const struct str *sep, const char *fallback)
{
    return sep ? buf_append(&d->out, sep->s, sep->n) : buf_puts(&d->out, fallback);
}

static int dump_float(struct dumper *d, double f)
{
    char tmp[40];
    if (isnan(f)) return buf_puts(&d->out, "NaN");
    if (isinf(f)) return buf_puts(&d->out, f < 0 ? "-Infinity" : "Infinity");
    float_repr(f, tmp);
    return buf_puts(&d->out, tmp);
}

static int dump_key(struct dumper *d, struct val k)
{
    if (k.t == V_STR) return dump_str(d, k.str);
    if (k.t != V_NONE && !val_is_num(k))
        return ERR(FORMAT, "keys must be str, int, float, bool or None, not %s", val_type_name(k));
    TRY(buf_putc(&d->out, '"'));
    TRY(dump(d, k));
    return buf_putc(&d->out, '"');
}

static int sorted_keys(struct dumper *d, const struct dict *o, struct val **out)
{
    struct val *v, *key;
    RUN_NEW(d->r, v, o->n);
    RUN_NEW(d->r, key, o->n);
    for (size_t i = 0; i < o->n; i++) {
        v[i] = val_int((int64_t)i);
        key[i] = o->v[i].k;
    }
    *out = v;
    return val_sort(d->r, v, key, o->n, false);
}

static int dump_dict(struct dumper *d, const struct dict *o)
{
    struct val *order = NULL;
    if (d->sort) TRY(sorted_keys(d, o, &order));
    if (!o->n) return buf_puts(&d->out, "{}");
    TRY(buf_putc(&d->out, '{'));
    d->level++;
    for (size_t i = 0; i < o->n; i++) {
        const struct entry *e = &o->v[order ? (size_t)order[i].i : i];
        if (i) TRY(dump_sep(d, d->item_sep, d->indent.t == V_NONE ? ", " : ","));
        TRY(dump_line(d));
        TRY(dump_key(d, e->k));
        TRY(dump_sep(d, d->key_sep, ": "));
        TRY(dump(d, e->v));
    }
    d->level--;
    TRY(dump_line(d));
    return buf_putc(&d->out, '}');
}

static int dump_seq(struct dumper *d, const struct seq *s)
{
    if (!s->n) return buf_puts(&d->out, "[]");
    TRY(buf_putc(&d->out, '['));
    d->level++;
    for (size_t i = 0; i < s->n; i++) {
        if (i) TRY(dump_sep(d, d->item_sep, d->indent.t == V_NONE ? ", " : ","));
        TRY(dump_line(d));
        TRY(dump(d, s->v[i]));
    }
    d->level--;
    TRY(dump_line(d));
    return buf_putc(&d->out, ']');
}

static int dump_inner(struct dumper *d, struct val v)
{
    if (v.t == V_STR) return dump_str(d, v.str);
    if (v.t == V_NONE) return buf_puts(&d->out, "null");
    if (v.t == V_BOOL) return buf_puts(&d->out, v.b ? "true" : "false");
    if (v.t == V_INT) return buf_printf(&d->out, "%lld", (long long)v.i);
    if (v.t == V_FLOAT) return dump_float(d, v.f);
    if (v.t == V_DICT) return dump_dict(d, v.dict);
    if (val_is_list(v) || val_is_tuple(v)) return dump_seq(d, v.seq);
    return ERR(FORMAT, "Object of type %s is not JSON serializable", val_type_name(v));
}

static int dump(struct dumper *d, struct val v)
{
    TRY(run_enter(d->r));
    int e = run_work(d->r, 1);
    if (e >= 0) e = dump_inner(d, v);
    run_leave(d->r);
    return e;
}

int f_tojson(struct call *c, struct val *out)
{
    struct dumper d = {.r = c->r,
                       .ascii = args_truth(c, 0, false),
                       .sort = args_truth(c, 3, false),
                       .indent = args_has(c, 1) ? c->a[1] : val_none()};
    struct val sep = c->a[2];
    if (d.indent.t != V_NONE && d.indent.t != V_STR && !val_is_int(d.indent))
        return ERR(FORMAT, "indent must be a number, a text or none, not %s",
                   val_type_name(d.indent));
    if (args_has(c, 2)) {
        if ((!val_is_tuple(sep) && !val_is_list(sep)) || sep.seq->n != 2 ||
            sep.seq->v[0].t != V_STR || sep.seq->v[1].t != V_STR)
            return ERR(FORMAT, "separators must be two texts");
        d.item_sep = sep.seq->v[0].str;
        d.key_sep = sep.seq->v[1].str;
    }
    buf_init(&d.out, JINJA_MAX_OUTPUT * 2);
    int e = dump(&d, c->self);
    return str_take(c->r, e, &d.out, out);
}
