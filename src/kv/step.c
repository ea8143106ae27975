/* step.c - one forward: begin, commit, abort.
 *
 * begin takes every page that the step can need.  It notes each table cell that it changes,
 * together with the page that was there.  That page keeps its reference until the step ends, so
 * abort only writes the old ids back.  State pages wait in `dst` until commit moves one of them
 * into the table.  Nothing is given back before commit, and commit cannot fail.
 *
 * step_view.c has the views that kernels get in between. */
#include "base/trace.h"
#include "kv/kv_int.h"

#include <string.h>

/* Changes the turn list to what it is after the span's rows, because queries of the span lie inside
 * the turn. */
static void turn_begin(struct seq *s, struct step_span *sp)
{
    sp->n_turns = s->n_turns;
    sp->was_open = s->turn_open;
    sp->turn_n = s->n_turns ? s->turn[s->n_turns - 1].n : 0;
    if (sp->rows.turn && s->turn_open) {
        s->turn[s->n_turns - 1].n += sp->rows.n;
    } else if (sp->rows.turn) {
        s->turn[s->n_turns++] = (struct kv_turn){s->len, sp->rows.n};
        s->turn_open = true;
    } else if (s->turn_open) {
        s->turn_open = false;
        if (s->turn[s->n_turns - 1].n == 1) s->n_turns--; /* a turn has more than one row */
    }
}

static void turn_undo(struct seq *s, const struct step_span *sp)
{
    s->n_turns = sp->n_turns;
    s->turn_open = sp->was_open;
    if (s->n_turns) s->turn[s->n_turns - 1].n = sp->turn_n;
}

static void turn_commit(struct seq *s, const struct step_span *sp, uint32_t accepted)
{
    if (!accepted) {
        turn_undo(s, sp);
        return;
    }
    if (!sp->rows.turn) return;
    struct kv_turn *t = &s->turn[s->n_turns - 1];
    t->n -= sp->rows.n - accepted;
    if (sp->rows.last) {
        s->turn_open = false;
        if (t->n == 1) s->n_turns--;
    }
}

static int span_check(const struct kv *kv, const struct kv_span *a, uint32_t i, const struct seq *s)
{
    if (s->busy)
        return ERR(ARG, "cache: span %u names sequence %#x, and so does an earlier span", i,
                   a->seq);
    if (!a->n) return ERR(ARG, "cache: span %u has no rows", i);
    if (a->undo > a->n)
        return ERR(ARG, "cache: span %u may reject %u of its %u rows", i, a->undo, a->n);
    uint32_t len = a->cross ? 0 : s->len;
    if (a->n > kv->max_len - len)
        return ERR(LIMIT, "cache: %u rows after %u exceed the maximum length of %u", a->n, len,
                   kv->max_len);
    if (!a->cross) return 0;
    if (!kv->has_frozen)
        return ERR(ARG, "cache: span %u writes frozen groups, but the cache has none", i);
    if (s->cross)
        return ERR(ARG, "cache: the frozen rows of sequence %#x are written already (%u)", a->seq,
                   s->cross);
    if (a->undo) return ERR(ARG, "cache: span %u: frozen rows cannot be rejected", i);
    return 0;
}

/* Gives the sequence contents of its own and marks them busy. */
static void own_begin(struct kv *kv, struct step_span *sp, kv_seq handle)
{
    uint32_t slot = slot_index(kv, handle), was = kv->slot[slot].seq;
    sp->edits = kv->seq[was].edits;
    struct seq *s = seq_own(kv, slot);
    tail_drop(kv, s);
    s->busy = true;
    sp->seq = (uint32_t)(s - kv->seq);
    sp->shared = was == sp->seq ? KV_NONE : was;
}

static void own_undo(struct kv *kv, const struct step_span *sp)
{
    struct seq *s = &kv->seq[sp->seq];
    uint32_t slot = s->slot;
    s->busy = false;
    age_update(kv, s);
    index_note(kv, s);
    tail_add(kv, s);
    if (sp->shared == KV_NONE)
        s->edits = sp->edits; /* the contents have not changed */
    else
        seq_rejoin(kv, slot, sp->shared, sp->edits);
    meta_settle(kv, slot);
}

