/* eval.c - the value of an expression.  Each node counts against the limits of depth and steps; the
 * innermost node that fails gives the error its line. */
#include "chat/node.h"

#include <string.h>

/* Finds a name that the template has not set: a variable of the caller, a trusted variable, or a function. */
static int given_value(struct render_state *r, const struct str *name, struct val *out)
{
    const json_t *j = json_object_get(r->vars, name->s);
    bool saved = r->tainting;
    r->tainting = j != NULL;
    if (!j) j = json_object_get(r->trusted, name->s);
    int e = j ? val_from_json(r, j, 0, out) : 0;
    r->tainting = saved;
    if (j || e < 0) return e;
    const struct fn_row *fn = builtin_find(FN_GLOBAL, name);
    if (!fn && builtin_refused(FN_GLOBAL, name)) return builtin_fail(FN_GLOBAL, name);
    if (!fn)
        return val_undef(r, out, "'%.*s' is undefined", (int)MIN(name->n, (size_t)200), name->s);
    *out = (struct val){.t = V_FUNC, .fn = fn};
    return 0;
}

static int eval_name(struct render_state *r, const struct node *n, struct val *out)
{
    for (struct scope *f = r->frame; f; f = f->parent) {
        TRY(render_work_bytes(r, f->n + 1)); /* looking at one binding costs as much as one byte */
        for (size_t i = f->n; i-- > 0;)
            if (f->v[i].sym == n->sym) {
                *out = f->v[i].v;
                return 0;
            }
    }
    const struct str *name = n->value.str;
    if (r->ctx[n->sym].t == V_MISSING) {
        struct val v;
        TRY(given_value(r, name, &v));
        r->ctx[n->sym] = v;
    }
    *out = r->ctx[n->sym];
    return 0;
}

static int eval_list(struct render_state *r, const struct node *n, struct val *out)
{
    struct val_seq *s;
    TRY(seq_new(r, n->kind == N_TUPLE ? SEQ_TUPLE : SEQ_LIST, n->n, &s));
    for (uint32_t i = 0; i < n->n; i++)
        TRY(node_eval(r, n->list[i], &s->v[i]));
    s->n = n->n;
    *out = val_seq(s);
    return 0;
}

static int eval_dict(struct render_state *r, const struct node *n, struct val *out)
{
    struct dict *d;
    TRY(dict_new(r, n->n / 2, &d));
    for (uint32_t i = 0; i < n->n; i += 2) {
        struct val k, v;
        TRY(node_eval(r, n->list[i], &k));
        TRY(node_eval(r, n->list[i + 1], &v));
        TRY(dict_put(r, d, k, v));
    }
    *out = (struct val){.t = V_DICT, .dict = d};
    return 0;
}

static int eval_item(struct render_state *r, const struct node *n, struct val *out)
{
    struct val obj, key, part[3];
    TRY(node_eval(r, n->a, &obj));
    if (n->b->kind != N_SLICE) {
        TRY(node_eval(r, n->b, &key));
        return val_item(r, obj, key, out);
    }
    const struct node *s[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++) {
        part[i] = val_none();
        if (s[i]) TRY(node_eval(r, s[i], &part[i]));
    }
    return val_slice(r, obj, part, out);
}

static int eval_args(struct render_state *r, const struct node *n, struct call_args *args)
{
    *args = (struct call_args){.n = n->n, .n_kw = n->n2};
    if (n->n) RUN_NEW(r, args->v, n->n);
    if (n->n2) RUN_NEW(r, args->kw, n->n2);
    for (uint32_t i = 0; i < n->n; i++)
        TRY(node_eval(r, n->list[i], &args->v[i]));
    for (uint32_t i = 0; i < n->n2; i++) {
        args->kw[i].name = n->list2[i]->value.str;
        TRY(node_eval(r, n->list2[i]->a, &args->kw[i].v));
    }
    return 0;
}

static int eval_call(struct render_state *r, const struct node *n, struct val *out)
{
    struct val f;
    struct call_args args;
    TRY(node_eval(r, n->a, &f));
    TRY(eval_args(r, n, &args));
    return val_call(r, f, &args, out);
}

static int eval_builtin(struct render_state *r, const struct node *n, struct val *out)
{
    struct val self;
    struct call_args args;
    TRY(node_eval(r, n->a, &self));
    if (!n->fn) return builtin_fail(n->kind == N_TEST ? FN_TEST : FN_FILTER, n->value.str);
    TRY(eval_args(r, n, &args));
    return fn_invoke(r, n->fn, self, &args, out);
}

static int eval_cond(struct render_state *r, const struct node *n, struct val *out)
{
    struct val test;
    TRY(node_eval(r, n->a, &test));
    if (val_true(test)) return node_eval(r, n->b, out);
    if (n->c) return node_eval(r, n->c, out);
    return val_undef(r, out,
                     "the inline if-expression on line %d evaluated to false and no else "
                     "section was defined.",
                     n->line);
}

static int eval_unary(struct render_state *r, const struct node *n, struct val *out)
{
    struct val v;
    TRY(node_eval(r, n->a, &v));
    if (n->kind == N_NOT) {
        *out = val_bool(!val_true(v));
        return 0;
    }
    if (n->kind == N_ATTR) return val_attr(r, v, n->value, out);
    return val_negate(v, out);
}

static int eval_binary(struct render_state *r, const struct node *n, struct val *out)
{
    struct val a, b;
    TRY(node_eval(r, n->a, &a));
    if (n->kind == N_AND || n->kind == N_OR) {
        *out = a;
        return val_true(a) == (n->kind == N_OR) ? 0 : node_eval(r, n->b, out);
    }
    TRY(node_eval(r, n->b, &b));
    if (n->kind == N_COMPARE) {
        *out = val_bool(false);
        return val_compare(r, (enum compare_op)n->op, a, b, &out->b);
    }
    return val_binary(r, (enum op)n->op, a, b, out);
}

static int eval_const(struct render_state *r, const struct node *n, struct val *out)
{
    *out = n->kind == N_CAPTURED ? r->captured : n->value;
    return 0;
}

typedef int eval_fn(struct render_state *r, const struct node *n, struct val *out);

static eval_fn *const eval_kind[] = {
    [N_CONST] = eval_const,    [N_NAME] = eval_name,    [N_TUPLE] = eval_list,
    [N_LIST] = eval_list,      [N_DICT] = eval_dict,    [N_COND] = eval_cond,
    [N_OR] = eval_binary,      [N_AND] = eval_binary,   [N_BINARY] = eval_binary,
    [N_NOT] = eval_unary,      [N_NEG] = eval_unary,    [N_ATTR] = eval_unary,
    [N_COMPARE] = eval_binary, [N_ITEM] = eval_item,    [N_CALL] = eval_call,
    [N_FILTER] = eval_builtin, [N_TEST] = eval_builtin, [N_CAPTURED] = eval_const,
};

int node_eval(struct render_state *r, const struct node *n, struct val *out)
{
    int e = render_enter(r);
    if (e >= 0) {
        e = render_work(r, 1);
        if (e >= 0) e = eval_kind[n->kind](r, n, out);
        render_leave(r);
    }
    if (e < 0 && !r->err_line) r->err_line = n->line;
    return e;
}
