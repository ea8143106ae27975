/* borrow.c - borrowed rows: rows that a sequence reads where another sequence computed them, at
 * other positions.
 *
 * Own rows and runs.  The text of a sequence may have runs of tokens whose rows belong to another
 * sequence.  The sequence's own rows lie in its tables without gaps, as if there were no runs.  So
 * tiles, edges, forks and the drop rule know nothing of runs.  A run (struct borrow) names a place in
 * the text and rows of the other sequence.  Views list the runs beside the tables (struct kv_borrowed).
 * Attention turns the queries that meet borrowed rows: (R_p q) . (R_n k) depends on p - n alone.  So
 * keys stay as they are stored, in any form.
 *
 * Lengths.  `len` of contents counts own rows.  Callers of the store count tokens, borrowed rows
 * included.  kv_len, kv_resume, kv_trim and the functions below them convert one into the other.
 *
 * Lenders.  Rows are borrowed from a lender: a sequence with a copy of the donor's tables, which shares
 * the donor's pages.  The lender is in a slot that no handle names (slot_find), so nobody edits the
 * lender and its rows stay as they are.  slot.borrowers counts the runs that borrow from it; when the
 * last of them ends, the lender is dropped. */
#include "kv/kv_int.h"

#include <string.h>

int borrow_arrays(struct kv *kv)
{
    if (!kv->borrows) return 0;
    size_t step = (size_t)kv->lanes * kv->borrows;
    struct kv_step *st = &kv->step;
    TRY(kv_array(kv, &kv->borrow, (size_t)kv->n_contents * kv->borrows, sizeof *kv->borrow));
    TRY(kv_array(kv, &st->borrowed, step, sizeof *st->borrowed));
    TRY(kv_array(kv, &st->borrowed0, kv->lanes + 1u, sizeof *st->borrowed0));
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        uint32_t **edge = &kv->group[gi].borrowed_edge;
        TRY(kv_array(kv, edge, step, sizeof **edge));
    }
    return 0;
}

/* --- Lengths ---------------------------------------------------------------------------------- */

struct borrow_cut borrow_at(const struct seq *s, uint32_t len)
{
    uint32_t place = 0, rows = 0;
    for (uint32_t i = 0; i < s->n_borrows; i++) {
        const struct borrow *b = &s->borrow[i];
        if (len <= place + (b->at - rows)) return (struct borrow_cut){rows + len - place, i, 0};
        place += b->at - rows;
        rows = b->at;
        if (len < place + b->n) return (struct borrow_cut){rows, i, len - place};
        place += b->n;
    }
    return (struct borrow_cut){rows + len - place, s->n_borrows, 0};
}

uint32_t borrow_place(const struct seq *s, uint32_t rows)
{
    uint32_t place = rows;
    for (uint32_t i = 0; i < s->n_borrows && s->borrow[i].at <= rows; i++)
        place += s->borrow[i].n;
    return place;
}

/* A turn never has rows on both sides of a run. */
struct kv_turn kv_past_turn(const struct kv_past *p, uint32_t i)
{
    struct kv_turn t = p->turn[i];
    uint32_t row = t.pos;
    for (uint32_t k = 0; k < p->n_borrows && p->borrow[k].at <= row; k++)
        t.pos += p->borrow[k].n;
    return t;
}

/* --- Holding ---------------------------------------------------------------------------------- */

/* Ends one run that borrows from a slot; drops the lender if that was its last run. */
static void leave(struct kv *kv, uint32_t slot)
{
    if (--kv->slot[slot].borrowers) return;
    struct seq *d = seq_part(kv, slot);
    if (!d->owners && !d->marks) seq_give(kv, d);
}

void borrow_trim(struct kv *kv, struct seq *s, struct borrow_cut c)
{
    uint32_t keep = c.runs + (c.last > 0);
    while (s->n_borrows > keep) {
        struct borrow b = s->borrow[--s->n_borrows];
        s->away -= b.n;
        leave(kv, b.slot);
    }
    if (!c.last) return;
    s->away -= s->borrow[c.runs].n - c.last;
    s->borrow[c.runs].n = c.last;
}

void borrow_clone(struct kv *kv, const struct seq *src, struct seq *dst)
{
    dst->n_borrows = src->n_borrows;
    dst->away = src->away;
    for (uint32_t i = 0; i < src->n_borrows; i++) {
        dst->borrow[i] = src->borrow[i];
        kv->slot[src->borrow[i].slot].borrowers++;
    }
}

/* True if the slot of these contents is a lender already. */
static bool lends(const struct kv *kv, const struct seq *s)
{
    return s->owners == 1 && kv->slot[s->slot].borrowers;
}

/* Finds the tokens among the rows of a donor; *row is the first of them. */
static bool has(const struct seq *d, const int32_t *tok, uint32_t n, uint32_t *row)
{
    for (uint32_t i = 0; n <= d->len && i <= d->len - n; i++)
        if (d->tok[i] == *tok && memcmp(d->tok + i, tok, n * sizeof *tok) == 0) {
            *row = i;
            return true;
        }
    return false;
}

/* Finds contents that have the tokens.  Lenders come first, because they need no further slot.  Returns NULL if
 * nobody has the tokens, or if s has all the runs that it may have. */
static struct seq *find(struct kv *kv, const struct seq *s, const int32_t *tok, uint32_t n,
                        uint32_t *row)
{
    for (int fresh = 0; fresh < 2 && s->n_borrows < kv->borrows; fresh++)
        for (struct seq *d = NULL; (d = seq_each(kv, d));)
            if (d != s && lends(kv, d) != fresh && index_donor(d) &&
                kv_salt_same(&d->salt, &s->salt) && has(d, tok, n, row))
                return d;
    return NULL;
}

