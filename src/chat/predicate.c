/* predicate.c - the tests after `is`. */
#include "base/utf8.h"
#include "chat/filter.h"

#include <string.h>

static int yes(struct val *out, bool b)
{
    *out = val_bool(b);
    return 0;
}

static int t_defined(struct call *c, struct val *out)
{
    return yes(out, c->self.t != V_UNDEF);
}

static int t_undefined(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_UNDEF);
}

static int t_none(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_NONE);
}

static int t_boolean(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_BOOL);
}

static int t_true(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_BOOL && c->self.b);
}

static int t_false(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_BOOL && !c->self.b);
}

static int t_integer(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_INT);
}

static int t_float(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_FLOAT);
}

static int t_number(struct call *c, struct val *out)
{
    return yes(out, val_is_num(c->self));
}

static int t_string(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_STR);
}

static int t_mapping(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_DICT);
}

static int t_iterable(struct call *c, struct val *out)
{
    switch ((enum val_type)c->self.t) {
    case V_UNDEF:
    case V_STR:
    case V_SEQ:
    case V_RANGE:
    case V_DICT:
    case V_LOOP:
        return yes(out, true);
    default:
        return yes(out, false);
    }
}

/* Has a length and items: what len() and [] accept. */
static int t_sequence(struct call *c, struct val *out)
{
    struct val v = c->self;
    return yes(out, v.t == V_UNDEF || v.t == V_STR || v.t == V_RANGE || v.t == V_DICT ||
                        val_is_list(v) || val_is_tuple(v));
}

static int t_callable(struct call *c, struct val *out)
{
    switch ((enum val_type)c->self.t) {
    case V_UNDEF: /* calling it is an error, but it has __call__ */
    case V_MACRO:
    case V_FUNC:
    case V_METHOD:
    case V_LOOP:
    case V_JOINER:
        return yes(out, true);
    default:
        return yes(out, false);
    }
}

static int t_escaped(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_STR && c->self.safe);
}

static bool is_case(const struct str *s, bool upper)
{
    bool any = false;
    size_t len;
    for (size_t at = 0; at < s->n; at += len) {
        uint32_t ch = utf8_decode(s->s + at, s->n - at, &len);
        if (chr_cased(ch, !upper)) return false;
        any |= chr_cased(ch, upper);
    }
    return any;
}

static int t_lower(struct call *c, struct val *out)
{
    struct val s;
    TRY(val_str(c->r, c->self, &s));
    TRY(run_work_bytes(c->r, s.str->n * 4));
    return yes(out, is_case(s.str, false));
}

static int t_upper(struct call *c, struct val *out)
{
    struct val s;
    TRY(val_str(c->r, c->self, &s));
    TRY(run_work_bytes(c->r, s.str->n * 4));
    return yes(out, is_case(s.str, true));
}

static int modulo(struct call *c, struct val by, struct val *out)
{
    return val_binary(c->r, OP_MOD, c->self, by, out);
}

static int t_even(struct call *c, struct val *out)
{
    struct val m;
    bool b;
    TRY(modulo(c, val_int(2), &m));
    TRY(val_equal(c->r, m, val_int(0), &b));
    return yes(out, b);
}

static int t_odd(struct call *c, struct val *out)
{
    struct val m;
    bool b;
    TRY(modulo(c, val_int(2), &m));
    TRY(val_equal(c->r, m, val_int(1), &b));
    return yes(out, b);
}

static int t_divisibleby(struct call *c, struct val *out)
{
    struct val m;
    bool b;
    TRY(modulo(c, c->a[0], &m));
    TRY(val_equal(c->r, m, val_int(0), &b));
    return yes(out, b);
}

static int t_eq(struct call *c, struct val *out)
{
    bool b;
    TRY(val_equal(c->r, c->self, c->a[0], &b));
    return yes(out, b);
}

static int t_ne(struct call *c, struct val *out)
{
    bool b;
    TRY(val_equal(c->r, c->self, c->a[0], &b));
    return yes(out, !b);
}

static int order(struct call *c, const char *op, struct val *out)
{
    bool b;
    TRY(val_less(c->r, c->self, c->a[0], op, &b));
    return yes(out, b);
}

static int t_lt(struct call *c, struct val *out)
{
    return order(c, "<", out);
}

static int t_le(struct call *c, struct val *out)
{
    return order(c, "<=", out);
}

static int t_gt(struct call *c, struct val *out)
{
    return order(c, ">", out);
}

static int t_ge(struct call *c, struct val *out)
{
    return order(c, ">=", out);
}

static int t_in(struct call *c, struct val *out)
{
    bool b;
    TRY(val_contains(c->r, c->a[0], c->self, &b));
    return yes(out, b);
}

static int t_sameas(struct call *c, struct val *out)
{
    struct val a = c->self, b = c->a[0];
    bool same = a.t == b.t;
    if (same && (a.t == V_BOOL || a.t == V_INT || a.t == V_FLOAT || a.t == V_STR))
        TRY(val_equal(c->r, a, b, &same));
    else if (same && a.t != V_NONE)
        same = a.dict == b.dict;
    return yes(out, same);
}

static int t_filter(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_STR && filter_find(c->self.str->s, c->self.str->n));
}

static int t_test(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_STR && test_find(c->self.str->s, c->self.str->n));
}

const struct fn_row tests_all[] = {
    {"!=", t_ne, "other", 1},
    {"<", t_lt, "other", 1},
    {"<=", t_le, "other", 1},
    {"==", t_eq, "other", 1},
    {">", t_gt, "other", 1},
    {">=", t_ge, "other", 1},
    {"boolean", t_boolean, "", 0},
    {"callable", t_callable, "", 0},
    {"defined", t_defined, "", 0},
    {"divisibleby", t_divisibleby, "num", 1},
    {"eq", t_eq, "other", 1},
    {"equalto", t_eq, "other", 1},
    {"escaped", t_escaped, "", 0},
    {"even", t_even, "", 0},
    {"false", t_false, "", 0},
    {"filter", t_filter, "", 0},
    {"float", t_float, "", 0},
    {"ge", t_ge, "other", 1},
    {"greaterthan", t_gt, "other", 1},
    {"gt", t_gt, "other", 1},
    {"in", t_in, "seq", 1},
    {"integer", t_integer, "", 0},
    {"iterable", t_iterable, "", 0},
    {"le", t_le, "other", 1},
    {"lessthan", t_lt, "other", 1},
    {"lower", t_lower, "", 0},
    {"lt", t_lt, "other", 1},
    {"mapping", t_mapping, "", 0},
    {"ne", t_ne, "other", 1},
    {"none", t_none, "", 0},
    {"number", t_number, "", 0},
    {"odd", t_odd, "", 0},
    {"sameas", t_sameas, "other", 1},
    {"sequence", t_sequence, "", 0},
    {"string", t_string, "", 0},
    {"test", t_test, "", 0},
    {"true", t_true, "", 0},
    {"undefined", t_undefined, "", 0},
    {"upper", t_upper, "", 0},
    {NULL, NULL, NULL, 0},
};
