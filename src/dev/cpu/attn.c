/* attn.c - attention over a cache view: which rows of which form make an atom, in which order atoms
 * merge, and how the work is split.  Read `attn_phase_rows` first.
 *
 * A query walks its atoms in four phases: sealed rows of a lossy codec, then raw rows: sinks, rows below
 * lead, tail; each phase is an interval of rows, cut at multiples of 256.  That sequence is a function of
 * the query alone.  The sinks are met with their own rotation of the query where the caller has one.  Two ways of
 * walking it give the same bits:
 *   decode   a lane with one token or a few: units of (atom, kv heads) into shared scratch, in waves of
 *            ATTN_WAVE atoms, each wave merged in order, head by head.  Waves go round robin over the
 *            tokens, and neighbours whose tables name the same pages (forks, beams, tokens of one lane)
 *            make one unit, so that rows they have in common are read once.
 *   prefill  a longer run of tokens of one lane: units of (block of tokens, kv head), each walking all atoms.
 * Both keep the running (M, L, O) per (token, head) in scratch, where it also survives from piece to piece. */
#include "dev/cpu/attn.h"
#include "base/thread.h"
#include "dev/cpu/cpu.h"

#include <assert.h>
#include <string.h>

/* Decoding takes TURN strips of one head at a time.  Strips lie in runs too short for the processor to foresee, so the
 * strips AHEAD of them are asked for meanwhile, a line with each row of products: asked for all at once, or for the
 * first cache, they come later. */
#define TURN  4u
#define AHEAD 4u

#define FEW    8u  /* tokens of one lane, at most, that decode */
#define MERGES 96u /* in a wave, over all heads, that are worth a fork */

struct iter { /* where a decoding token stands in its walk */
    uint32_t token, phase, next;
};
struct atom {
    uint32_t token, phase, a, b; /* rows [a, b), absolute */
};
/* Atoms [first, first + n) of a wave.  Rows up to `joint` lie in the same pages for all of them and are read once; those
 * behind are each atom's own. */
struct unit {
    uint32_t first, n, joint;
};
struct block { /* tokens [t0, t0 + n) of one lane */
    uint32_t t0, n;
};
struct span { /* strips of one 256-row span and kv head; only those the atom needs are set */
    const void *k[ATTN_STRIPS], *v[ATTN_STRIPS];
};
struct ready { /* whose queries lie in a thread's qt: those of `per` kv heads from h0 on */
    const float *queries;
    uint32_t h0, per, n, token[ATTN_BLOCK];
    bool own; /* in the form of a codec's kernels */
};
struct layout {
    size_t run, wave, iter, few, block, thread;             /* offsets */
    size_t per_thread, ready, p, qt, one, span, part, tile; /* inside one thread's part */
    size_t total;
};
struct job {
    const struct kv_view *v;
    const struct dev_attn *a;
    const struct attn_kernels *k;
    kv_strip_fn strip;
    struct pool *pool;
    unsigned char *scratch;
    struct layout lay;
    uint32_t n_tokens, n_kv, group, dk, dv;
    size_t state;                    /* floats of one state */
    bool lossy, tiled;               /* a plane has a lossy codec; any codec */
    bool whole;                      /* a plane has a codec that decodes whole tiles only */
    const struct kv_kernels *own[2]; /* of the planes' codecs, or NULL */
    struct atom *wave;               /* [ATTN_WAVE] */
    struct unit *unit;               /* [ATTN_WAVE] */
    uint32_t n_units;
    uint32_t split; /* head ranges a decode unit is split into: 1 or n_kv */
    uint32_t *few;  /* the tokens that decode */
    uint32_t n_few;
    bool begins, ends;   /* the wave is the first of a site's, or the last */
    struct block *block; /* prefill blocks */
    uint32_t n_blocks;
};

static size_t mul(size_t a, size_t b)
{
    size_t r;
    return ck_mul(a, b, &r) ? r : SIZE_MAX;
}

/* Appends n items of `size` bytes, 64-byte aligned, and returns their offset. */
static size_t put(size_t *total, size_t n, size_t size)
{
    size_t at = *total, bytes = mul(n, size);
    if (!ck_add(bytes, 63, &bytes) || !ck_add(at, bytes & ~(size_t)63, total)) *total = SIZE_MAX;
    return at;
}

static size_t state_floats(size_t dim)
{
    return ATTN_HEAD + (dim + 15) / 16 * 16;
}

static void lay_out(uint32_t tokens, uint32_t heads, uint32_t dk, uint32_t dv, uint32_t tile,
                    uint32_t threads, struct layout *l)
{
    size_t queries = MAX(heads, ATTN_BLOCK), state = state_floats(dv);
    size_t tile_rows = tile ? KV_ATOM + 2 * (size_t)tile : 0;
    l->total = l->per_thread = 0;
    l->run = put(&l->total, mul(tokens, heads), state * sizeof(float));
    l->wave = put(&l->total, mul(ATTN_WAVE, heads), state * sizeof(float));
    l->iter = put(&l->total, tokens, sizeof(struct iter));
    l->few = put(&l->total, tokens, sizeof(uint32_t));
    l->block = put(&l->total, tokens, sizeof(struct block));
    l->ready = put(&l->per_thread, 1, sizeof(struct ready));
    l->p = put(&l->per_thread, queries, KV_ATOM * sizeof(float));
    l->qt = put(&l->per_thread, queries, dk * sizeof(float));
    l->one = put(&l->per_thread, heads, dk * sizeof(float));
    l->span = put(&l->per_thread, heads, sizeof(struct span));
    l->part = put(&l->per_thread, queries, state * sizeof(float));
    l->tile = put(&l->per_thread, tile_rows, ((size_t)dk + dv) * sizeof(float));
    l->thread = put(&l->total, threads, l->per_thread);
}