static int check(const struct kv *kv, kv_seq handle, uint32_t n, struct seq **s)
{
    TRY(seq_idle(kv, handle, s));
    if (!kv->borrows)
        return ERR(UNSUPPORTED, "cache: it was opened for sequences that borrow no rows");
    return n ? 0 : ERR(ARG, "cache: no tokens to find");
}

int kv_finds(struct kv *kv, kv_seq handle, const int32_t *tok, uint32_t n)
{
    struct seq *s;
    uint32_t row;
    TRY(check(kv, handle, n, &s));
    struct seq *d = find(kv, s, tok, n, &row);
    if (d && d->kept) index_wanted(kv, d);
    return d != NULL;
}

/* Finds the lender of a donor's rows, or makes one.  Making room for the lender can evict the donor if the donor is
 * kept contents. */
static int hold(struct kv *kv, struct seq *d, uint32_t *slot)
{
    kv_seq handle;
    if (d->kept) index_wanted(kv, d);
    if (lends(kv, d)) {
        *slot = d->slot;
        return 0;
    }
    TRY(kv_new(kv, &d->salt, &handle));
    *slot = slot_index(kv, handle);
    int e = index_attach(kv, *slot, d, d->len);
    if (e < 0) (void)kv_drop(kv, handle);
    return e;
}

/* Appends a run to contents that are being edited. */
static void append(struct kv *kv, struct seq *s, const struct borrow *b, const int32_t *tok)
{
    if (s->turn_open && s->turn[s->n_turns - 1].n == 1) s->n_turns--;
    s->turn_open = false;
    memcpy(s->tok + seq_place(s), tok, b->n * sizeof *tok);
    s->borrow[s->n_borrows++] = *b;
    s->away += b->n;
    kv->slot[b->slot].borrowers++;
    /* From now on the positions of its own rows are not their places in the text. */
    index_hide(kv, s, 0);
    s->n_keys = 0;
}

int kv_borrow(struct kv *kv, kv_seq handle, const int32_t *tok, uint32_t n, uint32_t skip,
              uint32_t *rows)
{
    struct seq *s;
    struct borrow b = {0};
    *rows = 0;
    TRY(check(kv, handle, n, &s));
    if (skip >= n) return ERR(ARG, "cache: %u of %u tokens leave none to borrow", skip, n);
    if (n - skip > kv->max_len - seq_place(s))
        return ERR(LIMIT, "cache: %u rows after %u exceed the maximum length of %u", n - skip,
                   seq_place(s), kv->max_len);
    struct seq *d = find(kv, s, tok, n, &b.row);
    if (!d || hold(kv, d, &b.slot) < 0) return 0;
    uint32_t slot = slot_index(kv, handle), before = kv->seq[kv->slot[slot].seq].n_turns;
    s = edit(kv, slot);
    bool open = s->turn_open;
    b.row += skip;
    b.n = n - skip;
    b.at = s->len;
    append(kv, s, &b, tok + skip);
    if (edited(kv, slot, "borrowing rows") >= 0) {
        *rows = b.n;
        return 0;
    }
    s = edit(kv, slot);
    s->n_turns = before;
    s->turn_open = open;
    borrow_trim(kv, s, (struct borrow_cut){s->len, s->n_borrows - 1, 0});
    return edited(kv, slot, NULL);
}

/* --- Steps ------------------------------------------------------------------------------------ */

uint32_t kv_step_borrowed(const struct kv_step *st, const struct kv_borrowed **out)
{
    *out = st->borrowed;
    return st->borrowed0 ? st->borrowed0[st->n_spans] : 0;
}

static void fill_edges(const struct kv *kv, const struct seq *d, uint32_t i)
{
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct kv_seal *seal = &kv->group[gi].c.seal;
        uint32_t e = edge_cut(seal, d->turn, d->n_turns, d->len, d->turn_open);
        kv->group[gi].borrowed_edge[i] = seal->tile ? MAX(e, seal->lead) : 0;
    }
}

void borrow_fill(struct kv_step *st)
{
    struct kv *kv = st->kv;
    uint32_t n = 0;
    for (uint32_t k = 0; kv->borrows && k < st->n_spans; k++) {
        const struct seq *s = &kv->seq[st->span[k].seq];
        uint32_t before = 0;
        st->borrowed0[k] = n;
        for (uint32_t i = 0; i < s->n_borrows; i++, n++) {
            const struct borrow *b = &s->borrow[i];
            uint32_t slot = kv->slot[b->slot].seq;
            st->borrowed[n] = (struct kv_borrowed){slot, b->row, b->row + b->n,
                                                   (int32_t)(b->at + before) - (int32_t)b->row};
            before += b->n;
            fill_edges(kv, &kv->seq[slot], n);
        }
    }
    if (kv->borrows) st->borrowed0[st->n_spans] = n;
}

/* --- Check ------------------------------------------------------------------------------------ */

bool borrow_check(const struct kv *kv)
{
    uint64_t named = 0, counted = 0;
    for (const struct seq *s = NULL; (s = seq_each(kv, s));) {
        uint32_t away = 0, at = 0;
        for (uint32_t i = 0; i < s->n_borrows; i++, named++) {
            const struct borrow *b = &s->borrow[i];
            const struct slot *from = &kv->slot[b->slot];
            if (!from->used || !from->borrowers || from->reserve) return false;
            const struct seq *d = &kv->seq[from->seq];
            if (d->n_borrows || !b->n || b->row + b->n > d->len || b->at < at || b->at > s->len)
                return false;
            at = b->at;
            away += b->n;
        }
        if (away != s->away || seq_place(s) > kv->max_len) return false;
    }
    for (uint32_t i = 0; i < kv->max_seqs; i++)
        counted += kv->slot[i].used ? kv->slot[i].borrowers : 0;
    return named == counted;
}
