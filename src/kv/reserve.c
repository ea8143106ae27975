/* reserve.c - reserves: pages promised to a sequence before it grows.
 *
 * A reserve is a number of pages for each group and form (slot.stash), which the budget counts as if
 * they were taken.  Steps of its sequence take pages from that number.  After each change of a
 * sequence its reserve is filled again.  That makes no room: what the need has grown by, the sequence
 * has given back to the pool, or the change has made room for it before.
 *
 * reserve_need computes how many pages the reserve must hold.  It credits only pages that nobody
 * else can keep alive, so an append within the reserve never depends on other sequences:
 *
 *   full attention      every block up to the reserved length
 *   windows, and        the most that can be held at once (what the next token sees and one step),
 *   raw rows of tiles   plus what the next token sees, for a mark; less pages of its own
 *   pages that stream   one step, and twice the blocks that a step continues from; less those of
 *                       its own
 *   states              one step: the next state and its snapshots; plus the state before, and
 *                       one that a mark keeps
 *   open block          one copy for a mark, and one more while another owner shares the block
 *   rows that a mark    the pages of kv_config.redo rows, unless the sequence is marked
 *   keeps meanwhile
 *
 * A fork, match or reorder shares pages of the sequence, and a trim makes its way to the reserved
 * length longer.  Each of these takes what the reserve then lacks, or is refused with nothing
 * changed.  A mark needs nothing, because its pages are in the reserve already.  family.c
 * says what a marked sequence needs. */
#include "kv/kv_int.h"

#include <stdio.h>

/* Returns how many rows before the end a group may have to keep in this form; UINT64_MAX: all
 * rows. */
static uint64_t rows_back(const struct group *g, uint32_t form)
{
    const struct kv_policy *p = &g->c.policy;
    const struct kv_seal *s = &g->c.seal;
    uint64_t back = UINT64_MAX;
    if (p->window) back = p->window;
    if (p->chunk) back = MIN(back, p->chunk);
    if (back != UINT64_MAX) back += p->slack;
    if (form == RAW && s->tile)
        back = s->resid ? (back == UINT64_MAX ? back : MAX(back, s->tile)) : s->tile;
    return back;
}

/* Returns the largest number of pages over which `rows` adjacent rows can extend. */
static uint64_t pages_of(const struct group *g, uint32_t form, uint64_t rows)
{
    return (rows + g->rows[form] - 1) / g->rows[form] + 1;
}

/* Counts the pages [from, to) of a table that are in memory and the slot's own. */
static uint32_t own_pages(const struct kv *kv, const struct seq *s, const struct reserve_for *r,
                          uint32_t gi, uint32_t form, uint32_t from, uint32_t to)
{
    const struct group *g = &kv->group[gi];
    const uint32_t *table = seq_table(kv, g, form, s);
    uint32_t n = 0;
    for (; from < to; from++)
        n += table[from] && !g->form[form].page[table[from]].spilled &&
             family_alone(kv, r->family, gi, form, from, table[from]);
    return n;
}

/* Returns the pages for the next state and its snapshots, in addition to the present state.  A present state that
 * others hold too does not return to the reserve, and an empty sequence has none.  The sequence's own snapshots can
 * be evicted, so they do not count. */
static uint32_t need_states(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t len,
                            const struct reserve_for *r)
{
    const struct group *g = &kv->group[gi];
    uint32_t every = g->c.policy.every;
    uint32_t kept = every ? MIN(r->reserve - len, kv->max_tokens) / every + 2 : 0;
    bool own =
        len && len == s->len && family_alone(kv, r->family, gi, RAW, 0, *seq_table(kv, g, RAW, s));
    return 1 + kept + !own + !r->marked;
}

/* Counts the pages of rows that are recomputed while a mark keeps the old ones (kv_config.redo).  *leading: the
 * number of those that hold leading rows. */
static uint32_t need_again(const struct kv *kv, const struct group *g, uint32_t form,
                           const struct reserve_for *r, uint32_t *leading)
{
    bool never = r->marked || r->reserve <= kv->redo;
    uint32_t end = never ? 0 : table_used(g, form, kv->redo);
    uint32_t first = MIN(table_first(g, form), end);
    *leading = form == RAW ? first : 0;
    return end - first;
}

