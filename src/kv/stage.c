/* stage.c - how a step reads pages that are in the tier.  The pages pass through a staging area of
 * two halves, piece by piece.  While the kernels work on one half, the next piece is read into the
 * other.
 *
 * Pieces.  A piece is a run of whole atoms of one site, with no more spilled pages than half the
 * area holds.  So attention over pieces has the bits of attention over all rows (dev.h).  All
 * spilled pages of a piece have one form.  Under a lossy codec the pieces of sealed rows come first
 * and the pieces of raw rows follow, in the order of attention.  Pieces follow from page ids and
 * reach, which all sites of a group share, so each step plans them once.  Pages that no token of
 * the step reads are not staged.  Pages that several lanes share (forks, beams) are staged once.
 *
 * In place.  If the tier is mapped and all spilled pages of a site are ready there (spill_map.c), nothing
 * is staged: one view shows all rows, as if they were in memory.
 *
 * Views.  The staging area lies behind all ranges in one mapping.  Seen from the range of a form at
 * any site, the area holds further pages with ids of their own.  So a view keeps its base and its
 * grain and only has another table, `shown`.  There the spilled pages of the piece have the ids of
 * their places in the area. */
#include "base/trace.h"
#include "dev/dev.h"
#include "kv/kv_int.h"

#include <assert.h>
#include <string.h>

#define HALF_BYTES ((size_t)1 << 20)   /* of half the staging area, if the budget allows it */
#define IO_BYTES   ((size_t)256 << 10) /* of one transfer, so that several share a piece */

/* True if full pages of this form may leave memory: sealed pages, and raw pages whose rows attention reads raw.
 * Under a lossless codec an atom has rows of both forms, so raw pages stay. */
bool form_moves(const struct group *g, uint32_t form)
{
    if (!g->c.stream) return false;
    return form == SEALED ? g->c.seal.tile != 0 : !g->c.seal.tile || g->lossy;
}

static uint32_t unit_rows(const struct group *g, uint32_t form)
{
    return (g->rows[form] + KV_ATOM - 1) / KV_ATOM * KV_ATOM;
}

/* Returns the largest number of pages of one lane that overlap a unit. */
static uint32_t unit_pages(const struct group *g, uint32_t form)
{
    uint32_t rows = g->rows[form], unit = unit_rows(g, form);
    return unit / rows + (unit % rows ? 2 : 0);
}

/* Returns the bytes of the largest unit of one lane. */
static int unit_bytes(const struct kv *kv, size_t *out)
{
    size_t one = 0;
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++) {
        const struct group *g = &kv->group[i / FORMS];
        size_t bytes; /* bytes of a piece, and what aligning its first page may cost */
        if (!form_moves(g, i % FORMS)) continue;
        if (!ck_mul((size_t)unit_pages(g, i % FORMS) + 1, g->form[i % FORMS].grain, &bytes))
            return ERR(
                LIMIT,
                "cache: %u pages of %zu bytes, which are staged together, take more than %zu "
                "bytes",
                unit_pages(g, i % FORMS) + 1, g->form[i % FORMS].grain, (size_t)SIZE_MAX);
        one = MAX(one, bytes);
    }
    *out = one;
    return 0;
}

int stage_room(struct kv *kv, const struct kv_config *c)
{
    size_t os = dev_page(kv->dev), one = 0, many;
    struct stream *st = &kv->stream;
    if (c->streaming == KV_RESIDENT) return 0;
    TRY(unit_bytes(kv, &one));
    st->lanes = UINT32_MAX;
    if (!one) return 0; /* every layer has a window, and windows stay in memory */
    one = (one + os - 1) / os * os;
    if (!ck_mul(one, kv->lanes, &many)) many = SIZE_MAX / 4;
    st->half = c->stage_bytes ? c->stage_bytes / 2 : MIN(MAX(HALF_BYTES, many), kv->pool / 8);
    if (c->stage_bytes && st->half < one)
        return ERR(
            LIMIT,
            "cache: a staging area of %zu bytes is less than the %zu that two pieces take; raise stage_bytes",
            c->stage_bytes, 2 * one);
    st->half = MAX(st->half, one) / os * os;
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++) {
        struct group *g = &kv->group[i / FORMS];
        uint32_t f = i % FORMS;
        if (!(g->moves[f] = form_moves(g, f))) continue;
        g->unit[f] = unit_rows(g, f);
        g->slots[f] = (uint32_t)MIN(st->half / g->form[f].grain - 1, UINT32_MAX / 2);
        st->lanes = MIN(st->lanes, g->slots[f] / unit_pages(g, f));
    }
    return 0;
}

