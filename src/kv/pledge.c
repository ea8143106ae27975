/* pledge.c - reserves: pages promised to a sequence before it grows.
 *
 * A reserve is bytes, not pages: enough for the largest number of pages that growing to the
 * reserved length can hold beyond those held now.  Full attention takes every block of the way.
 * Where blocks are given back while the sequence grows (windows, raw blocks under a codec), what
 * it holds counts toward the most it can ever hold, as long as it gets the bytes back by letting
 * go: pages it will give back are marked, and pool.c charges for every marked owner that shares
 * a page (mark_debt).  The open block is marked as well, since a shared one has to be copied.
 * So a fork of a reserved sequence can be refused, but an append within the reserve cannot.
 *
 * Pages that may leave memory are promised as addresses only: what has to fit is one step's worth, as
 * full pages make room for the next ones.
 *
 * The books are closed (pledge_leave) before a sequence changes and opened after (pledge_enter). */
#include "kv/kv_int.h"

#include <stdio.h>

/* Most pages that a sequence can hold at once behind the cursor, or KV_NONE if it never lets go. */
static uint32_t hold_max(const struct kv *kv, const struct group *g, uint32_t form)
{
    const struct kv_policy *p = &g->c.policy;
    const struct kv_seal *s = &g->c.seal;
    uint64_t back = UINT64_MAX;
    if (p->window) back = p->window;
    if (p->chunk) back = MIN(back, p->chunk);
    if (back != UINT64_MAX) back += p->slack;
    if (form == RAW && s->tile)
        back = s->resid ? (back == UINT64_MAX ? back : MAX(back, s->tile)) : s->tile;
    if (back == UINT64_MAX) return KV_NONE;
    uint64_t n = (back + kv->max_tokens + g->rows[form] - 1) / g->rows[form] + 1;
    return n < KV_NONE ? (uint32_t)n : KV_NONE;
}

/* One page to write while the old one is read (both when there is none yet), and the checkpoints a
 * step can cross. */
size_t pledge_state(const struct kv *kv, const struct group *g, uint32_t len, uint32_t reserve)
{
    uint32_t every = g->c.policy.every;
    if (reserve <= len) return 0;
    size_t kept = every ? (size_t)MIN(reserve - len, kv->max_tokens) / every + 1 : 0;
    return ((len ? 1 : 2) + kept) * g->form[RAW].bytes;
}

/* Blocks, leading ones aside, that are held and stay while the next step is made. */
static uint32_t tail_held(const struct group *g, uint32_t len)
{
    uint32_t from = MAX(table_tail(g, len), table_first(g, RAW)), end = table_used(g, RAW, len);
    return end > from ? end - from : 0;
}

/* Of a form whose full pages may leave: the pages of one step and, raw, those it goes on from (an open
 * block, or those of a tile) as far as they are not held already, less those an open step has taken for
 * the last n of `len` rows. */
static uint32_t step_max(const struct kv *kv, const struct group *g, uint32_t form, uint32_t len,
                         uint32_t n)
{
    uint32_t rows = g->rows[form], first = table_first(g, form), before = len - n;
    uint32_t max = form == SEALED ? kv->max_tokens / rows + 1
                                  : (kv->max_tokens + rows - 1) / rows +
                                        MAX(g->c.seal.tile, rows) / rows - tail_held(g, before);
    uint32_t taken = MAX(table_used(g, form, len), first) - MAX(table_used(g, form, before), first);
    return max - MIN(max, taken);
}

/* Bringing back the blocks that the next step goes on from; full ones may be shared, which then costs as
 * much again (page_debt). */
static size_t reopen_bytes(const struct kv *kv, const struct group *g, const struct seq *s,
                           uint32_t len)
{
    uint32_t i = table_tail(g, len), end = table_used(g, RAW, len), n = 0;
    const uint32_t *table = seq_table(kv, g, RAW, s);
    for (; len <= s->len && i < end; i++)
        n += g->form[RAW].page[table[i]].spilled * (i < len / g->rows[RAW] ? 2 : 1);
    return n * g->form[RAW].bytes;
}

