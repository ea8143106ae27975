/* spill.c - which pages are in memory.  Pages of stream groups leave memory for the tier when a
 * step needs their room, and return only to be written again.
 *
 * Places.  A page keeps its id wherever it is.  In the tier its bytes lie at the page's address in
 * the arena, so neighbours in memory are neighbours there.
 *
 * What may leave.  Only pages that nobody will write leave: full raw blocks and sealed tiles.  The
 * leading rows never leave.  Of a sequence with a reserve, the open block and the blocks of the
 * incomplete tile stay too, because the tile is sealed from them.
 *
 * Order.  Pages of the highest rows leave first, so that the leading rows of every sequence stay. A
 * step reads all rows in order, so a cache of the most recently read rows would have dropped each
 * row before its next use.  Raw rows under a codec leave before sealed rows, because sealing soon
 * replaces them.
 *
 * Leaving takes no memory, because transfers read the page in place.  The bytes of freed pages in
 * the tier are dropped in batches. */
#include "kv/kv_int.h"

#include <string.h>

static uint64_t tier_address(const struct kv *kv, const struct pages *p, uint32_t site, uint32_t id)
{
    return (uint64_t)(page_at(p, site, id) - kv->stream.arena);
}

static bool may_leave(const struct pages *p, uint32_t id)
{
    const struct page *pg = &p->page[id];
    return id && !pg->spilled && !pg->pinned;
}

/* Returns the end of the cells that may leave; full: without the open block and the blocks of the
 * incomplete tile. */
static uint32_t leave_end(const struct group *g, uint32_t form, const struct seq *s, bool full)
{
    if (form == RAW && (full || s->busy)) return table_tail(g, s->len);
    return table_used(g, form, s->len);
}

void pin_from(struct kv *kv, const struct seq *s, uint32_t len, uint8_t why, bool pin)
{
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        struct group *g = &kv->group[n / FORMS];
        uint32_t f = n % FORMS, i = f == RAW ? table_tail(g, len) : table_used(g, f, len);
        if (!g->moves[f]) continue;
        const uint32_t *table = seq_table(kv, g, f, s);
        for (uint32_t end = table_used(g, f, s->len); i < end; i++) {
            uint8_t *pinned = &g->form[f].page[table[i]].pinned;
            *pinned = (uint8_t)(pin ? *pinned | why : *pinned & ~why);
        }
    }
}

/* Pins the blocks that each sequence with a reserve continues from, also where other sequences have
 * these blocks further down. */
static void pin_reserved(struct kv *kv, bool pin)
{
    for (uint32_t k = 0; k < kv->max_seqs; k++) {
        const struct slot *slot = &kv->slot[k];
        const struct seq *s = slot->used && slot->reserve ? &kv->seq[slot->seq] : NULL;
        if (s && slot->reserve > s->len) pin_from(kv, s, s->len, KV_PIN_RESERVE, pin);
    }
}

/* Marks pages with `picked` until `enough` bytes are marked, and returns the bytes marked.  Marks
 * pages that may leave and that the doomed checkpoints would not free.  Looks at rows from the
 * first one on.  The rows that stay in memory are the leading ones, so this looks at few cells
 * unless nearly all pages have left. */
static size_t pick_some(struct kv *kv, size_t enough)
{
    size_t sum = 0;
    for (uint32_t n = 0; n < FORMS * kv->n_groups && sum < enough; n++) {
        struct group *g = &kv->group[n / FORMS];
        uint32_t f = n % FORMS;
        if (!leaves(kv, g, f)) continue;
        struct pages *p = &g->form[f];
        for (struct seq *s = NULL; sum < enough && (s = seq_each(kv, s));) {
            const uint32_t *table = seq_table(kv, g, f, s);
            uint32_t i = table_first(g, f), end = leave_end(g, f, s, false);
            for (; i < end && sum < enough; i++) {
                struct page *pg = &p->page[table[i]];
                if (pg->picked || !may_leave(p, table[i])) continue;
                if (p->seen[table[i]] == pg->refs) continue;
                pg->picked = 1;
                sum += p->bytes;
            }
            s->g[n / FORMS].hand[f] = i;
        }
    }
    return sum;
}

