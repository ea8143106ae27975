/* keep.c - what a sequence still needs: the drop rule, snapshots, eviction.
 *
 * Drop rule.  A sequence of length n needs the rows that a query at n or later can reach.  A row
 * must be raw if queries read it raw or if its tile is incomplete.  Both bounds only grow with n.
 * So each table has a cursor (`cut`), and a commit looks only at the pages that the cursor newly
 * passes.
 *
 * Snapshots.  Groups that forget (state, window, chunk) keep snapshots at multiples of `every`
 * and at turn ends.  Trims can return to these lengths.  A snapshot of a state holds a page.  A
 * snapshot of a window makes the drop rule leave pages in the table.  The newest four stay, then
 * one per doubling of the distance.
 *
 * Eviction.  When a step or a reserve needs room, kept contents of the prefix index are evicted
 * first, and snapshots after them, the oldest first.  Where pages may move to the tier, kept
 * contents are evicted only for what the tier cannot take (make_room). */
#include "base/bytes.h"
#include "kv/kv_int.h"

#include <stdio.h>
#include <string.h>

struct need need_at(const struct group *g, const struct seq *s, uint32_t len, uint32_t slack,
                    bool open)
{
    struct need n = {0};
    if (g->c.policy.kind == KV_FROZEN)
        n.from[RAW] = g->c.seal.tile ? len - len % g->c.seal.tile : 0;
    if (g->c.policy.kind != KV_ROWS) return n;
    uint32_t lo = kv_reach(&g->c.policy, len > slack ? len - slack : 0, 0).lo;
    n.from[RAW] = n.from[SEALED] = lo;
    if (g->c.seal.tile) {
        uint32_t whole = len - len % g->c.seal.tile;
        uint32_t edge = edge_cut(&g->c.seal, s->turn, s->n_turns, len, open);
        n.from[RAW] = MIN(whole, MAX(edge, lo));
    }
    for (uint32_t f = 0; f < FORMS; f++)
        n.from[f] += kv_fault.drop_early;
    return n;
}

uint32_t need_cell(const struct group *g, uint32_t form, const struct need *n, uint32_t rows)
{
    uint32_t at = MAX(n->from[form] / g->rows[form], table_first(g, form));
    return MIN(at, table_used(g, form, rows));
}

uint32_t cut_at(const struct group *g, const struct seq *s, uint32_t gi, uint32_t form,
                uint32_t len)
{
    struct need n = need_at(g, s, len, 0, len >= s->len && s->turn_open);
    uint32_t at = n.from[form] / g->rows[form];
    return MIN(MAX(at, table_first(g, form)), s->g[gi].cut[form]);
}

bool keep_holds(const struct group *g, const struct seq_group *sg, uint32_t form, uint32_t index)
{
    uint32_t rows = g->rows[form], first = index * rows;
    for (uint32_t i = 0; i < sg->n_keeps; i++) {
        const struct keep *k = &sg->keep[i];
        uint32_t from = k->from[form];
        uint32_t end = form == RAW ? k->pos : k->pos - k->pos % rows;
        if (!k->doomed && first < end && first + rows > from) return true;
    }
    return false;
}

bool cell_held(const struct group *g, const struct seq_group *sg, uint32_t form, uint32_t index)
{
    if (index < table_first(g, form)) return form == RAW;
    return index >= sg->cut[form] || keep_holds(g, sg, form, index);
}

struct keep *keep_at(const struct seq_group *sg, uint32_t pos)
{
    for (uint32_t i = 0; i < sg->n_keeps; i++)
        if (sg->keep[i].pos == pos) return &sg->keep[i];
    return NULL;
}

uint32_t state_after(const struct kv *kv, const struct group *g, const struct seq *s, uint32_t row)
{
    const struct keep *k = keep_at(&s->g[g - kv->group], row);
    return row == s->len ? *seq_table(kv, g, RAW, s) : k ? k->page : 0;
}