/* What growing from len to reserve can need beyond the pages held at len. */
size_t pledge_bytes(const struct kv *kv, const struct seq *s, uint32_t len, uint32_t n,
                    uint32_t reserve)
{
    size_t sum = 0;
    if (reserve <= len) return 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        if (g->c.policy.kind == KV_FROZEN) continue;
        if (g->c.policy.kind == KV_STATE) {
            sum += pledge_state(kv, g, len, reserve);
            continue;
        }
        for (uint32_t f = 0; f < FORMS; f++) {
            if (!g->form[f].n_ids) continue;
            uint32_t now = table_used(g, f, len), end = table_used(g, f, reserve);
            uint32_t first = table_first(g, f), cut = cut_at(g, s, gi, f, len);
            if (f == SEALED) now = MAX(now, first), end = MAX(end, first); /* never made below */
            uint32_t leading = MIN(end, first) > now ? MIN(end, first) - now : 0;
            uint32_t rest = end - now - leading, max = hold_max(kv, g, f);
            uint32_t held = now > cut ? now - cut : 0;
            if (leaves(kv, g, f))
                rest = MIN(rest, step_max(kv, g, f, len, n));
            else if (max != KV_NONE)
                rest = MIN(rest, max > held ? max - held : 0);
            sum += ((size_t)leading + rest) * g->form[f].bytes;
            if (f == RAW && leaves(kv, g, f)) sum += reopen_bytes(kv, g, s, len);
        }
    }
    return sum;
}

/* Marks the pages that the sequence will give back or have to copy. */
static void mark(struct kv *kv, struct seq *s, int by)
{
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        if (g->c.policy.kind == KV_FROZEN) continue;
        for (uint32_t f = 0; f < FORMS; f++) {
            if (!g->form[f].n_ids) continue;
            uint32_t *table = seq_table(kv, g, f, s), end = table_used(g, f, s->len), at = end;
            bool state = g->c.policy.kind == KV_STATE;
            if (state || (f == RAW && s->len % g->rows[RAW])) at = end - 1;
            if (f == RAW && leaves(kv, g, f)) at = table_tail(g, s->len);
            if (!state && !leaves(kv, g, f) && hold_max(kv, g, f) != KV_NONE)
                at = MIN(at, s->g[gi].cut[f]);
            for (; at < end; at++)
                if (table[at]) page_mark(kv, &g->form[f], table[at], by);
        }
    }
}

void pledge_leave(struct kv *kv, struct seq *s)
{
    if (s->marked) mark(kv, s, -1);
    s->marked = false;
    kv->pledged -= s->pledge;
    s->pledge = 0;
}

void pledge_enter(struct kv *kv, struct seq *s)
{
    uint32_t reserve = seq_reserve(kv, s);
    if (reserve <= s->len) return;
    s->pledge = pledge_bytes(kv, s, s->len, 0, reserve);
    kv->pledged += s->pledge;
    mark(kv, s, 1);
    s->marked = true;
}

int kv_reserve(struct kv *kv, kv_seq handle, uint32_t len)
{
    struct seq *s;
    char what[48];
    TRY(seq_idle(kv, handle, &s));
    if (len > kv->max_len)
        return ERR(LIMIT, "cache: cannot reserve %u rows, the longest sequence has %u", len,
                   kv->max_len);
    struct slot *slot = &kv->slot[slot_index(kv, handle)];
    uint32_t old = slot->reserve, was = slot->seq;
    if (!len && !old) return 0;
    uint64_t edits = s->edits;
    s = seq_own(kv, slot_index(kv, handle));
    pledge_leave(kv, s);
    slot->reserve = len;
    pledge_enter(kv, s);
    snprintf(what, sizeof what, "a reserve of %u tokens", len);
    int e = make_room(kv, 0, 0, what);
    if (e == ERR_FULL && spill_begin(kv) && (e = make_room(kv, 0, 0, what)) < 0) spill_call_off(kv);
    if (e < 0) {
        pledge_leave(kv, s);
        slot->reserve = old;
        pledge_enter(kv, s);
        seq_rejoin(kv, slot_index(kv, handle), was, edits);
        return e;
    }
    kv->need = 0;
    return 0;
}