/* Clears the marks of pick_some, which stopped when `sum` bytes were marked. */
static void unpick(struct kv *kv, size_t sum)
{
    for (uint32_t n = 0; n < FORMS * kv->n_groups && sum; n++) {
        struct group *g = &kv->group[n / FORMS];
        uint32_t f = n % FORMS;
        if (!leaves(kv, g, f)) continue;
        struct pages *p = &g->form[f];
        for (const struct seq *s = NULL; sum && (s = seq_each(kv, s));) {
            const uint32_t *table = seq_table(kv, g, f, s);
            for (uint32_t i = table_first(g, f); i < s->g[n / FORMS].hand[f] && sum; i++) {
                struct page *pg = &p->page[table[i]];
                sum -= pg->picked ? p->bytes : 0;
                pg->picked = 0;
            }
        }
    }
}

size_t spill_can(struct kv *kv, size_t enough)
{
    if (!kv->stream.active || kv->step.open) return 0;
    pin_reserved(kv, true);
    size_t sum = pick_some(kv, enough);
    unpick(kv, sum);
    pin_reserved(kv, false);
    return sum;
}

/* Picks the page of the highest row that may leave, raw rows under a codec first; false if no page
 * may leave.  The cursors (`hand`) only move down. */
static bool pick_highest(struct kv *kv, size_t *bytes)
{
    struct pages *in = NULL;
    uint32_t *best = NULL, id = 0;
    uint64_t highest = 0;
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        struct group *g = &kv->group[n / FORMS];
        uint32_t f = n % FORMS, first = table_first(g, f);
        struct pages *p = &g->form[f];
        if (!leaves(kv, g, f)) continue;
        for (struct seq *s = NULL; (s = seq_each(kv, s));) {
            const uint32_t *table = seq_table(kv, g, f, s);
            const struct seq_group *sg = &s->g[n / FORMS];
            uint32_t *hand = &s->g[n / FORMS].hand[f];
            while (*hand > first &&
                   (!may_leave(p, table[*hand - 1]) || p->page[table[*hand - 1]].picked))
                *hand = *hand == sg->gone1[f] ? MIN(sg->gone0[f], *hand - 1) : *hand - 1;
            uint64_t row = (uint64_t)*hand * g->rows[f];
            if (f == RAW && g->lossy) row += UINT32_MAX;
            if (*hand <= first || row <= highest) continue;
            highest = row;
            best = hand;
            in = p;
            id = table[*hand - 1];
        }
    }
    if (!best) return false;
    --*best;
    *bytes = in->bytes;
    in->page[id].picked = 1;
    in->run[id / KV_RUN].picked |= (uint16_t)(1u << id % KV_RUN);
    return true;
}

/* Moves the bytes of pages [id, id + n) at every site between the tier and the memory of pages [to,
 * to + n). */
static int move(struct kv *kv, const struct pages *p, uint32_t id, uint32_t to, uint32_t n,
                bool write)
{
    struct stream *st = &kv->stream;
    struct kv_io *io = st->load[0].io;
    size_t bytes = n * p->grain;
    for (uint32_t site = 0; site < p->n_sites;) {
        uint32_t k = 0;
        for (; k < KV_TIER_DEPTH && site < p->n_sites; k++, site++)
            io[k] = (struct kv_io){.mem = page_at(p, site, to),
                                   .at = tier_address(kv, p, site, id),
                                   .n = bytes,
                                   .write = write};
        TRY(st->tier->start(st->tier, io, k));
        TRY(st->tier->finish(st->tier, io, k));
        *(write ? &st->bytes_written : &st->bytes_read) += k * bytes;
    }
    return 0;
}

