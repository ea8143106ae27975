/* reorder.c - lets each of several sequences, the beams of a search, go on with the contents of another one.
 *
 * Only ownership moves, as in a fork (seq.c).  Contents that nobody continues are given back.  Room is made for what the
 * reserves and the metadata of all beams will need, before anything moves; so a reorder that fails has changed nothing. */
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
    const uint32_t *from, *now;
    uint32_t n;
    uint32_t *takers; /* [n] number of beams that continue beam i */
    ptrdiff_t meta;   /* bytes by which the charges of all beams change */
};

/* Returns the bytes that the beams' reserves lack after the reorder; negative: they have bytes to
 * spare. */
static ptrdiff_t beams_short(const struct kv *kv, const struct reordering *o)
{
    ptrdiff_t sum = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        const struct slot *slot = &kv->slot[slot_index(kv, o->beam[i])];
        const struct seq *t = &kv->seq[o->now[o->from[i]]];
        bool shared = seq_shared(t) || o->takers[o->from[i]] > 1;
        struct reserve_for r = {slot->grow, slot->marks != 0, shared, NULL};
        struct reserve_for alone = {slot->reserve, false, true, NULL};
        for (uint32_t k = 0; slot->reserve && k < FORMS * kv->n_groups; k++) {
            const struct pages *p = &kv->group[k / FORMS].form[k % FORMS];
            uint32_t need = reserve_need_as(kv, t, k / FORMS, k % FORMS, t->len, &r);
            uint32_t have = slot->stash[k].n;
            if (slot->marks) { /* nothing is spare: a rollback may need the rest */
                need = MAX(need, reserve_need_as(kv, t, k / FORMS, k % FORMS, t->len, &alone));
                need = MAX(need,
                           family_need_marks(kv, slot_index(kv, o->beam[i]), k / FORMS, k % FORMS));
                have = MIN(have, need);
            }
            sum += ((ptrdiff_t)need - have) * (ptrdiff_t)p->bytes;
        }
    }
    return sum;
}

static void beams_pin(struct kv *kv, const struct reordering *o, bool pin)
{
    for (uint32_t i = 0; i < o->n; i++) {
        struct seq *s = &kv->seq[o->now[i]];
        if (o->takers[i])
            pin_from(kv, s, s->len, pin);
        else
            pin_whole(kv, s, pin);
        age_pin(kv, s, pin);
    }
}

/* Makes room for what the reserves will lack, less the pages of beams that nobody continues. */
static int beams_room(struct kv *kv, void *ctx)
{
    const struct reordering *o = ctx;
    size_t freed = 0;
    TRY(reserve_settle(kv));
    ptrdiff_t lack = beams_short(kv, o);
    for (int reset = 0; reset < 2; reset++)
        for (uint32_t i = 0; i < o->n; i++) {
            const struct seq *s = &kv->seq[o->now[i]];
            if (!o->takers[i] && !seq_shared(s)) freed += gain_whole(kv, s, reset);
        }
    lack -= (ptrdiff_t)freed;
    if (lack + o->meta <= 0) return 0;
    beams_pin(kv, o, true); /* the count may already include what their snapshots would free */
    size_t all = (size_t)(lack + o->meta), meta = MIN((size_t)MAX(o->meta, 0), all);
    int e = make_room(kv, all - meta, meta,
                      lack > 0 ? "keeping the reserves after a reorder"
                               : "a reorder of sequences of different lengths");
    beams_pin(kv, o, false);
    return e;
}

/* Moves the ownership of contents. */
static void beams_rename(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n,
                         const uint32_t *now)
{
    /* hold the contents, so that no contents in use are given back on the way */
    for (uint32_t i = 0; i < n; i++)
        kv->seq[now[from[i]]].held++;
    for (uint32_t i = 0; i < n; i++) {
        if (from[i] == i) continue;
        struct seq *s = own_part(kv, slot_index(kv, beam[i]));
        if (!s->owners && !s->marks && !s->held) seq_give(kv, s);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct seq *s = &kv->seq[now[from[i]]];
        s->held--;
        if (from[i] == i) continue;
        own_join(kv, slot_index(kv, beam[i]), s);
        kv->max_refs = MAX(kv->max_refs, s->owners);
    }
}

/* Returns the bytes by which the reorder changes the charges of all beams. */
static ptrdiff_t beams_meta(const struct kv *kv, const kv_seq *beam, const uint32_t *from,
                            uint32_t n, const uint32_t *now)
{
    ptrdiff_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct seq *t = &kv->seq[now[from[i]]];
        sum += meta_change(kv, slot_index(kv, beam[i]), MAX(t->len, t->cross));
    }
    return sum;
}

/* Checks a reorder, makes its room, and leaves the contents of the beams in kv.scratch.  Returns as beams_find. */
static int beams_ready(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n)
{
    uint32_t *now = kv->scratch, *takers = now + kv->max_seqs;
    int reserved = beams_find(kv, beam, from, n, now);
    if (reserved < 0) return reserved;
    for (uint32_t i = 0; i < n; i++)
        takers[i] = 0;
    for (uint32_t i = 0; i < n; i++)
        takers[from[i]]++;
    struct reordering o = {beam, from, now, n, takers, beams_meta(kv, beam, from, n, now)};
    if (reserved || o.meta > 0) TRY(with_room(kv, beams_room, &o));
    return reserved;
}

int kv_reorder_room(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n)
{
    return MIN(beams_ready(kv, beam, from, n), 0);
}

int kv_reorder(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n)
{
    int reserved = beams_ready(kv, beam, from, n);
    if (reserved < 0) return reserved;
    beams_rename(kv, beam, from, n, kv->scratch);
    for (uint32_t i = 0; i < n; i++)
        meta_settle(kv, slot_index(kv, beam[i]));
    /* beams with reserves get contents of their own */
    for (uint32_t i = 0; reserved && i < n; i++) {
        uint32_t slot = slot_index(kv, beam[i]);
        if (kv->slot[slot].reserve && kv->seq[kv->slot[slot].seq].owners > 1)
            (void)seq_own(kv, slot);
    }
    /* one reserve may lack what another has to spare */
    for (uint32_t pass = 0; reserved && pass < 2; pass++)
        for (uint32_t i = 0; i < n; i++) {
            uint32_t slot = slot_index(kv, beam[i]);
            if (!pass && !kv->slot[slot].marks) reserve_spare(kv, slot);
            if (pass) reserve_refill(kv, slot);
        }
    return 0;
}