/* Returns the pages of a form whose full pages may leave memory: those of one step and, for raw
 * pages, those that stay for the next step. */
static uint32_t need_streamed(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t form,
                              uint32_t len, uint32_t rest, const struct reserve_for *r)
{
    const struct group *g = &kv->group[gi];
    uint32_t rows = g->rows[form], away = 0;
    if (form == SEALED) return MIN(rest, kv->max_tokens / rows + 1);
    uint32_t from = MAX(table_tail(g, len), table_first(g, RAW)), end = table_used(g, RAW, len);
    uint32_t tail = MAX(g->c.seal.tile, rows) / rows;
    uint32_t own = own_pages(kv, s, r, gi, RAW, from, end);
    if (!r->marked) tail *= 2; /* a mark keeps the present tail */
    const uint32_t *table = seq_table(kv, g, RAW, s);
    for (uint32_t i = from; i < end; i++)
        away += g->form[RAW].page[table[i]].spilled;
    return MIN(rest, (kv->max_tokens + rows - 1) / rows + tail - MIN(own, tail)) + away;
}

static uint32_t need_rows(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t form,
                          uint32_t len, const struct reserve_for *r)
{
    const struct group *g = &kv->group[gi];
    uint32_t now = table_used(g, form, len), end = table_used(g, form, r->reserve);
    uint32_t first = table_first(g, form), cut = MAX(cut_at(g, s, gi, form, len), first);
    /* no tile exists below `first` */
    if (form == SEALED) now = MAX(now, first), end = MAX(end, first);
    uint32_t leading = MIN(end, first) > now ? MIN(end, first) - now : 0;
    uint32_t rest = end - now - leading, copies = 0, leading_again;
    uint64_t back = rows_back(g, form);
    rest += need_again(kv, g, form, r, &leading_again);
    leading += leading_again;
    if (leaves(kv, g, form)) {
        rest = need_streamed(kv, s, gi, form, len, rest, r);
    } else if (back != UINT64_MAX) {
        uint64_t most = pages_of(g, form, back + kv->max_tokens);
        if (!r->marked) most += pages_of(g, form, back);
        uint32_t own = own_pages(kv, s, r, gi, form, cut, now);
        rest = (uint32_t)MIN(rest, most - MIN(most, own));
    }
    if (form == RAW) {
        uint32_t open = len / g->rows[RAW];
        uint32_t id = len % g->rows[RAW] ? seq_table(kv, g, RAW, s)[open] : 0;
        copies += !r->marked;
        copies += id && !family_alone(kv, r->family, gi, RAW, open, id);
    }
    return leading + rest + copies;
}

uint32_t reserve_need_as(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t form,
                         uint32_t len, const struct reserve_for *r)
{
    const struct group *g = &kv->group[gi];
    if (r->reserve <= len || !has_form(g, form) || g->c.policy.kind == KV_FROZEN) return 0;
    if (g->c.policy.kind == KV_STATE) return need_states(kv, s, gi, len, r);
    return need_rows(kv, s, gi, form, len, r);
}

/* Returns how many pages of form i % FORMS of group i / FORMS the slot's appends need, from `len` rows on. */
static uint32_t need_growth(const struct kv *kv, uint32_t slot, uint32_t i, uint32_t len)
{
    const struct seq *s = &kv->seq[kv->slot[slot].seq];
    struct member own = {.s = s, .foreign = seq_shared(s)};
    /* the marks are left out, because they may keep the pages that they share with s */
    const struct family alone = {&own, 1, 0};
    const struct reserve_for r = {kv->slot[slot].grow, kv->slot[slot].marks, &alone};
    return reserve_need_as(kv, s, i / FORMS, i % FORMS, len, &r);
}

/* Returns what the reserve must hold once the contents are cut to `len`.  freed: pages that the cut frees for
 * appends, but not for the slot's marks. */
