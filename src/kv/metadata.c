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
 * sequences of different lengths raise the charge.  Each of them makes room first.  A step compares
 * two numbers for each of its sequences, and looks further once every META_ROWS rows.
 *
 * Who.  Between two calls of the store, every slot is charged for exactly what it has (meta_check):
 * edited sees to that (edit.c), and so do the functions that move owners and marks, as their last step.
 * The exceptions: while a step is open its slots may be charged for more rows than they have
 * (meta_grow); and the marks of a slot that is dropped are charged each by itself (meta_orphan). */
#include "kv/kv_int.h"

#define META_ROWS 64u

size_t meta_record(bool moves)
{
    size_t page = sizeof(struct page) + sizeof(uint32_t) + sizeof(struct run) / KV_RUN + 1;
    return moves ? page + sizeof(struct place) + 2 * sizeof(uint32_t) : page;
}

size_t meta_group(const struct group *g, const bool moves[FORMS], uint32_t rows)
{
    bool state = g->c.policy.kind == KV_STATE;
    size_t sum = g->forgets && g->c.policy.every ? KV_KEEPS * sizeof(struct keep) : 0;
    for (uint32_t f = 0; f < (g->c.seal.tile ? FORMS : 1u); f++) {
        size_t cells = state ? 1 : ((size_t)rows + g->rows[f] - 1) / g->rows[f];
        sum += cells * sizeof(uint32_t); /* the table */
        if (moves[f]) sum += cells * sizeof(uint32_t) + (cells + KV_SPARE_IDS) * meta_record(true);
    }
    return sum;
}

size_t meta_tokens(bool index, uint32_t rows)
{
    size_t turns = rows / 2 + 2, blocks = index ? rows / KV_STRIP + 1 : 0;
    return rows * sizeof(int32_t) + turns * sizeof(struct kv_turn) +
           blocks * (KV_KEY + sizeof(struct node));
}

uint32_t meta_round(uint32_t rows)
{
    return (rows + META_ROWS - 1) / META_ROWS * META_ROWS;
}

size_t meta_unit(const struct kv *kv, uint32_t rows)
{
    rows = meta_round(rows);
    size_t sum = rows ? meta_tokens(kv->index.on, rows) : 0;
    for (uint32_t gi = 0; rows && gi < kv->n_groups; gi++)
        sum += meta_group(&kv->group[gi], kv->group[gi].moves, rows);
    return sum;
}

static uint32_t rows_of(const struct seq *s)
{
    return MAX(s->len, s->cross);
}

/* What a slot is charged: so many copies of metadata of so many rows. */
struct due {
    uint32_t rows, copies;
};

/* Computes what the slot is charged if its contents have `rows` rows. */
static struct due due_with(const struct kv *kv, uint32_t slot, uint32_t rows)
{
    const struct slot *s = &kv->slot[slot];
    uint32_t marks = 0;
    rows = MAX(rows, s->reserve);
    for (uint32_t i = s->marks; i; i = kv->mark[i - 1].next, marks++) {
        const struct mark *m = &kv->mark[i - 1];
        rows = MAX(rows, MAX(m->reserve, rows_of(&kv->seq[m->at])));
    }
    return (struct due){meta_round(rows), 1 + MAX(marks, 1)};
}

static size_t bytes_of(const struct kv *kv, struct due due)
{
    return due.copies * meta_unit(kv, due.rows);
}

static struct due due_now(const struct kv *kv, uint32_t slot)
{
    const struct slot *s = &kv->slot[slot];
    if (!s->used || s->seq == KV_NONE) return (struct due){0, 0};
    return due_with(kv, slot, rows_of(&kv->seq[s->seq]));
}

static void charge(struct kv *kv, uint32_t slot, struct due due)
{
    struct slot *s = &kv->slot[slot];
    if (s->meta_rows == due.rows && s->meta_copies == due.copies) return;
    kv->used -= s->meta;
    s->meta = bytes_of(kv, due);
    kv->used += s->meta;
    s->meta_rows = due.rows;
    s->meta_copies = due.copies;
}

ptrdiff_t meta_change(const struct kv *kv, uint32_t slot, uint32_t rows)
{
    return (ptrdiff_t)bytes_of(kv, due_with(kv, slot, rows)) - (ptrdiff_t)kv->slot[slot].meta;
}

size_t meta_lacks(const struct kv *kv, uint32_t slot)
{
    size_t want = bytes_of(kv, due_now(kv, slot));
    return want - MIN(want, kv->slot[slot].meta);
}

size_t meta_step(const struct kv *kv, uint32_t slot, uint32_t rows)
{
    if (rows <= kv->slot[slot].meta_rows) return 0;
    return (size_t)MAX(meta_change(kv, slot, rows), 0);
}

void meta_grow(struct kv *kv, uint32_t slot, uint32_t rows)
{
    if (rows > kv->slot[slot].meta_rows) charge(kv, slot, due_with(kv, slot, rows));
}

void meta_settle(struct kv *kv, uint32_t slot)
{
    charge(kv, slot, due_now(kv, slot));
}

void meta_orphan(struct kv *kv, struct slot *slot)
{
    for (uint32_t i = slot->marks; i; i = kv->mark[i - 1].next) {
        struct mark *m = &kv->mark[i - 1];
        m->meta = meta_unit(kv, rows_of(&kv->seq[m->at]));
        kv->used += m->meta;
    }
}

bool meta_check(const struct kv *kv)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < kv->max_seqs; i++) {
        const struct slot *s = &kv->slot[i];
        size_t due = bytes_of(kv, due_now(kv, i));
        bool busy = s->used && kv->seq[s->seq].busy; /* charged for the rows of its step, too */
        if (busy ? s->meta < due : s->meta != due) return false;
        sum += s->meta;
    }
    for (uint32_t i = 0; i < kv->max_marks; i++)
        sum += kv->mark[i].meta;
    return sum == kv->used;
}

size_t kv_metadata_bytes(const struct kv_config *c, uint32_t rows)
{
    rows = meta_round(rows);
    size_t sum = rows ? meta_tokens(c->index, rows) : 0;
    for (uint32_t gi = 0; rows && gi < c->n_groups; gi++) {
        struct group g = {.c = c->group[gi]};
        bool moves[FORMS] = {false};
        if (group_measure(&g) < 0) return SIZE_MAX;
        for (uint32_t f = 0; f < FORMS && c->streaming != KV_RESIDENT; f++)
            moves[f] = form_moves(&g, f);
        sum += meta_group(&g, moves, rows);
    }
    return sum;
}
