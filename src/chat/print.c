/* print.c - values as text.  One writer serves Python's str() and repr() and the filter tojson, which
 * is json.dumps with ensure_ascii, indent, separators and sort_keys. */
#include "base/utf8.h"
#include "chat/value.h"

#include <math.h>
#include <string.h>

struct writer {
    struct render_state *r;
    struct buf *out;
    bool json, ascii, sort;
    struct val indent; /* V_NONE: one line; int: blanks; str: the unit itself */
    const struct str *item_sep, *key_sep;
    unsigned level;
};

static int write_value(struct writer *w, struct val v);

static int json_str(struct writer *w, const struct str *s)
{
    static const char from[] = "\"\\\n\r\t\b\f", into[] = "\"\\nrtbf";
    TRY(buf_putc(w->out, '"'));
    for (size_t at = 0, len; at < s->n; at += len) {
        uint32_t c = utf8_decode(s->s + at, s->n - at, &len);
        const char *p = c && c < 128 ? strchr(from, (int)c) : NULL;
        if (p)
            TRY(buf_printf(w->out, "\\%c", into[p - from]));
        else if (c < 0x20 || (w->ascii && c > 0x7f && c < 0x10000))
            TRY(buf_printf(w->out, "\\u%04x", c));
        else if (w->ascii && c >= 0x10000)
            TRY(buf_printf(w->out, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF)));
        else
            TRY(buf_append(w->out, s->s + at, len));
    }
    return buf_putc(w->out, '"');
}

static int repr_str(const struct str *s, struct buf *out)
{
    static const char from[] = "\\\n\r\t", into[] = "\\nrt";
    bool single = memchr(s->s, '\'', s->n) != NULL, both = memchr(s->s, '"', s->n) != NULL;
    char quote = single && !both ? '"' : '\'';
    TRY(buf_putc(out, quote));
    for (size_t at = 0, len; at < s->n; at += len) {
        uint32_t c = utf8_decode(s->s + at, s->n - at, &len);
        const char *p = c && c < 128 ? strchr(from, (int)c) : NULL;
        if (p || c == (uint32_t)quote)
            TRY(buf_printf(out, "\\%c", p ? into[p - from] : quote));
        else if (chr_printable(c))
            TRY(buf_append(out, s->s + at, len));
        else
            TRY(buf_printf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c));
    }
    return buf_putc(out, quote);
}

static int write_str(struct writer *w, struct val v)
{
    TRY(render_work_bytes(w->r, v.str->n * 4));
    if (w->json) return json_str(w, v.str);
    if (v.safe) TRY(buf_puts(w->out, "Markup("));
    TRY(repr_str(v.str, w->out));
    return v.safe ? buf_putc(w->out, ')') : 0;
}

static int write_float(struct writer *w, double f)
{
    char tmp[40];
    TRY(render_work(w->r, 16)); /* the cost of making a locale and of reading numbers back */
    if (w->json && isnan(f)) return buf_puts(w->out, "NaN");
    if (w->json && isinf(f)) return buf_puts(w->out, f < 0 ? "-Infinity" : "Infinity");
    float_repr(f, tmp);
    return buf_puts(w->out, tmp);
}

/* Writes a key of a dictionary.  In JSON every key becomes a string. */
static int write_key(struct writer *w, struct val k)
{
    if (!w->json || k.t == V_STR) return write_value(w, k);
    TRY(buf_putc(w->out, '"'));
    TRY(write_value(w, k));
    return buf_putc(w->out, '"');
}

static int write_line(struct writer *w)
{
    struct val unit = w->indent;
    if (unit.t == V_NONE) return 0;
    size_t n = unit.t == V_STR ? unit.str->n : (size_t)MAX(val_as_int(unit), (int64_t)0);
    TRY(buf_putc(w->out, '\n'));
    for (unsigned i = 0; i < w->level; i++) {
        TRY(render_work_bytes(w->r, MIN(n, (size_t)RENDER_MAX_MEMORY) + BYTES_PER_STEP));
        if (unit.t == V_STR) TRY(buf_append(w->out, unit.str->s, unit.str->n));
        for (int64_t k = unit.t == V_STR ? 0 : val_as_int(unit); k > 0; k--)
            TRY(buf_putc(w->out, ' '));
    }
    return 0;
}

static int write_sep(struct writer *w, const struct str *sep, const char *fallback)
{
    return sep ? buf_append(w->out, sep->s, sep->n) : buf_puts(w->out, fallback);
}

/* Finds the order in which sort_keys writes the entries.  Without sort_keys *order is NULL. */
static int key_order(struct writer *w, const struct dict *d, struct val **order)
{
    struct val *key;
    *order = NULL;
    if (!w->sort) return 0;
    RUN_NEW(w->r, *order, d->n);
    RUN_NEW(w->r, key, d->n);
    for (size_t i = 0; i < d->n; i++) {
        (*order)[i] = val_int((int64_t)i);
        key[i] = d->v[i].k;
    }
    return val_sort(w->r, *order, key, d->n, false);
}

