/* seq.c - sequences: handles, new, fork, drop, reorder, and what one can ask about them.
 *
 * A handle is a slot and its generation; a slot names contents, a `struct seq`, whose index is also its
 * row in every table.  A fork names the contents of its source, whatever their length: several slots own
 * them until one changes them, which first gets a copy of its own (seq_own: tables and references,
 * never rows).  Reorder likewise moves names.  Contents of a slot with a reserve have that owner alone,
 * since the books of a reserve are about the pages of one sequence. */
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
    s->turn_open = s->kept = s->foreign = false;
    s->salt = (struct kv_salt){0};
    s->n_keys = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        s->g[gi].unseen = s->g[gi].raw_unseen = 0;
        for (uint32_t f = 0; f < FORMS; f++) {
            s->g[gi].gone0[f] = s->g[gi].gone1[f] = 0;
            s->g[gi].cut[f] = table_first(&kv->group[gi], f);
        }
    }
}

/* The slot, of none so far, becomes an owner. */
static void own_join(struct kv *kv, uint32_t slot, struct seq *s)
{
    struct slot *me = &kv->slot[slot];
    me->seq = (uint32_t)(s - kv->seq);
    if (!s->owners++) {
        s->slot = me->prev = me->next = slot;
        return;
    }
    me->next = s->slot;
    me->prev = kv->slot[s->slot].prev;
    kv->slot[me->prev].next = slot;
    kv->slot[s->slot].prev = slot;
}

/* And is one no longer; what nobody owns is left to the caller. */
static struct seq *own_part(struct kv *kv, uint32_t slot)
{
    struct slot *me = &kv->slot[slot];
    struct seq *s = &kv->seq[me->seq];
    s->owners--;
    s->slot = s->owners ? me->next : KV_NONE;
    kv->slot[me->prev].next = me->next;
    kv->slot[me->next].prev = me->prev;
    me->seq = KV_NONE;
    return s;
}

/* Empty contents that nobody owns yet. */
static struct seq *spare_take(struct kv *kv)
{
    struct seq *s = &kv->seq[kv->spare[--kv->n_spare]];
    s->edits = ++kv->edits;
    return s;
}

int kv_new(struct kv *kv, const struct kv_salt *salt, kv_seq *out)
{
    uint32_t i = 0;
    TRY(slot_take(kv, &i));
    struct seq *s = spare_take(kv);
    if (salt) s->salt = *salt;
    own_join(kv, i, s);
    *out = handle_of(kv, i);
    return 0;
}

struct kv_salt kv_salt(const struct kv *kv, kv_seq handle)
{
    const struct slot *slot = slot_of(kv, handle);
    return slot ? kv->seq[slot->seq].salt : (struct kv_salt){0};
}

bool kv_salt_same(const struct kv_salt *a, const struct kv_salt *b)
{
    return a->regime == b->regime && a->pad == b->pad &&
           memcmp(a->adapter, b->adapter, sizeof a->adapter) == 0 &&
           memcmp(a->source, b->source, sizeof a->source) == 0;
}

uint32_t kv_reserved(const struct kv *kv, kv_seq handle)
{
    const struct slot *slot = slot_of(kv, handle);
    return slot ? slot->reserve : 0;
}

int kv_resalt(struct kv *kv, kv_seq handle, const struct kv_salt *salt)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    if (s->len || s->cross)
        return ERR(ARG, "cache: the salt of %u rows cannot change, trim them first", s->len);
    seq_own(kv, slot_index(kv, handle))->salt = *salt;
    return 0;
}

