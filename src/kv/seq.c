/* seq.c - sequences: handles, new, fork, drop, and queries about a sequence.
 *
 * A handle is a slot and its generation.  A slot names contents, a `struct seq`, whose index is
 * also their row in every table.
 *
 * A fork makes a slot another owner of its source's contents, whatever their length.  Before an
 * owner changes shared contents, edit.c gives it a copy: tables and references, never rows.
 * Contents of a slot with a reserve have no other slot, so the need of the reserve follows from
 * the pages of one sequence. */
#include "kv/kv_int.h"

#include <string.h>

uint32_t kv_slot(const struct kv *kv, kv_seq s)
{
    return MIN(s & ((1u << kv->slot_bits) - 1), kv->max_seqs - 1);
}

struct slot *slot_find(const struct kv *kv, kv_seq s)
{
    uint32_t i = s & ((1u << kv->slot_bits) - 1), gen = s >> kv->slot_bits;
    if (i >= kv->max_seqs || !kv->slot[i].used || kv->slot[i].gen != gen) return NULL;
    return &kv->slot[i];
}

static kv_seq handle_of(const struct kv *kv, uint32_t slot)
{
    return kv->slot[slot].gen << kv->slot_bits | slot;
}

/* Returns the contents of a handle; of a stale one, those of an empty sequence. */
static const struct seq *seq_of(const struct kv *kv, kv_seq s)
{
    static const struct seq nothing;
    const struct slot *slot = slot_find(kv, s);
    return slot ? &kv->seq[slot->seq] : &nothing;
}

int seq_find(const struct kv *kv, kv_seq s, struct seq **out)
{
    struct slot *slot = slot_find(kv, s);
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
        return ERR(LIMIT, "cache: all %u sequences are in use; drop one or raise max_sequences",
                   kv->max_seqs);
    uint32_t i = kv->idle[--kv->n_idle];
    uint32_t last_gen = UINT32_MAX >> kv->slot_bits;
    struct slot *s = &kv->slot[i];
    s->gen = s->gen >= last_gen ? 1 : s->gen + 1; /* generation 0 would make handle 0 */
    s->reserve = s->grow = s->marks = 0;
    s->used = true;
    *out = i;
    return 0;
}

void seq_reset(struct kv *kv, struct seq *s)
{
    s->len = s->cross = s->n_turns = s->n_borrows = s->away = 0;
    s->kept = 0;
    s->turn_open = s->foreign = false;
    s->salt = (struct kv_salt){0};
    s->n_keys = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        s->g[gi].unseen = s->g[gi].raw_unseen = 0;
        for (uint32_t f = 0; f < FORMS; f++)
            s->g[gi].cut[f] = table_first(&kv->group[gi], f);
    }
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
    return seq_of(kv, handle)->salt;
}

bool kv_salt_same(const struct kv_salt *a, const struct kv_salt *b)
{
    _Static_assert(sizeof *a == 2 * sizeof a->pad + 3 * KV_DIGEST, "no byte is padding");
    return memcmp(a, b, sizeof *a) == 0;
}

uint32_t kv_reserved(const struct kv *kv, kv_seq handle)
{
    const struct slot *slot = slot_find(kv, handle);
    return slot ? slot->reserve : 0;
}

int kv_resalt(struct kv *kv, kv_seq handle, const struct kv_salt *salt)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    bool frozen = s->cross && (memcmp(s->salt.source, salt->source, KV_DIGEST) != 0 ||
                               memcmp(s->salt.adapter, salt->adapter, KV_DIGEST) != 0);
    if (seq_place(s) || frozen)
        return ERR(ARG,
                   "cache: the salt of a sequence with %u rows cannot change; trim it to 0 first",
                   seq_place(s) + s->cross);
    edit(kv, slot_index(kv, handle))->salt = *salt;
    return edited(kv, slot_index(kv, handle), NULL);
}

void cells_drop(struct kv *kv, struct seq *s, uint32_t gi, uint32_t form, uint32_t from,
                uint32_t to)
{
    struct group *g = &kv->group[gi];
    uint32_t *table = seq_table(kv, g, form, s);
    for (; from < to; from++) {
        if (table[from]) page_unref(kv, &g->form[form], table[from]);
        table[from] = 0;
    }
}

void cells_share(struct kv *kv, const struct seq *src, struct seq *dst, uint32_t gi)
{
    struct group *g = &kv->group[gi];
    const struct seq_group *from = &src->g[gi];
    struct seq_group *to = &dst->g[gi];
    to->unseen = from->unseen;
    to->raw_unseen = from->raw_unseen;
    for (uint32_t f = 0; f < FORMS; f++) {
        uint32_t n = table_used(g, f, seq_rows(g, src)), *table = seq_table(kv, g, f, dst);
        to->cut[f] = from->cut[f];
        if (n) memcpy(table, seq_table(kv, g, f, src), n * sizeof *table);
        for (uint32_t i = 0; i < n; i++)
            if (table[i]) page_ref(kv, &g->form[f], table[i]);
    }
}

