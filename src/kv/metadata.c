/* metadata.c - the bytes that sequences need beside their rows, and how the budget holds them.
 *
 * What counts.  The tokens, turns, keys and table cells of contents, their snapshots, and the
 * records of pages that may leave memory.  All of them grow with the rows.  Arrays whose size does
 * not depend on the sequences in use are counted once, when the store is opened (kv.fixed).
 *
 * How much.  A slot is charged for as many rows as its contents, its reserve or one of its marks
 * have, rounded up to META_ROWS: once for its contents, and once for each mark, but at least one.
 * So the first mark of a sequence is paid for, and so is the copy that a change of shared contents
 * makes.  The charge of a slot with marks does not fall below that of the marked contents.  Hence
 * appends, trims, rollbacks, releases and drops after the charge never raise it, and cannot fail.
 *
 * When.  Only a longer sequence or reserve, a fork, a second mark, a match, a load, or a reorder of
 * sequences of different lengths raise the charge.  Each of them makes room first.
 *
 * Who.  Between two calls of the store, every slot is charged for exactly what it has (meta_check):
 * edited sees to that (edit.c), and so do the functions that move owners and marks, as their last step.
 * The exceptions: while a step is open its slots may be charged for more rows than they have
 * (meta_grow); and contents without a slot are charged each by themselves (meta_alone): the marks of a slot that is
 * dropped (meta_orphan), and lenders (borrow.c). */
#include "kv/kv_int.h"

#define META_ROWS 64u

size_t meta_record(bool moves)
{
    size_t page = sizeof(struct page) + sizeof(uint32_t) + sizeof(struct id_run) / KV_RUN + 1;
    return moves ? page + sizeof(struct queue_place) + 2 * sizeof(uint32_t) : page;
}

/* Returns the bytes of the tables, snapshots and page records of contents in one group. */
static size_t group_bytes(const struct group *g, uint32_t rows)
{
    bool state = g->c.policy.kind == KV_STATE;
    size_t sum = g->forgets && g->c.policy.every ? KV_KEEPS * sizeof(struct keep) : 0;
    for (uint32_t f = 0; f < (may_seal(g) ? FORMS : 1u); f++) {
        size_t cells = state ? 1 : ((size_t)rows + g->rows[f] - 1) / g->rows[f];
        sum += cells * sizeof(uint32_t); /* the table */
        if (g->moves[f])
            sum += cells * sizeof(uint32_t) + (cells + KV_SPARE_IDS) * meta_record(true);
    }
    return sum;
}

size_t meta_unit(const struct kv *kv, uint32_t rows)
{
    rows = (rows + META_ROWS - 1) / META_ROWS * META_ROWS;
    if (!rows) return 0;
    size_t turns = rows / 2 + 2, blocks = kv->index.on ? rows / KV_STRIP + 1 : 0;
    size_t sum = rows * sizeof(int32_t) + turns * sizeof(struct kv_turn) +
                 blocks * (KV_KEY + sizeof(struct key_node));
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        sum += group_bytes(&kv->group[gi], rows);
    return sum;
}

static uint32_t rows_of(const struct seq *s)
{
    return MAX(seq_place(s), s->cross);
}

size_t meta_alone(const struct kv *kv, const struct seq *s)
{
    return meta_unit(kv, rows_of(s));
}

/* Returns what the slot would be charged if its contents had `rows` rows. */
static size_t due_with(const struct kv *kv, uint32_t slot, uint32_t rows)
{
    const struct slot *s = &kv->slot[slot];
    uint32_t marks = 0;
    rows = MAX(rows, s->reserve);
    for (uint32_t i = s->marks; i; i = kv->mark[i - 1].next, marks++) {
        const struct mark *m = &kv->mark[i - 1];
        rows = MAX(rows, MAX(m->reserve, rows_of(&kv->seq[m->at])));
    }
    return (1 + MAX(marks, 1)) * meta_unit(kv, rows);
}

static size_t due_now(const struct kv *kv, uint32_t slot)
{
    const struct slot *s = &kv->slot[slot];
    return s->used && s->seq != KV_NONE ? due_with(kv, slot, rows_of(&kv->seq[s->seq])) : 0;
}

static void charge(struct kv *kv, struct slot *s, size_t due)
{
    kv->used += due - s->meta;
    s->meta = due;
}

ptrdiff_t meta_change(const struct kv *kv, uint32_t slot, uint32_t rows)
{
    return (ptrdiff_t)due_with(kv, slot, rows) - (ptrdiff_t)kv->slot[slot].meta;
}

size_t meta_lacks(const struct kv *kv, uint32_t slot)
{
    size_t due = due_now(kv, slot);
    return due - MIN(due, kv->slot[slot].meta);
}

void meta_grow(struct kv *kv, uint32_t slot, uint32_t rows)
{
    charge(kv, &kv->slot[slot], due_with(kv, slot, rows));
}

void meta_settle(struct kv *kv, uint32_t slot)
{
    charge(kv, &kv->slot[slot], due_now(kv, slot));
}

void meta_orphan(struct kv *kv, struct slot *slot)
{
    for (uint32_t i = slot->marks; i; i = kv->mark[i - 1].next)
        kv->used += meta_alone(kv, &kv->seq[kv->mark[i - 1].at]);
}

bool meta_check(const struct kv *kv)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < kv->max_seqs; i++) {
        const struct slot *s = &kv->slot[i];
        size_t due = due_now(kv, i);
        bool busy = s->used && kv->seq[s->seq].busy; /* its charge includes the rows of its step */
        if (busy ? s->meta < due : s->meta != due) return false;
        sum += s->meta;
    }
    for (const struct mark *m = kv->mark; m < kv->mark + kv->max_marks; m++)
        sum += m->seq && !slot_find(kv, m->seq) ? meta_alone(kv, &kv->seq[m->at]) : 0;
    for (uint32_t i = 0; i < kv->n_contents; i++)
        sum += kv->seq[i].lent ? meta_alone(kv, &kv->seq[i]) : 0;
    return sum == kv->used;
}
