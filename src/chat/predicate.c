/* predicate.c - the tests after `is`. */
#include "chat/builtin.h"

static int yes(struct val *out, bool b)
{
    *out = val_bool(b);
    return 0;
}

/* True if self is of one of the types whose bits are set in `how`. */
int t_type(struct call *c, struct val *out)
{
    return yes(out, (unsigned)c->row->how >> c->self.t & 1);
}

int t_bool(struct call *c, struct val *out)
{
    return yes(out, c->self.t == V_BOOL && c->self.b == c->row->how);
}

int t_sequence(struct call *c, struct val *out)
{
    struct val v = c->self;
    return yes(out, v.t == V_UNDEF || v.t == V_STR || v.t == V_DICT || val_is_indexed(v));
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

int t_compare(struct call *c, struct val *out)
{
    bool b;
    TRY(val_compare(c->r, (enum compare_op)c->row->how, c->self, c->a[0], &b));
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