size_t cpu_attn_scratch(const struct dev_limits *lim, uint32_t threads)
{
    struct layout l;
    lay_out(lim->tokens, lim->heads, lim->head_dim, lim->head_dim, lim->tile, threads, &l);
    return l.total;
}

static float *run_state(const struct job *j, uint32_t token, uint32_t head)
{
    float *run = (float *)(j->scratch + j->lay.run);
    return run + ((size_t)token * j->a->n_heads + head) * j->state;
}

/* Of the i-th atom of a unit. */
static float *unit_state(const struct job *j, const struct unit *u, uint32_t i, uint32_t head)
{
    float *wave = (float *)(j->scratch + j->lay.wave);
    size_t q = (size_t)(head / j->group * u->n + i) * j->group + head % j->group;
    return wave + ((size_t)u->first * j->a->n_heads + q) * j->state;
}

static void *thread_part(const struct job *j, uint32_t thread, size_t offset)
{
    return j->scratch + j->lay.thread + thread * j->lay.per_thread + offset;
}

/* The rows of one phase of a token's walk, absolute.  Under a lossy codec raw rows come in pieces of their
 * own, after all sealed ones. */
void attn_phase_rows(const struct kv_view *v, bool lossy, uint32_t token, uint32_t phase,
                     uint32_t *a, uint32_t *b)
{
    uint32_t hi = v->hi[token], lo = MIN(v->lo[token], hi), sinks = MIN(v->sinks, hi);
    uint32_t lead = v->lead, edge = lossy ? MIN(v->edge[token], hi) : 0;
    if (lo <= sinks) lo = sinks = 0;
    if (edge <= MAX(lead, lo)) edge = 0;
    *a = *b = 0;
    switch (phase) {
    case ATTN_SEALED:
        if (edge) *a = MAX(lo, lead), *b = edge;
        break;
    case ATTN_SINKS:
        *b = sinks;
        break;
    case ATTN_LEAD:
        if (edge) *a = lo, *b = MAX(lo, lead);
        break;
    default:
        *a = MAX(lo, edge), *b = hi;
    }
    bool raw = lossy && phase != ATTN_SEALED;
    *a = MAX(*a, raw ? v->raw0 : v->row0);
    *b = MAX(*a, MIN(*b, raw ? v->raw1 : v->row1));
}

/* True if the plane's codec computes over its own tiles. */
static bool by_tile(const struct job *j, uint32_t phase, uint32_t plane)
{
    return phase == ATTN_SEALED && j->own[plane];
}

static struct tiles_from tiles_of(const struct job *j, uint32_t token, uint32_t plane)
{
    return (struct tiles_from){j->v, plane, j->v->lane[token], j->own[plane]};
}

/* True if strips of the plane are decoded one by one, as they are needed. */
static bool by_strip(const struct job *j, const struct atom *m, uint32_t plane)
{
    const struct kv_codec *c = j->v->codec[plane];
    return m->phase == ATTN_SEALED && c && c->affine && !j->own[plane];
}

/* Strips of the atom for one head.  `edge`: of the token, or the least of a block: a codec that is not lossy may
 * be read in either form, and raw rows from the first token's edge on are held throughout a step.
 * lazy: strips decoded one by one are left to `pending_get`.  A plane whose codec computes over tiles has no strips. */
static void gather(const struct job *j, const struct atom *m, uint32_t edge, uint32_t head,
                   uint32_t thread, bool lazy, struct span *out)
{
    const struct kv_view *v = j->v;
    uint32_t row0 = m->a / KV_ATOM * KV_ATOM;
    uint32_t s0 = (m->a - row0) / KV_STRIP, s1 = (m->b - row0 + KV_STRIP - 1) / KV_STRIP;
    unsigned char *next = thread_part(j, thread, j->lay.tile);
    for (uint32_t plane = 0; plane < 2; plane++) {
        unsigned char *buf =
            next; /* each plane has a place of its own, also where pending_get fills it */
        if (j->tiled) next += (KV_ATOM + 2 * (size_t)v->sealed.rows) * j->dk * sizeof(float);
        const struct strip_from w = {v, plane, v->lane[m->token], j->strip};
        const struct kv_codec *c = v->codec[plane];
        uint32_t seal0 = 0, seal1 = 0;
        if (by_tile(j, m->phase, plane) || (lazy && by_strip(j, m, plane))) continue;
        if (j->tiled && !j->lossy) seal0 = v->lead, seal1 = edge;
        if (m->phase == ATTN_SEALED) seal1 = UINT32_MAX;
        if (m->phase == ATTN_SEALED && c && !c->lossless) seal0 = m->a, seal1 = m->b;
        strip_span(&w, row0, s0, s1, seal0, seal1, head, buf, plane ? out->v : out->k);
    }
}