/* Computes the cells [*a, *b) that only snapshot k may be keeping. */
static void keep_range(const struct group *g, const struct seq_group *sg, const struct keep *k,
                       uint32_t form, uint32_t *a, uint32_t *b)
{
    *a = MAX(k->from[form] / g->rows[form], table_first(g, form));
    *b = MIN(table_used(g, form, k->pos), sg->cut[form]);
}

void keep_remove(struct kv *kv, struct seq *s, uint32_t gi, uint32_t i)
{
    struct group *g = &kv->group[gi];
    struct seq_group *sg = &s->g[gi];
    struct keep k = sg->keep[i];
    memmove(&sg->keep[i], &sg->keep[i + 1], (sg->n_keeps - i - 1) * sizeof k);
    sg->n_keeps--;
    if (g->c.policy.kind == KV_STATE) {
        page_unref(kv, &g->form[RAW], k.page);
        return;
    }
    for (uint32_t f = 0; f < FORMS; f++) {
        if (!has_form(g, f)) continue;
        uint32_t a, b, *table = seq_table(kv, g, f, s);
        keep_range(g, sg, &k, f, &a, &b);
        for (; a < b; a++)
            if (table[a] && !keep_holds(g, sg, f, a)) cells_drop(kv, s, gi, f, a, a + 1);
    }
}

static uint32_t doubling(uint32_t distance)
{
    return 31u - (uint32_t)__builtin_clz(distance | 1);
}

/* Keeps the newest four snapshots, then the oldest of every doubling of the distance to `len`. */
void keep_thin(struct kv *kv, struct seq *s, uint32_t gi, uint32_t len)
{
    struct seq_group *sg = &s->g[gi];
    uint32_t every = kv->group[gi].c.policy.every;
    for (uint32_t i = 1; i + 4 < sg->n_keeps;) {
        uint32_t older = doubling((len - sg->keep[i - 1].pos) / every);
        if (doubling((len - sg->keep[i].pos) / every) == older)
            keep_remove(kv, s, gi, i);
        else
            i++;
    }
}

void keep_add(struct kv *kv, struct seq *s, uint32_t gi, uint32_t pos, uint32_t page)
{
    struct group *g = &kv->group[gi];
    struct seq_group *sg = &s->g[gi];
    if (sg->n_keeps && sg->keep[sg->n_keeps - 1].pos >= pos) return;
    if (sg->n_keeps == KV_KEEPS) keep_remove(kv, s, gi, 0);
    struct need n = need_at(g, s, pos, 0, false);
    sg->keep[sg->n_keeps++] = (struct keep){
        .pos = pos, .page = page, .from = {n.from[RAW], n.from[SEALED]}, .stamp = ++kv->clock};
    if (page) page_ref(kv, &g->form[RAW], page);
}

void drop_unreachable(struct kv *kv, struct seq *s, uint32_t gi)
{
    struct group *g = &kv->group[gi];
    struct seq_group *sg = &s->g[gi];
    if (g->c.policy.kind == KV_STATE) return;
    uint32_t rows = seq_rows(g, s);
    struct need n = need_at(g, s, rows, g->c.policy.slack, s->turn_open);
    for (uint32_t f = 0; f < FORMS; f++) {
        if (!has_form(g, f)) continue;
        uint32_t *table = seq_table(kv, g, f, s);
        for (uint32_t to = need_cell(g, f, &n, rows); sg->cut[f] < to; sg->cut[f]++)
            if (table[sg->cut[f]] && !keep_holds(g, sg, f, sg->cut[f]))
                cells_drop(kv, s, gi, f, sg->cut[f], sg->cut[f] + 1);
    }
}

struct victim {
    struct seq *s;
    uint32_t gi, i; /* gi KV_NONE: whole contents that the index keeps */
};

/* Finds the next victim: kept contents that are not doomed yet (if `whole`), the least recently used first; then the
 * oldest snapshot.  Skips sequences of an open step.  Returns false if there is no victim. */
