/* check.c - checks all invariants of a store by recounting from the tables; for assert and tests.
 *
 * Every reference is a table cell, a state snapshot, or an entry of the open step.  Every count
 * of bytes is a sum over pages.  The cells of a sequence are exactly those that the drop rule and
 * its snapshots want.  The scratch counters of the pages are zero before and after. */
#include "kv/kv_int.h"

#include <stdio.h>

bool wrong(const char *what, uint32_t a, uint32_t b)
{
    err_set(ERR_ARG, "kv_check: %s (%u, %u)", what, a, b);
    return false;
}

static void count_refs(const struct kv *kv, uint32_t gi)
{
    const struct group *g = &kv->group[gi];
    for (uint32_t f = 0; f < FORMS; f++) {
        const struct pages *p = &g->form[f];
        for (const struct seq *s = NULL; p->n_ids && (s = seq_each(kv, s));) {
            const uint32_t *table = seq_table(kv, g, f, s);
            uint32_t n = s->kept ? table_used(g, f, seq_rows(g, s)) : g->stride[f];
            for (uint32_t i = 0; i < n; i++)
                p->seen[table[i]]++;
        }
    }
    for (const struct seq *s = NULL; (s = seq_each(kv, s));) {
        const struct seq_group *sg = &s->g[gi];
        for (uint32_t i = 0; i < sg->n_keeps; i++)
            g->form[RAW].seen[sg->keep[i].page]++;
    }
    const struct kv_step *st = &kv->step;
    if (!st->open) return;
    for (uint32_t i = 0; i < st->n_changes; i++)
        for (uint32_t f = 0; f < FORMS; f++)
            if (st->change[i].pages == &g->form[f]) g->form[f].seen[st->change[i].old]++;
    for (uint32_t t = 0; g->c.policy.kind == KV_STATE && !st->cross && t < st->n_tokens; t++)
        g->form[RAW].seen[g->dst[t]]++;
}

/* True if the reference counts of pages equal the counts in `seen`, and the free masks fit the ids in use.  Adds up
 * the bytes. */
static bool check_form(const struct kv *kv, const struct pages *p, size_t sum[5])
{
    uint32_t live = 0, promised = 0, backed = 0, spilled = 0, stale = 0;
    for (uint32_t id = 1; id < p->n_ids; id++) {
        const struct page *pg = &p->page[id];
        bool is_free = p->run[id / KV_RUN].free >> id % KV_RUN & 1;
        bool is_backed = p->run[id / KV_RUN].backed >> id % KV_RUN & 1;
        bool idle = !pg->refs;
        if (pg->refs != p->seen[id]) return wrong("references", id, pg->refs);
        if (id / KV_RUN < p->fresh && is_free != idle) return wrong("free mask", id, pg->refs);
        if (id / KV_RUN >= p->fresh && (is_free || !idle)) return wrong("unused run", id, pg->refs);
        if (pg->refs && !is_backed == !pg->spilled)
            return wrong("live page without memory, or spilled with", id, pg->spilled);
        if ((pg->spilled && !pg->refs) || pg->picked) return wrong("flags", id, pg->picked);
        bool is_stale = p->run[id / KV_RUN].stale >> id % KV_RUN & 1;
        if (pg->spilled && is_stale) return wrong("needed bytes are stale", id, 0);
        live += pg->refs && !pg->spilled;
        spilled += pg->spilled;
        stale += is_stale;
        backed += is_free && is_backed;
    }
    if (spilled != p->n_spilled || stale != p->n_stale)
        return wrong("pages in the tier", spilled, p->n_spilled);
    sum[3] += spilled * p->bytes;
    sum[4] += stale * p->bytes;
    for (uint32_t i = 0; i < kv->max_seqs; i++)
        promised += kv->slot[i].stash[p->index].n;
    if (live + spilled + promised != p->n_live || promised != p->n_promised ||
        p->usable * KV_RUN <= p->n_live || backed != p->n_backed)
        return wrong("page counts", live, p->n_live);
    sum[p->state ? 1 : 0] += live * p->bytes;
    sum[2] += (backed - MIN(backed, promised)) * p->bytes;
    uint32_t listed = 0, runs = 0;
    for (uint32_t k = 1; k <= KV_RUN; k++)
        for (uint32_t r = p->list[k]; r != KV_NONE; r = p->run[r].next) {
            if ((uint32_t)__builtin_popcount(p->run[r].free) != k) return wrong("run list", r, k);
            if (++listed > p->n_runs) return wrong("run list loops", r, k);
        }
    for (uint32_t r = 0; r < p->fresh; r++)
        runs += p->run[r].free != 0;
    return listed == runs ? true : wrong("run lists", listed, runs);
}

