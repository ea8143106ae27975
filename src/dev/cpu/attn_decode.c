/* attn_decode.c - attention of tokens that decode: units of (atom, kv heads), in waves that are merged in order (attn.c says
 * how a token's walk is cut into atoms).
 *
 * A wave goes round robin over the tokens.  Neighbours whose tables name the same pages (forks, beams, tokens of one lane)
 * make one unit, so that rows they have in common are read once.  Where a wave has one atom of each token and nothing else,
 * its units end the walks, and nothing is left to merge. */
#include "base/thread.h"
#include "dev/cpu/attn_job.h"

#include <assert.h>
#include <string.h>

/* from this number of merges of a wave on, over all heads, a fork is worth its cost */
#define MERGES 96u

/* Atoms [first, first + n) of a wave.  All of them have their rows up to `joint` in the same pages, so these rows
 * are read once.  The rows behind `joint` are each atom's own. */
struct attn_unit {
    uint32_t first, n, joint;
};

/* Returns the state of the i-th atom of a unit. */
static float *unit_state(const struct attn_job *j, const struct attn_unit *u, uint32_t i,
                         uint32_t head)
{
    float *wave = (float *)(j->scratch + j->lay.wave);
    size_t q = (size_t)(head / j->group * u->n + i) * j->group + head % j->group;
    return wave + ((size_t)u->first * j->a->n_heads + q) * j->state;
}

/* Turns the scores of queries [q0, q0 + n) of a task into probabilities.  `head` is the head of the first of them. */
static void task_soft(const struct attn_job *j, const struct attn_task *t, uint32_t q0, uint32_t n,
                      uint32_t head, const struct attn_atom *m)
{
    uint32_t row0 = m->a / KV_ATOM * KV_ATOM;
    for (uint32_t i = 0; i < n; i++) {
        float *p = t->p + (size_t)(q0 + i) * KV_ATOM;
        attn_awake(j);
        attn_bias(j->a->bias, head + i, j->v->pos[m->token], m->a, m->b, p + (m->a - row0));
        j->k->soft(p, m->a - row0, m->b - row0, j->a->softcap, t->out + (q0 + i) * j->state);
    }
}

/* Computes the scores of rows that only one atom of a unit has, or (not scores) adds their values. */
static void own_rows(const struct attn_job *j, const struct attn_task *t, const struct attn_unit *u,
                     uint32_t i, bool scores)
{
    struct attn_atom m = j->wave[u->first + i];
    struct attn_task own = *t;
    own.m = &m;
    own.nq = j->group;
    own.fresh = false;
    own.p += (size_t)i * j->group * KV_ATOM;
    own.qt = attn_part(j, t->thread, j->lay.one);
    own.out += i * j->group * j->state;
    m.a = u->joint;
    if (m.a >= m.b) return;
    /* A reader's `end` runs once for each sum.  So atoms that share rows of tiles share all of them. */
    assert(!j->tiled);
    if (!scores) {
        attn_values(j, &own);
        return;
    }
    attn_form_queries(j, &m, &m.token, 1, t->h0, t->thread, own.qt);
    attn_scores(j, &own);
}

/* Computes a unit of several atoms with one kv head. */
static void shared_unit(const struct attn_job *j, const struct attn_unit *u, struct attn_task *t)
{
    const struct attn_atom *m = &j->wave[u->first];
    struct attn_atom joint = *m;
    struct attn_opened opened = {0};
    joint.b = u->joint;
    t->m = &joint;
    if (j->sums && m->phase == ATTN_SEALED) t->opened = &opened;
    attn_scores(j, t);
    for (uint32_t i = 0; i < u->n; i++) {
        own_rows(j, t, u, i, true);
        task_soft(j, t, i * j->group, j->group, t->h0 * j->group, &m[i]);
    }
    attn_values(j, t);
    for (uint32_t i = 0; i < u->n; i++)
        own_rows(j, t, u, i, false);
}