void seq_clear(struct kv *kv, struct seq *s)
{
    index_hide(kv, s, 0);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        for (uint32_t f = 0; f < FORMS; f++)
            cells_drop(kv, s, gi, f, 0, table_used(g, f, seq_rows(g, s)));
        for (uint32_t i = 0; i < s->g[gi].n_keeps; i++)
            if (s->g[gi].keep[i].page) page_unref(kv, &g->form[RAW], s->g[gi].keep[i].page);
        s->g[gi].n_keeps = 0;
    }
    borrow_trim(kv, s, (struct borrow_cut){0});
    seq_reset(kv, s);
}

void seq_clone(struct kv *kv, const struct seq *src, struct seq *dst)
{
    dst->len = src->len;
    dst->cross = src->cross;
    dst->salt = src->salt;
    dst->n_turns = src->n_turns;
    dst->turn_open = src->turn_open;
    dst->foreign = src->foreign;
    dst->n_keys = src->n_keys;
    if (src->n_keys) memcpy(dst->key, src->key, (size_t)src->n_keys * KV_KEY);
    borrow_clone(kv, src, dst);
    memcpy(dst->tok, src->tok, seq_place(src) * sizeof *src->tok);
    memcpy(dst->turn, src->turn, src->n_turns * sizeof *src->turn);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct pages *p = &kv->group[gi].form[RAW];
        const struct seq_group *from = &src->g[gi];
        struct seq_group *to = &dst->g[gi];
        cells_share(kv, src, dst, gi);
        to->n_keeps = from->n_keeps;
        if (from->n_keeps) memcpy(to->keep, from->keep, from->n_keeps * sizeof *to->keep);
        for (uint32_t i = 0; i < to->n_keeps; i++)
            if (to->keep[i].page) page_ref(kv, p, to->keep[i].page);
    }
    uint32_t id = src->len && kv_fault.break_refs ? *seq_table(kv, &kv->group[0], RAW, dst) : 0;
    if (id) page_unref(kv, &kv->group[0].form[RAW], id);
}

static void slot_give(struct kv *kv, uint32_t slot)
{
    meta_orphan(kv, &kv->slot[slot]);
    kv->slot[slot].used = false;
    kv->slot[slot].marks = kv->slot[slot].reserve = kv->slot[slot].grow = 0;
    reserve_refill(kv, slot);
    kv->idle[kv->n_idle++] = slot;
}

/* Makes the new slot an owner of the contents, and makes room for its metadata.  Contents of a sequence with a reserve are
 * copied at once; its reserve takes the pages that the sequence can no longer count on. */
static int fork(struct kv *kv, uint32_t from, uint32_t slot)
{
    bool reserved = kv->slot[from].reserve != 0;
    if (reserved) TRY(reserve_settle(kv));
    own_join(kv, slot, &kv->seq[kv->slot[from].seq]);
    if (reserved) (void)seq_own(kv, slot);
    int e = reserve_fill_beside(kv, from, slot,
                                reserved ? "a fork of a sequence with a reserve" : "a fork");
    if (e >= 0) return 0;
    struct seq *s = own_part(kv, slot);
    if (!s->owners) seq_give(kv, s);
    meta_settle(kv, slot);
    reserve_refill(kv, from);
    return e;
}

int kv_fork(struct kv *kv, kv_seq src, kv_seq *out)
{
    struct seq *s;
    uint32_t i = 0;
    TRY(seq_idle(kv, src, &s));
    TRY(slot_take(kv, &i));
    uint32_t tries = 0;
    int e = 0;
    while (room_try_encode(kv, &tries, e))
        e = fork(kv, slot_index(kv, src), i);
    if (e < 0) {
        slot_give(kv, i);
        return e;
    }
    kv->max_refs = MAX(kv->max_refs, s->owners);
    kv->forks++;
    *out = handle_of(kv, i);
    return 0;
}

struct seq *seq_part(struct kv *kv, uint32_t slot)
{
    struct seq *s = own_part(kv, slot);
    slot_give(kv, slot);
    return s;
}

int kv_drop(struct kv *kv, kv_seq handle)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    s = seq_part(kv, slot_index(kv, handle));
    if (!s->owners && !s->marks) seq_give(kv, s);
    return 0;
}

uint32_t kv_len(const struct kv *kv, kv_seq s)
{
    return seq_place(seq_of(kv, s));
}

uint32_t kv_borrowed(const struct kv *kv, kv_seq s)
{
    return seq_of(kv, s)->away;
}

uint32_t kv_cross(const struct kv *kv, kv_seq s)
{
    return seq_of(kv, s)->cross;
}

const int32_t *kv_tokens(const struct kv *kv, kv_seq s)
{
    return seq_of(kv, s)->tok;
}

const struct kv_turn *kv_turns(const struct kv *kv, kv_seq s, uint32_t *n)
{
    *n = seq_of(kv, s)->n_turns;
    return seq_of(kv, s)->turn;
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