static void stale_set(struct kv *kv, struct pages *p, uint32_t id, bool stale)
{
    uint16_t bit = (uint16_t)(1u << id % KV_RUN), *mask = &p->run[id / KV_RUN].stale;
    if (!(*mask & bit) == !stale) return;
    *mask ^= bit;
    if (stale) {
        p->n_stale++;
        kv->stream.stale += p->bytes;
    } else {
        p->n_stale--;
        kv->stream.stale -= p->bytes;
    }
}

/* Writes the picked pages in ascending runs and frees their memory.  After an error the rest stays
 * in memory. */
static int write_picked(struct kv *kv, struct pages *p)
{
    int e = 0;
    for (uint32_t id = 1, n; id < p->fresh * KV_RUN; id += n) {
        if (!p->run[id / KV_RUN].picked) {
            n = KV_RUN - id % KV_RUN;
            continue;
        }
        for (n = 0; id + n < p->fresh * KV_RUN && p->page[id + n].picked; n++) {
            p->page[id + n].picked = 0;
            p->run[(id + n) / KV_RUN].picked &= (uint16_t) ~(1u << (id + n) % KV_RUN);
        }
        if (n && e >= 0 && !kv_fault.forget_write) e = move(kv, p, id, id, n, true);
        for (uint32_t i = 0; i < n && e >= 0; i++) {
            page_leaves_memory(kv, p, id + i);
            stale_set(kv, p, id + i, false);
        }
        n += !n;
    }
    return e;
}

/* Picks pages until at least `bytes` are picked or no page is left, the highest rows first.
 * Returns the bytes picked. */
static size_t pick_out(struct kv *kv, size_t bytes)
{
    size_t got = 0, each;
    for (int full = 1; full >= 0; full--) {
        for (uint32_t n = 0; n < FORMS * kv->n_groups; n++)
            for (struct seq *s = NULL; (s = seq_each(kv, s));)
                s->g[n / FORMS].hand[n % FORMS] =
                    leave_end(&kv->group[n / FORMS], n % FORMS, s, full);
        while (got < bytes && pick_highest(kv, &each))
            got += each;
    }
    return got;
}

/* Notes the range of full pages, downwards from the highest, that are all in the tier; forget:
 * clears the note. */
static void note_gone(struct kv *kv, bool forget)
{
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        const struct group *g = &kv->group[n / FORMS];
        uint32_t f = n % FORMS, first = table_first(g, f);
        if (!leaves(kv, g, f)) continue;
        for (struct seq *s = NULL; (s = seq_each(kv, s));) {
            struct seq_group *sg = &s->g[n / FORMS];
            const uint32_t *table = seq_table(kv, g, f, s);
            uint32_t end = leave_end(g, f, s, true), i = forget ? 0 : end;
            while (i > first && (!table[i - 1] || g->form[f].page[table[i - 1]].spilled))
                i = i == sg->gone1[f] ? MIN(sg->gone0[f], i - 1) : i - 1;
            if (!forget && end - MIN(i, end) < sg->gone1[f] - sg->gone0[f])
                continue; /* the noted range is longer */
            sg->gone0[f] = i;
            sg->gone1[f] = forget ? 0 : MAX(end, i);
        }
    }
}

int spill_out(struct kv *kv, size_t bytes)
{
    int e = 0;
    pin_reserved(kv, true);
    size_t got = pick_out(kv, bytes);
    if (got < bytes) { /* a page that was in the tier may have come back */
        note_gone(kv, true);
        (void)pick_out(kv, bytes - got);
    }
    pin_reserved(kv, false);
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        struct group *g = &kv->group[n / FORMS];
        if (!leaves(kv, g, n % FORMS)) continue;
        int e2 = write_picked(kv, &g->form[n % FORMS]);
        if (e >= 0) e = e2;
    }
    note_gone(kv, false);
    kv->stream.began |= kv->stream.spilled > 0;
    return e;
}

