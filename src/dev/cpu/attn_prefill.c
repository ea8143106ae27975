/* attn_prefill.c - attention of longer runs of tokens of one lane: units of (block of tokens, kv head), each of which walks
 * all atoms of its tokens (attn.c says how a token's walk is cut into atoms). */
#include "dev/cpu/attn_job.h"

#include <string.h>

struct prefill_walk { /* of a prefill unit */
    const struct attn_block *bl;
    uint32_t edge, head, thread; /* edge: the least of the block */
};

/* Computes tokens [first, first + n) of a block over one span of one phase.  row[i]: the atom of the block's i-th
 * token, with a == b == row0 if the token has none. */
static void span_some(const struct attn_job *j, const struct prefill_walk *w,
                      const struct attn_atom *row, uint32_t first, uint32_t n,
                      const struct attn_atom *all, struct attn_opened *opened)
{
    uint32_t row0 = all->a / KV_ATOM * KV_ATOM, g = j->group, nq = n * g, head = w->head;
    float *qt = attn_part(j, w->thread, j->lay.qt);
    row += first;
    const struct attn_task t = {.m = all,
                                .row = row,
                                .edge = attn_edge(j, all, w->edge),
                                .h0 = head,
                                .heads = 1,
                                .nq = nq,
                                .thread = w->thread,
                                .opened = opened,
                                .p = attn_part(j, w->thread, j->lay.p),
                                .qt = qt + (size_t)first * g * j->dk,
                                .out = attn_part(j, w->thread, j->lay.part)};
    memset(t.out, 0, nq * j->state * sizeof *t.out);
    attn_scores(j, &t);
    for (uint32_t q = 0; q < nq; q++) {
        const struct attn_atom *r = &row[q / g];
        float *p = t.p + (size_t)q * KV_ATOM;
        attn_ask(opened, 1, q);
        attn_awake(j);
        if (r->a >= r->b) continue;
        attn_bias(j->a->bias, head * g + q % g, j->v->pos[w->bl->t0 + first + q / g], r->a, r->b,
                  p + (r->a - row0));
        j->k->soft(p, r->a - row0, r->b - row0, j->a->softcap, t.out + q * j->state);
    }
    attn_values(j, &t);
    for (uint32_t q = 0; q < nq; q++) {
        attn_ask(opened, 0, q);
        if (q % 4 == 0) attn_awake(j);
        if (row[q / g].a < row[q / g].b)
            attn_merge(j, attn_run_state(j, w->bl->t0 + first + q / g, head * g + q % g),
                       t.out + q * j->state);
    }
}

/* Computes a span.  If the reader sums over the bytes of tiles, a tile is opened once for all queries, and a few
 * queries are computed at a time. */
static void block_span(const struct attn_job *j, const struct prefill_walk *w,
                       const struct attn_atom *row, const struct attn_atom *all)
{
    struct attn_opened opened = {0};
    bool sums = j->sums && all->phase == ATTN_SEALED;
    uint32_t n = w->bl->n, some = sums ? MAX(1, ATTN_AT_ONCE / j->group) : n;
    for (uint32_t first = 0; first < n; first += some) {
        uint32_t end = MIN(n, first + some);
        struct attn_atom of = {w->bl->t0 + first, all->phase, UINT32_MAX, 0, all->borrowed};
        for (uint32_t i = first; i < end; i++) {
            if (row[i].a >= row[i].b) continue;
            of.a = MIN(of.a, row[i].a);
            of.b = MAX(of.b, row[i].b);
        }
        if (of.a < of.b) span_some(j, w, row, first, end - first, &of, sums ? &opened : NULL);
    }
}

static void block_stage(const struct attn_job *j, struct prefill_walk *w, uint32_t stage)
{
    const struct attn_block *bl = w->bl;
    struct attn_atom whole[ATTN_MOST], row[ATTN_MOST], of;
    uint32_t a = UINT32_MAX, b = 0, token[ATTN_MOST];
    for (uint32_t i = 0; i < bl->n; i++) {
        token[i] = bl->t0 + i;
        attn_stage(j, token[i], stage, &whole[i]);
        if (whole[i].a >= whole[i].b) continue;
        a = MIN(a, whole[i].a);
        b = MAX(b, whole[i].b);
    }
    if (a >= b) return;
    of = whole[0];
    attn_ready_queries(j, &of, token, bl->n, w->head, 1, w->thread);
    for (uint32_t row0 = a - a % KV_ATOM; row0 < b; row0 += KV_ATOM) {
        struct attn_atom all = {bl->t0, of.phase, UINT32_MAX, 0, of.borrowed};
        for (uint32_t i = 0; i < bl->n; i++) {
            row[i].a = MAX(whole[i].a, row0);
            row[i].b = MIN(whole[i].b, row0 + KV_ATOM);
            if (row[i].a >= row[i].b) {
                row[i].a = row[i].b = row0;
                continue;
            }
            all.a = MIN(all.a, row[i].a);
            all.b = MAX(all.b, row[i].b);
        }
        if (all.a < all.b) block_span(j, w, row, &all);
        if (row0 > UINT32_MAX - KV_ATOM) break;
    }
}

/* Computes one prefill unit: a block of tokens with one kv head, over all phases.  The last blocks, which have the
 * most rows to read, come first.  Blocks of one head follow one another, so that its rows stay in the cache. */
void attn_prefill_unit(void *ctx, uint32_t task, uint32_t thread)
{
    const struct attn_job *j = ctx;
    const struct attn_block *bl = &j->block[j->n_blocks - 1 - task % j->n_blocks];
    struct prefill_walk w = {bl, UINT32_MAX, task / j->n_blocks, thread};
    for (uint32_t i = 0; i < bl->n; i++)
        w.edge = MIN(w.edge, j->v->edge[bl->t0 + i]);
    uint32_t h0 = w.head * j->group, h1 = h0 + j->group, end = bl->t0 + bl->n;
    if (j->v->first) attn_begin_states(j, bl->t0, end, h0, h1);
    for (uint32_t stage = 0; stage < attn_stages(j, bl->t0); stage++)
        block_stage(j, &w, stage);
    if (j->v->last) attn_end_states(j, bl->t0, end, h0, h1, thread);
    attn_rest(j);
}