/* The strips of a plane that `gather` leaves out, one after another: this one's tiles and the next one's. */
struct pending {
    struct strip_from from;
    struct strip_tiles now, next;
    unsigned char *buf;
};

static void pending_open(const struct job *j, const struct atom *m, uint32_t plane, uint32_t thread,
                         struct pending *p)
{
    p->from = (struct strip_from){j->v, plane, j->v->lane[m->token], j->strip};
    p->buf = thread_part(j, thread, j->lay.tile);
    if (plane) p->buf += (KV_ATOM + 2 * (size_t)j->v->sealed.rows) * j->dk * sizeof(float);
    p->now.row = p->next.row = UINT32_MAX;
}

/* Strip s of the atom, decoded for one head. */
static const void *pending_get(const struct atom *m, uint32_t s, uint32_t head, struct pending *p)
{
    uint32_t row = m->a / KV_ATOM * KV_ATOM + s * KV_STRIP;
    if (p->now.row != row) {
        if (p->next.row == row)
            p->now = p->next;
        else
            strip_find(&p->from, row, m->a, m->b, &p->now);
        if (row + KV_STRIP < m->b) {
            strip_find(&p->from, row + KV_STRIP, m->a, m->b, &p->next);
            strip_fetch(&p->from, &p->next);
        }
    }
    return strip_affine(&p->from, &p->now, head, p->buf);
}

/* The rotation of the queries that meets the rows of a phase. */
static const float *queries_of(const struct job *j, uint32_t phase)
{
    return phase == ATTN_SINKS && j->a->q_sink ? j->a->q_sink : j->a->q;
}

static const float *query_at(const struct job *j, const float *queries, const uint32_t *token,
                             uint32_t head, uint32_t q)
{
    return queries + token[q / j->group] * j->a->ldq +
           (size_t)(head * j->group + q % j->group) * j->dk;
}

/* Queries of `head`'s group for n tokens, token-major, transposed for `score` in its chunks. */
static void transpose_q(const struct job *j, const float *queries, const uint32_t *token,
                        uint32_t n, uint32_t head, float *qt)
{
    uint32_t nq = n * j->group;
    for (uint32_t q0 = 0; q0 < nq; q0 += j->k->score_max) {
        uint32_t c = MIN(nq - q0, j->k->score_max);
        for (uint32_t i = 0; i < c; i++) {
            const float *src = query_at(j, queries, token, head, q0 + i);
            for (uint32_t d = 0; d < j->dk; d++)
                qt[(size_t)q0 * j->dk + (size_t)d * c + i] = src[d];
        }
    }
}

/* The same queries in the form that the kernels of a phase read. */
static void form_q(const struct job *j, uint32_t phase, const uint32_t *token, uint32_t n,
                   uint32_t head, float *qt)
{
    const float *queries = queries_of(j, phase);
    if (!by_tile(j, phase, 0)) {
        transpose_q(j, queries, token, n, head, qt);
        return;
    }
    struct tiles_from from = tiles_of(j, token[0], 0);
    for (uint32_t q = 0; q < n * j->group; q++)
        tiles_query(&from, query_at(j, queries, token, head, q), qt + (size_t)q * j->dk);
}

/* next: as the kernels want it, or NULL. */
static void score_strips(const struct job *j, const float *qt, uint32_t nq, const struct span *sp,
                         const void *const *next, uint32_t s0, uint32_t s1, float *p)
{
    for (uint32_t q = 0; q < nq; q += j->k->score_max)
        j->k->score(j->v->shape[0].dtype, qt + (size_t)q * j->dk, MIN(nq - q, j->k->score_max),
                    j->dk, sp->k, q ? NULL : next, s0, s1, j->a->scale, p + (size_t)q * KV_ATOM);
}

static void add_rows(const struct job *j, const float *p, uint32_t nq, const struct span *sp,
                     const void *const *next, uint32_t r0, uint32_t r1, float *state)
{
    if (r0 >= r1) return;
    for (uint32_t q = 0; q < nq; q += j->k->pv_max)
        j->k->pv(j->v->shape[1].dtype, p + (size_t)q * KV_ATOM, MIN(nq - q, j->k->pv_max), sp->v,
                 q ? NULL : next, r0, r1, j->dv, state + q * j->state + ATTN_HEAD, j->state);
}

/* What a decode unit computes: its atom with some kv heads, where all queries see all rows.  p, qt and out lie
 * [kv head][query], span [kv head]; the heads count from h0. */
struct task {
    const struct atom *m; /* the first of the unit */
    uint32_t h0, nq, thread;
    float *p, *qt, *out;
    struct span *span;
};