static uint32_t need_after(const struct kv *kv, uint32_t slot, uint32_t i, uint32_t len,
                           uint32_t freed)
{
    const struct slot *s = &kv->slot[slot];
    if (!s->reserve || kv->group[i / FORMS].c.policy.kind == KV_FROZEN) return 0;
    uint32_t need = need_growth(kv, slot, i, len);
    if (s->marks) need -= MIN(need, freed);
    return s->marks ? MAX(need, family_need(kv, slot, i / FORMS, i % FORMS, len)) : need;
}

static uint32_t len_of(const struct kv *kv, uint32_t slot)
{
    uint32_t seq = kv->slot[slot].seq;
    return seq == KV_NONE ? 0 : kv->seq[seq].len;
}

uint32_t reserve_need(const struct kv *kv, uint32_t slot, uint32_t i)
{
    return need_after(kv, slot, i, len_of(kv, slot), 0);
}

ptrdiff_t reserve_short(const struct kv *kv, uint32_t slot, uint32_t len)
{
    ptrdiff_t sum = 0;
    bool cut = len < len_of(kv, slot);
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++) {
        const struct pages *p = &kv->group[i / FORMS].form[i % FORMS];
        uint32_t freed = cut ? p->freed : 0;
        ptrdiff_t lack = need_after(kv, slot, i, len, freed);
        lack -= kv->slot[slot].stash[i].n;
        lack = kv->slot[slot].marks ? MAX(lack, 0) : lack - freed;
        sum += lack * (ptrdiff_t)p->bytes;
    }
    return sum;
}

void reserve_spare(struct kv *kv, uint32_t slot)
{
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++) {
        struct pages *p = &kv->group[i / FORMS].form[i % FORMS];
        uint32_t have = kv->slot[slot].stash[i].n, need = have ? reserve_need(kv, slot, i) : 0;
        if (have > need) (void)pages_promise(kv, p, slot, need);
    }
}

/* Promises the pages that the reserve lacks: all of them or an error, or (all false) as many as the budget has room
 * for. */
static int take_lacking(struct kv *kv, uint32_t slot, bool all)
{
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++) {
        struct pages *p = &kv->group[i / FORMS].form[i % FORMS];
        uint32_t have = kv->slot[slot].stash[i].n, need = reserve_need(kv, slot, i);
        need -= need && kv_fault.short_reserve;
        if (need <= have) continue;
        size_t room = kv->pool - MIN(kv->pool, pool_held(kv));
        if (!all) need = have + (uint32_t)MIN(need - have, room / p->bytes);
        if (pages_promise(kv, p, slot, need) < 0) return no_page(p);
    }
    return 0;
}

int reserve_fill_beside(struct kv *kv, uint32_t slot, uint32_t beside, const char *what)
{
    size_t meta = meta_lacks(kv, slot);
    if (beside != KV_NONE) meta += meta_lacks(kv, beside);
    if (!kv->slot[slot].marks) reserve_spare(kv, slot);
    size_t bytes = (size_t)reserve_short(kv, slot, len_of(kv, slot));
    if (bytes + meta) TRY(make_room(kv, bytes, meta, what));
    meta_settle(kv, slot);
    if (beside != KV_NONE) meta_settle(kv, beside);
    if (bytes) TRY(take_lacking(kv, slot, true));
    if (pool_held(kv) + kv->backed > kv->pool) pool_trim(kv);
    return 0;
}

int reserve_fill(struct kv *kv, uint32_t slot, const char *what)
{
    return reserve_fill_beside(kv, slot, KV_NONE, what);
}

void reserve_refill(struct kv *kv, uint32_t slot)
{
    meta_settle(kv, slot);
    if (reserve_fill(kv, slot, "a reserve") >= 0) return;
    kv->owing = true;
    (void)take_lacking(kv, slot, false);
}

int reserve_fill_all(struct kv *kv, const char *what)
{
    bool all = true;
    for (uint32_t i = 0; i < kv->max_seqs; i++) {
        if (!kv->slot[i].used || !kv->slot[i].reserve) continue;
        if (kv->seq[kv->slot[i].seq].busy && kv->step.open)
            all = false;
        else
            TRY(reserve_fill(kv, i, what));
    }
    kv->owing &= !all;
    return 0;
}