static bool oldest(struct kv *kv, bool whole, struct victim *out)
{
    struct index *x = &kv->index;
    struct seq *kept = x->doomed ? x->doomed->newer : x->oldest;
    if (whole && kept) {
        *out = (struct victim){kept, KV_NONE, 0};
        return true;
    }
    struct victim v = {0};
    if (!(v.s = age_oldest(kv, &v.gi, &v.i))) return false;
    *out = v;
    return true;
}

/* Returns the bytes that become free when one more owner releases page `id`.  When the last one releases it, the
 * page no longer counts among those that could move to the tier.  reset: forgets which owners have released the
 * page. */
static size_t gain_page(struct kv *kv, struct pages *p, uint32_t id, bool reset)
{
    uint32_t gone = p->seen[id]++;
    if (reset || !id) p->seen[id] = 0;
    if (!id || reset || gone + 1 != p->page[id].refs || p->page[id].spilled) return 0;
    if (p->queue.at && p->queue.at[id].key) kv->stream.doomed += p->bytes;
    return p->bytes;
}

size_t gain_cut(struct kv *kv, const struct seq *s, uint32_t len, bool whole, bool reset)
{
    size_t sum = 0;
    if (reset) kv->stream.doomed = 0;
    if (!whole && seq_shared(s)) len = s->len; /* a trim of shared contents cuts a copy */
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        const struct seq_group *sg = &s->g[gi];
        bool state = g->c.policy.kind == KV_STATE, all = whole || (state && len < s->len);
        for (uint32_t f = 0; f < FORMS; f++) {
            struct pages *p = &g->form[f];
            uint32_t end = table_used(g, f, seq_rows(g, s)), i = all ? 0 : table_used(g, f, len);
            p->freed = 0;
            if (g->c.policy.kind == KV_FROZEN && !whole) continue;
            for (; i < end; i++)
                p->freed += gain_page(kv, p, seq_table(kv, g, f, s)[i], reset) > 0;
            for (i = 0; f == RAW && i < sg->n_keeps; i++)
                if (whole || sg->keep[i].pos > len)
                    p->freed += gain_page(kv, p, sg->keep[i].page, reset) > 0;
            sum += p->freed * p->bytes;
        }
    }
    return sum;
}

/* Returns the bytes that evicting victim v frees in addition to the victims doomed before it.  reset: takes v out of
 * this count. */
static size_t gain(struct kv *kv, const struct victim *v, bool reset)
{
    if (v->gi == KV_NONE) return gain_cut(kv, v->s, 0, true, reset) + v->s->bytes;
    struct group *g = &kv->group[v->gi];
    struct seq_group *sg = &v->s->g[v->gi];
    const struct keep *k = &sg->keep[v->i];
    size_t sum = 0;
    if (g->c.policy.kind == KV_STATE) return gain_page(kv, &g->form[RAW], k->page, reset);
    for (uint32_t f = 0; f < FORMS; f++) {
        struct pages *p = &g->form[f];
        if (!has_form(g, f)) continue;
        uint32_t a, b, *table = seq_table(kv, g, f, v->s);
        keep_range(g, sg, k, f, &a, &b);
        for (; a < b; a++)
            if (reset || !keep_holds(g, sg, f, a)) sum += gain_page(kv, p, table[a], reset);
    }
    return sum;
}

/* Evicts the doomed kept contents, or (evict false) keeps them.  shrink: only kept contents were doomed, so the last
 * of them loses no more rows than `bytes` need. */
static void settle_kept(struct kv *kv, bool evict, bool shrink, size_t bytes)
{
    struct index *x = &kv->index;
    const struct seq *last = x->doomed;
    x->doomed = NULL;
    for (const struct seq *s = last; s; s = s->older)
        gain_cut(kv, s, 0, true, true);
    for (bool more = last && evict; more;) {
        more = x->oldest != last;
        if (more || !shrink)
            index_evict(kv, x->oldest);
        else
            index_shrink(kv, x->oldest, bytes);
    }
}