int spill_back(struct kv *kv, struct pages *p, uint32_t id)
{
    page_comes_back(kv, p, id);
    int e = kv_fault.stale_open ? 0 : move(kv, p, id, id, 1, false);
    if (e < 0)
        page_leaves_memory(kv, p, id);
    else
        stale_set(kv, p, id, true);
    return e;
}

int spill_copy(struct kv *kv, struct pages *p, uint32_t from, uint32_t to)
{
    return move(kv, p, from, to, 1, false);
}

int spill_read(struct kv *kv, const struct pages *p, uint32_t id, unsigned char *out)
{
    struct stream *st = &kv->stream;
    struct kv_io *io = st->load[0].io;
    for (uint32_t site = 0; site < p->n_sites;) {
        uint32_t k = 0;
        for (; k < KV_TIER_DEPTH && site < p->n_sites; k++, site++)
            io[k] = (struct kv_io){
                .mem = out + site * p->grain, .at = tier_address(kv, p, site, id), .n = p->grain};
        TRY(st->tier->start(st->tier, io, k));
        TRY(st->tier->finish(st->tier, io, k));
        st->bytes_read += k * p->grain;
    }
    return 0;
}

/* Drops all stale bytes of one form, run by run. */
static void sweep(struct kv *kv, struct pages *p)
{
    struct kv_tier *tier = kv->stream.tier;
    for (uint32_t id = 1, n; id < p->n_ids && p->n_stale; id += n) {
        for (n = 0; id + n < p->n_ids; n++) {
            if (!(p->run[(id + n) / KV_RUN].stale >> (id + n) % KV_RUN & 1)) break;
            stale_set(kv, p, id + n, false);
        }
        for (uint32_t site = 0; n && site < p->n_sites; site++)
            tier->drop(tier, tier_address(kv, p, site, id), n * p->grain);
        n += !n;
    }
}

void spill_forget(struct kv *kv, struct pages *p, uint32_t id)
{
    p->page[id].spilled = false;
    p->n_spilled--;
    kv->stream.spilled -= p->bytes;
    stale_set(kv, p, id, true);
    if (kv->stream.stale <= kv->pool + kv->stream.spilled) return;
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++)
        if (kv->group[n / FORMS].moves[n % FORMS]) sweep(kv, &kv->group[n / FORMS].form[n % FORMS]);
}

/* Switches streaming and refills the reserves.  Of a form that may leave memory a reserve holds one
 * step's pages; of other forms it holds all pages up to the reserved length. */
static void activate(struct kv *kv, bool on)
{
    kv->stream.active = on;
    for (uint32_t i = 0; i < kv->max_seqs; i++)
        if (kv->slot[i].used && kv->slot[i].reserve) reserve_refill(kv, i);
}

bool spill_begin(struct kv *kv)
{
    if (!kv->stream.half || kv->stream.active || kv->step.open) return false;
    activate(kv, true);
    return true;
}

void spill_call_off(struct kv *kv)
{
    if (kv->stream.on_full && kv->stream.active && !kv->stream.began) activate(kv, false);
}

int spill_open(struct kv *kv, const struct kv_config *c)
{
    struct stream *st = &kv->stream;
    if (c->streaming == KV_RESIDENT) return 0;
    st->on_full = c->streaming == KV_STREAM_ON_FULL;
    st->active = !st->on_full;
    for (int i = 0; i < 2; i++)
        if (!(st->load[i].io = kv_array(kv, KV_TIER_DEPTH, sizeof *st->load[i].io)))
            return ERR_NOMEM;
    return 0;
}

void spill_close(struct kv *kv)
{
    for (int i = 0; i < 2; i++)
        mem_free(kv->stream.load[i].io);
    if (kv->stream.tier) kv->stream.tier->close(kv->stream.tier);
}