static int order_fill(struct kv *kv, const struct kv_config *c)
{
    struct stream *st = &kv->stream;
    for (uint32_t i = 0; i < kv->n_sites; i++)
        st->rank[i] = KV_NONE;
    for (uint32_t i = 0; i < kv->n_sites; i++) {
        uint32_t site = c->order ? c->order[i] : i;
        if (site >= kv->n_sites || st->rank[site] != KV_NONE)
            return ERR(ARG, "cache: the order of sites is not a permutation (entry %u is %u)", i,
                       site);
        st->order[i] = site;
        st->rank[site] = i;
    }
    return 0;
}

static int open_staging(struct kv *kv, struct group *g)
{
    const unsigned char *end = kv->stream.arena + kv->stream.arena_bytes;
    size_t ids = 0;
    for (uint32_t f = 0; f < FORMS; f++) {
        const struct pages *p = &g->form[f];
        if (!g->moves[f]) continue;
        if ((size_t)(end - p->base) / p->grain > UINT32_MAX)
            return ERR(LIMIT,
                       "cache: the staging area ends %zu pages behind the first one, and views can "
                       "name %u; lower cache_memory",
                       (size_t)(end - p->base) / p->grain, UINT32_MAX);
        ids += 2 * (size_t)p->n_ids;
        TRY(table_open(kv, g, f, &g->shown[f]));
    }
    if (!ids) return 0;
    g->staged = kv_own(kv, ids, sizeof *g->staged); /* counted with the records of pages */
    return g->staged ? 0 : ERR_NOMEM;
}

int stage_arrays(struct kv *kv)
{
    struct stream *st = &kv->stream;
    if (!st->half) return 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        size_t pieces = 1;
        for (uint32_t f = 0; f < FORMS; f++) {
            if (!g->moves[f]) continue;
            pieces += (size_t)g->stride[f] * g->rows[f] / g->unit[f] + 2;
            TRY(queue_open(kv, g, f));
        }
        if (pieces > 1) TRY(kv_array(kv, &g->piece, pieces, sizeof *g->piece));
    }
    TRY(kv_array(kv, &st->order, kv->n_sites, sizeof *st->order));
    return kv_array(kv, &st->rank, kv->n_sites, sizeof *st->rank);
}

int stage_open(struct kv *kv, const struct kv_config *c)
{
    struct stream *st = &kv->stream;
    if (!st->half) return 0;
    unsigned char *area = st->arena + st->arena_bytes - 2 * st->half;
    if (dev_range_set(kv->dev, area, 2 * st->half, DEV_RANGE_USED) != 0)
        return ERR(NOMEM, "cache: the system refuses a staging area of %zu bytes", 2 * st->half);
    for (int i = 0; i < 2; i++) {
        st->load[i].mem = area + (size_t)i * st->half;
        st->load[i].site = KV_NONE;
    }
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        TRY(open_staging(kv, &kv->group[gi]));
    window_open(kv, c->tier);
    return order_fill(kv, c);
}

/* --- reading -------------------------------------------------------------------------------- */

static struct group *group_at(struct kv *kv, uint32_t site)
{
    return &kv->group[kv->site_group[site]];
}

/* Returns place k of a half, for pages of one form of the group at a site. */
static unsigned char *staged_at(const struct group *g, uint32_t form, const struct load *l,
                                uint32_t site, uint32_t k)
{
    const struct pages *p = &g->form[form];
    const unsigned char *base = page_at(p, site - g->c.site0, 0);
    size_t over = (size_t)(l->mem - base) % p->grain;
    return l->mem + (over ? p->grain - over : 0) + k * p->grain;
}

