/* seq.c - sequences: handles, new, fork, drop, reorder, and what one can ask about them.
 *
 * A handle is a slot and its generation; a slot names a `struct seq`, whose index is also its
 * row in every table.  fork copies a table and counts references, never rows; reorder permutes
 * which contents the slots name and clones only what is wanted twice, so nothing is copied
 * through a temporary. */
#include "kv/kv_int.h"

#include <string.h>

static struct slot *slot_of(const struct kv *kv, kv_seq s)
{
    uint32_t i = s & ((1u << kv->slot_bits) - 1), gen = s >> kv->slot_bits;
    if (i >= kv->max_seqs || !kv->slot[i].used || kv->slot[i].gen != gen) return NULL;
    return &kv->slot[i];
}

static kv_seq handle_of(const struct kv *kv, uint32_t slot)
{
    return kv->slot[slot].gen << kv->slot_bits | slot;
}

int seq_find(const struct kv *kv, kv_seq s, struct seq **out)
{
    struct slot *slot = slot_of(kv, s);
    if (!slot)
        return ERR(STALE, "cache: handle %#x names no sequence (dropped, or of another cache)", s);
    *out = &kv->seq[slot->seq];
    return 0;
}

int seq_idle(const struct kv *kv, kv_seq s, struct seq **out)
{
    struct seq *q = NULL;
    TRY(seq_find(kv, s, &q));
    if (q->busy)
        return ERR(BUSY, "cache: sequence %#x is part of an open step; commit or abort it", s);
    *out = q;
    return 0;
}

static int slot_take(struct kv *kv, uint32_t *out)
{
    if (!kv->n_idle)
        return ERR(LIMIT, "cache: all %u sequences are in use; drop one or raise max_seqs",
                   kv->max_seqs);
    uint32_t i = kv->idle[--kv->n_idle];
    uint32_t last_gen = UINT32_MAX >> kv->slot_bits;
    struct slot *s = &kv->slot[i];
    s->gen = s->gen >= last_gen ? 1 : s->gen + 1; /* 0 would make handle 0 */
    s->reserve = 0;
    s->used = true;
    *out = i;
    return 0;
}

void seq_reset(struct kv *kv, struct seq *s)
{
    s->len = s->cross = s->n_turns = 0;
    s->turn_open = false;
    s->salt = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        s->g[gi].unseen = 0;
        for (uint32_t f = 0; f < FORMS; f++)
            s->g[gi].cut[f] = table_first(&kv->group[gi], f);
    }
}

int kv_new(struct kv *kv, uint64_t salt, kv_seq *out)
{
    uint32_t i = 0;
    TRY(slot_take(kv, &i));
    struct seq *s = &kv->seq[kv->slot[i].seq];
    seq_reset(kv, s);
    s->salt = salt;
    *out = handle_of(kv, i);
    return 0;
}

uint64_t kv_salt(const struct kv *kv, kv_seq handle)
{
    const struct slot *slot = slot_of(kv, handle);
    return slot ? kv->seq[slot->seq].salt : 0;
}

uint32_t kv_reserved(const struct kv *kv, kv_seq handle)
{
    const struct slot *slot = slot_of(kv, handle);
    return slot ? slot->reserve : 0;
}

int kv_resalt(struct kv *kv, kv_seq handle, uint64_t salt)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    if (s->len || s->cross)
        return ERR(ARG, "cache: the salt of %u rows cannot change, trim them first", s->len);
    s->salt = salt;
    return 0;
}

/* Gives up every page. */
static void seq_clear(struct kv *kv, struct seq *s)
{
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        for (uint32_t f = 0; f < FORMS; f++) {
            uint32_t *table = seq_table(kv, g, f, s), n = table_used(g, f, seq_rows(g, s));
            for (uint32_t i = 0; i < n; i++)
                if (table[i]) page_unref(kv, &g->form[f], table[i]);
            if (n) memset(table, 0, n * sizeof *table);
        }
        for (uint32_t i = 0; i < s->g[gi].n_keeps; i++)
            if (s->g[gi].keep[i].page) page_unref(kv, &g->form[RAW], s->g[gi].keep[i].page);
        s->g[gi].n_keeps = 0;
    }
    seq_reset(kv, s);
}

/* dst, empty, becomes another owner of what src holds. */
static void seq_clone(struct kv *kv, const struct seq *src, struct seq *dst)
{
    bool forget = kv_fault.break_refs;
    dst->len = src->len;
    dst->cross = src->cross;
    dst->salt = src->salt;
    dst->n_turns = src->n_turns;
    dst->turn_open = src->turn_open;
    memcpy(dst->tok, src->tok, src->len * sizeof *src->tok);
    memcpy(dst->turn, src->turn, src->n_turns * sizeof *src->turn);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        const struct seq_group *from = &src->g[gi];
        struct seq_group *to = &dst->g[gi];
        to->unseen = from->unseen;
        for (uint32_t f = 0; f < FORMS; f++) {
            to->cut[f] = from->cut[f];
            uint32_t n = table_used(g, f, seq_rows(g, src));
            if (!n) continue;
            uint32_t *table = seq_table(kv, g, f, dst);
            memcpy(table, seq_table(kv, g, f, src), n * sizeof *table);
            for (uint32_t i = 0; i < n; i++) {
                if (table[i] && !forget) page_ref(kv, &g->form[f], table[i]);
                if (table[i]) forget = false;
            }
        }
        to->n_keeps = from->n_keeps;
        if (from->n_keeps) memcpy(to->keep, from->keep, from->n_keeps * sizeof *to->keep);
        for (uint32_t i = 0; i < to->n_keeps; i++)
            if (to->keep[i].page) page_ref(kv, &g->form[RAW], to->keep[i].page);
    }
}

