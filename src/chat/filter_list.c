/* filter_list.c - filters over sequences: first, last, sort, unique, groupby, batch and so on.
 * What is a generator in the reference is one here too (consumed once, without a length), but its
 * items are computed at once. */
#include "chat/filter.h"

#include <math.h>
#include <string.h>

/* The value an item is sorted and compared by. */
static int key_or(struct run *r, struct val item, struct val attribute, struct val other,
                  bool case_sensitive, struct val *out)
{
    *out = item;
    if (attribute.t != V_MISSING && attribute.t != V_NONE)
        TRY(val_path(r, item, attribute, other, out));
    if (!case_sensitive && out->t == V_STR) return str_convert(r, *out, CASE_LOWER, out);
    return 0;
}

static int item_key(struct run *r, struct val item, struct val attribute, bool case_sensitive,
                    struct val *out)
{
    return key_or(r, item, attribute, (struct val){.t = V_MISSING}, case_sensitive, out);
}

/* Keys for all items; an attribute may list several, separated by commas. */
static int make_keys(struct run *r, const struct seq *s, struct val attribute, bool case_sensitive,
                     struct val **out)
{
    struct val *key;
    bool many = attribute.t == V_STR && memchr(attribute.str->s, ',', attribute.str->n);
    struct val paths = {.t = V_MISSING}, sep;
    if (many) {
        TRY(str_puts(r, ",", &sep));
        TRY(text_split(r, attribute, sep, -1, false, &paths));
    }
    RUN_NEW(r, key, s->n);
    for (size_t i = 0; i < s->n; i++) {
        struct seq *parts; /* a list: equal items are never ordered, even undefined ones */
        size_t n = many ? paths.seq->n : 1;
        TRY(seq_new(r, SEQ_LIST, n, &parts));
        for (size_t k = 0; k < n; k++)
            TRY(item_key(r, s->v[i], many ? paths.seq->v[k] : attribute, case_sensitive,
                         &parts->v[k]));
        parts->n = n;
        key[i] = val_seq(parts);
    }
    *out = key;
    return 0;
}

static int f_first(struct call *c, struct val *out)
{
    struct iter it;
    TRY(iter_init(c->r, c->self, &it));
    int e = iter_next(c->r, &it, out);
    if (e < 0) return e;
    return e ? 0 : val_undef_hint(c->r, out, "No first item, sequence was empty.");
}

static int f_last(struct call *c, struct val *out)
{
    struct seq *s;
    if (val_is_once(c->self) || val_is_num(c->self) || c->self.t == V_NONE)
        return run_fail(c->r, "'%s' object is not reversible", val_type_name(c->self));
    TRY(val_list(c->r, c->self, &s));
    if (!s->n) return val_undef_hint(c->r, out, "No last item, sequence was empty.");
    *out = s->v[s->n - 1];
    return 0;
}

static int f_length(struct call *c, struct val *out)
{
    size_t n;
    if (c->self.t == V_LOOP) {
        struct val name;
        bool found;
        TRY(str_puts(c->r, "length", &name));
        return loop_attr(c->r, c->self.loop, name.str, out, &found);
    }
    TRY(val_len(c->r, c->self, &n));
    *out = val_int((int64_t)n);
    return 0;
}

static int f_list(struct call *c, struct val *out)
{
    struct seq *s;
    TRY(val_list(c->r, c->self, &s));
    *out = val_seq(s);
    return 0;
}

static int f_reverse(struct call *c, struct val *out)
{
    struct val none = val_none(), part[3] = {none, none, val_int(-1)};
    struct seq *s;
    if (c->self.t == V_STR) return val_slice(c->r, c->self, part, out);
    if (iter_init(c->r, c->self, &(struct iter){.at = 0}) < 0)
        return run_fail(c->r, "argument must be iterable");
    TRY(val_list(c->r, c->self, &s));
    for (size_t i = 0; i < s->n / 2; i++) {
        struct val t = s->v[i];
        s->v[i] = s->v[s->n - 1 - i];
        s->v[s->n - 1 - i] = t;
    }
    s->kind = SEQ_REVERSED;
    *out = val_seq(s);
    return 0;
}

