/* mark.c - undo: a mark remembers what a sequence holds, and a rollback restores it.
 *
 * A mark is one more owner of the sequence's contents, without a slot.  Contents of several owners
 * never change: a change first gets a copy (seq_own).  So the marked contents stay intact.  A
 * rollback makes the slot their owner again, which needs no memory and cannot fail.
 *
 * The pages of marked contents count in the budget and are never evicted, but can move to the tier.
 * Checkpoints of marked contents can be evicted like all others. */
#include "kv/kv_int.h"

static void marks_count(struct kv *kv, struct seq *s, struct slot *slot, int by)
{
    s->marks += (uint32_t)by;
    kv->n_marks += (uint32_t)by;
    if (slot) slot->marks += (uint32_t)by;
}

/* Fills the reserve for the mark.  The first mark of a sequence lacks nothing; a mark made after
 * growth may. */
static int attempt(struct kv *kv, void *ctx)
{
    uint32_t slot = *(uint32_t *)ctx;
    return kv->slot[slot].reserve ? reserve_fill(kv, slot, "an undo within a reserve") : 0;
}

int kv_mark(struct kv *kv, kv_seq handle, struct kv_mark *out)
{
    struct seq *s;
    *out = (struct kv_mark){0};
    TRY(seq_idle(kv, handle, &s));
    if (kv->n_marks == kv->max_marks)
        return ERR(LIMIT, "cache: all %u marks are in use; release one or raise marks",
                   kv->max_marks);
    uint32_t slot = slot_index(kv, handle);
    marks_count(kv, s, &kv->slot[slot], 1);
    int e = kv->slot[slot].reserve ? with_room(kv, attempt, &slot) : 0;
    if (e < 0) {
        marks_count(kv, s, &kv->slot[slot], -1);
        return e;
    }
    *out = (struct kv_mark){handle, (uint32_t)(s - kv->seq), kv->slot[slot].reserve};
    return 0;
}

struct kv_past kv_marked(const struct kv *kv, const struct kv_mark *m)
{
    const struct seq *s = &kv->seq[m->at];
    return (struct kv_past){s->tok, s->turn, s->len, s->n_turns};
}

/* Gives back contents that nobody owns any more; their pages return to the reserve of the slot. */
static void contents_end(struct kv *kv, struct seq *s, uint32_t slot)
{
    if (s->owners || s->marks) return;
    kv->heir = slot != KV_NONE && kv->slot[slot].reserve ? slot : KV_NONE;
    seq_give(kv, s);
    kv->heir = KV_NONE;
}

void kv_release(struct kv *kv, struct kv_mark *m)
{
    if (!m->seq) return;
    struct seq *s = &kv->seq[m->at];
    struct slot *slot = slot_find(kv, m->seq); /* NULL: the sequence was dropped */
    uint32_t at = slot ? slot_index(kv, m->seq) : KV_NONE;
    marks_count(kv, s, slot, -1);
    contents_end(kv, s, at);
    *m = (struct kv_mark){0};
    if (!slot || kv->seq[slot->seq].busy) return;
    if (slot->reserve)
        reserve_refill(kv, at);
    else if (!slot->marks)
        reserve_return(kv, at);
}

/* Makes the slot an owner of marked contents s.  Copies s if a reorder gave it to another sequence
 * and one of the two has a reserve. */
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
    struct slot *slot = m->seq ? slot_find(kv, m->seq) : NULL;
    uint32_t at = slot ? slot_index(kv, m->seq) : KV_NONE;
    if (slot) slot->reserve = m->reserve;
    if (slot && slot->seq != m->at && !kv_fault.forget_rollback) {
        struct seq *now = own_part(kv, at);
        contents_end(kv, now, at);
        go_back(kv, at, &kv->seq[m->at]);
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