/* Fills st->span and marks the sequences busy; on error no sequence is busy. */
static int spans_take(struct kv *kv, const struct kv_span *span, uint32_t n)
{
    struct kv_step *st = &kv->step;
    if (!n || n > kv->lanes)
        return ERR(ARG, "cache: a step of %u sequences; use 1 to %u", n, kv->lanes);
    if (n > kv_step_lanes(kv))
        return ERR(LIMIT, "cache: a step of %u sequences; %u can be staged at once", n,
                   kv_step_lanes(kv));
    int e = 0;
    st->n_tokens = 0;
    st->cross = span[0].cross;
    uint32_t i = 0;
    for (; i < n; i++) {
        const struct kv_span *a = &span[i];
        struct seq *s;
        if ((e = seq_find(kv, a->seq, &s)) < 0 || (e = span_check(kv, a, i, s)) < 0) break;
        if (a->cross != st->cross) {
            e = ERR(ARG, "cache: a step is for frozen groups or for the others, not both (span %u)",
                    i);
            break;
        }
        if (a->n > kv->max_tokens - st->n_tokens) {
            e = ERR(LIMIT, "cache: a step of more than %u rows (at span %u with %u)",
                    kv->max_tokens, i, a->n);
            break;
        }
        st->span[i] = (struct step_span){.rows = *a, .tok0 = st->n_tokens};
        st->span[i].rows.turn = a->turn && !a->cross;
        st->n_tokens += a->n;
        own_begin(kv, &st->span[i], a->seq);
    }
    for (; e < 0 && i > 0; i--)
        own_undo(kv, &st->span[i - 1]);
    st->n_spans = e < 0 ? 0 : n;
    return e;
}

/* Returns how many rows before the end of a turn its snapshot is taken.  A search of the same tokens
 * reuses all but the last, whose logits it wants.  Where rows depend on turns, only whole turns are
 * reused. */
static uint32_t turn_back(const struct kv *kv)
{
    return kv->index.turns ? 0 : 1;
}

/* True if the state after the span's t-th row is kept: at rows where commit may stop, and at
 * snapshots. */
static bool state_kept(const struct kv *kv, const struct group *g, const struct step_span *sp,
                       uint32_t len, uint32_t t)
{
    uint32_t every = g->c.policy.every;
    uint32_t back = every && sp->rows.turn && sp->rows.last ? turn_back(kv) : 0;
    return t + 1 + sp->rows.undo + back >= sp->rows.n || (every && (len + t + 1) % every == 0);
}

static void change_push(struct kv_step *st, struct pages *p, uint32_t *cell, struct group *copied)
{
    st->change[st->n_changes++] = (struct change){p, cell, *cell, copied};
}

static struct seq *cell_owner(struct kv *kv, const struct group *g, const uint32_t *cell)
{
    return &kv->seq[(size_t)(cell - g->table[RAW]) / g->stride[RAW]];
}

/* True if the span writes into its open block, page `id`, in place although other sequences hold
 * the page too.  If all owners are in this step, all but one copy the page.  The owner with the
 * most rows keeps it, because an abort must find that owner's rows intact. */
static bool stays(const struct kv_step *st, const struct step_span *sp, const struct group *g,
                  uint32_t id)
{
    struct kv *kv = st->kv;
    uint32_t owners = 0, len = kv->seq[sp->seq].len, at = len / g->rows[RAW];
    for (const struct step_span *o = st->span; o < st->span + st->n_spans; o++) {
        const struct seq *s = &kv->seq[o->seq];
        if (s->len / g->rows[RAW] != at || seq_table(kv, g, RAW, s)[at] != id) continue;
        if (s->len > len || (s->len == len && o > sp)) return false;
        owners++;
    }
    return owners == g->form[RAW].page[id].refs;
}

