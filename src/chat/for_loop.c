/* for_loop.c - {% for %} and its variable `loop`.  An item is fetched as late as possible, and the loop's test
 * runs when it is fetched.  loop.last fetches one item ahead, loop.length all of them. */
#include "chat/node.h"

#include <string.h>

struct loop {
    const struct node *node;
    struct scope *env; /* the scope around the loop */
    struct iter it;
    struct val_seq *ahead; /* items that were fetched and did not run yet */
    size_t ahead_at;
    size_t index; /* index of the current item, from 0 */
    struct val prev, cur;
    bool done; /* the iterable is exhausted */
};

/* Fetches the next item that passes the loop's test; 1, or 0 at the end. */
static int fetch(struct render_state *r, struct loop *l, struct val *out)
{
    for (;;) {
        int e = iter_next(r, &l->it, out);
        if (e <= 0) {
            l->done = e == 0;
            return e;
        }
        if (!l->node->c) return 1;
        struct scope *saved;
        struct val test;
        TRY(frame_push(r, l->env, &saved));
        e = node_assign(r, l->node->a, *out);
        if (e >= 0) e = node_eval(r, l->node->c, &test);
        r->frame = saved;
        if (e < 0) return e;
        if (val_true(test)) return 1;
    }
}

/* Fetches up to n items ahead of the current one.  *left: number of items that were fetched and did not run yet. */
static int fetch_ahead(struct render_state *r, struct loop *l, size_t n, size_t *left)
{
    struct val v;
    while (l->ahead->n - l->ahead_at < n && !l->done) {
        int e = fetch(r, l, &v);
        if (e < 0) return e;
        if (e > 0) TRY(seq_push(r, l->ahead, v));
    }
    *left = l->ahead->n - l->ahead_at;
    return 0;
}

static int next_item(struct render_state *r, struct loop *l, struct val *out)
{
    if (l->ahead_at == l->ahead->n) return l->done ? 0 : fetch(r, l, out);
    *out = l->ahead->v[l->ahead_at++];
    if (l->ahead_at == l->ahead->n) l->ahead_at = l->ahead->n = 0;
    return 1;
}

static int run_items(struct render_state *r, struct loop *l, bool *ran)
{
    struct val item;
    int e;
    l->index = SIZE_MAX;
    while ((e = next_item(r, l, &item)) > 0) {
        struct scope *saved;
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
        if (e == FLOW_NEXT) *ran = true; /* an item that `continue` has left does not count */
    }
    return e;
}

int loop_exec(struct render_state *r, const struct node *n)
{
    struct loop *l;
    struct val over;
    bool ran = false;
    TRY(node_eval(r, n->b, &over));
    RUN_NEW(r, l, 1);
    l->node = n;
    l->env = r->frame;
    TRY(iter_init(over, &l->it));
    TRY(seq_new(r, SEQ_LIST, 0, &l->ahead));
    TRY(run_items(r, l, &ran));
    if (ran || !n->e) return 0;
    struct scope *saved;
    TRY(frame_push(r, l->env, &saved));
    int e = node_exec(r, n->e);
    r->frame = saved;
    return e;
}

static int loop_cycle(struct builtin_call *c, struct val *out)
{
    if (!c->raw->n) return ERR(FORMAT, "no items for cycling given");
    *out = c->raw->v[c->self.loop->index % c->raw->n];
    return 0;
}

static int cycle_method(struct render_state *r, struct loop *l, struct val *out)
{
    static const struct fn_row row = {.name = "cycle", .fn = loop_cycle};
    struct method *m;
    RUN_NEW(r, m, 1);
    *m = (struct method){{.t = V_LOOP, .loop = l}, &row};
    *out = (struct val){.t = V_METHOD, .method = m};
    return 0;
}

/* Computes a member of `loop` that counts items.  Returns 1, 0 if `name` is no such member, or an error. */
static int loop_number(struct render_state *r, struct loop *l, const struct str *name,
                       struct val *out)
{
    static const struct {
        const char *name;
        int64_t at, rest, more; /* factors of the index and of the items ahead, and a constant */
    } row[] = {{"index0", 1, 0, 0},
               {"index", 1, 0, 1},
               {"length", 1, 1, 1},
               {"revindex", 0, 1, 1},
               {"revindex0", 0, 1, 0}};
    size_t left = 0;
    for (size_t i = 0; i < countof(row); i++) {
        if (!str_is(name, row[i].name)) continue;
        if (row[i].rest) TRY(fetch_ahead(r, l, SIZE_MAX, &left));
        *out = val_int(row[i].at * (int64_t)l->index + row[i].rest * (int64_t)left + row[i].more);
        return 1;
    }
    return 0;
}

int loop_attr(struct render_state *r, struct loop *l, const struct str *name, struct val *out,
              bool *found)
{
    size_t left;
    int e = loop_number(r, l, name, out);
    *found = true;
    if (e) return MIN(e, 0);
    if (str_is(name, "cycle")) return cycle_method(r, l, out);
    if (str_is(name, "first")) {
        *out = val_bool(l->index == 0);
    } else if (str_is(name, "previtem")) {
        if (l->index == 0) return val_undef(r, out, "there is no previous item");
        *out = l->prev;
    } else if (str_is(name, "last") || str_is(name, "nextitem")) {
        TRY(fetch_ahead(r, l, 1, &left));
        *out = val_bool(left == 0);
        if (str_is(name, "last")) return 0;
        if (!left) return val_undef(r, out, "there is no next item");
        *out = l->ahead->v[l->ahead_at];
    } else if (str_is(name, "changed") || str_is(name, "depth") || str_is(name, "depth0")) {
        return ERR(UNSUPPORTED, "loop.%.*s is not supported in chat templates", (int)name->n,
                   name->s);
    } else {
        *found = false;
    }
    return 0;
}
