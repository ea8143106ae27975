/* filter_pick.c - filters that take other filters and tests: map, select, reject, selectattr,
 * rejectattr; and default and attr. */
#include "chat/filter.h"

#include <string.h>

static const struct kwarg *kw_find(const struct args *a, const char *name)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (str_is(a->kw[i].name, name)) return &a->kw[i];
    return NULL;
}

/* The arguments after the first `skip`. */
static struct args args_rest(const struct args *a, size_t skip)
{
    struct args rest = *a;
    rest.v = a->v ? a->v + skip : NULL;
    rest.n = a->n - skip;
    return rest;
}

static int named(struct call *c, size_t at, bool test, const struct fn_row **out)
{
    struct val name = c->raw->v[at];
    if (name.t != V_STR)
        return run_fail(c->r, "the name of a %s must be a text", test ? "test" : "filter");
    *out = test ? test_find(name.str->s, name.str->n) : filter_find(name.str->s, name.str->n);
    if (!*out)
        return run_fail(c->r, "unknown %s '%.*s'", test ? "test" : "filter",
                        (int)MIN(name.str->n, (size_t)60), name.str->s);
    return 0;
}

static int map_attribute(struct call *c, struct seq *to)
{
    const struct kwarg *attr = kw_find(c->raw, "attribute"), *other = kw_find(c->raw, "default");
    struct iter it;
    struct val item, v;
    int e;
    if (c->raw->n_kw != 1u + (other != NULL))
        return run_fail(c->r, "Unexpected keyword argument in map");
    TRY(iter_init(c->r, c->self, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        TRY(val_path(c->r, item, attr->v, other ? other->v : (struct val){.t = V_MISSING}, &v));
        TRY(seq_push(c->r, to, v));
    }
    return e;
}

static int f_map(struct call *c, struct val *out)
{
    const struct fn_row *filter;
    struct iter it;
    struct val item, v;
    struct seq *to;
    int e;
    TRY(seq_new(c->r, SEQ_GEN, 0, &to));
    *out = val_seq(to);
    if (!val_true(c->self)) return 0;
    if (!c->raw->n && kw_find(c->raw, "attribute")) return map_attribute(c, to);
    if (!c->raw->n) return run_fail(c->r, "map requires a filter argument");
    TRY(named(c, 0, false, &filter));
    struct args rest = args_rest(c->raw, 1);
    TRY(iter_init(c->r, c->self, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        TRY(fn_invoke(c->r, filter, item, &rest, &v));
        TRY(seq_push(c->r, to, v));
    }
    return e;
}

/* Items whose value (or attribute, the first argument) passes a test, or does not. */
static int pick(struct call *c, bool attr, bool want, struct val *out)
{
    const struct fn_row *test = NULL;
    struct args rest = {0};
    struct iter it;
    struct val item, v;
    struct seq *to;
    int e;
    TRY(seq_new(c->r, SEQ_GEN, 0, &to));
    *out = val_seq(to);
    if (!val_true(c->self)) return 0;
    if (attr && !c->raw->n) return run_fail(c->r, "Missing parameter for attribute name");
    if (c->raw->n > attr) {
        TRY(named(c, attr, true, &test));
        rest = args_rest(c->raw, 1u + attr);
    }
    TRY(iter_init(c->r, c->self, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        v = item;
        if (attr) TRY(val_path(c->r, item, c->raw->v[0], (struct val){.t = V_MISSING}, &v));
        if (test) TRY(fn_invoke(c->r, test, v, &rest, &v));
        if (val_true(v) == want) TRY(seq_push(c->r, to, item));
    }
    return e;
}

static int f_select(struct call *c, struct val *out)
{
    return pick(c, false, true, out);
}

static int f_reject(struct call *c, struct val *out)
{
    return pick(c, false, false, out);
}

static int f_selectattr(struct call *c, struct val *out)
{
    return pick(c, true, true, out);
}

static int f_rejectattr(struct call *c, struct val *out)
{
    return pick(c, true, false, out);
}

static int f_default(struct call *c, struct val *out)
{
    *out = c->self;
    if (c->self.t != V_UNDEF && !(args_truth(c, 1, false) && !val_true(c->self))) return 0;
    if (c->a[0].t == V_MISSING) return str_puts(c->r, "", out);
    *out = c->a[0];
    return 0;
}

/* Only what is an attribute, not an item: methods, and members of namespaces. */
static int f_attr(struct call *c, struct val *out)
{
    struct val name;
    TRY(val_str(c->r, c->a[0], &name));
    if (c->self.t == V_UNDEF) return val_fail_undef(c->r, c->self);
    if (c->self.t == V_DICT) {
        bool unsafe = false;
        if (!method_find(c->self, name.str->s, name.str->n, &unsafe))
            return val_undef_attr(c->r, c->self, name, unsafe, out);
    }
    return val_attr(c->r, c->self, name, out);
}

const struct fn_row filters_pick[] = {
    {"attr", f_attr, "name", 1},
    {"d", f_default, "default_value boolean", 0},
    {"default", f_default, "default_value boolean", 0},
    {"map", f_map, NULL, 0},
    {"reject", f_reject, NULL, 0},
    {"rejectattr", f_rejectattr, NULL, 0},
    {"select", f_select, NULL, 0},
    {"selectattr", f_selectattr, NULL, 0},
    {NULL, NULL, NULL, 0},
};
