/* attn.c - attention over a cache view: which rows of which form make an atom, in which order atoms
 * merge, and how the work is split.  Read `attn_phase_rows` first.
 *
 * A query walks its atoms in four phases: sealed rows of a lossy codec, then raw rows: sinks, rows below
 * lead, tail; each phase is an interval of rows, cut at multiples of 256.  That sequence is a function of
 * the query alone.  The sinks are met with their own rotation of the query where the caller has one.  Borrowed rows
 * come before the lane's own of their form, each run with its own turn of the query (attn_stage).  Two ways of
 * walking it give the same bits:
 *   decode   a lane with one token or a few: units of (atom, kv heads) into shared scratch, in waves of
 *            ATTN_WAVE atoms, each wave merged in order, head by head.  Waves go round robin over the
 *            tokens, and neighbours whose tables name the same pages (forks, beams, tokens of one lane)
 *            make one unit, so that rows they have in common are read once.
 *   prefill  a longer run of tokens of one lane: units of (block of tokens, kv head), each walking all atoms.
 * Both keep the running (M, L, O) per (token, head) in scratch, where it also survives from piece to piece. */
#include "base/thread.h"
#include "dev/cpu/attn_job.h"

#include <assert.h>
#include <string.h>

#define FEW 8u /* tokens of one lane, at most, that decode */

struct ready { /* in a thread's qt: the prepared queries of `per` kv heads from h0 on */
    const float *queries;
    uint32_t h0, per, n, token[ATTN_MOST], borrowed;
    const struct kv_reader *form; /* the reader that prepared them; NULL: as raw rows meet them */
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
                    uint32_t threads, struct attn_layout *l)
{
    size_t queries = MAX(heads, ATTN_MOST), state = state_floats(dv);
    size_t dim = MAX(dk, dv),
           /* Decoded: an atom, and what two tiles have beside it; or opened, of both planes. */
        tiles = tile ? MAX((KV_ATOM + 2 * (size_t)tile) * dim * sizeof(float),
                           2 * (size_t)KV_ATOM * KV_OPEN_ROW(dim))
                     : 0;
    l->total = l->per_thread = 0;
    l->run = put(&l->total, mul(tokens, heads), state * sizeof(float));
    l->wave = put(&l->total, mul(ATTN_WAVE, heads), state * sizeof(float));
    l->iter = put(&l->total, tokens, sizeof(struct attn_iter));
    l->few = put(&l->total, tokens, sizeof(uint32_t));
    l->block = put(&l->total, tokens, sizeof(struct attn_block));
    l->ready = put(&l->per_thread, 1, sizeof(struct ready));
    l->p = put(&l->per_thread, queries, KV_ATOM * sizeof(float));
    /* A reader may take queries in sixteens, so it may read up to 15 behind the last one. */
    l->qt = put(&l->per_thread, queries + 16, dk * sizeof(float));
    l->one = put(&l->per_thread, heads, dk * sizeof(float));
    l->query = put(&l->per_thread, 2, dk * sizeof(float));
    l->part = put(&l->per_thread, queries, state * sizeof(float));
    l->tile = put(&l->per_thread, tiles, 1);
    l->thread = put(&l->total, threads, l->per_thread);
}

size_t cpu_attn_scratch(const struct dev_limits *lim, uint32_t threads)
{
    struct attn_layout l;
    lay_out(lim->tokens, lim->heads, lim->head_dim, lim->head_dim, lim->tile, threads, &l);
    return l.total;
}

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

/* Computes the rows of one phase among the i-th borrowed rows of the view. */
static void borrowed_rows(const struct attn_job *j, uint32_t i, uint32_t phase, uint32_t *a,
                          uint32_t *b)
{
    const struct kv_borrowed *run = &j->v->borrowed[i];
    uint32_t lead = j->lossy ? j->v->lead : 0, edge = j->lossy ? j->v->borrowed_edge[i] : 0;
    *a = run->a;
    *b = run->b;
    if (phase == ATTN_SEALED)
        *a = MAX(*a, lead), *b = MIN(*b, edge);
    else if (phase == ATTN_LEAD)
        *b = MIN(*b, lead);
    else
        *a = MAX(*a, MAX(edge, lead));
    *b = MAX(*a, *b);
}

static uint32_t borrows(const struct kv_view *v, uint32_t token)
{
    const uint32_t *first = v->borrowed0 ? v->borrowed0 + v->lane[token] : NULL;
    return first ? first[1] - first[0] : 0;
}

uint32_t attn_stages(const struct attn_job *j, uint32_t token)
{
    return ATTN_PHASES + 3 * borrows(j->v, token);
}

/* Sealed rows come first: the lane's own, then those of n borrowed runs.  Then raw rows: the lane's own sinks and
 * lead, then the lead and the rest of each run, then the lane's own tail. */