/* True if an earlier span also has raw block i among the full blocks of its tail. */
static bool counted(const struct kv_step *st, const struct step_span *sp, const struct group *g,
                    uint32_t i)
{
    struct kv *kv = st->kv;
    uint32_t id = seq_table(kv, g, RAW, &kv->seq[sp->seq])[i];
    for (const struct step_span *o = st->span; o < sp; o++) {
        const struct seq *s = &kv->seq[o->seq];
        if (seq_table(kv, g, RAW, s)[i] != id || i < table_tail(g, s->len)) continue;
        if (i < s->len / g->rows[RAW]) return true;
    }
    return false;
}

/* Counts the full blocks that the span seals tiles from and that are not in memory. */
static uint32_t count_tail(const struct kv_step *st, const struct step_span *sp,
                           const struct group *g)
{
    const struct seq *s = &st->kv->seq[sp->seq];
    uint32_t rows = seq_rows(g, s), i = table_tail(g, rows), end = rows / g->rows[RAW], n = 0;
    const uint32_t *table = seq_table(st->kv, g, RAW, s);
    for (; g->moves[RAW] && i < end; i++)
        n += g->form[RAW].page[table[i]].spilled && !counted(st, sp, g, i);
    return n;
}

/* Counts the pages of one span in one group.  Notes a shared open block, which will be copied, as a
 * change whose cell has yet to move.  Returns how many other blocks the span needs that are not in
 * memory. */
static uint32_t count_pages(struct kv_step *st, const struct step_span *sp, struct group *g,
                            uint32_t need[FORMS])
{
    struct kv *kv = st->kv;
    struct seq *s = &kv->seq[sp->seq];
    uint32_t len = seq_rows(g, s), end = len + sp->rows.n;
    need[RAW] = need[SEALED] = 0;
    if (g->c.policy.kind == KV_STATE) {
        for (uint32_t t = 0; t < sp->rows.n; t++)
            need[RAW] += state_kept(kv, g, sp, len, t);
        return 0;
    }
    uint32_t back = count_tail(st, sp, g);
    need[RAW] = table_used(g, RAW, end) - table_used(g, RAW, len);
    if (g->form[SEALED].n_ids) need[SEALED] = step_tiles_begun(g, end) - step_tiles_begun(g, len);
    if (len % g->rows[RAW] == 0) return back;
    uint32_t *cell = &seq_table(kv, g, RAW, s)[len / g->rows[RAW]];
    const struct page *pg = &g->form[RAW].page[*cell];
    if (kv_fault.skip_cow || pg->refs < 2 || stays(st, sp, g, *cell)) return back + pg->spilled;
    change_push(st, &g->form[RAW], cell, g);
    need[RAW]++;
    return back;
}

/* Copies the first n rows of a block at every site (K in whole strips). */
static void copy_rows(struct group *g, uint32_t to, uint32_t from, uint32_t n)
{
    const struct pages *p = &g->form[RAW];
    for (uint32_t i = 0; i < g->c.n_planes; i++) {
        const struct kv_shape *s = &g->c.plane[i].shape;
        size_t row = (size_t)s->dim * dtype_size(s->dtype), head = row * g->rows[RAW];
        size_t bytes =
            row * (s->layout == KV_STRIPS ? (n + KV_STRIP - 1) / KV_STRIP * KV_STRIP : n);
        for (uint32_t site = 0; site < p->n_sites; site++) {
            unsigned char *dst = page_at(p, site, to) + g->offset[RAW][i];
            const unsigned char *src = page_at(p, site, from) + g->offset[RAW][i];
            for (uint32_t h = 0; h < s->heads; h++)
                memcpy(dst + h * head, src + h * head, bytes);
        }
    }
}

static int no_memory(const struct pages *p)
{
    return ERR(NOMEM, "cache: the system has no memory for another page of %zu bytes", p->bytes);
}

/* Takes a page from the sequence's reserve, else from the pool; 0: the system has no memory for a
 * page. */
