/* attn_read.c - the loop over the rows of an atom, for decoding, prefill and the probe alike.
 *
 * The rows of a plane are read in runs: rows of one form whose place is looked up once for all heads.  Pages and
 * tiles hold all heads of their rows next to each other.  So the loop over heads is inside the loop over runs, and
 * memory is read in order.
 *
 * With few queries, runs are short.  Meanwhile the bytes behind a run are prefetched, one cache line with each row
 * of products.  Measured: they arrive later if all are prefetched at once, or into the first cache.
 *
 * A block of prefill takes all rows of one form at once.  A reader that sums gets the rows of one tile in any case,
 * so its pieces depend on the positions of rows alone. */
#include "dev/cpu/attn_job.h"

#include <string.h>

/* A run: rows [a, b) of one form, counted from the start of the sequence. */
struct row_run {
    const struct kv_reading *by;
    uint32_t a, b;
    /* Number of pieces: one, or one for each strip of narrow tiles; 0: rows lie in place. */
    uint32_t n;
    struct kv_piece piece[ATTN_STRIPS];
    const void *strip[ATTN_STRIPS]; /* in place: of head h0, from the strip of row a on */
    size_t step;                    /* in place: bytes from head to head */
    size_t narrow; /* bytes of a tile of less than 16 rows, with all heads; 0: wider or in place */
};

static uint32_t row0_of(const struct attn_task *t)
{
    return t->m->a / KV_ATOM * KV_ATOM;
}

static bool sums(const struct kv_reading *by, uint32_t plane)
{
    return plane ? by->reader->add != NULL : by->reader->score != NULL;
}

/* Returns the reader of row `row` of a plane.  *form: the form that the row is in.  *end: lowered to where the form
 * or the atom ends.  Under a lossless codec a strip that is sealed only in part is read raw: its block touches [0,
 * lead), so it stays raw. */
static const struct kv_reading *reader_of(const struct attn_job *j, const struct attn_task *t,
                                          uint32_t plane, uint32_t row, const struct kv_form **form,
                                          uint32_t *end)
{
    const struct kv_view *v = j->v;
    uint32_t seal0 = 0, seal1 = 0;
    if (t->m->phase == ATTN_SEALED)
        seal1 = UINT32_MAX;
    else if (j->tiled && !j->lossy)
        seal0 = (v->lead + KV_STRIP - 1) / KV_STRIP * KV_STRIP,
        seal1 = t->edge - t->edge % KV_STRIP;
    if (!v->codec[plane]) seal1 = 0;
    bool sealed = row >= seal0 && row < seal1;
    if (sealed)
        *end = MIN(*end, seal1);
    else if (row < seal0 && seal0 < seal1)
        *end = MIN(*end, seal0);
    *form = sealed ? &v->sealed : &v->raw;
    return sealed ? &j->sealed[plane] : &j->raw[plane];
}

static const unsigned char *page_of(const struct kv_form *f, const uint32_t *table, uint32_t plane,
                                    uint32_t i)
{
    return f->base + table[i] * f->grain + f->offset[plane];
}

static void find_strips(const struct attn_task *t, const struct kv_form *f, const uint32_t *table,
                        uint32_t plane, struct row_run *run)
{
    size_t bytes = run->by->shape->dim * dtype_size(run->by->shape->dtype);
    uint32_t row = run->a - run->a % KV_STRIP, page = row / f->rows, in = row % f->rows;
    run->step = f->rows * bytes;
    for (uint32_t i = 0; row < run->b; i++, row += KV_STRIP) {
        run->strip[i] = page_of(f, table, plane, page) + t->h0 * run->step + in * bytes;
        in += KV_STRIP;
        if (in == f->rows) in = 0, page++;
    }
}