void attn_stage(const struct attn_job *j, uint32_t token, uint32_t stage, struct attn_atom *out)
{
    uint32_t n = borrows(j->v, token), first = n ? j->v->borrowed0[j->v->lane[token]] : 0, run;
    *out = (struct attn_atom){.token = token, .phase = ATTN_SEALED};
    if (stage && stage <= n) {
        run = stage - 1;
    } else if (stage > n + 2 && stage < 3 * n + 3) {
        run = (stage - n - 3) / 2;
        out->phase = (stage - n - 3) % 2 ? ATTN_TAIL : ATTN_LEAD;
    } else {
        if (stage) out->phase = stage <= n + 2 ? stage - n : ATTN_TAIL;
        attn_phase_rows(j->v, j->lossy, token, out->phase, &out->a, &out->b);
        return;
    }
    out->borrowed = 1 + first + run;
    borrowed_rows(j, first + run, out->phase, &out->a, &out->b);
}

/* Returns the queries that meet the rows of a phase; sinks can have queries with a rotation of their own. */
static const float *queries_of(const struct attn_job *j, uint32_t phase)
{
    return phase == ATTN_SINKS && j->a->q_sink ? j->a->q_sink : j->a->q;
}

static const float *query_at(const struct attn_job *j, const float *queries, const uint32_t *token,
                             uint32_t head, uint32_t q)
{
    return queries + token[q / j->group] * j->a->ldq +
           (size_t)(head * j->group + q % j->group) * j->dk;
}

/* Rotates a query once more, for the rows of a borrowed run, as dev_rope does. */
static void turn_query(const struct dev_turn *t, uint32_t run, uint32_t dim, const float *q,
                       float *out)
{
    uint32_t half = t->rot / 2, to = t->interleaved ? 1 : half, step = t->interleaved ? 2 : 1;
    const float *cos = t->cos + (size_t)run * half, *sin = t->sin + (size_t)run * half;
    memcpy(out, q, dim * sizeof *q);
    for (uint32_t i = 0; i < half; i++) {
        float a = q[i * step], b = q[i * step + to];
        out[i * step] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
        out[i * step + to] = __builtin_fmaf(b, cos[i], a * sin[i]);
    }
}

/* Returns the reader that prepares queries for the rows of a phase; NULL: they meet the same queries as raw rows. */
static const struct kv_reader *preparer_of(const struct attn_job *j, uint32_t phase)
{
    const struct kv_reader *r = j->sealed[0].reader;
    return phase == ATTN_SEALED && (r->query || r->score) ? r : NULL;
}

/* Queries that meet strips are transposed, in the chunks that the kernel takes; other queries lie one after another. */
void attn_form_queries(const struct attn_job *j, const struct attn_atom *m, const uint32_t *token,
                       uint32_t n, uint32_t head, uint32_t thread, float *qt)
{
    const struct kv_reader *form = preparer_of(j, m->phase);
    const float *queries = queries_of(j, m->phase);
    uint32_t nq = n * j->group, max = form && form->score ? 1 : j->k->score_max;
    float *room = attn_part(j, thread, j->lay.query);
    for (uint32_t q0 = 0; q0 < nq; q0 += max) {
        uint32_t c = MIN(nq - q0, max);
        for (uint32_t i = 0; i < c; i++) {
            const float *src = query_at(j, queries, token, head, q0 + i);
            if (m->borrowed && j->a->turn) {
                turn_query(j->a->turn, m->borrowed - 1, j->dk, src, room + j->dk);
                src = room + j->dk;
            }
            if (form && form->query) {
                form->query(&j->sealed[0], src, room);
                src = room;
            }
            for (uint32_t d = 0; d < j->dk; d++)
                qt[(size_t)q0 * j->dk + (size_t)d * c + i] = src[d];
        }
    }
}

void attn_ready_queries(const struct attn_job *j, const struct attn_atom *m, const uint32_t *token,
                        uint32_t n, uint32_t h0, uint32_t per, uint32_t thread)
{
    struct ready *r = attn_part(j, thread, j->lay.ready);
    float *qt = attn_part(j, thread, j->lay.qt);
    const float *queries = queries_of(j, m->phase);
    const struct kv_reader *form = preparer_of(j, m->phase);
    if (r->n == n && r->queries == queries && r->h0 == h0 && r->per >= per && r->form == form &&
        r->borrowed == m->borrowed && memcmp(r->token, token, n * sizeof *token) == 0)
        return;
    *r = (struct ready){
        .queries = queries, .h0 = h0, .per = per, .n = n, .borrowed = m->borrowed, .form = form};
    memcpy(r->token, token, n * sizeof *token);
    for (uint32_t i = 0; i < per; i++)
        attn_form_queries(j, m, token, n, h0 + i, thread, qt + (size_t)i * n * j->group * j->dk);
}

void attn_begin_states(const struct attn_job *j, uint32_t t0, uint32_t t1, uint32_t h0, uint32_t h1)
{
    for (uint32_t t = t0; t < t1; t++)
        for (uint32_t h = h0; h < h1; h++)
            attn_run_state(j, t, h)[1] = 0;
}

/* Ends the sum over sealed rows, which come first. */
static void end_sealed(const struct attn_job *j, float *state)
{
    if (state[1] != 0 && state[ATTN_TURNED] != 0)
        j->sealed[1].reader->end(&j->sealed[1], state + ATTN_HEAD);
    state[ATTN_TURNED] = 0;
}

