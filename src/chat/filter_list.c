/* filter_list.c - filters over sequences.  Where Jinja returns a generator, so does this file: it can be consumed
 * once and has no length.  But its items are computed at once. */
#include "chat/builtin.h"

#include <string.h>

int f_first(struct builtin_call *c, struct val *out)
{
    struct iter it;
    TRY(iter_init(c->self, &it));
    int e = iter_next(c->r, &it, out);
    if (e < 0) return e;
    return e ? 0 : val_undef(c->r, out, "No first item, sequence was empty.");
}

int f_last(struct builtin_call *c, struct val *out)
{
    struct val_seq *s;
    if (val_is_gen(c->self) || val_is_num(c->self) || c->self.t == V_NONE)
        return ERR(FORMAT, "'%s' object is not reversible", val_type_name(c->self));
    TRY(val_list(c->r, c->self, &s));
    if (!s->n) return val_undef(c->r, out, "No last item, sequence was empty.");
    *out = s->v[s->n - 1];
    return 0;
}

int f_length(struct builtin_call *c, struct val *out)
{
    size_t n;
    static const struct str name = {.s = "length", .n = 6, .chars = 6};
    bool found;
    if (c->self.t == V_LOOP) return loop_attr(c->r, c->self.loop, &name, out, &found);
    TRY(val_len(c->r, c->self, &n));
    *out = val_int((int64_t)n);
    return 0;
}

int f_list(struct builtin_call *c, struct val *out)
{
    struct val_seq *s;
    TRY(val_list(c->r, c->self, &s));
    *out = val_seq(s);
    return 0;
}

int f_reverse(struct builtin_call *c, struct val *out)
{
    struct val none = val_none(), part[3] = {none, none, val_int(-1)};
    struct val_seq *s;
    if (c->self.t == V_STR) return val_slice(c->r, c->self, part, out);
    TRY(val_list(c->r, c->self, &s));
    seq_reverse(s);
    s->kind = SEQ_GEN;
    *out = val_seq(s);
    return 0;
}

/* Finds the value by which an item is sorted and compared. */
static int item_key(struct render_state *r, struct val item, struct val attribute,
                    bool case_sensitive, struct val *out)
{
    *out = item;
    if (attribute.t != V_MISSING && attribute.t != V_NONE)
        TRY(val_path(r, item, attribute, val_none(), out));
    if (!case_sensitive && out->t == V_STR) return str_convert(r, *out, CASE_LOWER, out);
    return 0;
}

int f_sort(struct builtin_call *c, struct val *out)
{
    struct val_seq *s;
    struct val *key, by = c->a[2];
    if (by.t == V_STR && memchr(by.str->s, ',', by.str->n))
        return ERR(UNSUPPORTED, "sorting by several attributes is not supported");
    TRY(val_list(c->r, c->self, &s));
    RUN_NEW(c->r, key, s->n);
    for (size_t i = 0; i < s->n; i++)
        TRY(item_key(c->r, s->v[i], by, args_truth(c, 1, false), &key[i]));
    TRY(val_sort(c->r, s->v, key, s->n, args_truth(c, 0, false)));
    *out = val_seq(s);
    return 0;
}

int f_unique(struct builtin_call *c, struct val *out)
{
    struct val_seq *s, *kept;
    struct dict *seen;
    TRY(val_list(c->r, c->self, &s));
    TRY(dict_new(c->r, 0, &seen));
    TRY(seq_new(c->r, SEQ_GEN, 0, &kept));
    for (size_t i = 0; i < s->n; i++) {
        struct val key, *hit;
        TRY(item_key(c->r, s->v[i], c->a[1], args_truth(c, 0, false), &key));
        TRY(dict_find(c->r, seen, key, &hit));
        if (hit) continue;
        TRY(dict_put(c->r, seen, key, val_none()));
        TRY(seq_push(c->r, kept, s->v[i]));
    }
    *out = val_seq(kept);
    return 0;
}

/* Finds the least or greatest item for the filters min and max; of equal keys the first item. */
int f_extreme(struct builtin_call *c, struct val *out)
{
    struct val_seq *s;
    struct val best = {.t = V_MISSING}, key;
    bool better = true;
    TRY(val_list(c->r, c->self, &s));
    if (!s->n) return val_undef(c->r, out, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < s->n; i++) {
        TRY(item_key(c->r, s->v[i], c->a[1], args_truth(c, 0, false), &key));
        if (i) TRY(val_compare(c->r, (enum compare_op)c->row->how, key, best, &better));
        if (!better) continue;
        best = key;
        *out = s->v[i];
    }
    return 0;
}

