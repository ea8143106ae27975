/* execute.c - statements.  A statement returns a flow (next, break, continue) or an error.  Loops, macros and
 * captured blocks open a scope, which is a frame; `if` opens none. */
#include "chat/node.h"

#include <string.h>

int frame_push(struct render_state *r, struct scope *parent, struct scope **saved)
{
    struct scope *f;
    RUN_NEW(r, f, 1);
    f->parent = parent;
    *saved = r->frame;
    r->frame = f;
    return 0;
}

int frame_set(struct render_state *r, uint32_t sym, struct val v)
{
    struct scope *f = r->frame;
    TRY(render_work_bytes(r, f->n));
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].sym == sym) {
            f->v[i].v = v;
            return 0;
        }
    ARENA_GROW(&r->mem, f);
    f->v[f->n++] = (struct binding){sym, v};
    return 0;
}

static int assign_tuple(struct render_state *r, const struct node *target, struct val v)
{
    struct iter it;
    struct val item;
    if (v.t == V_UNDEF && v.undef->unsafe) return val_fail_undef(v);
    if (iter_init(v, &it) < 0)
        return ERR(FORMAT, "cannot unpack non-iterable %s object", val_type_name(v));
    for (uint32_t i = 0; i < target->n; i++) {
        int e = iter_next(r, &it, &item);
        if (e < 0) return e;
        if (!e)
            return ERR(FORMAT, "not enough values to unpack (expected %u, got %u)", target->n, i);
        TRY(node_assign(r, target->list[i], item));
    }
    int e = iter_next(r, &it, &item);
    return e > 0 ? ERR(FORMAT, "too many values to unpack (expected %u)", target->n) : e;
}

static int assign_space(struct render_state *r, const struct node *target, struct val v)
{
    struct val space;
    struct node name = {.kind = N_NAME, .sym = target->sym, .line = target->line};
    name.value = (struct val){.t = V_STR, .str = r->j->sym[target->sym]};
    TRY(node_eval(r, &name, &space));
    if (space.t != V_SPACE) return ERR(FORMAT, "cannot assign attribute on non-namespace object");
    return member_set(r, space, target->value, v);
}

int node_assign(struct render_state *r, const struct node *target, struct val v)
{
    if (target->kind == N_NAME) return frame_set(r, target->sym, v);
    if (target->kind == N_NSREF) return assign_space(r, target, v);
    if (target->kind != N_TUPLE) return ERR(FORMAT, "can't assign to this expression");
    TRY(render_enter(r));
    int e = assign_tuple(r, target, v);
    render_leave(r);
    return e;
}

/* Runs `body` and puts its output into *out as a text.  Returns the flow that ended the body, or an error. */
int node_capture(struct render_state *r, const struct node *body, struct val *out)
{
    struct text_build *outer = r->out, t;
    text_init(&t, JINJA_MAX_OUTPUT);
    r->out = &t;
    int flow = node_exec(r, body);
    r->out = outer;
    int e = text_take(r, MIN(flow, 0), &t, out);
    return e < 0 ? e : flow;
}

static int exec_seq(struct render_state *r, const struct node *n)
{
    for (uint32_t i = 0; i < n->n; i++) {
        int flow = node_exec(r, n->list[i]);
        if (flow) return flow;
    }
    return 0;
}

static int exec_if(struct render_state *r, const struct node *n)
{
    for (uint32_t i = 0; i < n->n; i += 2) {
        struct val test;
        TRY(node_eval(r, n->list[i], &test));
        if (val_true(test)) return node_exec(r, n->list[i + 1]);
    }
    return n->b ? node_exec(r, n->b) : 0;
}

/* Runs {% set x %}: passes the text of the block through its filters. */
static int exec_set_block(struct render_state *r, const struct node *n)
{
    struct val text, saved = r->captured;
    struct scope *outer;
    TRY(frame_push(r, r->frame, &outer));
    int flow = node_capture(r, n->d, &text);
    r->frame = outer;
    if (flow) return flow; /* break or continue left the block, so its text is dropped */
    r->captured = text;
    int e = node_eval(r, n->b, &text);
    r->captured = saved;
    return e < 0 ? e : node_assign(r, n->a, text);
}

static int make_macro(struct render_state *r, const struct node *def, struct val *out)
{
    struct macro *m;
    RUN_NEW(r, m, 1);
    *m = (struct macro){def, r->frame, def->value.str};
    *out = (struct val){.t = V_MACRO, .macro = m};
    return 0;
}

/* Runs the body in a scope of its own and notes the span of its output. */
static int exec_generation(struct render_state *r, const struct node *n)
{
    struct val text;
    struct scope *saved;
    TRY(frame_push(r, r->frame, &saved));
    int flow = node_capture(r, n->d, &text);
    r->frame = saved;
    if (flow < 0) return flow;
    size_t from = r->root_out->b.len;
    TRY(val_print(r, text, r->out));
    struct ranges *spans = &r->spans;
    ARENA_GROW(&r->mem, spans);
    spans->v[spans->n++] = (struct jinja_span){from, from + text.str->n};
    return 0;
}

static int exec_kind(struct render_state *r, const struct node *n)
{
    struct val v;
    switch (n->kind) {
    case N_SEQ:
        return exec_seq(r, n);
    case N_DATA:
        return val_print(r, n->value, r->out);
    case N_PRINT:
        TRY(node_eval(r, n->a, &v));
        return val_print(r, v, r->out);
    case N_IF:
        return exec_if(r, n);
    case N_FOR:
        return loop_exec(r, n);
    case N_SET:
        TRY(node_eval(r, n->b, &v));
        return node_assign(r, n->a, v);
    case N_SETBLOCK:
        return exec_set_block(r, n);
    case N_MACRO:
        TRY(make_macro(r, n, &v));
        return frame_set(r, n->sym, v);
    case N_GENERATION:
        return exec_generation(r, n);
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        return ERR(FORMAT, "not a statement");
    }
}

int node_exec(struct render_state *r, const struct node *n)
{
    int e = render_enter(r);
    if (e >= 0) {
        e = render_work(r, 1);
        if (e >= 0) e = exec_kind(r, n);
        render_leave(r);
    }
    if (e < 0 && !r->err_line) r->err_line = n->line;
    return e;
}
