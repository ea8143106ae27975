/* for_loop.c - {% for %} and its `loop` variable.  Items are fetched one ahead and filtered as they are
 * fetched, as the reference does; asking for the length fetches the rest. */
#include "chat/node.h"

#include <string.h>

struct loop {
    const struct node *node;
    struct frame *env; /* the scope around the loop */
    struct iter it;
    struct seq *ahead; /* fetched, not yet run */
    size_t ahead_at;
    size_t index; /* of the current item, 0-based */
    size_t depth; /* of recursion, 0-based */
    struct val prev, cur;
    struct val changed;
    bool done; /* the iterable is exhausted */
};

/* The next item that passes the loop's test; 1, or 0 at the end. */
static int fetch(struct run *r, struct loop *l, struct val *out)
{
    for (;;) {
        int e = iter_next(r, &l->it, out);
        if (e <= 0) {
            l->done = e == 0;
            return e;
        }
        if (!l->node->c) return 1;
        struct frame *saved;
        struct val test;
        TRY(frame_push(r, l->env, &saved));
        e = node_assign(r, l->node->a, *out);
        if (e >= 0) e = node_eval(r, l->node->c, &test);
        r->frame = saved;
        if (e < 0) return e;
        if (val_true(test)) return 1;
    }
}

/* Makes at least n items known ahead of the current one, if there are that many. */
static int look(struct run *r, struct loop *l, size_t n)
{
    struct val v;
    while (l->ahead->n - l->ahead_at < n && !l->done) {
        int e = fetch(r, l, &v);
        if (e < 0) return e;
        if (e > 0) TRY(seq_push(r, l->ahead, v));
    }
    return 0;
}

static size_t left(const struct loop *l)
{
    return l->ahead->n - l->ahead_at;
}

static int next_item(struct run *r, struct loop *l, struct val *out)
{
    if (left(l)) {
        *out = l->ahead->v[l->ahead_at++];
        if (l->ahead_at == l->ahead->n) l->ahead_at = l->ahead->n = 0;
        return 1;
    }
    return l->done ? 0 : fetch(r, l, out);
}

static int run_items(struct run *r, struct loop *l, bool *ran)
{
    struct val item;
    int e;
    l->index = SIZE_MAX;
    while ((e = next_item(r, l, &item)) > 0) {
        struct frame *saved;
        l->index++;
        l->prev = l->cur;
        l->cur = item;
        TRY(frame_push(r, l->env, &saved));
        e = frame_set(r, r->j->sym_loop, (struct val){.t = V_LOOP, .loop = l});
        if (e >= 0) e = node_assign(r, l->node->a, item);
        if (e >= 0) e = node_exec(r, l->node->d);
        r->frame = saved;
        if (e < 0) return e;
        if (e == FLOW_BREAK) return 0;
        if (e == FLOW_NEXT) *ran = true; /* an item left by `continue` does not count */
    }
    return e;
}

static int loop_run(struct run *r, const struct node *n, struct val over, struct frame *env,
                    size_t depth)
{
    struct loop *l;
    bool ran = false;
    RUN_NEW(r, l, 1);
    l->node = n;
    l->env = env;
    l->depth = depth;
    TRY(iter_init(r, over, &l->it));
    TRY(seq_new(r, SEQ_LIST, 0, &l->ahead));
    TRY(run_items(r, l, &ran));
    if (ran || !n->e) return 0;
    struct frame *saved;
    TRY(frame_push(r, env, &saved));
    int e = node_exec(r, n->e);
    r->frame = saved;
    return e;
}

int loop_exec(struct run *r, const struct node *n)
{
    struct val over;
    TRY(node_eval(r, n->b, &over));
    return loop_run(r, n, over, r->frame, 0);
}

int loop_call(struct run *r, struct loop *l, const struct args *args, struct val *out)
{
    if (!l->node->op)
        return run_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    if (args->n != 1 || args->n_kw) return run_fail(r, "loop() takes exactly 1 argument");
    struct text *outer = r->out, t;
    struct frame *saved = r->frame;
    text_init(&t, JINJA_MAX_OUTPUT);
    r->out = &t;
    int e = loop_run(r, l->node, args->v[0], l->env, l->depth + 1);
    r->out = outer;
    r->frame = saved;
    if (e < 0) {
        text_done(&t);
        return e;
    }
    return text_take(r, &t, out);
}

static int loop_cycle(struct call *c, struct val *out)
{
    if (!c->raw->n) return run_fail(c->r, "no items for cycling given");
    *out = c->raw->v[c->self.loop->index % c->raw->n];
    return 0;
}

static int loop_changed(struct call *c, struct val *out)
{
    struct loop *l = c->self.loop;
    struct seq *s;
    bool same = false;
    TRY(seq_new(c->r, SEQ_TUPLE, c->raw->n, &s));
    if (c->raw->n) memcpy(s->v, c->raw->v, c->raw->n * sizeof *s->v);
    s->n = c->raw->n;
    if (l->changed.t != V_MISSING) TRY(val_equal(c->r, l->changed, val_seq(s), &same));
    if (!same) l->changed = val_seq(s);
    *out = val_bool(!same);
    return 0;
}

static int loop_method(struct run *r, struct loop *l, bool cycle, struct val *out)
{
    static const struct fn_row rows[] = {{"cycle", loop_cycle, NULL, 0},
                                         {"changed", loop_changed, NULL, 0}};
    struct method *m;
    RUN_NEW(r, m, 1);
    m->self = (struct val){.t = V_LOOP, .loop = l};
    m->row = &rows[cycle ? 0 : 1];
    *out = (struct val){.t = V_METHOD, .method = m};
    return 0;
}

static int loop_count(struct run *r, struct loop *l, const struct str *name, struct val *out)
{
    TRY(look(r, l, SIZE_MAX));
    int64_t rest = (int64_t)left(l), at = (int64_t)l->index;
    *out = val_int(str_is(name, "length")     ? at + 1 + rest
                   : str_is(name, "revindex") ? rest + 1
                                              : rest);
    return 0;
}

int loop_attr(struct run *r, struct loop *l, const struct str *name, struct val *out, bool *found)
{
    *found = true;
    if (str_is(name, "index0"))
        *out = val_int((int64_t)l->index);
    else if (str_is(name, "index"))
        *out = val_int((int64_t)l->index + 1);
    else if (str_is(name, "first"))
        *out = val_bool(l->index == 0);
    else if (str_is(name, "depth"))
        *out = val_int((int64_t)l->depth + 1);
    else if (str_is(name, "depth0"))
        *out = val_int((int64_t)l->depth);
    else if (str_is(name, "cycle") || str_is(name, "changed"))
        return loop_method(r, l, str_is(name, "cycle"), out);
    else if (str_is(name, "length") || str_is(name, "revindex") || str_is(name, "revindex0"))
        return loop_count(r, l, name, out);
    else if (str_is(name, "last")) {
        TRY(look(r, l, 1));
        *out = val_bool(left(l) == 0);
    } else if (str_is(name, "nextitem")) {
        TRY(look(r, l, 1));
        if (!left(l)) return val_undef_hint(r, out, "there is no next item");
        *out = l->ahead->v[l->ahead_at];
    } else if (str_is(name, "previtem")) {
        if (l->index == 0) return val_undef_hint(r, out, "there is no previous item");
        *out = l->prev;
    } else {
        *found = false;
    }
    return 0;
}