void seq_clear(struct kv *kv, struct seq *s)
{
    index_hide(kv, s, 0);
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

void seq_clone(struct kv *kv, const struct seq *src, struct seq *dst)
{
    bool forget = kv_fault.break_refs;
    dst->len = src->len;
    dst->cross = src->cross;
    dst->salt = src->salt;
    dst->n_turns = src->n_turns;
    dst->turn_open = src->turn_open;
    dst->foreign = src->foreign;
    dst->n_keys = src->n_keys;
    if (src->n_keys) memcpy(dst->key, src->key, (size_t)src->n_keys * KV_KEY);
    memcpy(dst->tok, src->tok, src->len * sizeof *src->tok);
    memcpy(dst->turn, src->turn, src->n_turns * sizeof *src->turn);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        const struct seq_group *from = &src->g[gi];
        struct seq_group *to = &dst->g[gi];
        to->unseen = from->unseen;
        to->raw_unseen = from->raw_unseen;
        for (uint32_t f = 0; f < FORMS; f++) {
            to->cut[f] = from->cut[f];
            to->gone0[f] = from->gone0[f];
            to->gone1[f] = from->gone1[f];
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

void seq_give(struct kv *kv, struct seq *s)
{
    seq_clear(kv, s);
    s->edits = ++kv->edits;
    kv->spare[kv->n_spare++] = (uint32_t)(s - kv->seq);
}

struct seq *seq_own(struct kv *kv, uint32_t slot)
{
    struct seq *s = &kv->seq[kv->slot[slot].seq];
    s->edits = s->owners > 1 ? s->edits : ++kv->edits;
    if (s->owners < 2 || kv_fault.skip_own) return s;
    struct seq *mine = spare_take(kv);
    seq_clone(kv, s, mine);
    own_part(kv, slot);
    own_join(kv, slot, mine);
    return mine;
}

void seq_rejoin(struct kv *kv, uint32_t slot, uint32_t was, uint64_t edits)
{
    struct seq *s = &kv->seq[was];
    if (kv->slot[slot].seq == was || !s->owners || s->edits != edits) return;
    seq_give(kv, own_part(kv, slot));
    own_join(kv, slot, s);
}

static void slot_give(struct kv *kv, uint32_t slot)
{
    kv->slot[slot].used = false;
    kv->slot[slot].reserve = 0;
    kv->idle[kv->n_idle++] = slot;
}

/* A sequence with a reserve is copied at once: another owner may cost the reserve its certainty
 * (pledge.c). */
static int fork_reserved(struct kv *kv, const struct seq *s, uint32_t slot)
{
    static const char what[] = "a fork of a sequence with a reserve";
    struct seq *d = spare_take(kv);
    seq_clone(kv, s, d);
    int e = s->marked ? make_room(kv, 0, 0, what) : 0;
    if (e == ERR_FULL && spill_begin(kv) && (e = make_room(kv, 0, 0, what)) < 0) spill_call_off(kv);
    if (e < 0)
        seq_give(kv, d);
    else
        own_join(kv, slot, d);
    return e;
}

int kv_fork(struct kv *kv, kv_seq src, kv_seq *out)
{
    struct seq *s;
    uint32_t i = 0;
    TRY(seq_idle(kv, src, &s));
    TRY(slot_take(kv, &i));
    if (seq_reserve(kv, s)) {
        int e = fork_reserved(kv, s, i);
        if (e < 0) {
            slot_give(kv, i);
            return e;
        }
    } else {
        own_join(kv, i, s);
        kv->max_refs = MAX(kv->max_refs, s->owners);
    }
    kv->forks++;
    *out = handle_of(kv, i);
    return 0;
}

struct seq *seq_part(struct kv *kv, uint32_t slot)
{
    pledge_leave(kv, &kv->seq[kv->slot[slot].seq]); /* of one with a reserve, hence of this owner */
    struct seq *s = own_part(kv, slot);
    slot_give(kv, slot);
    return s;
}

int kv_drop(struct kv *kv, kv_seq handle)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    s = seq_part(kv, slot_index(kv, handle));
    if (!s->owners) seq_give(kv, s);
    return 0;
}

static bool same_books(const struct kv *kv, const struct seq *a, const struct seq *b)
{
    bool same = a->len == b->len && a->marked && b->marked && a->pledge == b->pledge &&
                seq_reserve(kv, a) == seq_reserve(kv, b);
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
        uint32_t reserve = seq_reserve(kv, s);
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
    if (same || pool_used(kv) - before + after + copies <= kv->pool + spill_can(kv, SIZE_MAX))
        return 0;
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
        struct slot *slot = e < 0 ? NULL : &kv->slot[slot_index(kv, beam[i])];
        if (e >= 0 && slot->named) e = ERR(ARG, "cache: reorder names beam %u twice", i);
        if (e >= 0 && from[i] >= n) e = ERR(ARG, "cache: reorder wants beam %u of %u", from[i], n);
        if (e < 0) break;
        now[i] = slot->seq;
        keep[i] = slot->reserve;
        reserved |= keep[i] != 0;
        slot->named = true;
    }
    while (i-- > 0)
        kv->slot[slot_index(kv, beam[i])].named = false;
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

/* Without reserves only names move. */
static void beams_rename(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n,
                         const uint32_t *now)
{
    for (uint32_t i = 0; i < n; i++) /* held, so that what is wanted is not given back on the way */
        kv->seq[now[from[i]]].held++;
    for (uint32_t i = 0; i < n; i++) {
        if (from[i] == i) continue;
        struct seq *s = own_part(kv, slot_index(kv, beam[i]));
        if (!s->owners && !s->held) seq_give(kv, s);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = &kv->seq[now[from[i]]];
        s->held--;
        if (from[i] == i) continue;
        own_join(kv, slot_index(kv, beam[i]), s);
        kv->max_refs = MAX(kv->max_refs, s->owners);
    }
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
    if (!reserved) {
        beams_rename(kv, beam, from, n, now);
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = seq_own(kv, slot_index(kv, beam[i]));
        now[i] = (uint32_t)(s - kv->seq);
        pledge_leave(kv, s);
    }
    beams_assign(kv, from, n, now, then);
    for (uint32_t i = 0; i < n; i++)
        own_part(kv, slot_index(kv, beam[i]));
    for (uint32_t i = 0; i < n; i++) {
        own_join(kv, slot_index(kv, beam[i]), &kv->seq[then[i]]);
        kv->slot[slot_index(kv, beam[i])].reserve = keep[i];
    }
    for (uint32_t i = 0; i < n; i++)
        pledge_enter(kv, &kv->seq[then[i]]);
    return 0;
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

bool kv_by_turns(const struct kv *kv)
{
    return kv->index.turns;
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