/* The scores of heads [h0 + h, h0 + end). */
static void task_scores(const struct job *j, const struct task *t, uint32_t h, uint32_t end)
{
    const struct atom *m = t->m;
    size_t kq = (size_t)t->nq * j->dk, pq = (size_t)t->nq * KV_ATOM;
    uint32_t row0 = m->a / KV_ATOM * KV_ATOM, s0 = (m->a - row0) / KV_STRIP;
    uint32_t s1 = (m->b - row0 + KV_STRIP - 1) / KV_STRIP;
    bool pending = by_strip(j, m, 0), values = !by_strip(j, m, 1) && !by_tile(j, m->phase, 1);
    struct pending keys;
    if (by_tile(j, m->phase, 0)) {
        struct tiles_from from = tiles_of(j, m->token, 0);
        struct kv_piece at;
        for (uint32_t row = m->a, next; row < m->b; row = next) {
            next = tiles_piece(&from, row, m->b, &at);
            for (uint32_t i = h; i < end; i++) {
                at.head = t->h0 + i;
                j->own[0]->score(j->v->codec[0], &j->v->shape[0], &at, t->qt + i * kq, t->nq,
                                 j->a->scale, t->p + i * pq + (row - row0), KV_ATOM);
            }
        }
        return;
    }
    if (pending) pending_open(j, m, 0, t->thread, &keys);
    for (uint32_t s = s0, n; s < s1; s += n) {
        n = pending ? 1 : MIN(TURN, s1 - s);
        for (uint32_t i = h; i < end; i++) {
            struct span *sp = &t->span[i];
            const void *next[ATTN_STRIPS];
            if (pending) sp->k[s] = pending_get(m, s, t->h0 + i, &keys);
            for (uint32_t c = s; !pending && c < s + n; c++)
                next[c] = c + AHEAD < s1 ? sp->k[c + AHEAD]
                          : values       ? sp->v[MIN(s0 + c + AHEAD - s1, s1 - 1)]
                                         : sp->k[c];
            score_strips(j, t->qt + i * kq, t->nq, sp, pending ? NULL : next, s, s + n,
                         t->p + i * pq);
        }
    }
}

/* The weighted sums of values of heads [h0 + h, h0 + end). */
static void task_values(const struct job *j, const struct task *t, uint32_t h, uint32_t end)
{
    const struct atom *m = t->m;
    size_t pq = (size_t)t->nq * KV_ATOM, oq = (size_t)t->nq * j->state;
    uint32_t row0 = m->a / KV_ATOM * KV_ATOM, a = m->a - row0, b = m->b - row0;
    uint32_t s0 = a / KV_STRIP, s1 = (b + KV_STRIP - 1) / KV_STRIP;
    bool pending = by_strip(j, m, 1);
    struct pending values;
    if (by_tile(j, m->phase, 1)) {
        struct tiles_from from = tiles_of(j, m->token, 1);
        struct kv_piece at;
        for (uint32_t row = m->a, next; row < m->b; row = next) {
            next = tiles_piece(&from, row, m->b, &at);
            for (uint32_t i = h; i < end; i++) {
                at.head = t->h0 + i;
                j->own[1]->add(j->v->codec[1], &j->v->shape[1], &at, t->p + i * pq + (row - row0),
                               KV_ATOM, t->nq, t->out + i * oq + ATTN_HEAD, j->state);
            }
        }
        return;
    }
    if (pending) pending_open(j, m, 1, t->thread, &values);
    for (uint32_t s = s0, n; s < s1; s += n) {
        n = pending ? 1 : MIN(TURN, s1 - s);
        for (uint32_t i = h; i < end; i++) {
            struct span *sp = &t->span[i];
            const void *next[ATTN_STRIPS];
            if (pending) sp->v[s] = pending_get(m, s, t->h0 + i, &values);
            for (uint32_t c = s; !pending && c < s + n; c++)
                next[c] = sp->v[MIN(c + AHEAD, s1 - 1)];
            add_rows(j, t->p + i * pq, t->nq, sp, pending ? NULL : next, MAX(a, s * KV_STRIP),
                     MIN(b, (s + n) * KV_STRIP), t->out + i * oq);
        }
    }
}

/* The strips of a head from those of an earlier one: rows of all heads lie in the same raw pages. */
static void gather_next(const struct job *j, const struct atom *m, uint32_t heads,
                        const struct span *first, struct span *out)
{
    uint32_t row0 = m->a / KV_ATOM * KV_ATOM, s = (m->a - row0) / KV_STRIP;
    size_t rows = (size_t)heads * j->v->raw.rows;
    size_t k = rows * j->dk * dtype_size(j->v->shape[0].dtype);
    size_t v = rows * j->dv * dtype_size(j->v->shape[1].dtype);
    for (; s < (m->b - row0 + KV_STRIP - 1) / KV_STRIP; s++) {
        out->k[s] = (const unsigned char *)first->k[s] + k;
        out->v[s] = (const unsigned char *)first->v[s] + v;
    }
}

/* Forms the queries of n tokens and `per` kv heads from h0 on, as a phase reads them, unless the thread has them from its last
 * unit or phase. */
static void ready_queries(const struct job *j, uint32_t phase, const uint32_t *token, uint32_t n,
                          uint32_t h0, uint32_t per, uint32_t thread)
{
    struct ready *r = thread_part(j, thread, j->lay.ready);
    float *qt = thread_part(j, thread, j->lay.qt);
    const float *queries = queries_of(j, phase);
    bool own = by_tile(j, phase, 0);
    if (r->n == n && r->queries == queries && r->h0 == h0 && r->per >= per && r->own == own &&
        memcmp(r->token, token, n * sizeof *token) == 0)
        return;
    *r = (struct ready){.queries = queries, .h0 = h0, .per = per, .n = n, .own = own};
    memcpy(r->token, token, n * sizeof *token);
    for (uint32_t i = 0; i < per; i++)
        form_q(j, phase, token, n, h0 + i, qt + (size_t)i * n * j->group * j->dk);
}