/* Starts as many transfers as may be in flight. */
static int wave(struct kv *kv, struct load *l)
{
    struct group *g = group_at(kv, l->site);
    uint32_t first = g->piece[l->piece].first, form = g->piece[l->piece].form, at = l->at, k = 0;
    const struct pages *p = &g->form[form];
    for (; k < KV_TIER_DEPTH && at < l->end; k++) {
        uint32_t id = g->staged[at], n = 1;
        while (at + n < l->end && g->staged[at + n] == id + n && (n + 1) * p->grain <= IO_BYTES)
            n++;
        const unsigned char *from = page_at(p, l->site - g->c.site0, id);
        l->io[k] = (struct kv_io){.mem = staged_at(g, form, l, l->site, at - first),
                                  .at = (uint64_t)(from - kv->stream.arena),
                                  .n = n * p->grain};
        at += n;
    }
    l->begun = trace_now();
    TRY(kv->stream.tier->start(kv->stream.tier, l->io, k));
    l->n_io = k;
    l->at = at;
    return 0;
}

static int land(struct kv *kv, struct load *l)
{
    if (!l->n_io) return 0;
    uint32_t n = l->n_io;
    l->n_io = 0;
    uint64_t bytes = 0;
    TRY(kv->stream.tier->finish(kv->stream.tier, l->io, n));
    for (uint32_t i = 0; i < n; i++)
        bytes += l->io[i].n;
    kv->stream.bytes_read += bytes;
    trace_add(TRACE_FETCH, "fetch", l->begun, l->site, bytes);
    return 0;
}

static int load_begin(struct kv *kv, struct load *l, uint32_t site, uint32_t piece)
{
    const struct group *g = group_at(kv, site);
    (void)land(kv, l); /* ends the reads of the piece in this half, which is not wanted any more */
    if (kv_fault.poison) memset(l->mem, 0xFF, kv->stream.half);
    l->site = site;
    l->piece = piece;
    l->at = g->piece[piece].first;
    l->end = g->piece[piece + 1].first;
    int e = wave(kv, l);
    if (e < 0) l->site = KV_NONE;
    return e;
}

static int load_wait(struct kv *kv, struct load *l)
{
    int e = 0;
    if (kv_fault.skip_wait) return 0;
    while (e >= 0 && (l->n_io || l->at < l->end)) {
        e = land(kv, l);
        if (e >= 0 && l->at < l->end) e = wave(kv, l);
    }
    if (e < 0) l->site = KV_NONE;
    return e;
}

/* Returns the first site with spilled pages to stage, from the i-th site of the order on. */
static uint32_t next_site(struct kv *kv, uint32_t i)
{
    for (; i < kv->n_sites; i++)
        if (group_at(kv, kv->stream.order[i])->n_pieces) return kv->stream.order[i];
    return KV_NONE;
}

/* Waits until the k-th piece of a site is in memory, and starts reading the piece behind it. */
static int stage_ready(struct kv *kv, uint32_t site, uint32_t k, struct load **out)
{
    struct stream *st = &kv->stream;
    struct load *l = NULL;
    for (int i = 0; i < 2; i++)
        if (st->load[i].site == site && st->load[i].piece == k) l = &st->load[i];
    if (!l) {
        stage_end(kv);
        l = &st->load[0];
        TRY(load_begin(kv, l, site, k));
    }
    const double begun = trace_now();
    TRY(load_wait(kv, l));
    trace_add(TRACE_WAIT, "wait", begun, site, 0);
    struct load *other = &st->load[l == st->load];
    uint32_t then = k + 1 < group_at(kv, site)->n_pieces ? site : next_site(kv, st->rank[site] + 1);
    uint32_t piece = then == site ? k + 1 : 0;
    if (then != KV_NONE && (other->site != then || other->piece != piece))
        /* an error here is returned later, when that piece is wanted */
        (void)load_begin(kv, other, then, piece);
    *out = l;
    return 0;
}

void stage_end(struct kv *kv)
{
    for (int i = 0; i < 2; i++) {
        if (kv->stream.load[i].n_io) (void)land(kv, &kv->stream.load[i]);
        kv->stream.load[i].site = KV_NONE;
    }
}

/* --- pieces --------------------------------------------------------------------------------- */