static uint32_t take(struct kv *kv, const struct seq *s, struct pages *p, uint32_t after,
                     uint32_t index)
{
    uint32_t id = stash_take(kv, p, s->slot, after);
    return id ? id : pages_take(kv, p, after, index);
}

static int take_copies(struct kv_step *st)
{
    struct kv *kv = st->kv;
    for (uint32_t i = 0; i < st->n_changes; i++) {
        struct change *c = &st->change[i];
        struct group *g = c->copied;
        struct seq *s = cell_owner(kv, g, c->cell);
        uint32_t index = s->len / g->rows[RAW], rows = s->len % g->rows[RAW];
        uint32_t id = take(kv, s, c->pages, index ? c->cell[-1] : 0, index);
        if (!id) return no_memory(c->pages);
        *c->cell = id;
        if (c->pages->page[c->old].spilled)
            TRY(spill_copy(kv, c->pages, c->old, id));
        else
            copy_rows(g, id, c->old, rows);
        kv->rows_copied += rows;
    }
    return 0;
}

static int take_form(struct kv_step *st, struct group *g, uint32_t form, const struct step_span *sp)
{
    struct kv *kv = st->kv;
    struct seq *s = &kv->seq[sp->seq];
    struct pages *p = &g->form[form];
    uint32_t len = seq_rows(g, s), *table = seq_table(kv, g, form, s);
    uint32_t i = form == RAW ? table_used(g, RAW, len) : step_tiles_begun(g, len);
    uint32_t end = table_used(g, form, len + sp->rows.n);
    for (; i < end; i++) {
        uint32_t id = take(kv, s, p, i ? table[i - 1] : 0, i);
        if (!id) return no_memory(p);
        change_push(st, p, &table[i], NULL);
        table[i] = id;
    }
    return 0;
}

static int take_states(struct kv_step *st, struct group *g, const struct step_span *sp)
{
    struct kv *kv = st->kv;
    const struct seq *s = &kv->seq[sp->seq];
    uint32_t len = s->len;
    for (uint32_t t = 0; t < sp->rows.n; t++) {
        if (!state_kept(kv, g, sp, len, t)) continue;
        g->dst[sp->tok0 + t] = take(kv, s, &g->form[RAW], 0, 0);
        if (!g->dst[sp->tok0 + t]) return no_memory(&g->form[RAW]);
    }
    return 0;
}

/* Brings open blocks and the blocks of incomplete tiles back into memory; a trim or idleness may
 * have left them in the tier. */
static int bring_back(struct kv_step *st, struct group *g)
{
    struct kv *kv = st->kv;
    struct pages *p = &g->form[RAW];
    for (uint32_t i = 0; i < st->n_spans && p->n_spilled; i++) {
        const struct seq *s = &kv->seq[st->span[i].seq];
        const uint32_t *table = seq_table(kv, g, RAW, s);
        uint32_t rows = seq_rows(g, s), b = table_tail(g, rows), end = table_used(g, RAW, rows);
        /* pages of the reserve have memory already */
        struct stash *own = &kv->slot[s->slot].stash[p->index];
        for (; b < end; b++) {
            if (!p->page[table[b]].spilled) continue;
            TRY(spill_back(kv, p, table[b]));
            if (own->n) page_unstash(kv, p, own->tail);
        }
    }
    return 0;
}

/* Pins the blocks that the step needs in memory, so that making room does not move them to the
 * tier. */
static void pin_tails(struct kv_step *st, bool pin)
{
    for (uint32_t i = 0; i < st->n_spans; i++) {
        const struct seq *s = &st->kv->seq[st->span[i].seq];
        pin_from(st->kv, s, s->len, pin);
    }
}