/* Makes probabilities of the scores of queries [q0, q0 + n) of a task, of which the heads begin with `head`. */
static void task_soft(const struct job *j, const struct task *t, uint32_t q0, uint32_t n,
                      uint32_t head, const struct atom *m)
{
    uint32_t row0 = m->a / KV_ATOM * KV_ATOM;
    for (uint32_t i = 0; i < n; i++) {
        float *p = t->p + (size_t)(q0 + i) * KV_ATOM;
        attn_bias(j->a->bias, head + i, j->v->pos[m->token], m->a, m->b, p + (m->a - row0));
        j->k->soft(p, m->a - row0, m->b - row0, j->a->softcap, t->out + (q0 + i) * j->state);
    }
}

/* The rows of one atom of a unit that the others do not have: their scores, or the sums of their values. */
static void own_rows(const struct job *j, const struct task *t, const struct unit *u, uint32_t i,
                     bool scores)
{
    struct atom m = j->wave[u->first + i];
    struct span span;
    struct task own = {&m,
                       t->h0,
                       j->group,
                       t->thread,
                       t->p + (size_t)i * j->group * KV_ATOM,
                       thread_part(j, t->thread, j->lay.one),
                       t->out + i * j->group * j->state,
                       &span};
    m.a = u->joint;
    if (m.a >= m.b) return;
    gather(j, &m, j->v->edge[m.token], t->h0, t->thread, false, &span);
    if (!scores) {
        task_values(j, &own, 0, 1);
        return;
    }
    form_q(j, m.phase, &m.token, 1, t->h0, own.qt);
    task_scores(j, &own, 0, 1);
}

/* A unit of several atoms with one kv head. */
static void shared_unit(const struct job *j, const struct unit *u, struct task *t)
{
    const struct atom *m = &j->wave[u->first];
    struct atom joint = {m->token, m->phase, m->a, u->joint};
    t->m = &joint;
    gather(j, &joint, j->v->edge[m->token], t->h0, t->thread, true, t->span);
    task_scores(j, t, 0, 1);
    for (uint32_t i = 0; i < u->n; i++) {
        own_rows(j, t, u, i, true);
        task_soft(j, t, i * j->group, j->group, t->h0 * j->group, &m[i]);
    }
    task_values(j, t, 0, 1);
    for (uint32_t i = 0; i < u->n; i++)
        own_rows(j, t, u, i, false);
}

/* One decode unit with kv heads [h0, h0 + per).  Pages hold all heads of their rows next to each other, so heads go inside
 * strips and pieces and memory is read in order.  Only tiles that are decoded as a whole are decoded, hence used, head by
 * head.  States lie [kv head][token][head of the group].  Where heads are shared out, a thread keeps to one head for some
 * units, so that its queries stay ready. */
static void decode_unit(void *ctx, uint32_t task, uint32_t thread)
{
    const struct job *j = ctx;
    const struct unit *u = &j->unit[task % j->n_units];
    const struct atom *m = &j->wave[u->first];
    uint32_t per = j->n_kv / j->split, h0 = task / j->n_units * per, nq = u->n * j->group;
    uint32_t step = j->whole ? 1 : per, token[ATTN_BLOCK];
    struct task t = {m,
                     h0,
                     nq,
                     thread,
                     thread_part(j, thread, j->lay.p),
                     thread_part(j, thread, j->lay.qt),
                     unit_state(j, u, 0, h0 * j->group),
                     thread_part(j, thread, j->lay.span)};
    memset(t.out, 0, (size_t)per * nq * j->state * sizeof *t.out);
    for (uint32_t i = 0; i < u->n; i++)
        token[i] = m[i].token;
    ready_queries(j, m->phase, token, u->n, h0, per, thread);
    if (u->n > 1) {
        shared_unit(j, u, &t);
        return;
    }
    for (uint32_t h = 0; h < per; h += step) {
        for (uint32_t i = h; i < h + step; i++)
            if (i > h && !j->tiled)
                gather_next(j, m, i - h, &t.span[h], &t.span[i]);
            else
                gather(j, m, j->v->edge[m->token], h0 + i, thread, true, &t.span[i]);
        task_scores(j, &t, h, h + step);
        task_soft(j, &t, h * nq, step * nq, (h0 + h) * j->group, m);
        task_values(j, &t, h, h + step);
    }
}

/* The next atom of a token's walk, or false at its end. */
static bool next_atom(const struct job *j, struct iter *it, struct atom *out)
{
    for (; it->phase < ATTN_PHASES; it->phase++, it->next = 0) {
        uint32_t a, b;
        attn_phase_rows(j->v, j->lossy, it->token, it->phase, &a, &b);
        a = MAX(a, it->next);
        if (a >= b) continue;
        it->next = MIN(b, a - a % KV_ATOM + KV_ATOM);
        *out = (struct atom){it->token, it->phase, a, it->next};
        return true;
    }
    return false;
}

