/* edit.c - changes of what sequences hold.
 *
 * Some facts follow from the contents and the reserve of a slot, but are maintained because computing them anew would be slow:
 *
 *   the tail, which leaves memory last, or not at all        queue.c
 *   the oldest snapshot, which is evicted first              age.c
 *   the blocks that the prefix index has yet to list         index.c
 *   the bytes that the slot is charged for metadata          metadata.c
 *   the pages that are promised to its reserve               reserve.c
 *
 * So every change stands between two calls, edit and edited.  edit gives the slot contents of its own and withdraws these facts.
 * The code between the two calls changes tables, rows, turns and snapshots, and nothing else.  edited derives the facts again.
 *
 * Room.  If the change may need room (a reserve, or pages that are shared now), edited makes the room.  If there is none, the
 * caller undoes the change by another edit.  All other changes have made their room before or give room back.  Then only a
 * failing tier can keep edited from filling the reserve, and the next call that takes pages tries again (kv.owing).
 *
 * Steps.  A step is one edit of each of its sequences: begin opens the edit, and commit or abort ends it.  The step derives the
 * facts of all contents before it fills the first reserve, because a reserve may evict the snapshots of any sequence.
 * Contents without a slot have a pair of calls of their own.
 *
 * Owners.  Contents of several owners never change: edit copies them first (tables and references, never rows).  A slot keeps
 * its copy if the change is undone: the copy has the same rows.  Owners come and go without an edit, because that changes no
 * contents. */
#include "kv/kv_int.h"

void edit_contents(struct kv *kv, struct seq *s)
{
    tail_drop(kv, s);
}

void edited_contents(struct kv *kv, struct seq *s)
{
    tail_add(kv, s);
    age_pin(kv, s, false);
    index_note(kv, s);
}

struct seq *edit(struct kv *kv, uint32_t slot)
{
    struct seq *s = seq_own(kv, slot);
    edit_contents(kv, s);
    return s;
}

int edited(struct kv *kv, uint32_t slot, const char *what)
{
    edited_contents(kv, &kv->seq[kv->slot[slot].seq]);
    if (what) return reserve_fill(kv, slot, what);
    reserve_refill(kv, slot);
    return 0;
}

/* --- Owners ----------------------------------------------------------------------------------- */

void own_join(struct kv *kv, uint32_t slot, struct seq *s)
{
    struct slot *me = &kv->slot[slot];
    me->seq = (uint32_t)(s - kv->seq);
    if (!s->owners++) {
        s->slot = me->prev = me->next = slot;
        index_note(kv, s);
        tail_settle(kv, s);
        return;
    }
    me->next = s->slot;
    me->prev = kv->slot[s->slot].prev;
    kv->slot[me->prev].next = slot;
    kv->slot[s->slot].prev = slot;
}

struct seq *own_part(struct kv *kv, uint32_t slot)
{
    struct slot *me = &kv->slot[slot];
    struct seq *s = &kv->seq[me->seq];
    s->owners--;
    s->slot = s->owners ? me->next : KV_NONE;
    kv->slot[me->prev].next = me->next;
    kv->slot[me->next].prev = me->prev;
    me->seq = KV_NONE;
    tail_settle(kv, s);
    return s;
}

struct seq *spare_take(struct kv *kv)
{
    return &kv->seq[kv->spare[--kv->n_spare]];
}

void seq_give(struct kv *kv, struct seq *s)
{
    edit_contents(kv, s);
    seq_clear(kv, s);
    edited_contents(kv, s);
    kv->spare[kv->n_spare++] = (uint32_t)(s - kv->seq);
}

struct seq *seq_own(struct kv *kv, uint32_t slot)
{
    struct seq *s = &kv->seq[kv->slot[slot].seq];
    if (!seq_shared(s) || kv_fault.skip_own) return s;
    struct seq *mine = spare_take(kv);
    seq_clone(kv, s, mine);
    edited_contents(kv, mine);
    own_part(kv, slot);
    own_join(kv, slot, mine);
    return mine;
}