static int take_pages(struct kv_step *st)
{
    struct kv *kv = st->kv;
    TRY(take_copies(st));
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        if (!step_writes(st, g)) continue;
        if (g->moves[RAW]) TRY(bring_back(st, g));
        for (uint32_t i = 0; i < st->n_spans; i++) {
            if (g->c.policy.kind == KV_STATE) {
                TRY(take_states(st, g, &st->span[i]));
                continue;
            }
            TRY(take_form(st, g, RAW, &st->span[i]));
            if (g->form[SEALED].n_ids) TRY(take_form(st, g, SEALED, &st->span[i]));
        }
    }
    return 0;
}

/* Undoes everything begin did, in reverse order. */
void step_undo(struct kv_step *st)
{
    struct kv *kv = st->kv;
    stage_end(kv);
    while (st->n_changes) {
        struct change *c = &st->change[--st->n_changes];
        if (c->copied && *c->cell == c->old) continue; /* the copy was not made yet */
        page_untake(kv, c->pages, *c->cell);
        *c->cell = c->old;
    }
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        if (g->c.policy.kind != KV_STATE || st->cross) continue;
        for (uint32_t t = 0; t < st->n_tokens; t++)
            if (g->dst[t]) page_untake(kv, &g->form[RAW], g->dst[t]);
    }
    for (uint32_t i = 0; i < st->n_spans; i++) {
        struct seq *s = &kv->seq[st->span[i].seq];
        if (!st->cross) turn_undo(s, &st->span[i]);
    }
    for (uint32_t i = st->n_spans; i > 0; i--)
        own_undo(kv, &st->span[i - 1]);
    st->open = false;
}

/* Returns the rows that the span's contents have if all of the span is accepted. */
static uint32_t span_end(const struct kv_step *st, const struct step_span *sp)
{
    const struct seq *s = &st->kv->seq[sp->seq];
    return st->cross ? MAX(s->len, sp->rows.n) : MAX(s->cross, s->len + sp->rows.n);
}

/* Notes the shared open blocks that will be copied, counts what the step takes from the pool, and
 * makes room for that. */
static int plan(struct kv_step *st)
{
    struct kv *kv = st->kv;
    const struct pages *short_of = NULL;
    size_t bytes = 0;
    for (uint32_t i = 0; i < st->n_spans && !st->cross; i++)
        turn_begin(&kv->seq[st->span[i].seq], &st->span[i]);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        uint32_t need[FORMS], back, *sum = g->sum;
        sum[RAW] = sum[SEALED] = 0;
        if (!step_writes(st, g)) continue;
        if (g->c.policy.kind == KV_STATE) memset(g->dst, 0, st->n_tokens * sizeof *g->dst);
        for (uint32_t i = 0; i < st->n_spans; i++) {
            const struct step_span *sp = &st->span[i];
            const struct stash *own = kv->slot[kv->seq[sp->seq].slot].stash;
            back = count_pages(st, sp, g, need);
            for (uint32_t f = 0; f < FORMS; f++) {
                const struct pages *p = &g->form[f];
                uint32_t all = need[f] + (f == RAW ? back : 0), have = own[p->index].n;
                sum[f] += need[f] - MIN(need[f], have);
                bytes += (all - MIN(all, have)) * p->bytes;
            }
        }
        for (uint32_t f = 0; f < FORMS; f++) {
            const struct pages *p = &g->form[f];
            if (p->n_ids && sum[f] > p->n_ids - 1 - p->n_live) short_of = p;
        }
    }
    if (short_of && kv->narrow) { /* else the budget is as short, and its error says by how much */
        kv->need = short_of->bytes;
        return ERR(
            FULL,
            "cache full: the address space the system granted holds %u pages of %zu bytes, all "
            "in use",
            short_of->n_ids - 1, short_of->bytes);
    }
    size_t meta = 0;
    for (uint32_t i = 0; i < st->n_spans; i++)
        meta += meta_step(kv, kv->seq[st->span[i].seq].slot, span_end(st, &st->span[i]));
    TRY(make_room(kv, bytes, meta, "the step"));
    for (uint32_t i = 0; meta && i < st->n_spans; i++)
        meta_grow(kv, kv->seq[st->span[i].seq].slot, span_end(st, &st->span[i]));
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        struct group *g = &kv->group[n / FORMS];
        if (kv->index.n && g->form[n % FORMS].n_ids)
            index_yield(kv, &g->form[n % FORMS], g->sum[n % FORMS]);
    }
    return 0;
}