/* Returns the first of the rows [a, b) from which on two lanes have other pages, or b. */
static uint32_t same_pages(const struct kv_form *f, uint32_t slot, uint32_t other, uint32_t a,
                           uint32_t b)
{
    const uint32_t *x = f->table + (size_t)slot * f->stride,
                   *y = f->table + (size_t)other * f->stride;
    while (a < b && x[a / f->rows] == y[a / f->rows])
        a += f->rows - a % f->rows;
    return MIN(a, b);
}

/* Returns how many of their first rows two atoms read from the same bytes: forks do up to where they parted, and tokens of one
 * lane.  Either all of both, or whole strips. */
static uint32_t same_rows(const struct job *j, const struct atom *m, const struct atom *o)
{
    const struct kv_view *v = j->v;
    uint32_t slot = v->slot[v->lane[m->token]], other = v->slot[v->lane[o->token]];
    uint32_t a = m->a, b = MIN(m->b, o->b), end;
    if (m->phase != o->phase || a != o->a) return 0;
    end = same_pages(&v->raw, slot, other, a, b);
    if (end == m->b && end == o->b &&
        (!j->tiled || (v->edge[m->token] == v->edge[o->token] &&
                       same_pages(&v->sealed, slot, other, a, b) == b)))
        return end - a;
    end -= end % KV_STRIP;
    return j->tiled || end < a ? 0 : end - a;
}

/* Units of at most `most` atoms.  An atom joins a unit with which it has at least half of its rows in common. */
static uint32_t make_units(const struct job *j, uint32_t n, uint32_t most, struct unit *unit)
{
    uint32_t n_units = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct atom *m = &j->wave[i];
        struct unit *u = n_units ? &unit[n_units - 1] : NULL;
        if (u && u->n < most) {
            uint32_t rows =
                MIN(u->joint - j->wave[u->first].a, same_rows(j, &j->wave[u->first], m));
            if (rows && rows >= (m->b - m->a) / 2) {
                u->joint = m->a + rows;
                u->n++;
                continue;
            }
        }
        unit[n_units++] = (struct unit){i, 1, m->b};
    }
    return n_units;
}

/* The query heads [h0, h1) of tokens [t0, t1), before their first atom. */
static void begin_states(const struct job *j, uint32_t t0, uint32_t t1, uint32_t h0, uint32_t h1)
{
    for (uint32_t t = t0; t < t1; t++)
        for (uint32_t h = h0; h < h1; h++)
            run_state(j, t, h)[1] = 0;
}

/* After their last atom: a sink logit as one more, which adds no value; then the division. */
static void end_states(const struct job *j, uint32_t t0, uint32_t t1, uint32_t h0, uint32_t h1,
                       uint32_t thread)
{
    const struct dev_attn *a = j->a;
    float *sink = thread_part(j, thread, j->lay.part);
    memset(sink, 0, j->state * sizeof *sink);
    sink[1] = 1;
    for (uint32_t t = t0; t < t1; t++)
        for (uint32_t h = h0; h < h1; h++) {
            float *run = run_state(j, t, h);
            if (a->sink_logit) {
                sink[0] = a->sink_logit[h];
                j->k->merge(run, sink, j->dv);
            }
            j->k->done(run, j->dv, a->out + t * a->ldo + (size_t)h * j->dv);
        }
}

/* Adds up the atoms of a wave for one head. */
static void merge_head(void *ctx, uint32_t head, uint32_t thread)
{
    const struct job *j = ctx;
    for (uint32_t i = 0; j->begins && i < j->n_few; i++)
        begin_states(j, j->few[i], j->few[i] + 1, head, head + 1);
    for (uint32_t k = 0; k < j->n_units; k++)
        for (uint32_t i = 0; i < j->unit[k].n; i++)
            j->k->merge(run_state(j, j->wave[j->unit[k].first + i].token, head),
                        unit_state(j, &j->unit[k], i, head), j->dv);
    for (uint32_t i = 0; j->ends && i < j->n_few; i++)
        end_states(j, j->few[i], j->few[i] + 1, head, head + 1, thread);
}

static void run_wave(struct job *j, uint32_t n)
{
    struct unit unit[ATTN_WAVE];
    uint32_t threads = pool_threads(j->pool), rows = 0, heads = j->a->n_heads;
    /* Sharing must not leave a thread without work. */
    uint32_t most = MIN(n * j->n_kv / (2 * threads), ATTN_BLOCK / j->group);
    for (uint32_t i = 0; i < n; i++)
        rows += j->wave[i].b - j->wave[i].a;
    j->unit = unit;
    j->n_units = make_units(j, n, MAX(most, 1), unit);
    /* Heads are shared out if units are shared, whose rows are few for their products, or if units are few, unless a fork
     * would cost more than it saves. */
    bool few = j->n_units <= 2 * threads && rows > 48;
    j->split = j->n_units < n || few ? j->n_kv : 1;
    pool_run(j->pool, j->n_units * j->split, decode_unit, j);
    if ((n + j->n_few) * heads >= MERGES)
        pool_run(j->pool, heads, merge_head, j);
    else
        for (uint32_t h = 0; h < heads; h++)
            merge_head(j, h, 0);
    j->begins = false;
}