/* Ends the walks of a unit's tokens.  The unit has the only atom of each, so its states are the running states. */
static void finish_unit(const struct attn_job *j, const struct attn_unit *u,
                        const struct attn_task *t)
{
    float *state = t->out;
    for (uint32_t h = t->h0 * j->group; h < (t->h0 + t->heads) * j->group; h += j->group)
        for (uint32_t i = 0; i < u->n; i++)
            for (uint32_t k = 0; k < j->group; k++, state += j->state)
                attn_end_state(j, j->wave[u->first + i].token, h + k, state, t->p);
}

/* Computes one decode unit with kv heads [h0, h0 + per).  States lie [kv head][token][head of the group].  Where
 * units are split by heads, a thread keeps to one head for several units, so that its prepared queries can stay. */
static void decode_unit(void *ctx, uint32_t task, uint32_t thread)
{
    const struct attn_job *j = ctx;
    const struct attn_unit *u = &j->unit[task % j->n_units];
    const struct attn_atom *m = &j->wave[u->first];
    uint32_t per = j->n_kv / j->split, h0 = task / j->n_units * per, token[ATTN_BLOCK];
    struct attn_task t = {.m = m,
                          .edge = attn_edge(j, m, j->v->edge[m->token]),
                          .h0 = h0,
                          .heads = per,
                          .nq = u->n * j->group,
                          .thread = thread,
                          .fresh = true,
                          .p = attn_part(j, thread, j->lay.p),
                          .qt = attn_part(j, thread, j->lay.qt),
                          .out = j->alone ? attn_part(j, thread, j->lay.part)
                                          : unit_state(j, u, 0, h0 * j->group)};
    /* Threads take units in turn. */
    uint32_t next = task % j->n_units + pool_threads(j->pool);
    if (next < j->n_units) t.after = &j->wave[j->unit[next].first];
    for (uint32_t i = 0; i < u->n; i++)
        token[i] = m[i].token;
    attn_ready_queries(j, m, token, u->n, h0, per, thread);
    if (u->n > 1) {
        shared_unit(j, u, &t);
    } else {
        attn_scores(j, &t);
        task_soft(j, &t, 0, per * t.nq, h0 * j->group, m);
        attn_values(j, &t);
    }
    if (j->alone) finish_unit(j, u, &t);
    attn_rest(j);
}

/* Finds the next atom of a token's walk.  Returns false at the end of the walk. */
static bool next_atom(const struct attn_job *j, struct attn_iter *it, struct attn_atom *out)
{
    for (; it->stage < attn_stages(j, it->token); it->stage++, it->next = 0) {
        attn_stage(j, it->token, it->stage, out);
        out->a = MAX(out->a, it->next);
        if (out->a >= out->b) continue;
        out->b = it->next = MIN(out->b, out->a - out->a % KV_ATOM + KV_ATOM);
        return true;
    }
    return false;
}

/* Returns the first of the rows [a, b) at which two lanes have different pages, or b if there is none. */
static uint32_t same_pages(const struct kv_form *f, uint32_t slot, uint32_t other, uint32_t a,
                           uint32_t b)
{
    const uint32_t *x = f->table + (size_t)slot * f->stride,
                   *y = f->table + (size_t)other * f->stride;
    if (a >= b) return b;
    uint32_t i = a / f->rows, end = (b - 1) / f->rows + 1;
    while (i < end && x[i] == y[i])
        i++;
    return i == end ? b : MAX(a, i * f->rows);
}

/* Returns how many of their first rows two atoms read from the same bytes.  Forks read the same rows until they
 * diverge, and so do tokens of one lane.  The result is either all rows of both atoms, or whole strips. */
static uint32_t same_rows(const struct attn_job *j, const struct attn_atom *m,
                          const struct attn_atom *o)
{
    const struct kv_view *v = j->v;
    uint32_t slot = attn_slot(j, m), other = attn_slot(j, o);
    uint32_t a = m->a, b = MIN(m->b, o->b), end;
    if (m->phase != o->phase || a != o->a || m->borrowed != o->borrowed) return 0;
    end = same_pages(&v->raw, slot, other, a, b);
    if (end == m->b && end == o->b &&
        (!j->tiled || (v->edge[m->token] == v->edge[o->token] &&
                       same_pages(&v->sealed, slot, other, a, b) == b)))
        return end - a;
    end -= end % KV_STRIP;
    return j->tiled || end < a ? 0 : end - a;
}