struct beginning {
    const struct kv_span *span;
    uint32_t n;
};

static int begin(struct kv *kv, void *ctx)
{
    const struct beginning *b = ctx;
    struct kv_step *st = &kv->step;
    TRY(spans_take(kv, b->span, b->n));
    st->n_changes = 0;
    pin_tails(st, true);
    int e = reserve_settle(kv);
    if (e == ERR_FULL) e = 0; /* the step may need less than the reserves that lack pages */
    if (e < 0) {
        pin_tails(st, false);
        while (st->n_spans)
            own_undo(kv, &st->span[--st->n_spans]);
        return e;
    }
    e = plan(st);
    pin_tails(st, false);
    if (e >= 0) e = take_pages(st);
    if (e < 0) step_undo(st);
    return e;
}

int kv_begin(struct kv *kv, const struct kv_span *span, uint32_t n, struct kv_step **out)
{
    struct kv_step *st = &kv->step;
    bool began = kv->stream.began;
    if (st->open) return ERR(BUSY, "cache: a step is open; commit or abort it first");
    int e = with_room(kv, begin, &(struct beginning){span, n});
    for (uint32_t i = 0; i < st->n_spans && !began && kv->stream.began; i++)
        kv->stream.since = MAX(kv->stream.since, kv->seq[st->span[i].seq].len);
    kv->peak = MAX(kv->peak, pool_rows(kv));
    if (e < 0) return e;
    kv->need = 0;
    if (pool_held(kv) + kv->backed > kv->pool) pool_trim(kv);
    step_fill(st, span);
    st->layer = KV_NONE;
    st->begun = trace_now();
    stage_plan(st);
    st->open = true;
    for (uint32_t i = 0; i < st->n_spans; i++)
        age_update(kv, &kv->seq[st->span[i].seq]);
    *out = st;
    return 0;
}

/* Returns the length at which the span's end of a turn has a snapshot; KV_NONE: nowhere.  At row 0
 * every sequence can begin. */
static uint32_t turn_keep(const struct kv *kv, const struct seq *s, const struct step_span *sp,
                          uint32_t accepted)
{
    bool ends = sp->rows.turn && sp->rows.last && accepted && s->len > turn_back(kv);
    return ends ? s->len - turn_back(kv) : KV_NONE;
}

/* Moves one state page into the table, references those of snapshots, and gives the others
 * back. */
static void commit_state(struct kv *kv, struct seq *s, uint32_t gi, const struct step_span *sp,
                         uint32_t accepted)
{
    struct group *g = &kv->group[gi];
    struct pages *p = &g->form[RAW];
    uint32_t *cell = seq_table(kv, g, RAW, s), every = g->c.policy.every;
    const uint32_t *dst = g->dst + sp->tok0;
    uint32_t len = s->len - accepted, end = turn_keep(kv, s, sp, accepted);
    if (every && end == len) keep_add(kv, s, gi, len, *cell); /* a step that only ends the turn */
    for (uint32_t t = 0; t < sp->rows.n; t++) {
        if (!dst[t]) continue;
        if (every && t < accepted && ((len + t + 1) % every == 0 || len + t + 1 == end))
            keep_add(kv, s, gi, len + t + 1, dst[t]);
        if (t + 1 != accepted) {
            page_unref(kv, p, dst[t]);
            continue;
        }
        if (*cell) page_unref(kv, p, *cell);
        *cell = dst[t];
    }
}