int kv_fork(struct kv *kv, kv_seq src, kv_seq *out)
{
    struct seq *s;
    uint32_t i = 0;
    TRY(seq_idle(kv, src, &s));
    TRY(slot_take(kv, &i));
    struct seq *d = &kv->seq[kv->slot[i].seq];
    seq_reset(kv, d);
    seq_clone(kv, s, d);
    /* Another owner may cost a reserve of the first its certainty (pledge.c). */
    static const char what[] = "a fork of a sequence with a reserve";
    int e = s->marked ? make_room(kv, 0, 0, what) : 0;
    if (e == ERR_FULL && spill_begin(kv) && (e = make_room(kv, 0, 0, what)) < 0) spill_call_off(kv);
    if (e < 0) {
        seq_clear(kv, d);
        kv->slot[i].used = false;
        kv->idle[kv->n_idle++] = i;
        return e;
    }
    kv->forks++;
    *out = handle_of(kv, i);
    return 0;
}

int kv_drop(struct kv *kv, kv_seq handle)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    struct slot *slot = &kv->slot[s->slot];
    pledge_leave(kv, s);
    seq_clear(kv, s);
    slot->used = false;
    slot->reserve = 0;
    kv->idle[kv->n_idle++] = s->slot;
    return 0;
}

static bool same_books(const struct kv *kv, const struct seq *a, const struct seq *b)
{
    bool same = a->len == b->len && a->marked && b->marked && a->pledge == b->pledge &&
                kv->slot[a->slot].reserve == kv->slot[b->slot].reserve;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        same = same && memcmp(a->g[gi].cut, b->g[gi].cut, sizeof a->g[gi].cut) == 0;
    return same;
}

/* Beams of one length and one reserve cannot end up needing more than before: what the losers free
 * pays for the copies to come.  Anything else is refused unless the worst case fits. */
static int reorder_fits(struct kv *kv, const uint32_t *now, const uint32_t *from, uint32_t n)
{
    size_t before = 0, after = 0, copies = 0;
    bool same = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct seq *s = &kv->seq[now[i]], *t = &kv->seq[now[from[i]]];
        uint32_t reserve = kv->slot[s->slot].reserve;
        same &= same_books(kv, s, &kv->seq[now[0]]);
        before += s->pledge;
        after += pledge_bytes(kv, t, t->len, 0, reserve);
        for (uint32_t gi = 0; reserve > t->len && gi < kv->n_groups; gi++) {
            const struct group *g = &kv->group[gi];
            for (uint32_t f = 0; f < FORMS && g->c.policy.kind != KV_FROZEN; f++) {
                uint32_t end = g->form[f].n_ids ? table_used(g, f, t->len) : 0;
                uint32_t cut = g->c.policy.kind == KV_STATE ? 0 : t->g[gi].cut[f];
                cut = MIN(cut, end - (end > 0)); /* the open block in any case */
                if (leaves(kv, g, f)) {          /* which then has to stay, besides */
                    uint32_t tail = f == RAW ? end - MIN(end, table_tail(g, t->len)) : 1;
                    copies += end ? 2 * MAX(tail, 1) * g->form[f].bytes : 0;
                    continue;
                }
                copies += (end - cut) * g->form[f].bytes;
            }
        }
    }
    if (same || pool_used(kv) - before + after + copies <= kv->pool + spill_can(kv)) return 0;
    return ERR(FULL,
               "cache full: reordering may need copies that the reserves of the beams leave no "
               "room for; lower the reserves");
}

/* now[i]: contents of beam i; keep[i]: its reserve.  Returns whether any beam has one. */
static int beams_find(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n,
                      uint32_t *now, uint32_t *keep)
{
    uint32_t i = 0;
    int e = 0, reserved = 0;
    if (n > kv->max_seqs)
        return ERR(ARG, "cache: cannot reorder %u sequences, the cache has %u", n, kv->max_seqs);
    for (; i < n; i++) {
        struct seq *s = NULL;
        e = seq_idle(kv, beam[i], &s);
        if (e >= 0 && s->pinned) e = ERR(ARG, "cache: reorder names beam %u twice", i);
        if (e >= 0 && from[i] >= n) e = ERR(ARG, "cache: reorder wants beam %u of %u", from[i], n);
        if (e < 0) break;
        now[i] = (uint32_t)(s - kv->seq);
        keep[i] = kv->slot[s->slot].reserve;
        reserved |= keep[i] != 0;
        s->pinned = true; /* named */
    }
    while (i-- > 0)
        kv->seq[now[i]].pinned = false;
    return e < 0 ? e : reserved;
}