static void find_pieces(const struct kv_form *f, const uint32_t *table, uint32_t plane,
                        uint32_t unit, struct row_run *run)
{
    for (uint32_t row = run->a, first, end; row < run->b; row = end) {
        struct kv_piece *at = &run->piece[run->n++];
        first = row - row % unit;
        end = unit < KV_STRIP || f->rows < KV_STRIP ? MIN(run->b, first + unit) : run->b;
        at->r0 = row - first;
        at->then = NULL;
        at->r1 = end - first;
        uint32_t i0 = at->r0 / f->rows, i1 = (at->r1 - 1) / f->rows;
        uint32_t n = MAX(i1 + 1, unit / f->rows);
        if (!i0 && i1 + 1 == n) {
            const unsigned char *base = f->base + f->offset[plane];
            const uint32_t *page = table + first / f->rows;
            for (uint32_t i = 0; i < n; i++)
                at->tile[i] = base + page[i] * f->grain;
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            at->tile[i] = page_of(f, table, plane, first / f->rows + MIN(MAX(i, i0), i1));
    }
}

/* Finds the run that begins with row `row`. */
static void find_run(const struct attn_job *j, const struct attn_task *t, uint32_t plane,
                     uint32_t row, struct row_run *run)
{
    const struct kv_form *f;
    uint32_t end = t->m->b;
    run->by = reader_of(j, t, plane, row, &f, &end);
    bool own = sums(run->by, plane);
    uint32_t unit = own ? f->rows : MAX(f->rows, KV_STRIP), rows = run->by->reader->rows;
    if (own || !rows) rows = unit;
    run->a = row;
    run->b = own || !t->row ? MIN(end, row - row % rows + rows) : end;
    run->n = 0;
    run->narrow = 0;
    if (!t->row && run->by->codec && run->by->codec->tile < KV_STRIP)
        run->narrow = run->by->codec->bytes(run->by->codec, run->by->shape);
    const uint32_t *table = f->table + (size_t)attn_slot(j, t->m) * f->stride;
    if (own || run->by->reader->strips)
        find_pieces(f, table, plane, unit, run);
    else
        find_strips(t, f, table, plane, run);
}

/* Prefetches one of n parts of the narrow tiles of a run, with all heads.  A processor waits for a dozen lines at a
 * time, so a part goes with each strip of each head.  Wider tiles are long enough for the processor's own prefetcher. */
static void ask(const struct row_run *run, uint32_t part, uint32_t n)
{
    if (!run || !run->n || !run->narrow) return;
    uint32_t tile = run->by->codec->tile, tiles = (run->b - run->a) / tile,
             strip0 = run->a / KV_STRIP;
    for (uint32_t i = tiles * part / n; i < tiles * (part + 1) / n; i++) {
        uint32_t row = run->a + i * tile;
        const unsigned char *p = run->piece[row / KV_STRIP - strip0].tile[row % KV_STRIP / tile];
        for (size_t k = 0; k < run->narrow; k += 64)
            __builtin_prefetch(p + k, 0, 2);
    }
}

/* Finds or makes the strips of a run for head h0 + i, each at its place in the span.  ahead: as for run_fn. */
static void strips_of(const struct attn_job *j, const struct attn_task *t, struct row_run *run,
                      const struct row_run *ahead, uint32_t i, const void **strip)
{
    const struct kv_shape *s = run->by->shape;
    size_t bytes = (size_t)KV_STRIP * s->dim * dtype_size(s->dtype);
    uint32_t at = (run->a - row0_of(t)) / KV_STRIP,
             end = (run->b - row0_of(t) + KV_STRIP - 1) / KV_STRIP;
    unsigned char *room = attn_part(j, t->thread, j->lay.tile);
    if (!run->n) ask(ahead, i, t->heads);
    for (uint32_t k = 0; !run->n && at + k < end; k++)
        strip[at + k] = (const unsigned char *)run->strip[k] + i * run->step;
    for (uint32_t k = 0; k < run->n; k++, room += bytes) {
        struct kv_piece *p = &run->piece[k];
        p->head = t->h0 + i;
        ask(ahead, i * run->n + k, t->heads * run->n);
        const unsigned char *from = run->by->reader->strips(run->by, p, room);
        for (uint32_t r = p->r0 / KV_STRIP; r * KV_STRIP < p->r1; r++, from += bytes)
            strip[at++] = from;
    }
}

/* True if a run may be read by the reader's function for few queries (`there`: it has one): the rows that all queries of the task
 * see, in pieces.  Then the pieces are made ready for head h0 + i, and *next is of each head of this run an equal part of
 * `ahead`. */
static bool by_few(const struct attn_task *t, struct row_run *run, const struct row_run *ahead,
                   uint32_t i, bool there, struct kv_next *next)
{
    if (!there || t->row || !run->n) return false;
    for (uint32_t k = 0; k < run->n; k++)
        run->piece[k].head = t->h0 + i;
    memset(next, 0, sizeof *next);
    if (!ahead || !ahead->narrow) return true;
    uint32_t per = KV_STRIP / ahead->by->codec->tile, tiles = ahead->n * per;
    *next = (struct kv_next){ahead->piece, per, tiles * i / t->heads, tiles * (i + 1) / t->heads,
                             (uint32_t)ahead->narrow};
    return true;
}

/* Chooses what the kernels prefetch while they read the strips of a run: for each strip one strip of `ahead`, which
 * is read next.  False: `ahead` is not known. */
static bool next_strips(const struct attn_task *t, const struct row_run *run,
                        const struct row_run *ahead, uint32_t i, const void **next)
{
    if (!ahead || ahead->n) return false;
    uint32_t at = (run->a - row0_of(t)) / KV_STRIP,
             end = (run->b - row0_of(t) + KV_STRIP - 1) / KV_STRIP;
    uint32_t last = (ahead->b - 1) / KV_STRIP - ahead->a / KV_STRIP;
    for (uint32_t k = 0; at + k < end; k++)
        next[at + k] = (const unsigned char *)ahead->strip[MIN(k, last)] + i * ahead->step;
    return true;
}

/* Returns the address of the bytes that are read after head h0 + i of a run's tile; NULL: not known. */
static const unsigned char *behind(const struct attn_task *t, const struct row_run *run,
                                   const struct row_run *ahead, uint32_t i)
{
    const struct row_run *at = i + 1 < t->heads ? run : ahead;
    uint32_t head = i + 1 < t->heads ? t->h0 + i + 1 : t->h0;
    if (!at) return NULL;
    if (!at->n) return at->strip[0];
    const struct kv_shape *s = at->by->shape;
    return at->piece[0].tile[0] + at->by->codec->bytes(at->by->codec, s) / s->heads * head;
}

/* Returns the opened tile of a run, which the first caller of the atom makes; NULL: the reader does not open the
 * tile. */
static const unsigned char *opened(const struct attn_job *j, const struct attn_task *t,
                                   const struct row_run *run, uint32_t plane, struct kv_piece *at)
{
    struct attn_opened *o = t->opened;
    uint32_t row0 = row0_of(t), tile0 = run->a - at->r0, first = MAX(tile0, row0);
    uint32_t end = MIN(tile0 + run->by->codec->tile, row0 + KV_ATOM), i = (first - row0) / KV_STRIP;
    if (!o || !run->by->reader->open) return NULL;
    at->open0 = first - tile0;
    if (!o->asked[plane][i]) {
        struct kv_piece whole = *at;
        unsigned char *room = attn_part(j, t->thread, j->lay.tile);
        whole.r0 = first - tile0;
        whole.r1 = end - tile0;
        o->asked[plane][i] = true;
        o->step[plane] = MIN(run->by->codec->tile / KV_STRIP, ATTN_STRIPS);
        o->at[plane][i] = run->by->reader->open(run->by, &whole,
                                                room + (size_t)(plane * KV_ATOM + first - row0) *
                                                           KV_OPEN_ROW(MAX(j->dk, j->dv)));
        const struct kv_codec *c = run->by->codec;
        size_t bytes = c->bytes(c, run->by->shape) / run->by->shape->heads;
        o->from[plane][i] = o->at[plane][i]
                                ? o->at[plane][i]
                                : at->tile[0] + bytes * at->head + bytes * whole.r0 / c->tile;
        o->lines[plane][i] =
            (uint32_t)((o->at[plane][i] ? (size_t)(end - first) * run->by->shape->dim
                                        : bytes * (end - first) / c->tile) /
                       64);
    }
    return o->at[plane][i];
}

void attn_ask(const struct attn_opened *o, uint32_t plane, uint32_t i)
{
    if (!o || i >= ATTN_AT_ONCE || !o->step[plane]) return;
    for (uint32_t k = 0; k < ATTN_STRIPS; k += o->step[plane]) {
        uint32_t a = o->lines[plane][k] * i / ATTN_AT_ONCE,
                 b = o->lines[plane][k] * (i + 1) / ATTN_AT_ONCE;
        for (; a < b; a++)
            __builtin_prefetch(o->from[plane][k] + (size_t)a * 64, 0, 3);
    }
}

/* Narrows [*a, *b) to the rows that one of the tokens [i, last] of a block sees. */
static void seen_by_one(const struct attn_task *t, uint32_t i, uint32_t last, uint32_t *a,
                        uint32_t *b)
{
    uint32_t low = UINT32_MAX, high = 0;
    for (; i <= last; i++) {
        if (t->row[i].a >= t->row[i].b) continue;
        low = MIN(low, t->row[i].a);
        high = MAX(high, t->row[i].b);
    }
    *a = MAX(*a, low);
    *b = MIN(*b, high);
}

/* Reads one run for head h0 + i.  ahead: the run that is read next, or NULL. */
typedef void run_fn(const struct attn_job *j, const struct attn_task *t, struct row_run *run,
                    const struct row_run *ahead, uint32_t i);

static void score_run(const struct attn_job *j, const struct attn_task *t, struct row_run *run,
                      const struct row_run *ahead, uint32_t i)
{
    uint32_t row0 = row0_of(t), max = j->k->score_max;
    const float *qt = t->qt + (size_t)i * t->nq * j->dk;
    float *p = t->p + (size_t)i * t->nq * KV_ATOM;
    const void *strip[ATTN_STRIPS], *next[ATTN_STRIPS];
    if (sums(run->by, 0)) {
        run->piece[0].head = t->h0 + i;
        run->piece[0].then = behind(t, run, ahead, i);
        run->piece[0].open = opened(j, t, run, 0, &run->piece[0]);
        run->by->reader->score(run->by, run->piece, qt, t->nq, j->a->scale, p + (run->a - row0),
                               KV_ATOM);
        return;
    }
    struct kv_next after;
    if (by_few(t, run, ahead, i, run->by->reader->score_few != NULL, &after) &&
        run->by->reader->score_few(run->by, run->piece, run->n, &after, qt, t->nq, j->a->scale,
                                   p + (run->a - row0) / KV_STRIP * KV_STRIP, KV_ATOM))
        return;
    strips_of(j, t, run, ahead, i, strip);
    bool asks = next_strips(t, run, ahead, i, next);
    for (uint32_t q = 0; q < t->nq; q += max) {
        uint32_t n = MIN(t->nq - q, max), a = run->a, b = run->b;
        if (t->row) seen_by_one(t, q / j->group, (q + n - 1) / j->group, &a, &b);
        if (a < b)
            j->k->score(run->by->shape->dtype, qt + (size_t)q * j->dk, n, j->dk, strip,
                        asks && !q ? next : NULL, (a - row0) / KV_STRIP,
                        (b - row0 + KV_STRIP - 1) / KV_STRIP, j->a->scale, p + (size_t)q * KV_ATOM);
    }
}

/* Adds the values of rows [a, b) to the sums of queries [q, q + n). */
static void add_rows(const struct attn_job *j, const struct attn_task *t, const void *const *strip,
                     const void *const *next, uint32_t q, uint32_t n, uint32_t a, uint32_t b,
                     const float *p, float *o)
{
    uint32_t row0 = row0_of(t);
    if (a >= b) return;
    j->k->pv(j->v->shape[1].dtype, p + (size_t)q * KV_ATOM, n, strip, next, a - row0, b - row0,
             j->dv, t->fresh && a == t->m->a, o + q * j->state, j->state);
}

/* Adds the values of a run's strips.  Rows that all queries of a call see are added for all of them together; before
 * and after these rows each query of a block is added alone. */
static void add_strips(const struct attn_job *j, const struct attn_task *t,
                       const struct row_run *run, const void *const *strip, const void *const *next,
                       const float *p, float *o)
{
    uint32_t max = j->k->pv_max, g = j->group;
    for (uint32_t q0 = 0; q0 < t->nq; q0 += max) {
        uint32_t q1 = MIN(t->nq, q0 + max), a = run->a, b = run->b;
        for (uint32_t q = q0; t->row && q < q1; q++) {
            a = MAX(a, t->row[q / g].a);
            b = MIN(b, t->row[q / g].b);
        }
        bool common = a < b;
        for (uint32_t q = q0; t->row && q < q1; q++)
            add_rows(j, t, strip, NULL, q, 1, MAX(run->a, t->row[q / g].a),
                     common ? a : MIN(run->b, t->row[q / g].b), p, o);
        if (!common) continue;
        add_rows(j, t, strip, q0 ? NULL : next, q0, q1 - q0, a, b, p, o);
        for (uint32_t q = q0; t->row && q < q1; q++)
            add_rows(j, t, strip, NULL, q, 1, b, MIN(run->b, t->row[q / g].b), p, o);
    }
}

/* Adds the values of a run by a reader that sums.  Queries that see the same rows go together. */
static void add_pieces(const struct attn_job *j, const struct attn_task *t, struct row_run *run,
                       const struct row_run *ahead, uint32_t i, const float *p, float *o)
{
    struct kv_piece at = run->piece[0];
    uint32_t g = j->group;
    at.head = t->h0 + i;
    at.then = behind(t, run, ahead, i);
    at.open = opened(j, t, run, 1, &at);
    for (uint32_t q0 = 0, q1; q0 < t->nq; q0 = q1) {
        uint32_t a = run->a, b = run->b;
        const struct attn_atom *r = t->row ? &t->row[q0 / g] : t->m;
        for (q1 = t->row ? q0 + g : t->nq;
             q1 < t->nq && t->row[q1 / g].a == r->a && t->row[q1 / g].b == r->b;)
            q1 += g;
        a = MAX(a, r->a);
        b = MIN(b, r->b);
        if (a >= b) continue;
        at.r0 = run->piece[0].r0 + (a - run->a);
        at.r1 = at.r0 + (b - a);
        run->by->reader->add(run->by, &at, p + (size_t)q0 * KV_ATOM + (a - row0_of(t)), KV_ATOM,
                             q1 - q0, o + q0 * j->state, j->state);
    }
}

static void add_run(const struct attn_job *j, const struct attn_task *t, struct row_run *run,
                    const struct row_run *ahead, uint32_t i)
{
    const float *p = t->p + (size_t)i * t->nq * KV_ATOM;
    float *o = t->out + (size_t)i * t->nq * j->state + ATTN_HEAD;
    const void *strip[ATTN_STRIPS], *next[ATTN_STRIPS];
    if (sums(run->by, 1)) {
        if (t->fresh && run->a == t->m->a)
            for (uint32_t q = 0; q < t->nq; q++)
                memset(o + q * j->state, 0, (j->state - ATTN_HEAD) * sizeof *o);
        add_pieces(j, t, run, ahead, i, p, o);
        return;
    }
    struct kv_next after;
    if (by_few(t, run, ahead, i, run->by->reader->add_few != NULL, &after) &&
        run->by->reader->add_few(run->by, run->piece, run->n, &after,
                                 p + (run->a - row0_of(t)) / KV_STRIP * KV_STRIP, KV_ATOM, t->nq,
                                 t->fresh && run->a == t->m->a, o, j->state))
        return;
    strips_of(j, t, run, ahead, i, strip);
    add_strips(j, t, run, strip, next_strips(t, run, ahead, i, next) ? next : NULL, p, o);
}

/* Finds the first run of keys of the atom that the thread will probably read after this task. */
static void find_after(const struct attn_job *j, const struct attn_task *t, struct row_run *run)
{
    struct attn_task task = *t;
    task.m = t->after;
    task.edge = attn_edge(j, task.m, j->v->edge[task.m->token]);
    find_run(j, &task, 0, task.m->a, run);
}

static void each_run(const struct attn_job *j, const struct attn_task *t, uint32_t plane,
                     run_fn *fn)
{
    struct row_run two[2], *now = two, *then = two + 1;
    find_run(j, t, plane, t->m->a, now);
    for (;;) {
        bool last = now->b == t->m->b;
        const struct row_run *ahead = t->row ? NULL : then;
        if (!last)
            find_run(j, t, plane, now->b, then);
        else if (ahead && plane == 0)
            find_run(j, t, 1, t->m->a, then);
        else if (ahead && t->after)
            find_after(j, t, then);
        else
            ahead = NULL;
        for (uint32_t i = 0; i < t->heads; i++)
            fn(j, t, now, ahead, i);
        if (last) return;
        struct row_run *swap = now;
        now = then;
        then = swap;
    }
}

void attn_scores(const struct attn_job *j, const struct attn_task *t)
{
    each_run(j, t, 0, score_run);
}

void attn_values(const struct attn_job *j, const struct attn_task *t)
{
    const struct kv_reading *by = t->m->phase == ATTN_SEALED ? &j->sealed[1] : &j->raw[1];
    each_run(j, t, 1, add_run);
    for (uint32_t q = 0; q < t->heads * t->nq; q++)
        t->out[q * j->state + ATTN_TURNED] = by->reader->end ? 1 : 0;
}
