/* mark.c - undo: a mark remembers what a sequence holds, and a rollback restores it.
 *
 * A mark is one more owner of the sequence's contents, without a slot.  Contents of several owners
 * never change: a change first gets a copy (edit.c).  So the marked contents stay intact.  A
 * rollback makes the slot their owner again, which needs no memory and cannot fail.
 *
 * The pages of marked contents count in the budget and are never evicted, but can move to the tier.
 * Snapshots of marked contents can be evicted like all others.  The reserve of a marked sequence
 * has what it needs after a rollback, too, whoever forks the sequence meanwhile (reserve.c). */
#include "kv/kv_int.h"

static void mark_add(struct kv *kv, struct slot *slot, uint32_t at, kv_seq handle)
{
    struct seq *s = &kv->seq[slot->seq];
    kv->mark[at] = (struct mark){.seq = handle,
                                 .at = slot->seq,
                                 .reserve = slot->reserve,
                                 .grow = slot->grow,
                                 .next = slot->marks};
    slot->marks = at + 1;
    s->marks++;
    kv->n_marks++;
}

/* Removes a mark; slot NULL: its sequence was dropped. */
static void mark_remove(struct kv *kv, struct slot *slot, uint32_t at)
{
    struct seq *s = &kv->seq[kv->mark[at].at];
    uint32_t *link = slot ? &slot->marks : NULL;
    while (link && *link != at + 1)
        link = &kv->mark[*link - 1].next;
    if (link) *link = kv->mark[at].next;
    s->marks--;
    kv->used -= slot ? 0 : meta_alone(kv, s); /* as meta_orphan has charged it */
    kv->n_marks--;
    kv->mark[at] = (struct mark){0};
}

int kv_mark(struct kv *kv, kv_seq handle, struct kv_mark *out)
{
    struct seq *s;
    *out = (struct kv_mark){0};
    TRY(seq_idle(kv, handle, &s));
    if (kv->n_marks == kv->max_marks)
        return ERR(LIMIT, "cache: all %u marks are in use; release one or raise marks",
                   kv->max_marks);
    uint32_t slot = slot_index(kv, handle), at = 0;
    while (kv->mark[at].seq)
        at++;
    mark_add(kv, &kv->slot[slot], at, handle);
    bool reserved = kv->slot[slot].reserve;
    /* the first mark of a sequence lacks nothing, but a later mark may, if the sequence has grown since */
    int e = reserve_make(kv, slot,
                         reserved ? "keeping what an undo restores, beside a reserve,"
                                  : "keeping what an undo restores");
    if (e < 0) {
        mark_remove(kv, &kv->slot[slot], at);
        meta_settle(kv, slot);
        return e;
    }
    *out = (struct kv_mark){handle, at};
    return 0;
}

struct kv_past kv_marked(const struct kv *kv, const struct kv_mark *m)
{
    const struct seq *s = &kv->seq[kv->mark[m->at].at];
    return (struct kv_past){s->tok, s->turn, seq_place(s), s->n_turns, s->n_borrows, s->borrow};
}

/* Returns the most rows that the slot's marks promise. */
static uint32_t promised(const struct kv *kv, const struct slot *slot)
{
    uint32_t most = 0;
    for (uint32_t i = slot->marks; i; i = kv->mark[i - 1].next)
        most = MAX(most, kv->mark[i - 1].reserve);
    return most;
}

/* Fills the reserve after a mark ended.  Other marks may hold pages that appends would need.  Then appends cannot
 * rely on the reserve until these marks have ended, too. */
static void refill_after(struct kv *kv, uint32_t slot, const struct mark *ended)
{
    struct slot *s = &kv->slot[slot];
    s->grow = s->marks ? MIN(ended->grow, s->reserve) : s->reserve;
    meta_settle(kv, slot);
    if (s->marks && s->reserve && reserve_fill(kv, slot, "a reserve") < 0) s->grow = 0;
    reserve_refill(kv, slot);
}

void kv_release(struct kv *kv, struct kv_mark *m)
{
    if (!m->seq) return;
    struct mark mark = kv->mark[m->at];
    struct seq *s = &kv->seq[mark.at];
    struct slot *slot = slot_find(kv, m->seq); /* NULL: the sequence was dropped */
    uint32_t at = slot_index(kv, m->seq);
    mark_remove(kv, slot, m->at);
    if (!s->owners && !s->marks) seq_give(kv, s);
    *m = (struct kv_mark){0};
    if (slot && !kv->seq[slot->seq].busy) refill_after(kv, at, &mark);
}

/* Makes the slot an owner of marked contents s again.  If a reorder gave s to another sequence meanwhile, and one of
 * the two has a reserve, the slot gets a copy. */
static void go_back(struct kv *kv, uint32_t slot, struct seq *s)
{
    uint32_t other = s->owners ? s->slot : KV_NONE;
    own_join(kv, slot, s);
    if (other == KV_NONE || !(kv->slot[slot].reserve || kv->slot[other].reserve)) return;
    (void)seq_own(kv, slot);
    reserve_refill(kv, other);
}

void kv_rollback(struct kv *kv, struct kv_mark *m)
{
    if (!m->seq) return;
    struct mark mark = kv->mark[m->at];
    struct slot *slot = slot_find(kv, m->seq);
    uint32_t at = slot ? slot_index(kv, m->seq) : KV_NONE;
    kv->mark[m->at].reserve = 0;
    if (slot) slot->reserve = MAX(mark.reserve, promised(kv, slot));
    if (slot && slot->seq != mark.at && !kv_fault.forget_rollback) {
        struct seq *now = own_part(kv, at);
        if (!now->owners && !now->marks) seq_give(kv, now);
        go_back(kv, at, &kv->seq[mark.at]);
    }
    if (slot) tail_settle(kv, &kv->seq[slot->seq]); /* its reserve may have changed */
    kv_release(kv, m);
}

void kv_settle(struct kv *kv, struct kv_mark *m, bool failed)
{
    if (failed)
        kv_rollback(kv, m);
    else
        kv_release(kv, m);
}