static int f_sort(struct call *c, struct val *out)
{
    struct seq *s;
    struct val *key;
    TRY(val_list(c->r, c->self, &s));
    TRY(make_keys(c->r, s, c->a[2], args_truth(c, 1, false), &key));
    TRY(val_sort(c->r, s->v, key, s->n, args_truth(c, 0, false)));
    *out = val_seq(s);
    return 0;
}

static int f_unique(struct call *c, struct val *out)
{
    struct seq *s, *kept;
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

static int extreme(struct call *c, const char *op, struct val *out)
{
    struct seq *s;
    struct val best, key;
    TRY(val_list(c->r, c->self, &s));
    if (!s->n) return val_undef_hint(c->r, out, "No aggregated item, sequence was empty.");
    TRY(item_key(c->r, s->v[0], c->a[1], args_truth(c, 0, false), &best));
    *out = s->v[0];
    for (size_t i = 1; i < s->n; i++) {
        bool better;
        TRY(item_key(c->r, s->v[i], c->a[1], args_truth(c, 0, false), &key));
        TRY(val_less(c->r, key, best, op, &better));
        if (!better) continue;
        best = key;
        *out = s->v[i];
    }
    return 0;
}

static int f_min(struct call *c, struct val *out)
{
    return extreme(c, "<", out);
}

static int f_max(struct call *c, struct val *out)
{
    return extreme(c, ">", out);
}

static int f_sum(struct call *c, struct val *out)
{
    struct iter it;
    struct val item;
    int e;
    *out = c->a[1].t == V_MISSING ? val_int(0) : c->a[1];
    if (out->t == V_STR)
        return run_fail(c->r, "sum() can't sum strings [use ''.join(seq) instead]");
    TRY(iter_init(c->r, c->self, &it));
    while ((e = iter_next(c->r, &it, &item)) > 0) {
        if (c->a[0].t != V_MISSING && c->a[0].t != V_NONE)
            TRY(val_path(c->r, item, c->a[0], (struct val){.t = V_MISSING}, &item));
        TRY(val_binary(c->r, OP_ADD, *out, item, out));
    }
    return e;
}

static int f_dictsort(struct call *c, struct val *out)
{
    struct seq *s;
    struct val *key, items;
    size_t by = 0;
    if (c->self.t == V_UNDEF) return val_fail_undef(c->r, c->self);
    if (c->self.t != V_DICT)
        return run_fail(c->r, "'%s' object has no attribute 'items'", val_type_name(c->self));
    if (c->a[1].t != V_MISSING) {
        if (c->a[1].t != V_STR || (!str_is(c->a[1].str, "key") && !str_is(c->a[1].str, "value")))
            return run_fail(c->r, "You can only sort by either \"key\" or \"value\"");
        by = str_is(c->a[1].str, "value");
    }
    TRY(dict_view(c->r, c->self.dict, SEQ_ITEMS, &items));
    TRY(val_list(c->r, items, &s));
    RUN_NEW(c->r, key, s->n);
    for (size_t i = 0; i < s->n; i++)
        TRY(item_key(c->r, s->v[i].seq->v[by], (struct val){.t = V_MISSING},
                     args_truth(c, 0, false), &key[i]));
    TRY(val_sort(c->r, s->v, key, s->n, args_truth(c, 2, false)));
    *out = val_seq(s);
    return 0;
}

static int f_items(struct call *c, struct val *out)
{
    if (c->self.t == V_UNDEF) {
        struct seq *s;
        TRY(seq_new(c->r, SEQ_GEN, 0, &s));
        *out = val_seq(s);
        return 0;
    }
    if (c->self.t != V_DICT) return run_fail(c->r, "Can only get item pairs from a mapping.");
    TRY(dict_view(c->r, c->self.dict, SEQ_ITEMS, out));
    out->seq->kind = SEQ_GEN;
    return 0;
}

static int group_push(struct run *r, struct seq *groups, struct val key, struct val item)
{
    struct seq *g, *list;
    if (groups->n) {
        bool same;
        g = groups->v[groups->n - 1].seq;
        TRY(val_equal(r, g->v[0], key, &same));
        if (same) return seq_push(r, g->v[1].seq, item);
    }
    TRY(seq_new(r, SEQ_GROUP, 2, &g));
    TRY(seq_new(r, SEQ_LIST, 0, &list));
    g->v[0] = key;
    g->v[1] = val_seq(list);
    g->n = 2;
    TRY(seq_push(r, list, item));
    return seq_push(r, groups, val_seq(g));
}

static int f_groupby(struct call *c, struct val *out)
{
    struct seq *s, *groups;
    struct val *key;
    bool exact = args_truth(c, 2, false);
    TRY(val_list(c->r, c->self, &s));
    RUN_NEW(c->r, key, s->n);
    for (size_t i = 0; i < s->n; i++) {
        TRY(key_or(c->r, s->v[i], c->a[0], c->a[1], exact, &key[i]));
    }
    TRY(val_sort(c->r, s->v, key, s->n, false));
    TRY(seq_new(c->r, SEQ_LIST, 0, &groups));
    for (size_t i = 0; i < s->n; i++)
        TRY(group_push(c->r, groups, key[i], s->v[i]));
    for (size_t i = 0; i < groups->n && !exact; i++) { /* name groups as their first item does */
        struct seq *g = groups->v[i].seq;
        TRY(key_or(c->r, g->v[1].seq->v[0], c->a[0], c->a[1], true, &g->v[0]));
    }
    *out = val_seq(groups);
    return 0;
}

static int f_batch(struct call *c, struct val *out)
{
    struct seq *s, *all, *part = NULL;
    int64_t n;
    TRY(args_int(c, 0, 0, &n));
    TRY(val_list(c->r, c->self, &s));
    TRY(seq_new(c->r, SEQ_GEN, 0, &all));
    for (size_t i = 0; i < s->n; i++) {
        if (!part || (int64_t)part->n == n) {
            TRY(seq_new(c->r, SEQ_LIST, 0, &part));
            TRY(seq_push(c->r, all, val_seq(part)));
        }
        TRY(seq_push(c->r, part, s->v[i]));
    }
    bool fill = c->a[1].t != V_MISSING && c->a[1].t != V_NONE;
    for (; fill && part && (int64_t)part->n < n;) {
        TRY(run_work(c->r, 1));
        TRY(seq_push(c->r, part, c->a[1]));
    }
    *out = val_seq(all);
    return 0;
}

static int f_slice(struct call *c, struct val *out)
{
    struct seq *s, *all, *part;
    int64_t n;
    TRY(args_int(c, 0, 0, &n));
    TRY(val_list(c->r, c->self, &s));
    if (n <= 0) return run_fail(c->r, "integer division or modulo by zero");
    size_t each = s->n / (size_t)n, more = s->n % (size_t)n, at = 0;
    bool fill = c->a[1].t != V_MISSING && c->a[1].t != V_NONE;
    TRY(seq_new(c->r, SEQ_GEN, 0, &all));
    for (size_t i = 0; i < (size_t)n; i++) {
        size_t k = each + (i < more);
        TRY(run_work(c->r, 1 + k));
        TRY(seq_new(c->r, SEQ_LIST, k + 1, &part));
        for (size_t m = 0; m < k; m++)
            TRY(seq_push(c->r, part, s->v[at++]));
        if (fill && i >= more) TRY(seq_push(c->r, part, c->a[1]));
        TRY(seq_push(c->r, all, val_seq(part)));
    }
    *out = val_seq(all);
    return 0;
}

const struct fn_row filters_list[] = {
    {"batch", f_batch, "linecount fill_with", 1},
    {"count", f_length, "", 0},
    {"dictsort", f_dictsort, "case_sensitive by reverse", 0},
    {"first", f_first, "", 0},
    {"groupby", f_groupby, "attribute default case_sensitive", 1},
    {"items", f_items, "", 0},
    {"last", f_last, "", 0},
    {"length", f_length, "", 0},
    {"list", f_list, "", 0},
    {"max", f_max, "case_sensitive attribute", 0},
    {"min", f_min, "case_sensitive attribute", 0},
    {"reverse", f_reverse, "", 0},
    {"slice", f_slice, "slices fill_with", 1},
    {"sort", f_sort, "reverse case_sensitive attribute", 0},
    {"sum", f_sum, "attribute start", 0},
    {"unique", f_unique, "case_sensitive attribute", 0},
    {NULL, NULL, NULL, 0},
};