static void decode(struct job *j, struct iter *it, uint32_t n)
{
    struct atom wave[ATTN_WAVE];
    uint32_t filled = 0;
    if (!n) return;
    j->wave = wave;
    j->begins = j->v->first;
    while (n) {
        uint32_t left = 0;
        for (uint32_t i = 0; i < n; i++) {
            struct atom next;
            if (!next_atom(j, &it[i], &next)) continue;
            it[left++] = it[i];
            if (filled == ATTN_WAVE) {
                run_wave(j, filled);
                filled = 0;
            }
            wave[filled++] = next;
        }
        n = left;
    }
    j->ends = j->v->last;
    run_wave(j, filled);
}

/* O of the block's queries over one span.  Rows that all queries of a call see are added together;
 * before and after them each query goes alone. */
static void add_block(const struct job *j, const float *p, const struct atom *row, uint32_t nq,
                      uint32_t row0, const struct span *sp, float *part)
{
    uint32_t max = j->k->pv_max;
    for (uint32_t q0 = 0; q0 < nq; q0 += max) {
        uint32_t q1 = MIN(nq, q0 + max), c0 = 0, c1 = KV_ATOM;
        for (uint32_t q = q0; q < q1; q++) {
            const struct atom *r = &row[q / j->group];
            c0 = MAX(c0, r->a - row0);
            c1 = MIN(c1, r->b - row0);
        }
        bool common = c0 < c1;
        for (uint32_t q = q0; q < q1; q++) {
            const struct atom *r = &row[q / j->group];
            add_rows(j, p + (size_t)q * KV_ATOM, 1, sp, NULL, r->a - row0,
                     common ? c0 : r->b - row0, part + q * j->state);
        }
        if (!common) continue;
        add_rows(j, p + (size_t)q0 * KV_ATOM, q1 - q0, sp, NULL, c0, c1, part + q0 * j->state);
        for (uint32_t q = q0; q < q1; q++)
            add_rows(j, p + (size_t)q * KV_ATOM, 1, sp, NULL, c1, row[q / j->group].b - row0,
                     part + q * j->state);
    }
}

/* Scores of the block's queries over one span: each call takes the rows that one of its queries sees. */
static void score_block(const struct job *j, const struct atom *row, const float *qt, uint32_t nq,
                        uint32_t row0, const struct span *sp, float *p)
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
            score_strips(j, qt + (size_t)q0 * j->dk, n, sp, NULL, a / KV_STRIP,
                         (b + KV_STRIP - 1) / KV_STRIP, p + (size_t)q0 * KV_ATOM);
    }
}

struct walk { /* of a prefill unit */
    const struct block *bl;
    uint32_t edge, head, thread; /* edge: the least of the block */
};

/* O of the block's queries over one span, by the codec's kernels; queries that see the same rows go together. */
static void add_tiles(const struct job *j, const struct walk *w, const float *p,
                      const struct atom *row, uint32_t row0, float *part)
{
    uint32_t nq = w->bl->n * j->group, g = j->group;
    struct tiles_from from = tiles_of(j, w->bl->t0, 1);
    for (uint32_t q0 = 0, q1; q0 < nq; q0 = q1) {
        const struct atom *r = &row[q0 / g];
        for (q1 = q0 + g; q1 < nq && row[q1 / g].a == r->a && row[q1 / g].b == r->b;)
            q1 += g;
        tiles_add(&from, r->a, r->b, w->head, p + (size_t)q0 * KV_ATOM + (r->a - row0), KV_ATOM,
                  q1 - q0, part + q0 * j->state + ATTN_HEAD, j->state);
    }
}

/* One span of one phase: row[i] is the atom of the i-th token, a == b == row0 where it has none. */
static void block_span(const struct job *j, const struct walk *w, const struct atom *row,
                       const struct atom *all)
{
    const struct block *bl = w->bl;
    uint32_t head = w->head, thread = w->thread;
    uint32_t row0 = all->a / KV_ATOM * KV_ATOM, g = j->group, nq = bl->n * g;
    float *p = thread_part(j, thread, j->lay.p), *qt = thread_part(j, thread, j->lay.qt);
    float *part = thread_part(j, thread, j->lay.part);
    struct span sp;
    gather(j, all, w->edge, head, thread, false, &sp);
    if (by_tile(j, all->phase, 0)) {
        struct tiles_from from = tiles_of(j, bl->t0, 0);
        tiles_score(&from, all->a, all->b, head, qt, nq, j->a->scale, p + (all->a - row0), KV_ATOM);
    } else {
        score_block(j, row, qt, nq, row0, &sp, p);
    }
    memset(part, 0, nq * j->state * sizeof *part);
    for (uint32_t q = 0; q < nq; q++) {
        const struct atom *r = &row[q / g];
        if (r->a >= r->b) continue;
        attn_bias(j->a->bias, head * g + q % g, j->v->pos[bl->t0 + q / g], r->a, r->b,
                  p + (size_t)q * KV_ATOM + (r->a - row0));
        j->k->soft(p + (size_t)q * KV_ATOM, r->a - row0, r->b - row0, j->a->softcap,
                   part + q * j->state);
    }
    if (by_tile(j, all->phase, 1))
        add_tiles(j, w, p, row, row0, part);
    else
        add_block(j, p, row, nq, row0, &sp, part);
    for (uint32_t q = 0; q < nq; q++)
        if (row[q / g].a < row[q / g].b)
            j->k->merge(run_state(j, bl->t0 + q / g, head * g + q % g), part + q * j->state, j->dv);
}

