/* call.c - calls of builtins and of macros.  The row of a builtin lists its parameters.  The parameters of a macro
 * become variables of a new scope inside the scope of the macro, and the output of its body is the value of the
 * call. */
#include "chat/node.h"

#include <string.h>

static const struct kwarg *kwarg_find(const struct call_args *args, const struct str *name)
{
    for (size_t i = 0; i < args->n_kw; i++)
        if (str_same(args->kw[i].name, name)) return &args->kw[i];
    return NULL;
}

/* Binds the arguments to the parameters that the row lists, such as "a b !c".  A parameter behind ! exists in
 * Jinja and is refused here. */
static int bind(struct builtin_call *c)
{
    const struct fn_row *row = c->row;
    const struct call_args *args = c->raw;
    size_t i = 0, used = 0;
    for (const char *p = row->params; *p; i++) {
        bool refused = *p == '!';
        struct str name = {.s = p + refused, .n = strcspn(p, " ") - refused};
        const struct kwarg *kw = kwarg_find(args, &name);
        int n = (int)name.n;
        used += kw != NULL;
        if (kw && i < args->n)
            return ERR(FORMAT, "%s() got multiple values for argument '%.*s'", row->name, n,
                       name.s);
        if (refused && (kw || i < args->n))
            return ERR(UNSUPPORTED, "the argument '%.*s' of %s() is not supported", n, name.s,
                       row->name);
        if (kw || i < args->n) c->a[i] = kw ? kw->v : args->v[i];
        if (i < row->need && c->a[i].t == V_MISSING)
            return ERR(FORMAT, "%s() needs at least %u argument%s", row->name, row->need,
                       row->need == 1 ? "" : "s");
        p = name.s + name.n + (name.s[name.n] == ' ');
    }
    if (args->n > i)
        return ERR(FORMAT, "%s() takes at most %zu argument%s (%zu given)", row->name, i,
                   i == 1 ? "" : "s", args->n);
    if (used < args->n_kw) return ERR(FORMAT, "%s() got an unexpected keyword argument", row->name);
    return 0;
}

int fn_invoke(struct render_state *r, const struct fn_row *row, struct val self,
              const struct call_args *args, struct val *out)
{
    static const struct call_args none;
    struct builtin_call c = {.r = r, .self = self, .raw = args ? args : &none, .row = row};
    if (row->params) TRY(bind(&c));
    TRY(render_enter(r));
    bool saved = r->tainting;
    r->tainting = val_foreign(self);
    for (size_t i = 0; args && i < args->n; i++)
        r->tainting |= val_foreign(args->v[i]);
    for (size_t i = 0; args && i < args->n_kw; i++)
        r->tainting |= val_foreign(args->kw[i].v);
    int e = row->kinds & FN_TEXT ? val_str(r, self, &c.self) : 0;
    if (e >= 0) e = row->fn(&c, out);
    r->tainting = saved;
    render_leave(r);
    return e;
}

/* Fails if the call has an argument that is no parameter of the macro. */
static int check_macro_args(struct render_state *r, const struct macro *m,
                            const struct call_args *args)
{
    const struct node *def = m->def;
    int n = (int)MIN(m->name->n, (size_t)100);
    TRY(render_work(r, args->n_kw * def->n / 16)); /* names are compared in pairs */
    if (args->n > def->n)
        return ERR(FORMAT, "macro '%.*s' takes not more than %u argument(s)", n, m->name->s,
                   def->n);
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct str *name = args->kw[i].name;
        bool known = false;
        for (uint32_t k = 0; k < def->n && !known; k++)
            known = str_same(def->list[k]->value.str, name);
        if (!known)
            return ERR(FORMAT, "macro '%.*s' takes no keyword argument '%.*s'", n, m->name->s,
                       (int)MIN(name->n, (size_t)100), name->s);
    }
    return 0;
}

static int bind_params(struct render_state *r, const struct node *def, const struct call_args *args)
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
            TRY(val_undef(r, &v, "parameter '%.*s' was not provided",
                          (int)MIN(p->value.str->n, (size_t)100), p->value.str->s));
        TRY(frame_set(r, p->sym, v));
    }
    return 0;
}

static int macro_call(struct render_state *r, const struct macro *m, const struct call_args *args,
                      struct val *out)
{
    struct scope *saved;
    TRY(check_macro_args(r, m, args));
    TRY(frame_push(r, m->env, &saved));
    int e = bind_params(r, m->def, args);
    if (e >= 0) e = node_capture(r, m->def->d, out);
    r->frame = saved;
    return e < 0 ? e : 0;
}

int val_call(struct render_state *r, struct val f, const struct call_args *args, struct val *out)
{
    int e;
    if (f.t == V_UNDEF) return val_fail_undef(f);
    if (r->calls >= JINJA_MAX_DEPTH)
        return ERR(LIMIT, "calls nested deeper than %u levels (maximum recursion depth exceeded)",
                   JINJA_MAX_DEPTH);
    r->calls++;
    if (f.t == V_MACRO)
        e = macro_call(r, f.macro, args, out);
    else if (f.t == V_FUNC)
        e = fn_invoke(r, f.fn, val_none(), args, out);
    else if (f.t == V_METHOD)
        e = fn_invoke(r, f.method->row, f.method->self, args, out);
    else if (f.t == V_LOOP)
        e = ERR(UNSUPPORTED, "recursive loops (loop(...)) are not supported");
    else
        e = ERR(FORMAT, "'%s' object is not callable", val_type_name(f));
    r->calls--;
    return e;
}

int args_int(struct builtin_call *c, unsigned i, int64_t fallback, int64_t *out)
{
    struct val v = c->a[i];
    *out = fallback;
    if (!args_has(c, i)) return 0;
    if (v.t == V_UNDEF) return val_fail_undef(v);
    if (!val_is_int(v))
        return ERR(FORMAT, "'%s' object cannot be interpreted as an integer", val_type_name(v));
    *out = val_as_int(v);
    return 0;
}

int args_str(struct builtin_call *c, unsigned i, struct val *out)
{
    struct val v = c->a[i];
    if (v.t == V_UNDEF) return val_fail_undef(v);
    if (v.t != V_STR)
        return ERR(FORMAT, "%s() argument %u must be str, not %s", c->row->name, i + 1,
                   val_type_name(v));
    *out = v;
    return 0;
}

bool args_truth(struct builtin_call *c, unsigned i, bool fallback)
{
    return c->a[i].t == V_MISSING ? fallback : val_true(c->a[i]);
}

bool args_has(struct builtin_call *c, unsigned i)
{
    return c->a[i].t != V_MISSING && c->a[i].t != V_NONE;
}
