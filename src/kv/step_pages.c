/* step_pages.c - the pages of a step: how many a step can need, and which it takes (see step.c).
 *
 * step_plan counts first, so that the step makes room once and fails before it has changed a table.  Blocks that others hold
 * too are copied, states get a page for every row where commit may stop, and spilled blocks that the step writes come back. */
#include "dev/dev.h"
#include "kv/kv_int.h"

/* True if the state after the span's t-th row is kept: at rows where commit may stop, and at
 * snapshots. */
static bool state_kept(const struct kv *kv, const struct group *g, const struct step_span *sp,
                       uint32_t len, uint32_t t)
{
    uint32_t every = g->c.policy.every;
    uint32_t back = every && sp->rows.turn && sp->rows.last ? step_turn_back(kv) : 0;
    return t + 1 + sp->rows.undo + back >= sp->rows.n || (every && (len + t + 1) % every == 0);
}

static void change_push(struct kv_step *st, struct pages *p, uint32_t *cell, struct group *copied)
{
    st->change[st->n_changes++] = (struct change){p, cell, *cell, copied};
}

static struct seq *cell_owner(struct kv *kv, const struct group *g, const uint32_t *cell)
{
    return &kv->seq[(size_t)(cell - g->tables[RAW].host) / g->stride[RAW]];
}

/* True if the span writes into its open block, page `id`, in place, although other sequences hold the page too.  If
 * all owners are in this step, all but one of them copy the page.  The owner with the most rows keeps it, because an
 * abort must find these rows intact. */
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

/* Counts the pages of one span in one group.  A shared open block that will be copied becomes a change whose copy is
 * not made yet.  Returns how many other blocks the span needs that are not in memory. */
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
    if (has_form(g, SEALED)) need[SEALED] = step_tiles_begun(g, end) - step_tiles_begun(g, len);
    if (len % g->rows[RAW] == 0) return back;
    uint32_t *cell = &seq_table(kv, g, RAW, s)[len / g->rows[RAW]];
    const struct page *pg = &g->form[RAW].page[*cell];
    if (kv_fault.skip_cow || pg->refs < 2 || stays(st, sp, g, *cell)) return back + pg->spilled;
    change_push(st, &g->form[RAW], cell, g);
    need[RAW]++;
    return back;
}

/* Copies the first n rows of a block at every site (K in whole strips). */
static void copy_rows(const struct kv *kv, struct group *g, uint32_t to, uint32_t from, uint32_t n)
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
            dev_move(kv->work, dst, src, bytes, s->heads, head);
        }
    }
}

static int take_copies(struct kv_step *st)
{
    struct kv *kv = st->kv;
    for (uint32_t i = 0; i < st->n_changes; i++) {
        struct change *c = &st->change[i];
        struct group *g = c->copied;
        struct seq *s = cell_owner(kv, g, c->cell);
        uint32_t index = s->len / g->rows[RAW], rows = s->len % g->rows[RAW];
        uint32_t id = stash_take(kv, c->pages, s->slot, index ? c->cell[-1] : 0, index);
        if (!id) return no_page(c->pages);
        *c->cell = id;
        if (c->pages->page[c->old].spilled)
            TRY(spill_copy(kv, c->pages, c->old, id));
        else
            copy_rows(kv, g, id, c->old, rows);
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
        uint32_t id = stash_take(kv, p, s->slot, i ? table[i - 1] : 0, i);
        if (!id) return no_page(p);
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
        g->dst[sp->tok0 + t] = stash_take(kv, &g->form[RAW], s->slot, 0, 0);
        if (!g->dst[sp->tok0 + t]) return no_page(&g->form[RAW]);
    }
    return 0;
}

/* Brings open blocks and the blocks of incomplete tiles back into memory.  They can be in the tier after a trim, or
 * if the sequence was idle. */
static int bring_back(struct kv_step *st, struct group *g)
{
    struct kv *kv = st->kv;
    struct pages *p = &g->form[RAW];
    for (uint32_t i = 0; i < st->n_spans && p->n_spilled; i++) {
        const struct seq *s = &kv->seq[st->span[i].seq];
        const uint32_t *table = seq_table(kv, g, RAW, s);
        uint32_t rows = seq_rows(g, s), b = table_tail(g, rows), end = table_used(g, RAW, rows);
        uint32_t *own = &kv->slot[s->slot].stash[p->index].n;
        for (; b < end; b++) {
            if (!p->page[table[b]].spilled) continue;
            TRY(spill_back(kv, p, table[b]));
            if (*own) (void)pages_promise(kv, p, s->slot, *own - 1);
        }
    }
    return 0;
}

/* Returns the number of rows that the span's contents have if all of the span is accepted, borrowed rows included. */
static uint32_t span_end(const struct kv_step *st, const struct step_span *sp)
{
    const struct seq *s = &st->kv->seq[sp->seq];
    return st->cross ? MAX(s->len, sp->rows.n) : MAX(s->cross, seq_place(s) + sp->rows.n);
}

int step_plan(struct kv_step *st)
{
    struct kv *kv = st->kv;
    const struct pages *short_of = NULL;
    size_t bytes = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        /* need, and sum over all spans: pages of each form that the step takes */
        uint32_t need[FORMS], back, sum[FORMS] = {0};
        if (!step_writes(st, g)) continue;
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
    /* Else the budget itself is too small, and make_room reports the numbers. */
    if (short_of && kv->narrow) {
        kv->need = short_of->bytes;
        return ERR(
            FULL,
            "cache full: the address space the system granted holds %u pages of %zu bytes, all "
            "in use",
            short_of->n_ids - 1, short_of->bytes);
    }
    size_t meta = 0;
    for (uint32_t i = 0; i < st->n_spans; i++)
        meta += (size_t)meta_change(kv, kv->seq[st->span[i].seq].slot, span_end(st, &st->span[i]));
    TRY(make_room(kv, bytes, meta, "the step"));
    for (uint32_t i = 0; meta && i < st->n_spans; i++)
        meta_grow(kv, kv->seq[st->span[i].seq].slot, span_end(st, &st->span[i]));
    return 0;
}

int step_take(struct kv_step *st)
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
            if (has_form(g, SEALED)) TRY(take_form(st, g, SEALED, &st->span[i]));
        }
    }
    return 0;
}