static void block_phase(const struct job *j, struct walk *w, uint32_t phase)
{
    const struct block *bl = w->bl;
    struct atom whole[ATTN_BLOCK], row[ATTN_BLOCK];
    uint32_t a = UINT32_MAX, b = 0, token[ATTN_BLOCK];
    for (uint32_t i = 0; i < bl->n; i++) {
        token[i] = bl->t0 + i;
        attn_phase_rows(j->v, j->lossy, token[i], phase, &whole[i].a, &whole[i].b);
        if (whole[i].a >= whole[i].b) continue;
        a = MIN(a, whole[i].a);
        b = MAX(b, whole[i].b);
    }
    if (a >= b) return;
    ready_queries(j, phase, token, bl->n, w->head, 1, w->thread);
    for (uint32_t row0 = a - a % KV_ATOM; row0 < b; row0 += KV_ATOM) {
        struct atom all = {bl->t0, phase, UINT32_MAX, 0};
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
static void block_unit(void *ctx, uint32_t task, uint32_t thread)
{
    const struct job *j = ctx;
    const struct block *bl = &j->block[j->n_blocks - 1 - task / j->n_kv];
    struct walk w = {bl, UINT32_MAX, task % j->n_kv, thread};
    for (uint32_t i = 0; i < bl->n; i++)
        w.edge = MIN(w.edge, j->v->edge[bl->t0 + i]);
    uint32_t h0 = w.head * j->group, h1 = h0 + j->group, end = bl->t0 + bl->n;
    if (j->v->first) begin_states(j, bl->t0, end, h0, h1);
    for (uint32_t phase = 0; phase < ATTN_PHASES; phase++)
        block_phase(j, &w, phase);
    if (j->v->last) end_states(j, bl->t0, end, h0, h1, thread);
}

/* True if tokens [t, end) of a lane decode: one does, and few that see the same rows but their own, since heads alone may be
 * too few to keep the threads busy. */
static bool decodes(const struct job *j, uint32_t t, uint32_t end)
{
    const struct kv_view *v = j->v;
    if (end - t == 1) return true;
    if (end - t > FEW || j->tiled) return false;
    for (uint32_t i = t + 1; i < end; i++)
        if (MIN(v->lo[i], v->hi[i]) != v->lo[t]) return false;
    return true;
}

/* Sorts the step's tokens into decoding ones and blocks of prefill. */
static void plan(struct job *j, struct iter *it)
{
    uint32_t n = j->n_tokens, most = MAX(1, ATTN_BLOCK / j->group);
    /* At least four units per thread where the step has that many tokens. */
    uint32_t fair = n * j->n_kv / (4 * pool_threads(j->pool));
    most = MIN(most, MAX(fair, 4));
    j->n_blocks = j->n_few = 0;
    for (uint32_t t = 0, end; t < n; t = end) {
        for (end = t + 1; end < n && j->v->lane[end] == j->v->lane[t]; end++)
            ;
        if (decodes(j, t, end)) {
            for (uint32_t i = t; i < end; i++) {
                it[j->n_few] = (struct iter){i, 0, 0};
                j->few[j->n_few++] = i;
            }
            continue;
        }
        for (uint32_t at = t; at < end; at += most)
            j->block[j->n_blocks++] = (struct block){at, MIN(most, end - at)};
    }
}

void dev_attention(struct dev *d, const struct kv_view *v, const struct dev_attn *a)
{
    struct job j = {.v = v, .a = a, .pool = d->pool, .scratch = d->attn};
    j.k = ((attn_kernels_fn)cpu_kernel_get(d, CPU_ATTN_ATOM, CPU_ANY))();
    j.strip = (kv_strip_fn)cpu_kernel_get(d, CPU_KV_STRIP, CPU_ANY);
    j.n_tokens = v->counts[1];
    j.n_kv = v->shape[0].heads;
    j.group = a->n_heads / j.n_kv;
    j.dk = v->shape[0].dim;
    j.dv = v->shape[1].dim;
    j.state = state_floats(j.dv);
    for (uint32_t i = 0; i < 2; i++) {
        const struct kv_codec *c = v->codec[i];
        j.tiled |= c != NULL;
        j.lossy |= c && !c->lossless;
        j.own[i] = tiles_kernels(d->isa, c);
        j.whole |= c && !c->affine && !c->in_place && !j.own[i];
    }
    lay_out(j.n_tokens, a->n_heads, j.dk, j.dv, j.tiled ? v->sealed.rows : 0, pool_threads(d->pool),
            &j.lay);
    assert(!a->bias || (a->softcap == 0 && !v->sinks));
    assert(j.lay.total <= d->attn_bytes && a->n_heads % j.n_kv == 0);
    j.block = (struct block *)(j.scratch + j.lay.block);
    j.few = (uint32_t *)(j.scratch + j.lay.few);
    struct iter *it = (struct iter *)(j.scratch + j.lay.iter);
    plan(&j, it);
    for (uint32_t i = 0; i < pool_threads(d->pool); i++)
        ((struct ready *)thread_part(&j, i, j.lay.ready))->n = 0;
    decode(&j, it, j.n_few);
    pool_run(j.pool, j.n_blocks * j.n_kv, block_unit, &j);
}