/* Computes the cells [*c0, *c1) of a lane that the step may read and that may be spilled. */
static void lane_cells(const struct kv_step *st, const struct group *g, uint32_t form,
                       uint32_t lane, uint32_t *c0, uint32_t *c1)
{
    const struct step_span *sp = &st->span[lane];
    const struct seq *s = &st->kv->seq[sp->seq];
    bool frozen = g->c.policy.kind == KV_FROZEN;
    uint32_t from = g->lo[sp->tok0], end = frozen ? s->cross : s->len;
    if (form == SEALED)
        end = g->edge[sp->tok0 + sp->rows.n - 1];
    else if (g->lossy)
        from = MAX(from, g->edge[sp->tok0]);
    *c0 = MAX(from / g->rows[form], table_first(g, form));
    *c1 = frozen ? table_used(g, form, end) : end / g->rows[form]; /* the open block stays */
}

/* Appends the spilled pages of one unit that are not yet in the piece (those have `seen` set).  Returns the new end. */
static uint32_t collect(const struct kv_step *st, struct group *g, uint32_t form, uint32_t unit,
                        uint32_t n)
{
    struct pages *p = &g->form[form];
    uint32_t rows = g->rows[form], from = unit * g->unit[form], to = from + g->unit[form];
    for (uint32_t lane = 0; lane < st->n_spans; lane++) {
        const uint32_t *table = seq_table(st->kv, g, form, &st->kv->seq[st->span[lane].seq]);
        uint32_t i, end;
        lane_cells(st, g, form, lane, &i, &end);
        for (i = MAX(i, from / rows); i < end && i * rows < to; i++) {
            if (!p->page[table[i]].spilled || p->seen[table[i]]) continue;
            p->seen[table[i]] = 1;
            g->staged[n++] = table[i];
        }
    }
    return n;
}

static void clear_seen(struct group *g, uint32_t form, uint32_t from, uint32_t to)
{
    for (; from < to; from++)
        g->form[form].seen[g->staged[from]] = 0;
}

/* Fills the table that views of pieces of this form show; staged pages are added later. */
static void fill_shown(const struct kv_step *st, struct group *g, uint32_t form)
{
    for (uint32_t lane = 0; lane < st->n_spans; lane++) {
        const struct step_span *sp = &st->span[lane];
        const uint32_t *table = seq_table(st->kv, g, form, &st->kv->seq[sp->seq]);
        uint32_t *shown = block_row(g, form, &g->shown[form], sp->seq);
        for (uint32_t i = 0; i < table_used(g, form, step_rows(st, g, sp)); i++)
            shown[i] = g->form[form].page[table[i]].spilled ? 0 : table[i];
    }
}

/* Appends the pieces of one form.  n: number of pages staged before.  Returns the number staged after. */
static uint32_t plan_pieces(const struct kv_step *st, struct group *g, uint32_t form, uint32_t n)
{
    uint32_t first = n, u = UINT32_MAX, end = 0, rows = g->rows[form], row0 = 0;
    for (uint32_t lane = 0; lane < st->n_spans; lane++) {
        uint32_t c0, c1;
        lane_cells(st, g, form, lane, &c0, &c1);
        if (c0 >= c1) continue;
        u = MIN(u, c0 * rows / g->unit[form]);
        end = MAX(end, (c1 * rows - 1) / g->unit[form] + 1);
    }
    for (; u < end; u++) {
        uint32_t before = n;
        n = collect(st, g, form, u, n);
        if (n - first <= g->slots[form]) continue;
        assert(before > first); /* kv_step_lanes ensures this */
        clear_seen(g, form, first, n);
        g->piece[g->n_pieces++] = (struct piece){form, row0, u * g->unit[form], first};
        row0 = u * g->unit[form];
        first = before;
        n = collect(st, g, form, u, before);
    }
    clear_seen(g, form, first, n);
    if (n == first) return n; /* the step reads no spilled page of the form */
    g->piece[g->n_pieces++] = (struct piece){form, row0, UINT32_MAX, first};
    g->piece[g->n_pieces].first = n;
    fill_shown(st, g, form);
    return n;
}

void stage_plan(struct kv_step *st)
{
    struct kv *kv = st->kv;
    bool any = false;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        uint32_t n = 0;
        g->n_pieces = 0;
        if (st->cross) continue;
        if (g->form[SEALED].n_spilled) n = plan_pieces(st, g, SEALED, n);
        if (g->form[RAW].n_spilled) plan_pieces(st, g, RAW, n);
        any |= g->n_pieces > 0;
    }
    if (any && !window_step(kv)) (void)load_begin(kv, &kv->stream.load[0], next_site(kv, 0), 0);
}