static bool check_cells(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t f)
{
    const struct group *g = &kv->group[gi];
    const struct seq_group *sg = &s->g[gi];
    const uint32_t *table = seq_table(kv, g, f, s);
    uint32_t rows = seq_rows(g, s), used = table_used(g, f, rows), first = table_first(g, f);
    for (uint32_t i = used; !s->kept && i < g->stride[f]; i++)
        if (table[i]) return wrong("cell beyond the end", i, table[i]);
    if (g->c.policy.kind == KV_STATE)
        return !table[0] == !s->len ? true : wrong("state", s->len, 0);
    struct need n = need_at(g, s, rows, g->c.policy.slack, s->turn_open);
    uint32_t to = need_cell(g, f, &n, rows);
    if (sg->cut[f] < MAX(to, first)) return wrong("drop rule lags", sg->cut[f], to);
    for (uint32_t i = 0; i < used; i++) {
        if (cell_held(g, sg, f, i) != (table[i] != 0))
            return wrong("cell held or missing", i, table[i]);
    }
    n = need_at(g, s, rows, 0, s->turn_open); /* every row that the next query reads must be held */
    for (uint32_t i = n.from[f] / g->rows[f]; i < used; i++)
        if (!table[i] && (f == RAW || i >= first)) return wrong("reachable cell missing", i, 0);
    return true;
}

/* True if the owners are the slots that name the contents, in a ring.  Contents of several owners
 * have no reserve and no step. */
static bool check_owners(const struct kv *kv, const struct seq *s)
{
    if (s->kept)
        return !s->owners && !s->marks && !s->turn_open && !s->foreign ? true
                                                                       : wrong("kept", s->id, 0);
    uint32_t k = (uint32_t)(s - kv->seq), n = 0, at = s->slot, reserve = 0;
    for (uint32_t i = 0; i < kv->max_seqs; i++)
        n += kv->slot[i].used && kv->slot[i].seq == k;
    if (n != s->owners) return wrong("owners", n, s->owners);
    for (uint32_t i = 0; i < n; i++, at = kv->slot[at].next) {
        const struct slot *slot = &kv->slot[at];
        if (slot->seq != k || kv->slot[slot->next].prev != at) return wrong("ring", k, at);
        reserve |= slot->reserve;
    }
    if (at != s->slot || s->held) return wrong("ring", k, at);
    return n > 1 && (reserve || s->busy) ? wrong("several owners", k, reserve) : true;
}

/* True if the table of the index lists block `what` of s exactly once under its key. */
static bool check_listed(const struct kv *kv, const struct seq *s, uint32_t what,
                         const unsigned char *key)
{
    uint32_t times = 0;
    for (uint64_t at = index_find(kv, what, key); at; at = index_next(kv, at))
        times += index_seq(kv, at) == s;
    return times == 1 ? true : wrong("a key is not listed once", s->id, what);
}

static bool check_keys(const struct kv *kv, const struct seq *s)
{
    if (s->n_listed > s->n_keys || s->n_keys > s->len / KV_STRIP)
        return wrong("keys", s->n_listed, s->n_keys);
    if (kv->index.on && !s->noted && index_donor(s) && s->n_listed < s->n_keys)
        return wrong("blocks that no search finds", s->n_listed, s->n_keys);
    for (uint32_t i = 0; i < s->n_listed; i++)
        if (!check_listed(kv, s, i, s->key + (size_t)i * KV_KEY)) return false;
    if (s->n_listed && !check_listed(kv, s, KV_LIST_BEGIN, s->first)) return false;
    if (!s->kept || (!s->len && s->cross)) return true;
    if (s->n_listed != s->len / KV_STRIP)
        return wrong("keys of kept contents", s->n_listed, s->len);
    return check_listed(kv, s, KV_LIST_END, s->key + (size_t)(s->n_keys - 1) * KV_KEY);
}

static bool check_index(const struct kv *kv)
{
    const struct index *x = &kv->index;
    const struct seq *before = NULL;
    uint32_t kept = 0, listed = 0, found = 0;
    size_t bytes = 0;
    for (const struct seq *s = x->oldest; s; before = s, s = s->newer, kept++) {
        if (!s->kept || s->older != before || (before && before->used >= s->used))
            return wrong("list of kept contents", kept, s->id);
        bytes += s->bytes;
    }
    if (x->newest != before || kept != x->n || x->doomed) return wrong("kept", kept, x->n);
    if (bytes != x->room.used) return wrong("bytes of the index", (uint32_t)bytes, kept);
    for (const struct seq *s = NULL; (s = seq_each(kv, s));) {
        if (!check_keys(kv, s)) return false;
        listed += s->n_listed + (s->n_listed > 0) + (s->n_listed && s->kept);
    }
    for (uint32_t i = 0; i < x->n_buckets; i++)
        for (uint64_t at = x->bucket[i]; at; at = index_chain(kv, at))
            for (uint64_t same = at; same; same = index_next(kv, same))
                if (++found > listed) return wrong("the index lists more than there is", i, listed);
    return found == listed ? true : wrong("the index lists less than there is", found, listed);
}