/* then[i]: contents for beam i.  They move to their first user, which is their old handle if that
 * keeps them; what nobody took is cleared and becomes a clone of what somebody wants as well. */
static void beams_assign(struct kv *kv, const uint32_t *from, uint32_t n, const uint32_t *now,
                         uint32_t *then)
{
    for (uint32_t i = 0; i < n; i++)
        then[i] = from[i] == i ? now[i] : KV_NONE;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *src = &kv->seq[now[from[i]]];
        if (then[i] != KV_NONE || src->pinned || then[from[i]] == now[from[i]]) continue;
        then[i] = now[from[i]];
        src->pinned = true; /* taken */
    }
    for (uint32_t i = 0; i < n; i++)
        if (then[i] != KV_NONE) kv->seq[then[i]].pinned = true;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (then[i] != KV_NONE) continue;
        while (kv->seq[now[at]].pinned)
            at++;
        then[i] = now[at++];
        seq_clear(kv, &kv->seq[then[i]]);
        seq_clone(kv, &kv->seq[now[from[i]]], &kv->seq[then[i]]);
    }
    for (uint32_t i = 0; i < n; i++)
        kv->seq[then[i]].pinned = false;
}

int kv_reorder(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n)
{
    uint32_t *now = kv->scratch, *then = now + kv->max_seqs, *keep = then + kv->max_seqs;
    int reserved = beams_find(kv, beam, from, n, now, keep);
    if (reserved < 0) return reserved;
    int e = reserved ? reorder_fits(kv, now, from, n) : 0;
    if (e == ERR_FULL && spill_begin(kv) && (e = reorder_fits(kv, now, from, n)) < 0)
        spill_call_off(kv);
    if (e < 0) return e;
    for (uint32_t i = 0; i < n; i++)
        pledge_leave(kv, &kv->seq[now[i]]);
    beams_assign(kv, from, n, now, then);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = beam[i] & ((1u << kv->slot_bits) - 1);
        kv->slot[slot].seq = then[i];
        kv->slot[slot].reserve = keep[i];
        kv->seq[then[i]].slot = slot;
    }
    for (uint32_t i = 0; i < n; i++)
        pledge_enter(kv, &kv->seq[then[i]]);
    return 0;
}

void kv_usage(const struct kv *kv, struct kv_usage *out)
{
    *out = (struct kv_usage){.live = kv->live,
                             .shared = kv->shared,
                             .states = kv->states,
                             .reserved = kv->pledged + kv->mark_debt,
                             .peak = kv->peak,
                             .pool = kv->pool,
                             .need = kv->need,
                             .seals = kv->seals,
                             .evictions = kv->evictions,
                             .forks = kv->forks,
                             .rows_copied = kv->rows_copied,
                             .rows_copied_by_fork = kv->rows_copied_by_fork,
                             .max_refs = kv->max_refs,
                             .seqs = kv->max_seqs - kv->n_idle,
                             .staging = staging_bytes(kv),
                             .spilled = kv->stream.spilled,
                             .tier_read = kv->stream.bytes_read,
                             .tier_written = kv->stream.bytes_written,
                             .streaming = kv->stream.began,
                             .streaming_since = kv->stream.since};
    for (uint32_t i = 0; i < kv->max_seqs; i++)
        if (kv->slot[i].used) out->rows += kv->seq[kv->slot[i].seq].len;
    size_t used = pool_used(kv);
    out->free = used < kv->pool ? kv->pool - used : 0;
}

uint32_t kv_len(const struct kv *kv, kv_seq s)
{
    struct slot *slot = slot_of(kv, s);
    return slot ? kv->seq[slot->seq].len : 0;
}

uint32_t kv_cross_len(const struct kv *kv, kv_seq s)
{
    struct slot *slot = slot_of(kv, s);
    return slot ? kv->seq[slot->seq].cross : 0;
}

const int32_t *kv_tokens(const struct kv *kv, kv_seq s)
{
    struct slot *slot = slot_of(kv, s);
    return slot ? kv->seq[slot->seq].tok : NULL;
}

const struct kv_turn *kv_turns(const struct kv *kv, kv_seq s, uint32_t *n)
{
    struct slot *slot = slot_of(kv, s);
    *n = slot ? kv->seq[slot->seq].n_turns : 0;
    return slot ? kv->seq[slot->seq].turn : NULL;
}

uint32_t kv_max_len(const struct kv *kv)
{
    return kv->max_len;
}

uint32_t kv_max_tokens(const struct kv *kv)
{
    return kv->max_tokens;
}

size_t kv_row_bytes(const struct kv *kv)
{
    size_t sum = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct kv_group *g = &kv->group[gi].c;
        if (g->policy.kind != KV_ROWS) continue;
        for (uint32_t i = 0; i < g->n_planes; i++) {
            const struct kv_shape *s = &g->plane[i].shape;
            sum += (size_t)g->n_sites * s->heads * s->dim * dtype_size(s->dtype);
        }
    }
    return sum;
}
