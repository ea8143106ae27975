/* macro.c - calling a macro: its parameters, `varargs`, `kwargs` and `caller` become the variables
 * of a new scope inside the scope where the macro was defined; its output is its value. */
#include "chat/node.h"

#include <string.h>

static const struct kwarg *kwarg_find(const struct args *args, const struct str *name)
{
    for (size_t i = 0; i < args->n_kw; i++)
        if (args->kw[i].name->n == name->n && memcmp(args->kw[i].name->s, name->s, name->n) == 0)
            return &args->kw[i];
    return NULL;
}

static bool is_param(const struct node *def, const struct str *name)
{
    for (uint32_t i = 0; i < def->n; i++) {
        const struct str *p = def->list[i]->value.str;
        if (p->n == name->n && memcmp(p->s, name->s, p->n) == 0) return true;
    }
    return false;
}

static int bind_params(struct run *r, const struct node *def, const struct args *args)
{
    uint32_t first_default = def->n - def->n2;
    for (uint32_t i = 0; i < def->n; i++) {
        const struct node *p = def->list[i];
        const struct kwarg *kw = kwarg_find(args, p->value.str);
        struct val v;
        if (i < args->n)
            v = args->v[i];
        else if (kw)
            v = kw->v;
        else if (i >= first_default)
            TRY(node_eval(r, def->list2[i - first_default], &v));
        else
            TRY(val_undef_hint(r, &v, "parameter '%.*s' was not provided",
                               (int)MIN(p->value.str->n, (size_t)100), p->value.str->s));
        TRY(frame_set(r, p->sym, v));
    }
    return 0;
}

static int bind_varargs(struct run *r, const struct macro *m, const struct args *args)
{
    const struct node *def = m->def;
    struct seq *s;
    size_t extra = args->n > def->n ? args->n - def->n : 0;
    if (!(def->op & MACRO_VARARGS)) {
        if (!extra) return 0;
        return run_fail(r, "macro '%.*s' takes not more than %u argument(s)",
                        (int)MIN(m->name->n, (size_t)100), m->name->s, def->n);
    }
    TRY(seq_new(r, SEQ_TUPLE, extra, &s));
    if (extra) memcpy(s->v, args->v + def->n, extra * sizeof *s->v);
    s->n = extra;
    return frame_set(r, r->j->sym_varargs, val_seq(s));
}

static int bind_kwargs(struct run *r, const struct macro *m, const struct args *args)
{
    const struct node *def = m->def;
    struct dict *d;
    TRY(dict_new(r, 0, &d));
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct str *name = args->kw[i].name;
        if (is_param(def, name)) continue;
        if (str_is(name, "caller")) {
            if (def->op & MACRO_CALLER) {
                TRY(frame_set(r, r->j->sym_caller, args->kw[i].v));
                continue;
            }
            if (!(def->op & MACRO_KWARGS))
                return run_fail(r,
                                "macro '%.*s' was invoked with two values for the special "
                                "caller argument. This is most likely a bug.",
                                (int)MIN(m->name->n, (size_t)100), m->name->s);
        }
        if (!(def->op & MACRO_KWARGS))
            return run_fail(r, "macro '%.*s' takes no keyword argument '%.*s'",
                            (int)MIN(m->name->n, (size_t)100), m->name->s,
                            (int)MIN(name->n, (size_t)100), name->s);
        struct val key = {.t = V_STR, .str = (struct str *)name};
        TRY(dict_put(r, d, key, args->kw[i].v));
    }
    if (def->op & MACRO_CALLER && !kwarg_find(args, r->j->sym[r->j->sym_caller])) {
        struct val none;
        TRY(val_undef_hint(r, &none, "No caller defined"));
        TRY(frame_set(r, r->j->sym_caller, none));
    }
    if (!(def->op & MACRO_KWARGS)) return 0;
    return frame_set(r, r->j->sym_kwargs, (struct val){.t = V_DICT, .dict = d});
}

int macro_call(struct run *r, const struct macro *m, const struct args *args, struct val *out)
{
    struct frame *saved;
    TRY(frame_push(r, m->env, &saved));
    int e = bind_kwargs(r, m, args);
    if (e >= 0) e = bind_varargs(r, m, args);
    if (e >= 0) e = bind_params(r, m->def, args);
    if (e >= 0) e = node_capture(r, m->def->d, out);
    r->frame = saved;
    return e < 0 ? e : 0;
}
