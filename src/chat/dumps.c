/* dumps.c - the tojson filter: Python's json.dumps with ensure_ascii, indent, separators and
 * sort_keys. */
#include "base/utf8.h"
#include "chat/value.h"

#include <math.h>
#include <string.h>

struct dumper {
    struct run *r;
    const struct dumps_style *s;
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
        } else if (c < 0x20 || (d->s->ascii && c >= 0x7f && c < 0x10000 && c != 0x7f)) {
            TRY(buf_printf(&d->out, "\\u%04x", c));
        } else if (d->s->ascii && c >= 0x10000 && c != UTF8_BAD) {
            TRY(buf_printf(&d->out, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF)));
        } else {
            TRY(buf_append(&d->out, s->s + at, len));
        }
    }
    return buf_putc(&d->out, '"');
}

static int dump_line(struct dumper *d)
{
    struct val in = d->s->indent;
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

static int dump_sep(struct dumper *d, struct val sep, const char *fallback)
{
    if (sep.t == V_STR) return buf_append(&d->out, sep.str->s, sep.str->n);
    return buf_puts(&d->out, fallback);
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
        return run_fail(d->r, "keys must be str, int, float, bool or None, not %s",
                        val_type_name(k));
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
        key[i] = o->e[i].k;
    }
    *out = v;
    return val_sort(d->r, v, key, o->n, false);
}

static int dump_dict(struct dumper *d, const struct dict *o)
{
    struct val *order = NULL;
    if (d->s->sort) TRY(sorted_keys(d, o, &order));
    if (!o->n) return buf_puts(&d->out, "{}");
    TRY(buf_putc(&d->out, '{'));
    d->level++;
    for (size_t i = 0; i < o->n; i++) {
        const struct entry *e = &o->e[order ? (size_t)order[i].i : i];
        if (i) TRY(dump_sep(d, d->s->item_sep, d->s->indent.t == V_NONE ? ", " : ","));
        TRY(dump_line(d));
        TRY(dump_key(d, e->k));
        TRY(dump_sep(d, d->s->key_sep, ": "));
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
        if (i) TRY(dump_sep(d, d->s->item_sep, d->s->indent.t == V_NONE ? ", " : ","));
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
    return run_fail(d->r, "Object of type %s is not JSON serializable", val_type_name(v));
}

static int dump(struct dumper *d, struct val v)
{
    TRY(run_enter(d->r));
    int e = run_work(d->r, 1);
    if (e >= 0) e = dump_inner(d, v);
    run_leave(d->r);
    return e;
}

int val_dumps(struct run *r, struct val v, const struct dumps_style *s, struct val *out)
{
    struct dumper d = {.r = r, .s = s};
    buf_init(&d.out, JINJA_MAX_OUTPUT * 2);
    int e = dump(&d, v);
    if (e < 0) {
        buf_done(&d.out);
        return e;
    }
    return str_take(r, &d.out, out);
}
