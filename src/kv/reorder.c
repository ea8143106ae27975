/* reorder.c - gives each of several sequences (the beams of a search) the contents of another one.
 *
 * Only ownership moves, as in a fork (seq.c).  The call makes room for what the reserves and the metadata of all
 * beams then need.  If there is none, all owners move back.  Contents that no beam continues are given up at the
 * end. */
#include "kv/kv_int.h"

/* Fills in now[i], the contents of beam i.  Returns 1 if any beam has a reserve, else 0, or an
 * error. */
static int beams_find(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n,
                      uint32_t *now)
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
        reserved |= slot->reserve != 0;
        slot->named = true;
    }
    while (i-- > 0)
        kv->slot[slot_index(kv, beam[i])].named = false;
    return e < 0 ? e : reserved;
}

struct reordering {
    const kv_seq *beam;
    const uint32_t *from, *now; /* now: the contents that each beam had before */
    uint32_t n;
    ptrdiff_t meta; /* bytes by which the charges of all beams change */
    bool stays;     /* only make the room: all beams move back at the end */
};

/* Moves the ownership of contents, or (back) moves it back.  Contents that no beam continues are marked as held. */
static void beams_move(struct kv *kv, const struct reordering *o, bool back)
{
    for (uint32_t i = 0; i < o->n; i++) {
        kv->seq[o->now[i]].held = !back;
        if (o->from[i] != i) own_part(kv, slot_index(kv, o->beam[i]));
    }
    for (uint32_t i = 0; i < o->n; i++)
        if (o->from[i] != i)
            own_join(kv, slot_index(kv, o->beam[i]), &kv->seq[o->now[back ? i : o->from[i]]]);
}

/* Returns the bytes that the beams' reserves lack; negative: they have bytes to spare. */
static ptrdiff_t beams_short(const struct kv *kv, const struct reordering *o)
{
    ptrdiff_t sum = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        uint32_t at = slot_index(kv, o->beam[i]);
        if (kv->slot[at].reserve) sum += reserve_short(kv, at, kv->seq[kv->slot[at].seq].len);
    }
    return sum;
}

/* Returns the bytes of contents that no beam continues; contents that several beams shared count once. */
static size_t beams_free(struct kv *kv, const struct reordering *o)
{
    size_t freed = 0;
    for (int reset = 0; reset < 2; reset++)
        for (uint32_t i = 0; i < o->n; i++) {
            struct seq *s = &kv->seq[o->now[i]];
            if (s->owners || s->marks || s->held == (bool)reset) continue;
            freed += gain_cut(kv, s, 0, true, reset);
            s->held = reset;
        }
    return freed;
}

static void beams_pin(struct kv *kv, const struct reordering *o, bool pin)
{
    for (uint32_t i = 0; i < o->n; i++) {
        struct seq *s = &kv->seq[o->now[i]];
        pin_from(kv, s, s->len, !s->owners, pin);
        age_pin(kv, s, pin);
    }
}

/* Moves the beams and makes room for what they then lack.  Without room they move back. */
static int beams_try(struct kv *kv, const struct reordering *o)
{
    int e = 0;
    TRY(reserve_settle(kv));
    beams_move(kv, o, false);
    ptrdiff_t lack = beams_short(kv, o) - (ptrdiff_t)beams_free(kv, o);
    if (lack + o->meta > 0) {
        size_t all = (size_t)(lack + o->meta), meta = MIN((size_t)MAX(o->meta, 0), all);
        /* not evicted, because `lack` may already count what their snapshots would free */
        beams_pin(kv, o, true);
        e = make_room(kv, all - meta, meta,
                      lack > 0 ? "keeping the reserves after a reorder"
                               : "a reorder of sequences of different lengths");
        beams_pin(kv, o, false);
    }
    if (e < 0 || o->stays) beams_move(kv, o, true);
    return e;
}

/* Checks a reorder and moves the beams.  kv.scratch has the contents that each beam had before.  Returns as
 * beams_find does. */
static int beams_begin(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n,
                       bool stays)
{
    uint32_t *now = kv->scratch;
    int reserved = beams_find(kv, beam, from, n, now);
    if (reserved < 0) return reserved;
    struct reordering o = {beam, from, now, n, 0, stays};
    for (uint32_t i = 0; i < n; i++) {
        const struct seq *t = &kv->seq[now[from[i]]];
        o.meta += meta_change(kv, slot_index(kv, beam[i]), MAX(seq_place(t), t->cross));
    }
    uint32_t tries = 0;
    int e = 0;
    if (reserved || o.meta > 0)
        while (room_try_encode(kv, &tries, e))
            e = beams_try(kv, &o);
    else if (!stays)
        beams_move(kv, &o, false);
    return e < 0 ? e : reserved;
}

int kv_reorder_room(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n)
{
    return MIN(beams_begin(kv, beam, from, n, true), 0);
}

int kv_reorder(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n)
{
    int reserved = beams_begin(kv, beam, from, n, false);
    if (reserved < 0) return reserved;
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = &kv->seq[kv->scratch[i]];
        if (s->held && !s->owners && !s->marks) seq_give(kv, s);
        s->held = false;
        kv->max_refs = MAX(kv->max_refs, s->owners);
        meta_settle(kv, slot_index(kv, beam[i]));
    }
    /* Beams with reserves get contents of their own.  Two passes, because one reserve may lack what another gives
     * back. */
    for (uint32_t pass = 0; reserved && pass < 2; pass++)
        for (uint32_t i = 0; i < n; i++) {
            uint32_t slot = slot_index(kv, beam[i]);
            if (pass) reserve_refill(kv, slot);
            if (pass || !kv->slot[slot].reserve) continue;
            if (kv->seq[kv->slot[slot].seq].owners > 1) (void)seq_own(kv, slot);
            if (!kv->slot[slot].marks) reserve_spare(kv, slot);
        }
    return 0;
}
