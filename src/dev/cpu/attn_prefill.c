/* attn_prefill.c - attention of longer runs of tokens of one lane: units of (block of tokens, kv head), each of which walks
 * all atoms of its tokens (attn.c says how a token's walk is cut into atoms). */
#include "dev/cpu/attn_job.h"

#include <string.h>

/* O of the block's queries over one span.  Rows that all queries of a call see are added together;
 * before and after them each query goes alone. */
static void add_block(const struct attn_job *j, const float *p, const struct attn_atom *row,
                      uint32_t nq, uint32_t row0, const struct attn_span *sp, float *part)
{
    uint32_t max = j->k->pv_max;
    for (uint32_t q0 = 0; q0 < nq; q0 += max) {
        uint32_t q1 = MIN(nq, q0 + max), c0 = 0, c1 = KV_ATOM;
        for (uint32_t q = q0; q < q1; q++) {
            const struct attn_atom *r = &row[q / j->group];
            c0 = MAX(c0, r->a - row0);
            c1 = MIN(c1, r->b - row0);
        }
        bool common = c0 < c1;
        for (uint32_t q = q0; q < q1; q++) {
            const struct attn_atom *r = &row[q / j->group];
            attn_add_rows(j, p + (size_t)q * KV_ATOM, 1, sp, NULL, r->a - row0,
                          common ? c0 : r->b - row0, false, part + q * j->state);
        }
        if (!common) continue;
        attn_add_rows(j, p + (size_t)q0 * KV_ATOM, q1 - q0, sp, NULL, c0, c1, false,
                      part + q0 * j->state);
        for (uint32_t q = q0; q < q1; q++)
            attn_add_rows(j, p + (size_t)q * KV_ATOM, 1, sp, NULL, c1, row[q / j->group].b - row0,
                          false, part + q * j->state);
    }
}

/* Scores of the block's queries over one span: each call takes the rows that one of its queries sees. */
static void score_block(const struct attn_job *j, const struct attn_atom *row, const float *qt,
                        uint32_t nq, uint32_t row0, const struct attn_span *sp, float *p)
{
    uint32_t g = j->group, max = j->k->score_max;
    for (uint32_t q0 = 0; q0 < nq; q0 += max) {
        uint32_t n = MIN(nq - q0, max), a = KV_ATOM, b = 0;
        for (uint32_t i = q0 / g; i <= (q0 + n - 1) / g; i++) {
            if (row[i].a == row[i].b) continue;
            a = MIN(a, row[i].a - row0);
            b = MAX(b, row[i].b - row0);
        }
        if (a < b)
            attn_score_strips(j, qt + (size_t)q0 * j->dk, n, sp, NULL, a / KV_STRIP,
                              (b + KV_STRIP - 1) / KV_STRIP, p + (size_t)q0 * KV_ATOM);
    }
}

struct walk { /* of a prefill unit */
    const struct attn_block *bl;
    uint32_t edge, head, thread; /* edge: the least of the block */
};

/* O of the block's queries over one span, by the codec's kernels; queries that see the same rows go together. */
static void add_tiles(const struct attn_job *j, const struct walk *w, const float *p,
                      const struct attn_atom *row, uint32_t row0, float *part)
{
    uint32_t nq = w->bl->n * j->group, g = j->group;
    struct tiles_from from = attn_tiles_of(j, w->bl->t0, 1);
    for (uint32_t q0 = 0, q1; q0 < nq; q0 = q1) {
        const struct attn_atom *r = &row[q0 / g];
        for (q1 = q0 + g; q1 < nq && row[q1 / g].a == r->a && row[q1 / g].b == r->b;)
            q1 += g;
        tiles_add(&from, r->a, r->b, w->head, p + (size_t)q0 * KV_ATOM + (r->a - row0), KV_ATOM,
                  q1 - q0, part + q0 * j->state + ATTN_HEAD, j->state);
    }
}