int f_sum(struct builtin_call *c, struct val *out)
{
    struct iter it;
    struct val item;
    int e;
    *out = c->a[1].t == V_MISSING ? val_int(0) : c->a[1];
    if (out->t == V_STR) return ERR(FORMAT, "sum() can't sum strings [use ''.join(seq) instead]");
    TRY(iter_init(c->self, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        if (args_has(c, 0)) TRY(val_path(c->r, item, c->a[0], val_none(), &item));
        TRY(val_binary(c->r, OP_ADD, *out, item, out));
    }
    return e;
}

int f_dictsort(struct builtin_call *c, struct val *out)
{
    struct val_seq *s;
    struct val *key, items, by = c->a[1];
    if (c->self.t == V_UNDEF) return val_fail_undef(c->self);
    if (c->self.t != V_DICT)
        return ERR(FORMAT, "'%s' object has no attribute 'items'", val_type_name(c->self));
    bool by_value = by.t == V_STR && str_is(by.str, "value");
    if (by.t != V_MISSING && !by_value && !(by.t == V_STR && str_is(by.str, "key")))
        return ERR(FORMAT, "You can only sort by either \"key\" or \"value\"");
    TRY(dict_view(c->r, c->self.dict, SEQ_ITEMS, &items));
    TRY(val_list(c->r, items, &s));
    RUN_NEW(c->r, key, s->n);
    for (size_t i = 0; i < s->n; i++)
        TRY(item_key(c->r, s->v[i].seq->v[by_value], val_none(), args_truth(c, 0, false), &key[i]));
    TRY(val_sort(c->r, s->v, key, s->n, args_truth(c, 2, false)));
    *out = val_seq(s);
    return 0;
}

int f_items(struct builtin_call *c, struct val *out)
{
    if (c->self.t == V_UNDEF) return seq_copy(c->r, SEQ_GEN, NULL, 0, out);
    if (c->self.t != V_DICT) return ERR(FORMAT, "Can only get item pairs from a mapping.");
    TRY(dict_view(c->r, c->self.dict, SEQ_ITEMS, out));
    out->seq->kind = SEQ_GEN;
    return 0;
}

static const struct kwarg *kwarg_find(const struct call_args *a, const char *name)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (str_is(a->kw[i].name, name)) return &a->kw[i];
    return NULL;
}

/* Returns the arguments after the first `skip`. */
static struct call_args args_rest(const struct call_args *a, size_t skip)
{
    struct call_args rest = *a;
    rest.v = a->v ? a->v + skip : NULL;
    rest.n = a->n - skip;
    return rest;
}

/* Begins map, select and the like.  *fn is the filter or test that argument `at` names, or NULL, and *rest are its
 * arguments.  *out is an empty generator, which the caller fills. */
static int begin_each(struct builtin_call *c, size_t at, enum fn_kind kind,
                      const struct fn_row **fn, struct call_args *rest, struct val *out)
{
    TRY(seq_copy(c->r, SEQ_GEN, NULL, 0, out));
    *rest = args_rest(c->raw, MIN(at + 1, c->raw->n));
    *fn = NULL;
    if (c->raw->n <= at) return 0;
    struct val name = c->raw->v[at];
    if (name.t != V_STR) return ERR(FORMAT, "the name of a filter or test must be a text");
    *fn = builtin_find(kind, name.str);
    return *fn ? 0 : builtin_fail(kind, name.str);
}

/* The filter map: passes every item through a filter, or takes an attribute of every item. */
int f_map(struct builtin_call *c, struct val *out)
{
    const struct kwarg *attr = kwarg_find(c->raw, "attribute");
    const struct kwarg *other = kwarg_find(c->raw, "default");
    const struct fn_row *filter;
    struct call_args rest;
    struct iter it;
    struct val item, v;
    int e;
    TRY(begin_each(c, 0, FN_FILTER, &filter, &rest, out));
    if (!val_true(c->self)) return 0;
    if (!filter && (!attr || c->raw->n_kw != 1u + (other != NULL)))
        return ERR(FORMAT, "map requires a filter argument or attribute=");
    TRY(iter_init(c->self, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        if (filter)
            TRY(fn_invoke(c->r, filter, item, &rest, &v));
        else
            TRY(val_path(c->r, item, attr->v, other ? other->v : val_none(), &v));
        TRY(seq_push(c->r, out->seq, v));
    }
    return e;
}

/* The filters select, reject, selectattr and rejectattr: keep the items that pass a test, or fail it.  With attr
 * the first argument names the attribute that is tested. */
int f_pick(struct builtin_call *c, struct val *out)
{
    bool attr = c->row->how & PICK_ATTR, want = !(c->row->how & PICK_FAILING);
    const struct fn_row *test;
    struct call_args rest;
    struct iter it;
    struct val item, v;
    int e;
    TRY(begin_each(c, attr, FN_TEST, &test, &rest, out));
    if (!val_true(c->self)) return 0;
    if (attr && !c->raw->n) return ERR(FORMAT, "Missing parameter for attribute name");
    TRY(iter_init(c->self, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        v = item;
        if (attr) TRY(val_path(c->r, item, c->raw->v[0], val_none(), &v));
        if (test) TRY(fn_invoke(c->r, test, v, &rest, &v));
        if (val_true(v) == want) TRY(seq_push(c->r, out->seq, item));
    }
    return e;
}

int f_default(struct builtin_call *c, struct val *out)
{
    *out = c->self;
    if (c->self.t != V_UNDEF && !(args_truth(c, 1, false) && !val_true(c->self))) return 0;
    if (c->a[0].t == V_MISSING) return str_puts(c->r, "", out);
    *out = c->a[0];
    return 0;
}