static bool check_seq(const struct kv *kv, const struct seq *s)
{
    if (seq_spare(s)) return seq_place(s) || s->cross ? wrong("spare", s->len, 0) : true;
    if (s->busy) return kv->step.open ? true : wrong("busy", s->slot, 0);
    uint32_t end = 0;
    for (uint32_t i = 0; i < s->n_turns; i++) {
        const struct kv_turn *t = &s->turn[i];
        if (t->pos < end || !t->n) return wrong("turns", i, t->pos);
        end = t->pos + t->n;
    }
    if (end > s->len) return wrong("turn beyond the end", end, s->len);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct seq_group *sg = &s->g[gi];
        for (uint32_t i = 0; i < sg->n_keeps; i++) {
            const struct keep *k = &sg->keep[i];
            if (k->doomed || k->pos > s->len || (i && k->pos <= k[-1].pos))
                return wrong("snapshots", i, k->pos);
        }
        for (uint32_t f = 0; f < FORMS; f++)
            if (has_form(&kv->group[gi], f) && !check_cells(kv, s, gi, f)) return false;
    }
    return true;
}

/* True if every reserve holds what it needs, or kv.owing says that some may not. */
static bool check_reserves(const struct kv *kv)
{
    size_t bytes = 0;
    for (uint32_t k = 0; k < kv->max_seqs * FORMS * kv->n_groups; k++) {
        uint32_t slot = k / (FORMS * kv->n_groups), i = k % (FORMS * kv->n_groups);
        const struct slot *sl = &kv->slot[slot];
        const struct pages *p = &kv->group[i / FORMS].form[i % FORMS];
        const struct stash *st = &sl->stash[i];
        bytes += st->n * p->bytes;
        if (st->n && (!sl->used || (!sl->reserve && !sl->marks)))
            return wrong("reserve of nobody", slot, st->n);
        if (st->lent && !(sl->used && kv->seq[sl->seq].busy)) return wrong("lent", slot, st->lent);
        if (!sl->used || kv->seq[sl->seq].busy || kv->owing) continue;
        uint32_t need = reserve_need(kv, slot, i);
        if (st->n < need) return wrong("reserve lacks pages", st->n, need);
    }
    return bytes == kv->reserved ? true
                                 : wrong("reserved bytes", (uint32_t)bytes, (uint32_t)kv->reserved);
}

/* True if every sequence's list has exactly its marks. */
static bool check_marks(const struct kv *kv)
{
    uint32_t live = 0, listed = 0;
    for (uint32_t i = 0; i < kv->max_marks; i++)
        live += kv->mark[i].seq && slot_find(kv, kv->mark[i].seq);
    for (uint32_t k = 0; k < kv->max_seqs; k++)
        for (uint32_t i = kv->slot[k].used ? kv->slot[k].marks : 0; i; i = kv->mark[i - 1].next) {
            if (slot_find(kv, kv->mark[i - 1].seq) != &kv->slot[k]) return wrong("mark", k, i);
            if (++listed > live) return wrong("marks loop", k, i);
        }
    return listed == live ? true : wrong("marks listed", listed, live);
}

bool kv_check(const struct kv *kv)
{
    size_t sum[5] = {0};
    bool ok = true;
    uint32_t used = 0, spare = 0, marks = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        count_refs(kv, gi);
        for (uint32_t f = 0; f < FORMS; f++) {
            const struct pages *p = &kv->group[gi].form[f];
            if (p->n_ids && ok) ok = check_form(kv, p, sum);
            for (uint32_t id = 0; id < p->n_ids; id++)
                p->seen[id] = 0;
        }
    }
    for (const struct seq *s = NULL; ok && (s = seq_each(kv, s));) {
        ok = check_owners(kv, s) && check_seq(kv, s);
        spare += seq_spare(s);
        marks += s->marks;
    }
    for (uint32_t k = 0; k < kv->max_seqs; k++)
        used += kv->slot[k].used;
    if (!ok || !check_reserves(kv) || !check_index(kv) || !queue_check(kv) || !check_marks(kv) ||
        !age_check(kv))
        return false;
    if (marks != kv->n_marks || marks > kv->max_marks) return wrong("marks", marks, kv->n_marks);
    if (used + kv->n_idle != kv->max_seqs) return wrong("idle slots", used, kv->n_idle);
    if (spare != kv->n_spare) return wrong("spare contents", spare, kv->n_spare);
    if (sum[0] != kv->live || sum[1] != kv->states)
        return wrong("live bytes", (uint32_t)sum[0], (uint32_t)kv->live);
    if (sum[2] != kv->backed)
        return wrong("free bytes with memory", (uint32_t)sum[2], (uint32_t)kv->backed);
    if (sum[3] != kv->stream.spilled || sum[4] != kv->stream.stale)
        return wrong("bytes in the tier", (uint32_t)sum[3], (uint32_t)kv->stream.spilled);
    if (!borrow_check(kv)) return wrong("borrowed rows", kv->borrows, 0);
    if (!meta_check(kv)) return wrong("metadata", (uint32_t)kv->used, (uint32_t)kv->fixed);
    if (pool_held(kv) > kv->pool) return wrong("over budget", (uint32_t)kv->live, 0);
    return kv->peak >= pool_rows(kv) ? true : wrong("peak", (uint32_t)kv->peak, 0);
}