/* Evicts the doomed snapshots, or (evict false) keeps them. */
static void settle_snapshots(struct kv *kv, bool evict)
{
    struct ages *a = &kv->ages;
    kv->stream.doomed = 0;
    for (uint32_t k = 0; k < a->n_doomed; k++) {
        struct seq *s = &kv->seq[a->doomed[k]];
        for (uint32_t gi = 0; gi < kv->n_groups; gi++)
            for (uint32_t i = s->g[gi].n_keeps; i-- > 0;) {
                if (!s->g[gi].keep[i].doomed) continue;
                gain(kv, &(struct victim){s, gi, i}, true);
                if (!evict) s->g[gi].keep[i].doomed = false;
            }
    }
    for (uint32_t k = 0; k < a->n_doomed; k++) {
        struct seq *s = &kv->seq[a->doomed[k]];
        for (uint32_t gi = 0; evict && gi < kv->n_groups; gi++)
            for (uint32_t i = s->g[gi].n_keeps; i-- > 0;)
                if (s->g[gi].keep[i].doomed) {
                    keep_remove(kv, s, gi, i);
                    kv->evictions++;
                }
        s->n_doomed = 0;
        age_update(kv, s);
    }
    a->n_doomed = 0;
}

/* Writes the error: `bytes` more, `meta` of them metadata, exceed the budget by kv.need. */
static int full(const struct kv *kv, size_t meta, const char *what)
{
    char need[16], limit[16], part[16], with[48] = "";
    if (meta) snprintf(with, sizeof with, " (%s is for metadata)", bytes_text(meta, part));
    return ERR(FULL,
               "cache full: %s needs %s more than the limit of %s%s; raise cache_memory, or drop a "
               "sequence",
               what, bytes_text(kv->need, need), bytes_text(kv->pool, limit), with);
}

int make_room(struct kv *kv, size_t bytes, size_t meta, const char *what)
{
    bytes += meta;
    size_t held = pool_held(kv) + bytes, got = 0;
    struct victim v = {0};
    if (held <= kv->pool) return 0;
    /* Kept contents are evicted for what moving pages to the tier cannot free; without a tier, for everything.  Then
     * snapshots are evicted.  Pages move to the tier last. */
    size_t missing = held - kv->pool, can = spill_can(kv), least = missing - MIN(missing, can);
    size_t want = missing;
    for (bool more = true; more && want > got; want = least) {
        bool whole = !can || got < least;
        while (got < want && (more = oldest(kv, whole, &v))) {
            if (v.gi == KV_NONE)
                kv->index.doomed = v.s;
            else
                age_doom(kv, v.s, v.gi, v.i);
            got += gain(kv, &v, false);
            whole = !can || got < least;
        }
        /* eviction has freed pages that would have moved to the tier, so this is less than before */
        can = spill_can(kv);
        least = missing - MIN(missing, can);
        more |= !whole && got < least;
    }
    bool fits = got + can >= missing;
    settle_kept(kv, fits, v.gi == KV_NONE && !can, bytes);
    settle_snapshots(kv, fits);
    if (!fits) {
        kv->need = missing - got - can;
        return full(kv, MIN(meta, kv->need), what);
    }
    held = pool_held(kv) + bytes;
    int e = held > kv->pool ? spill_out(kv, held - kv->pool) : 0;
    if (e >= 0 && kv->index.n) index_yield(kv, &kv->group[0].form[RAW], 0);
    return e;
}

bool room_try(struct kv *kv, uint32_t *tries, int e)
{
    if (++*tries == 1) return true;
    if (*tries == 2) return e == ERR_FULL && spill_begin(kv);
    if (e == ERR_FULL) spill_call_off(kv);
    return false;
}