int reserve_settle(struct kv *kv)
{
    return kv->owing ? reserve_fill_all(kv, "a reserve") : 0;
}

static int promise_rows(struct kv *kv, uint32_t at, uint32_t len, const char *what)
{
    struct slot *slot = &kv->slot[at];
    uint32_t old = slot->reserve, grow = slot->grow;
    if (len > len_of(kv, at)) TRY(reserve_settle(kv));
    (void)edit(kv, at);
    slot->reserve = slot->grow = len;
    int e = edited(kv, at, what);
    if (e >= 0) return 0;
    (void)edit(kv, at);
    slot->reserve = old;
    slot->grow = grow;
    (void)edited(kv, at, NULL);
    return e;
}

int kv_reserve(struct kv *kv, kv_seq handle, uint32_t len)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    if (len > kv->max_len)
        return ERR(LIMIT,
                   "cache: cannot reserve %u rows: max_cache_len is %u; open the cache with more",
                   len, kv->max_len);
    if (kv->slot[slot_index(kv, handle)].marks && len < kv_reserved(kv, handle))
        return ERR(BUSY,
                   "cache: the reserve of sequence %#x cannot be lowered while an undo is pending",
                   handle);
    char what[48];
    uint32_t tries = 0;
    int e = 0;
    if (!len && !kv_reserved(kv, handle)) return 0;
    snprintf(what, sizeof what, "a reserve of %u tokens", len);
    while (room_try(kv, &tries, e))
        e = promise_rows(kv, slot_index(kv, handle), len, what);
    if (e >= 0) kv->need = 0;
    return e;
}

int reserve_make(struct kv *kv, uint32_t slot, const char *what)
{
    uint32_t tries = 0;
    int e = 0;
    while (room_try(kv, &tries, e))
        e = reserve_fill(kv, slot, what);
    return e;
}

int kv_rely(struct kv *kv, kv_seq handle, uint32_t len)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    char what[48];
    struct slot *slot = &kv->slot[slot_index(kv, handle)];
    uint32_t old = slot->grow;
    if (!slot->marks)
        return ERR(ARG, "cache: sequence %#x is not marked, so its appends rely on its reserve",
                   handle);
    slot->grow = MIN(slot->reserve, len);
    if (slot->grow <= old) return 0;
    snprintf(what, sizeof what, "room for %u tokens beside an undo", len);
    int e = reserve_make(kv, slot_index(kv, handle), what);
    if (e < 0) slot->grow = old;
    return e;
}

size_t kv_reserve_bytes(const struct kv_config *c, uint32_t len)
{
    const struct reserve_for r = {.reserve = len};
    struct page none = {0};
    uint32_t cell = 0;
    size_t sum = 0;
    for (uint32_t i = 0; i < FORMS * c->n_groups; i++) {
        uint32_t f = i % FORMS;
        struct group g = {.c = c->group[i / FORMS]};
        struct seq_group sg = {.table = {&cell, &cell}};
        struct seq empty = {.g = &sg};
        struct kv kv = {.group = &g, .n_groups = 1, .max_tokens = c->max_tokens, .redo = c->redo};
        size_t bytes;
        if (f == SEALED && !g.c.seal.tile) continue;
        if (group_measure(&g) < 0) return SIZE_MAX;
        kv.stream.active = c->streaming != KV_RESIDENT;
        g.moves[f] = kv.stream.active && form_moves(&g, f);
        g.form[f].n_ids = 1;
        g.form[f].page = &none;
        /* a fork also needs a page for its copy of the shared open block */
        uint32_t copy = f == RAW && g.c.policy.kind == KV_ROWS;
        if (!ck_mul(g.form[f].grain, g.c.n_sites, &bytes) ||
            !ck_mul(bytes, reserve_need_as(&kv, &empty, 0, f, 0, &r) + copy, &bytes) ||
            !ck_add(sum, bytes, &sum))
            return SIZE_MAX;
    }
    return sum;
}