/* One span of one phase: row[i] is the atom of the i-th token, a == b == row0 where it has none. */
static void block_span(const struct attn_job *j, const struct walk *w, const struct attn_atom *row,
                       const struct attn_atom *all)
{
    const struct attn_block *bl = w->bl;
    uint32_t head = w->head, thread = w->thread;
    uint32_t row0 = all->a / KV_ATOM * KV_ATOM, g = j->group, nq = bl->n * g;
    float *p = attn_part(j, thread, j->lay.p), *qt = attn_part(j, thread, j->lay.qt);
    float *part = attn_part(j, thread, j->lay.part);
    struct attn_span sp;
    attn_gather(j, all, w->edge, head, thread, false, &sp);
    if (attn_by_tile(j, all->phase, 0)) {
        struct tiles_from from = attn_tiles_of(j, bl->t0, 0);
        tiles_score(&from, all->a, all->b, head, qt, nq, j->a->scale, p + (all->a - row0), KV_ATOM);
    } else {
        score_block(j, row, qt, nq, row0, &sp, p);
    }
    memset(part, 0, nq * j->state * sizeof *part);
    for (uint32_t q = 0; q < nq; q++) {
        const struct attn_atom *r = &row[q / g];
        if (r->a >= r->b) continue;
        attn_bias(j->a->bias, head * g + q % g, j->v->pos[bl->t0 + q / g], r->a, r->b,
                  p + (size_t)q * KV_ATOM + (r->a - row0));
        j->k->soft(p + (size_t)q * KV_ATOM, r->a - row0, r->b - row0, j->a->softcap,
                   part + q * j->state);
    }
    if (attn_by_tile(j, all->phase, 1))
        add_tiles(j, w, p, row, row0, part);
    else
        add_block(j, p, row, nq, row0, &sp, part);
    for (uint32_t q = 0; q < nq; q++)
        if (row[q / g].a < row[q / g].b)
            j->k->merge(attn_run_state(j, bl->t0 + q / g, head * g + q % g), part + q * j->state,
                        j->dv);
}

static void block_phase(const struct attn_job *j, struct walk *w, uint32_t phase)
{
    const struct attn_block *bl = w->bl;
    struct attn_atom whole[ATTN_BLOCK], row[ATTN_BLOCK];
    uint32_t a = UINT32_MAX, b = 0, token[ATTN_BLOCK];
    for (uint32_t i = 0; i < bl->n; i++) {
        token[i] = bl->t0 + i;
        attn_phase_rows(j->v, j->lossy, token[i], phase, &whole[i].a, &whole[i].b);
        if (whole[i].a >= whole[i].b) continue;
        a = MIN(a, whole[i].a);
        b = MAX(b, whole[i].b);
    }
    if (a >= b) return;
    attn_ready_queries(j, phase, token, bl->n, w->head, 1, w->thread);
    for (uint32_t row0 = a - a % KV_ATOM; row0 < b; row0 += KV_ATOM) {
        struct attn_atom all = {bl->t0, phase, UINT32_MAX, 0};
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

/* One prefill unit: a block of tokens with one kv head, all phases.  Late blocks, which have the most
 * rows to read, are handed out first. */
void attn_prefill_unit(void *ctx, uint32_t task, uint32_t thread)
{
    const struct attn_job *j = ctx;
    const struct attn_block *bl = &j->block[j->n_blocks - 1 - task / j->n_kv];
    struct walk w = {bl, UINT32_MAX, task % j->n_kv, thread};
    for (uint32_t i = 0; i < bl->n; i++)
        w.edge = MIN(w.edge, j->v->edge[bl->t0 + i]);
    uint32_t h0 = w.head * j->group, h1 = h0 + j->group, end = bl->t0 + bl->n;
    if (j->v->first) attn_begin_states(j, bl->t0, end, h0, h1);
    for (uint32_t phase = 0; phase < ATTN_PHASES; phase++)
        block_phase(j, &w, phase);
    if (j->v->last) attn_end_states(j, bl->t0, end, h0, h1, thread);
}
