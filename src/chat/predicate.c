/* predicate.c - the tests after `is`. */
#include "base/utf8.h"
#include "chat/builtin.h"

static int yes(struct val *out, bool b)
{
    *out = val_bool(b);
    return 0;
}

static bool has_type(struct val v, enum type_test how)
{
    bool sequence = v.t == V_UNDEF || v.t == V_STR || v.t == V_DICT || val_is_indexed(v);
    switch (how) {
    case TYPE_BOOLEAN:
        return v.t == V_BOOL;
    case TYPE_CALLABLE: /* an undefined value has __call__, which fails */
        return v.t == V_UNDEF || v.t == V_MACRO || v.t == V_FUNC || v.t == V_METHOD ||
               v.t == V_LOOP;
    case TYPE_DEFINED:
        return v.t != V_UNDEF;
    case TYPE_FALSE:
        return v.t == V_BOOL && !v.b;
    case TYPE_FLOAT:
        return v.t == V_FLOAT;
    case TYPE_INTEGER:
        return v.t == V_INT;
    case TYPE_ITERABLE:
        return sequence || v.t == V_SEQ || v.t == V_LOOP;
    case TYPE_MAPPING:
        return v.t == V_DICT;
    case TYPE_NONE:
        return v.t == V_NONE;
    case TYPE_NUMBER:
        return val_is_num(v);
    case TYPE_SEQUENCE:
        return sequence;
    case TYPE_STRING:
        return v.t == V_STR;
    case TYPE_TRUE:
        return v.t == V_BOOL && v.b;
    case TYPE_UNDEFINED:
        return v.t == V_UNDEF;
    }
    return false;
}

int t_type(struct call *c, struct val *out)
{
    return yes(out, has_type(c->self, (enum type_test)c->row->how));
}

/* True if the text has a letter of that case and none of the other. */
int t_case(struct call *c, struct val *out)
{
    const struct str *s = c->self.str;
    bool upper = c->row->how == CASE_UPPER, any = false, other = false;
    TRY(run_work_bytes(c->r, s->n * 4));
    for (size_t at = 0, len; at < s->n; at += len) {
        uint32_t ch = utf8_decode(s->s + at, s->n - at, &len);
        any |= chr_cased(ch, upper);
        other |= chr_cased(ch, !upper);
    }
    return yes(out, any && !other);
}

int t_modulo(struct call *c, struct val *out)
{
    struct val rest;
    bool b;
    enum modulo_test how = (enum modulo_test)c->row->how;
    TRY(val_binary(c->r, OP_MOD, c->self, how == MODULO_ARGUMENT ? c->a[0] : val_int(2), &rest));
    TRY(val_equal(c->r, rest, val_int(how == MODULO_ODD), &b));
    return yes(out, b);
}

int t_equal(struct call *c, struct val *out)
{
    bool b;
    TRY(val_equal(c->r, c->self, c->a[0], &b));
    return yes(out, b == c->row->how);
}

int t_order(struct call *c, struct val *out)
{
    static const char *const text[] = {"<", "<=", ">", ">="};
    bool b;
    TRY(val_less(c->r, c->self, c->a[0], text[c->row->how], &b));
    return yes(out, b);
}

int t_in(struct call *c, struct val *out)
{
    bool b;
    TRY(val_contains(c->r, c->a[0], c->self, &b));
    return yes(out, b);
}

int t_sameas(struct call *c, struct val *out)
{
    struct val a = c->self, b = c->a[0];
    bool same = a.t == b.t;
    if (same && (val_is_num(a) || a.t == V_STR))
        TRY(val_equal(c->r, a, b, &same));
    else if (same && a.t != V_NONE)
        same = a.dict == b.dict; /* all pointers share the union */
    return yes(out, same);
}
