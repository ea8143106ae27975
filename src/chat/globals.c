/* globals.c - the functions a template finds without being given them. */
#include "chat/filter.h"

#include <string.h>

static int g_range(struct call *c, struct val *out)
{
    int64_t a, b, step;
    struct range *v;
    TRY(args_int(c, 0, 0, &a));
    TRY(args_int(c, 1, 0, &b));
    TRY(args_int(c, 2, 1, &step));
    if (c->a[1].t == V_MISSING) {
        b = a;
        a = 0;
    }
    if (step == 0) return run_fail(c->r, "range() arg 3 must not be zero");
    __int128 gap = step > 0 ? (__int128)b - a : (__int128)a - b;
    __int128 width = step > 0 ? (__int128)step : -(__int128)step;
    __int128 n = gap > 0 ? (gap + width - 1) / width : 0;
    if (n > RANGE_MAX)
        return run_fail(c->r,
                        "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                        RANGE_MAX);
    RUN_NEW(c->r, v, 1);
    *v = (struct range){a, b, step, (size_t)n};
    *out = (struct val){.t = V_RANGE, .range = v};
    return 0;
}

/* dict(other or pairs, **kwargs), also what namespace() holds. */
static int fill_dict(struct call *c, struct dict **out)
{
    struct dict *d;
    struct iter it;
    struct val item;
    int e = 0;
    if (c->raw->n > 1)
        return run_fail(c->r, "%s expected at most 1 argument, got %zu", c->row->name, c->raw->n);
    TRY(dict_new(c->r, 0, &d));
    struct val from = c->raw->n ? c->raw->v[0] : val_none();
    if (c->raw->n && from.t == V_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            TRY(dict_put(c->r, d, from.dict->e[i].k, from.dict->e[i].v));
    } else if (c->raw->n) {
        TRY(iter_init(c->r, from, &it));
        while ((e = iter_next(c->r, &it, &item)) > 0) {
            struct seq *pair;
            TRY(val_list(c->r, item, &pair));
            if (pair->n != 2)
                return run_fail(c->r,
                                "dictionary update sequence element has length %zu; 2 is "
                                "required",
                                pair->n);
            TRY(dict_put(c->r, d, pair->v[0], pair->v[1]));
        }
        if (e < 0) return e;
    }
    for (size_t i = 0; i < c->raw->n_kw; i++) {
        struct val k = {.t = V_STR, .str = (struct str *)c->raw->kw[i].name};
        TRY(dict_put(c->r, d, k, c->raw->kw[i].v));
    }
    *out = d;
    return 0;
}

static int g_dict(struct call *c, struct val *out)
{
    struct dict *d;
    TRY(fill_dict(c, &d));
    *out = (struct val){.t = V_DICT, .dict = d};
    return 0;
}

static int g_namespace(struct call *c, struct val *out)
{
    struct dict *d;
    TRY(fill_dict(c, &d));
    for (size_t i = 0; i < d->n; i++) {
        struct val k = d->e[i].k;
        if (k.t == V_STR && k.str->n && k.str->s[0] == '_')
            return run_fail(c->r,
                            "Chat templates cannot store underscore-prefixed attributes on a "
                            "namespace, but got '%.*s'. Please rename the attribute.",
                            (int)MIN(k.str->n, (size_t)60), k.str->s);
    }
    *out = (struct val){.t = V_SPACE, .dict = d};
    return 0;
}

static int g_raise(struct call *c, struct val *out)
{
    struct val s;
    (void)out;
    TRY(val_str(c->r, c->a[0], &s));
    return ERR(ARG, "%.*s", (int)MIN(s.str->n, (size_t)1000), s.str->s);
}

static int g_strftime(struct call *c, struct val *out)
{
    struct val fmt;
    struct buf b;
    TRY(args_str(c, 0, &fmt));
    buf_init(&b, RUN_MAX_MEMORY);
    int e = strftime_text(c->r, fmt.str, &b);
    if (e >= 0) return str_take(c->r, &b, out);
    buf_done(&b);
    return e;
}

static int g_cycler(struct call *c, struct val *out)
{
    struct cycler *y;
    if (!c->raw->n) return run_fail(c->r, "at least one item has to be provided");
    RUN_NEW(c->r, y, 1);
    TRY(seq_new(c->r, SEQ_TUPLE, c->raw->n, &y->items));
    memcpy(y->items->v, c->raw->v, c->raw->n * sizeof *y->items->v);
    y->items->n = c->raw->n;
    *out = (struct val){.t = V_CYCLER, .cycler = y};
    return 0;
}

static int g_joiner(struct call *c, struct val *out)
{
    struct cycler *y;
    RUN_NEW(c->r, y, 1);
    y->sep = c->a[0];
    if (y->sep.t == V_MISSING) TRY(str_puts(c->r, ", ", &y->sep));
    *out = (struct val){.t = V_JOINER, .cycler = y};
    return 0;
}

static int m_next(struct call *c, struct val *out)
{
    struct cycler *y = c->self.cycler;
    *out = y->items->v[y->pos];
    y->pos = (y->pos + 1) % y->items->n;
    return 0;
}

static int m_reset(struct call *c, struct val *out)
{
    c->self.cycler->pos = 0;
    *out = val_none();
    return 0;
}

const struct fn_row methods_cycler[] = {
    {"next", m_next, "", 0},
    {"reset", m_reset, "", 0},
    {NULL, NULL, NULL, 0},
};

const struct fn_row globals_all[] = {
    {"cycler", g_cycler, NULL, 0},
    {"dict", g_dict, NULL, 0},
    {"joiner", g_joiner, "sep", 0},
    {"namespace", g_namespace, NULL, 0},
    {"raise_exception", g_raise, "message", 1},
    {"range", g_range, "start stop step", 1},
    {"strftime_now", g_strftime, "format", 1},
    {NULL, NULL, NULL, 0},
};