/* Sets the rows of the k-th piece.  Under a lossy codec the form without pieces is shown with the
 * last sealed piece or the first raw piece. */
static void show_rows(const struct group *g, uint32_t k, struct kv_view *v)
{
    const struct piece *pc = &g->piece[k];
    uint32_t all = v->row1, row0 = pc->row0, row1 = MIN(all, pc->row1);
    v->first = k == 0;
    v->last = k + 1 == g->n_pieces;
    v->row0 = v->raw0 = row0;
    v->row1 = v->raw1 = row1;
    if (!g->lossy) return;
    bool other = pc->form == SEALED ? v->last : v->first;
    *(pc->form == SEALED ? &v->raw0 : &v->row0) = 0;
    *(pc->form == SEALED ? &v->raw1 : &v->row1) = other ? all : 0;
}

/* Makes the view and its device see the table of a form with spilled pages. */
static void show_table(struct kv_step *st, const struct group *g, uint32_t form, struct kv_view *v)
{
    const struct kv_block *b = &g->shown[form];
    (form == RAW ? &v->raw : &v->sealed)->table = b->host;
    v->block[form == RAW ? 2 : 3] = *b;
    for (uint32_t lane = 0; lane < st->n_spans; lane++) {
        const struct step_span *sp = &st->span[lane];
        size_t at = (size_t)sp->seq * g->stride[form];
        dev_put(st->kv->work, b->at + at, b->host + at,
                table_used(g, form, step_rows(st, g, sp)) * sizeof(uint32_t));
    }
}

/* Makes the spilled pages of the k-th piece visible: in a half of the staging area, or (l NULL) in the mapping. */
static void show_piece(struct kv_step *st, uint32_t site, uint32_t k, const struct load *l,
                       struct kv_view *v)
{
    struct kv *kv = st->kv;
    struct group *g = group_at(kv, site);
    const struct piece *pc = &g->piece[k];
    const struct pages *p = &g->form[pc->form];
    const uint32_t rows = g->rows[pc->form];
    const unsigned char *base = page_at(p, site - g->c.site0, 0);
    size_t away = l ? (size_t)(staged_at(g, pc->form, l, site, 0) - base) : kv->stream.window;
    uint32_t id0 = (uint32_t)(away / p->grain);
    for (uint32_t i = pc->first; i < pc[1].first; i++) {
        uint32_t id = g->staged[i];
        p->page[id].stage = l ? (i - pc->first) ^ kv_fault.wrong_stage : id;
    }
    for (uint32_t lane = 0; lane < st->n_spans; lane++) {
        const uint32_t *table = seq_table(kv, g, pc->form, &kv->seq[st->span[lane].seq]);
        uint32_t *shown = block_row(g, pc->form, &g->shown[pc->form], st->span[lane].seq);
        uint32_t i, end;
        lane_cells(st, g, pc->form, lane, &i, &end);
        for (i = MAX(i, pc->row0 / rows); i < end && i * rows < pc->row1; i++)
            if (p->page[table[i]].spilled) shown[i] = id0 + p->page[table[i]].stage;
    }
    bool more = !l && k + 1 < g->n_pieces && pc[1].form == pc->form;
    if (!more) show_table(st, g, pc->form, v);
}

int stage_show(struct kv_step *st, uint32_t site, uint32_t k, struct kv_view *v)
{
    struct kv *kv = st->kv;
    struct group *g = group_at(kv, site);
    struct load *l;
    if (!g->n_pieces) return 0;
    if (!k) window_look(kv, site);
    if (kv->stream.direct == site) { /* one view shows all rows */
        for (; k < g->n_pieces; k++)
            show_piece(st, site, k, NULL, v);
        return 0;
    }
    TRY(stage_ready(kv, site, k, &l));
    show_rows(g, k, v);
    show_piece(st, site, k, l, v);
    return 0;
}

uint32_t kv_step_lanes(const struct kv *kv)
{
    return kv->stream.active ? kv->stream.lanes : UINT32_MAX;
}