static int write_items(struct writer *w, struct val v)
{
    struct val *order = NULL;
    size_t n = v.t == V_DICT ? v.dict->n : v.seq->n;
    if (v.t == V_DICT) TRY(key_order(w, v.dict, &order));
    w->level++;
    for (size_t i = 0; i < n; i++) {
        if (i) TRY(write_sep(w, w->item_sep, w->indent.t == V_NONE ? ", " : ","));
        TRY(write_line(w));
        if (v.t == V_DICT) {
            const struct dict_item *e = &v.dict->v[order ? (size_t)order[i].i : i];
            TRY(write_key(w, e->k));
            TRY(write_sep(w, w->key_sep, ": "));
            TRY(write_value(w, e->v));
        } else {
            TRY(write_value(w, v.seq->v[i]));
        }
    }
    w->level--;
    return n ? write_line(w) : 0;
}

static int write_inner(struct writer *w, struct val v)
{
    bool tuple = val_is_tuple(v) && !w->json, box = val_is_list(v) || val_is_tuple(v);
    if (v.t == V_NONE) return buf_puts(w->out, w->json ? "null" : "None");
    if (v.t == V_BOOL && w->json) return buf_puts(w->out, v.b ? "true" : "false");
    if (v.t == V_BOOL) return buf_puts(w->out, v.b ? "True" : "False");
    if (v.t == V_INT) return buf_printf(w->out, "%lld", (long long)v.i);
    if (v.t == V_FLOAT) return write_float(w, v.f);
    if (v.t == V_STR) return write_str(w, v);
    if (v.t == V_UNDEF && !w->json) return buf_puts(w->out, "Undefined");
    if (w->json && !box && v.t != V_DICT)
        return ERR(FORMAT, "Object of type %s is not JSON serializable", val_type_name(v));
    if (!box && v.t != V_DICT)
        return ERR(UNSUPPORTED, "printing a %s is not supported; apply the filter 'list'",
                   val_type_name(v));
    TRY(buf_putc(w->out, v.t == V_DICT ? '{' : tuple ? '(' : '['));
    TRY(write_items(w, v));
    if (tuple && v.seq->n == 1) TRY(buf_putc(w->out, ','));
    return buf_putc(w->out, v.t == V_DICT ? '}' : tuple ? ')' : ']');
}

static int write_value(struct writer *w, struct val v)
{
    TRY(render_enter(w->r));
    int e = render_work(w->r, 1);
    if (e >= 0) e = write_inner(w, v);
    render_leave(w->r);
    return e;
}

int val_repr(struct render_state *r, struct val v, struct buf *out)
{
    struct writer w = {.r = r, .out = out, .indent = val_none()};
    return write_value(&w, v);
}

int val_print(struct render_state *r, struct val v, struct text_build *out)
{
    size_t from = out->b.len;
    if (v.t == V_UNDEF) return 0;
    if (v.t == V_STR) {
        TRY(render_work_bytes(r, v.str->n));
        return text_put(r, out, v.str, 0, v.str->n);
    }
    TRY(val_repr(r, v, &out->b));
    return val_foreign(v) ? text_mark(r, out, from) : 0;
}

int val_str(struct render_state *r, struct val v, struct val *out)
{
    struct text_build t;
    *out = v;
    if (v.t == V_STR) return 0;
    text_init(&t, RENDER_MAX_MEMORY);
    int e = val_print(r, v, &t);
    return text_take(r, e, &t, out);
}

int f_tojson(struct builtin_call *c, struct val *out)
{
    struct buf b;
    struct val sep = c->a[2];
    struct writer w = {.r = c->r,
                       .out = &b,
                       .json = true,
                       .ascii = args_truth(c, 0, false),
                       .sort = args_truth(c, 3, false),
                       .indent = args_has(c, 1) ? c->a[1] : val_none()};
    if (w.indent.t != V_NONE && w.indent.t != V_STR && !val_is_int(w.indent))
        return ERR(FORMAT, "indent must be a number, a text or none, not %s",
                   val_type_name(w.indent));
    if (args_has(c, 2)) {
        if ((!val_is_tuple(sep) && !val_is_list(sep)) || sep.seq->n != 2 ||
            sep.seq->v[0].t != V_STR || sep.seq->v[1].t != V_STR)
            return ERR(FORMAT, "separators must be two texts");
        w.item_sep = sep.seq->v[0].str;
        w.key_sep = sep.seq->v[1].str;
    }
    buf_init(&b, JINJA_MAX_OUTPUT * 2);
    int e = write_value(&w, c->self);
    return str_take(c->r, e, &b, out);
}