/* Makes units of at most `most` atoms.  An atom joins a unit with which it has at least half of its rows in common. */
static uint32_t make_units(const struct attn_job *j, uint32_t n, uint32_t most,
                           struct attn_unit *unit)
{
    uint32_t n_units = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct attn_atom *m = &j->wave[i];
        struct attn_unit *u = n_units ? &unit[n_units - 1] : NULL;
        if (u && u->n < most) {
            uint32_t rows =
                MIN(u->joint - j->wave[u->first].a, same_rows(j, &j->wave[u->first], m));
            if (rows && rows >= (m->b - m->a) / 2) {
                u->joint = m->a + rows;
                u->n++;
                continue;
            }
        }
        unit[n_units++] = (struct attn_unit){i, 1, m->b};
    }
    return n_units;
}

/* Merges the atoms of a wave for one head. */
static void merge_head(void *ctx, uint32_t head, uint32_t thread)
{
    const struct attn_job *j = ctx;
    for (uint32_t i = 0; j->begins && i < j->n_few; i++)
        attn_begin_states(j, j->few[i], j->few[i] + 1, head, head + 1);
    for (uint32_t k = 0; k < j->n_units; k++)
        for (uint32_t i = 0; i < j->unit[k].n; i++)
            attn_merge(j, attn_run_state(j, j->wave[j->unit[k].first + i].token, head),
                       unit_state(j, &j->unit[k], i, head));
    for (uint32_t i = 0; j->ends && i < j->n_few; i++)
        attn_end_states(j, j->few[i], j->few[i] + 1, head, head + 1, thread);
}

static void run_wave(struct attn_job *j, uint32_t n)
{
    struct attn_unit unit[ATTN_WAVE];
    uint32_t threads = pool_threads(j->pool), rows = 0, heads = j->a->n_heads;
    /* Sharing must not leave a thread without work. */
    uint32_t most = MIN(n * j->n_kv / (2 * threads), ATTN_BLOCK / j->group);
    for (uint32_t i = 0; i < n; i++)
        rows += j->wave[i].b - j->wave[i].a;
    j->unit = unit;
    j->n_units = make_units(j, n, MAX(most, 1), unit);
    /* Units are split by heads if atoms share units, because a shared unit has few rows for its products; and if
     * there are few units, unless a fork would cost more than it saves. */
    bool few = j->n_units <= 2 * threads && rows > 48;
    j->split = j->n_units < n || few ? j->n_kv : 1;
    pool_run(j->pool, j->n_units * j->split, decode_unit, j);
    if (j->alone) return;
    if ((n + j->n_few) * heads >= MERGES)
        pool_run(j->pool, heads, merge_head, j);
    else
        for (uint32_t h = 0; h < heads; h++)
            merge_head(j, h, 0);
    j->begins = false;
}

void attn_decode(struct attn_job *j, struct attn_iter *it, uint32_t n)
{
    struct attn_atom wave[ATTN_WAVE];
    uint32_t filled = 0, rounds = 0;
    if (!n) return;
    j->wave = wave;
    j->begins = j->v->first;
    while (n) {
        uint32_t left = 0;
        for (uint32_t i = 0; i < n; i++) {
            struct attn_atom next;
            if (!next_atom(j, &it[i], &next)) continue;
            it[left++] = it[i];
            if (filled == ATTN_WAVE) {
                run_wave(j, filled);
                filled = 0;
            }
            wave[filled++] = next;
        }
        n = left;
        rounds += n > 0;
    }
    j->ends = j->v->last;
    j->alone = j->begins && j->ends && rounds == 1 && filled == j->n_few;
    run_wave(j, filled);
}
