/* policy.c - the two pure functions that everything else follows from: which rows a query may see
 * (kv_reach), and which of these rows it reads sealed (kv_edge).
 *
 * kv_edge walks the updates of a sequence: its turns, and single tokens everywhere else.  A query
 * inside an update sees the edge as it was before that update.  Runs of single tokens are counted,
 * not walked, so the cost is proportional to the number of turns. */
#include "kv/kv_int.h"

struct kv_reach kv_reach(const struct kv_policy *p, uint32_t pos, uint32_t rows)
{
    struct kv_reach r = {0, 0, 0};
    if (p->kind == KV_STATE) return r;
    if (p->kind == KV_FROZEN) {
        r.hi = rows;
        return r;
    }
    r.hi = pos + 1;
    if (p->window && pos + 1 > p->window) r.lo = pos + 1 - p->window;
    if (p->chunk) r.lo = MAX(r.lo, pos - pos % p->chunk);
    if (r.lo <= p->sinks) /* the sinks touch the window: one range */
        r.lo = 0;
    else
        r.sinks = p->sinks;
    return r;
}

struct walk {
    uint32_t at, edge, held; /* position reached; last flush; rows gathered since then */
    bool any;
};

/* Advances the walk by k updates of one token each. */
static void walk_tokens(struct walk *w, uint32_t resid, uint32_t k)
{
    if (k && !w->any) {
        w->any = true;
        w->edge = ++w->at;
        k--;
    }
    uint32_t first = resid - w->held; /* tokens up to the next flush, >= 1 */
    if (k < first) {
        w->held += k;
        w->at += k;
        return;
    }
    w->at += first;
    k -= first;
    w->edge = w->at + k / resid * resid;
    w->held = k % resid;
    w->at += k;
}

static void walk_turn(struct walk *w, uint32_t resid, uint32_t n)
{
    w->at += n;
    if (!w->any || w->held + n >= resid) {
        w->any = true;
        w->edge = w->at;
        w->held = 0;
    } else {
        w->held += n;
    }
}

/* Walks the updates before `pos` and returns the edge.  cut: a turn that continues past `pos` counts as if it ended
 * there.  Otherwise `pos` lies inside that turn, whose queries have the edge from before the turn. */
static uint32_t edge_walk(const struct kv_seal *s, const struct kv_turn *turn, uint32_t n,
                          uint32_t pos, bool cut)
{
    struct walk w = {0};
    for (uint32_t i = 0; i < n && turn[i].pos < pos; i++) {
        uint32_t end = turn[i].pos + turn[i].n;
        walk_tokens(&w, s->resid, turn[i].pos - w.at);
        if (end > pos && !cut) return w.edge - w.edge % s->tile;
        walk_turn(&w, s->resid, MIN(end, pos) - turn[i].pos);
    }
    walk_tokens(&w, s->resid, pos - w.at);
    return w.edge - w.edge % s->tile;
}

uint32_t kv_edge(const struct kv_seal *s, const struct kv_turn *turn, uint32_t n, uint32_t pos)
{
    if (!s->tile) return 0;
    if (!s->resid) return pos - pos % s->tile;
    return edge_walk(s, turn, n, pos, false);
}

uint32_t edge_cut(const struct kv_seal *s, const struct kv_turn *turn, uint32_t n, uint32_t len,
                  bool open)
{
    if (!s->tile) return 0;
    if (!s->resid) return len - len % s->tile;
    /* the next query lies inside the open turn */
    if (open && n && turn[n - 1].pos + turn[n - 1].n == len)
        return edge_walk(s, turn, n - 1, turn[n - 1].pos, false);
    return edge_walk(s, turn, n, len, true);
}