static void commit_rows(struct kv *kv, struct seq *s, uint32_t gi, const struct step_span *sp,
                        uint32_t accepted)
{
    struct group *g = &kv->group[gi];
    uint32_t len = seq_rows(g, s), all = len + sp->rows.n - accepted, every = g->c.policy.every;
    for (uint32_t f = 0; f < FORMS; f++) {
        if (!g->form[f].n_ids) continue;
        uint32_t *table = seq_table(kv, g, f, s), i = table_used(g, f, len);
        if (f == SEALED)
            kv->seals += step_tiles_begun(g, len) - step_tiles_begun(g, len - accepted);
        if (f == SEALED && kv_fault.keep_rejected) continue;
        for (uint32_t end = table_used(g, f, all); i < end; i++)
            if (table[i]) {
                page_unref(kv, &g->form[f], table[i]);
                table[i] = 0;
            }
    }
    if (g->forgets && every && accepted) {
        uint64_t pos = ((uint64_t)(len - accepted) / every + 1) * every;
        uint32_t end = turn_keep(kv, s, sp, accepted);
        for (; pos <= len; pos += every) {
            if (pos > end) keep_add(kv, s, gi, end, 0);
            keep_add(kv, s, gi, (uint32_t)pos, 0);
        }
        if (end <= len) keep_add(kv, s, gi, end, 0);
    }
    for (uint32_t f = 0; f < FORMS; f++) { /* pages that the step took may leave from now on */
        const uint32_t *table = seq_table(kv, g, f, s);
        uint32_t i =
            f == RAW ? (len - accepted) / g->rows[RAW] : step_tiles_begun(g, len - accepted);
        for (; g->moves[f] && i < table_used(g, f, len); i++)
            queue_place(kv, g, f, table[i], i);
    }
    drop_unreachable(kv, s, gi);
}

static void commit_span(struct kv_step *st, struct step_span *sp, uint32_t accepted)
{
    struct kv *kv = st->kv;
    struct seq *s = &kv->seq[sp->seq];
    kv->heir = seq_reserve(kv, s) ? s->slot : KV_NONE;
    if (st->cross) {
        s->cross = sp->rows.n;
    } else {
        s->len += accepted;
        turn_commit(s, sp, accepted);
    }
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        if (!step_writes(st, g)) continue;
        if (g->c.policy.kind == KV_STATE)
            commit_state(kv, s, gi, sp, accepted);
        else
            commit_rows(kv, s, gi, sp, accepted);
        if (s->g[gi].n_keeps > 4) keep_thin(kv, s, gi, s->len);
    }
    s->busy = false;
    age_update(kv, s);
    tail_add(kv, s);
    kv->heir = KV_NONE;
    if (accepted < sp->rows.n) meta_settle(kv, s->slot);
    index_note(kv, s);
}

int kv_commit(struct kv_step *st, const uint32_t *accepted)
{
    if (!st || !st->open) return ERR(ARG, "cache: no step is open");
    struct kv *kv = st->kv;
    for (uint32_t i = 0; accepted && i < st->n_spans; i++)
        if (accepted[i] > st->span[i].rows.n ||
            accepted[i] < st->span[i].rows.n - st->span[i].rows.undo)
            return ERR(ARG, "cache: span %u accepts %u of %u rows, at most %u may be rejected", i,
                       accepted[i], st->span[i].rows.n, st->span[i].rows.undo);
    for (uint32_t i = 0; i < st->n_changes; i++) {
        const struct change *c = &st->change[i];
        if (!c->copied) continue;
        page_unref(kv, c->pages, c->old);
    }
    st->n_changes = 0;
    st->open = false;
    stage_end(kv);
    step_trace_layer(st, KV_NONE);
    trace_add(TRACE_STEP, "forward", st->begun, KV_NONE, 0);
    for (uint32_t i = 0; i < st->n_spans; i++)
        commit_span(st, &st->span[i], accepted ? accepted[i] : st->span[i].rows.n);
    for (uint32_t i = 0; i < st->n_spans; i++) /* snapshots are evicted in favour of reserves */
        reserve_refill(kv, kv->seq[st->span[i].seq].slot);
    return 0;
}

void kv_abort(struct kv_step *st)
{
    if (st && st->open) step_undo(st);
}