void attn_merge(const struct attn_job *j, float *run, const float *part)
{
    if (part[ATTN_TURNED] == 0) end_sealed(j, run);
    j->k->merge(run, part, j->dv);
}

/* Adds a sink logit as one more atom, which has no value; then divides. */
void attn_end_state(const struct attn_job *j, uint32_t token, uint32_t head, float *state,
                    float *room)
{
    const struct dev_attn *a = j->a;
    end_sealed(j, state);
    if (a->sink_logit) {
        memset(room, 0, j->state * sizeof *room);
        room[0] = a->sink_logit[head];
        room[1] = 1;
        j->k->merge(state, room, j->dv);
    }
    j->k->done(state, j->dv, a->out + token * a->ldo + (size_t)head * j->dv);
}

void attn_end_states(const struct attn_job *j, uint32_t t0, uint32_t t1, uint32_t h0, uint32_t h1,
                     uint32_t thread)
{
    for (uint32_t t = t0; t < t1; t++)
        for (uint32_t h = h0; h < h1; h++)
            attn_end_state(j, t, h, attn_run_state(j, t, h), attn_part(j, thread, j->lay.part));
}

/* True if tokens [t, end) of a lane are computed as decoding ones: a single token, or a few tokens with the same
 * first row.  For a few tokens one unit per head would be too few to keep the threads busy. */
static bool decodes(const struct attn_job *j, uint32_t t, uint32_t end)
{
    const struct kv_view *v = j->v;
    if (end - t == 1) return true;
    if (end - t > FEW || j->tiled) return false;
    for (uint32_t i = t + 1; i < end; i++)
        if (MIN(v->lo[i], v->hi[i]) != v->lo[t]) return false;
    return true;
}

/* Sorts the step's tokens into decoding ones and blocks of prefill. */
static void plan(struct attn_job *j, struct attn_iter *it)
{
    uint32_t n = j->n_tokens, most = MAX(1, (j->sums ? ATTN_MOST : ATTN_BLOCK) / j->group);
    /* At least four units per thread where the step has that many tokens. */
    uint32_t fair = n * j->n_kv / (4 * pool_threads(j->pool));
    most = MIN(most, MAX(fair, 4));
    j->n_blocks = j->n_few = 0;
    for (uint32_t t = 0, end; t < n; t = end) {
        for (end = t + 1; end < n && j->v->lane[end] == j->v->lane[t]; end++)
            ;
        if (decodes(j, t, end)) {
            for (uint32_t i = t; i < end; i++) {
                it[j->n_few] = (struct attn_iter){i, 0, 0};
                j->few[j->n_few++] = i;
            }
            continue;
        }
        for (uint32_t at = t; at < end; at += most)
            j->block[j->n_blocks++] = (struct attn_block){at, MIN(most, end - at)};
    }
}

void attn_open(struct dev_queue *d, const struct kv_view *v, const struct dev_attn *a,
               struct attn_job *j)
{
    *j = (struct attn_job){.v = v, .a = a, .pool = d->pool, .scratch = d->attn};
    j->k = ((attn_kernels_fn)cpu_kernel_get(d, CPU_ATTN_ATOM, CPU_ANY))();
    j->n_tokens = v->counts[1];
    j->n_kv = v->shape[0].heads;
    j->group = a->n_heads / j->n_kv;
    j->dk = v->shape[0].dim;
    j->dv = v->shape[1].dim;
    j->state = state_floats(j->dv);
    for (uint32_t i = 0; i < 2; i++) {
        const struct kv_codec *c = v->codec[i];
        j->tiled |= c != NULL;
        j->lossy |= c && !c->lossless;
        j->raw[i] = kv_reading(NULL, &v->shape[i], d->isa);
        j->sealed[i] = kv_reading(c, &v->shape[i], d->isa);
    }
    j->sums = j->sealed[0].reader->score && j->sealed[1].reader->add;
    lay_out(j->n_tokens, a->n_heads, j->dk, j->dv, j->tiled ? v->sealed.rows : 0,
            pool_threads(d->pool), &j->lay);
    assert(!a->bias || (a->softcap == 0 && !v->sinks && !v->borrowed0));
    assert(j->lay.total <= d->attn_bytes && a->n_heads % j->n_kv == 0);
    for (uint32_t i = 0; i < pool_threads(d->pool); i++)
        ((struct ready *)attn_part(j, i, j->lay.ready))->n = 0;
}

void cpu_attention(struct dev_queue *d, const struct kv_view *v, const struct dev_attn *a)
{
    struct attn_job j;
    attn_open(d, v, a, &j);
    j.block = (struct attn_block *)(j.scratch + j.lay.block);
    j.few = (uint32_t *)(j.scratch + j.lay.few);
    struct attn_iter *it = (struct attn_iter *)(j.scratch + j.lay.iter);
    plan(&j, it);
    attn_decode(&j, it, j.n_few);
    pool_run(j.pool, j.n_blocks * j.n_kv, attn_prefill_unit, &j);
}
