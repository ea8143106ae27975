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
 * Lenders.  Rows are borrowed from a lender: contents without a slot, with a copy of the donor's tables,
 * which shares the donor's pages.  So nobody edits the lender, and its rows stay as they are.  seq.lent
 * counts the runs that borrow from it, and the loans that are not runs yet; when the last of them ends,
 * the lender is given up.  A store has at most kv.lenders of them, beside the contents of slots and marks.
 *
 * Search.  A loan is found by one pass over the texts of other sequences (Knuth, Morris and Pratt), so
 * the time grows with the number of their tokens, whatever the tokens are. */
#include "kv/kv_int.h"

#include <string.h>

int borrow_arrays(struct kv *kv)
{
    if (!kv->borrows) return 0;
    size_t step = (size_t)kv->lanes * kv->borrows;
    struct kv_step *st = &kv->step;
    TRY(kv_array(kv, &kv->borrow, (size_t)kv->n_contents * kv->borrows, sizeof *kv->borrow));
    TRY(kv_array(kv, &kv->border, kv->max_len, sizeof *kv->border));
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

/* Returns turn i, with its position counted over borrowed rows as well.  A turn never has rows on both sides of a run. */
struct kv_turn kv_past_turn(const struct kv_past *p, uint32_t i)
{
    struct kv_turn t = p->turn[i];
    uint32_t row = t.pos;
    for (uint32_t k = 0; k < p->n_borrows && p->borrow[k].at <= row; k++)
        t.pos += p->borrow[k].n;
    return t;
}

/* --- Holding ---------------------------------------------------------------------------------- */

/* Ends one run or loan of a lender; gives up the lender if that was its last one. */
static void leave(struct kv *kv, struct seq *d)
{
    if (--d->lent) return;
    kv->used -= meta_alone(kv, d);
    kv->n_lenders--;
    seq_give(kv, d);
}

void borrow_trim(struct kv *kv, struct seq *s, struct borrow_cut c)
{
    uint32_t keep = c.runs + (c.last > 0);
    while (s->n_borrows > keep) {
        struct borrow b = s->borrow[--s->n_borrows];
        s->away -= b.n;
        leave(kv, &kv->seq[b.from]);
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
        kv->seq[src->borrow[i].from].lent++;
    }
}

/* Computes border[i]: the length of the longest text, shorter than i + 1 tokens, with which the first i + 1 tokens both begin
 * and end. */
static void borders(const int32_t *tok, uint32_t n, uint32_t *border)
{
    border[0] = 0;
    for (uint32_t i = 1, k = 0; i < n; i++) {
        while (k && tok[i] != tok[k])
            k = border[k - 1];
        k += tok[i] == tok[k];
        border[i] = k;
    }
}

/* Finds the tokens among the rows of donor d.  *row is the first row. */
static bool has(const struct seq *d, const int32_t *tok, uint32_t n, const uint32_t *border,
                uint32_t *row)
{
    for (uint32_t i = 0, k = 0; i < d->len && n <= d->len; i++) {
        while (k && d->tok[i] != tok[k])
            k = border[k - 1];
        k += d->tok[i] == tok[k];
        *row = i + 1 - k;
        if (k == n) return true;
    }
    return false;
}

/* Returns a lender of the donor's rows, with one more loan: the donor itself if it is a lender, else a copy of its
 * tables.  Returns NULL if there is no room.  Making room can evict the donor if the donor is kept contents. */
static struct seq *lender_of(struct kv *kv, struct seq *d)
{
    uint32_t owner = seq_reserve(kv, d) ? d->slot : KV_NONE;
    size_t meta = meta_alone(kv, d);
    if (d->lent) {
        d->lent++;
        return d;
    }
    if (kv->n_lenders == kv->lenders) return NULL;
    if (d->kept) index_wanted(kv, d);
    struct seq *s = spare_take(kv);
    seq_clone(kv, d, s);
    edited_contents(kv, s);
    s->lent = 1;
    kv->n_lenders++;
    int e = make_room(kv, 0, meta, "borrowing rows");
    kv->used += meta;
    if (e >= 0) e = reserve_settle(kv);
    if (e >= 0 && owner != KV_NONE) e = reserve_fill(kv, owner, "borrowing rows");
    if (e >= 0) return s;
    leave(kv, s);
    if (owner != KV_NONE) reserve_refill(kv, owner);
    return NULL;
}

int kv_lend(struct kv *kv, kv_seq handle, const int32_t *tok, uint32_t n, struct kv_loan *loan)
{
    struct seq *s, *from;
    TRY(seq_idle(kv, handle, &s));
    if (!kv->borrows)
        return ERR(UNSUPPORTED, "cache: it was opened for sequences that borrow no rows");
    if (!n) return ERR(ARG, "cache: no tokens to find");
    if (n > kv->max_len || s->n_borrows == kv->borrows) return 0;
    borders(tok, n, kv->border);
    for (int fresh = 0; fresh < 2; fresh++) /* lenders first, because they need no further copy */
        for (struct seq *d = NULL; (d = seq_each(kv, d));) {
            if (d == s || (d->lent > 0) == fresh || !index_donor(d) ||
                !kv_salt_same(&d->salt, &s->salt) || !has(d, tok, n, kv->border, &loan->row))
                continue;
            if (!(from = lender_of(kv, d))) return 0;
            loan->from = from->id;
            loan->n = n;
            return 1;
        }
    return 0;
}

void kv_loan_end(struct kv *kv, const struct kv_loan *loan)
{
    leave(kv, &kv->seq[loan->from]);
}

/* Appends a run to contents that are being edited. */
static void append_borrow(struct kv *kv, struct seq *s, const struct borrow *b)
{
    struct seq *d = &kv->seq[b->from];
    if (s->turn_open && s->turn[s->n_turns - 1].n == 1) s->n_turns--;
    s->turn_open = false;
    memcpy(s->tok + seq_place(s), d->tok + b->row, b->n * sizeof *s->tok);
    s->borrow[s->n_borrows++] = *b;
    s->away += b->n;
    d->lent++;
    /* From here on the positions of the sequence's own rows differ from their places in the text, so others cannot
     * use them. */
    index_hide(kv, s, 0);
    s->n_keys = 0;
}

int kv_borrow(struct kv *kv, kv_seq handle, const struct kv_loan *loan, uint32_t skip,
              uint32_t *rows)
{
    struct seq *s;
    *rows = 0;
    TRY(seq_idle(kv, handle, &s));
    if (skip >= loan->n)
        return ERR(ARG, "cache: %u of %u tokens leave none to borrow", skip, loan->n);
    if (loan->n - skip > kv->max_len - seq_place(s))
        return ERR(LIMIT, "cache: %u rows after %u exceed the maximum length of %u", loan->n - skip,
                   seq_place(s), kv->max_len);
    if (s->n_borrows == kv->borrows) return 0;
    uint32_t slot = slot_index(kv, handle), before = s->n_turns;
    s = edit(kv, slot);
    bool open = s->turn_open;
    append_borrow(kv, s, &(struct borrow){loan->from, loan->row + skip, loan->n - skip, s->len});
    if (edited(kv, slot, "borrowing rows") >= 0) {
        *rows = loan->n - skip;
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
            st->borrowed[n] = (struct kv_borrowed){b->from, b->row, b->row + b->n,
                                                   (int32_t)(b->at + before) - (int32_t)b->row};
            before += b->n;
            fill_edges(kv, &kv->seq[b->from], n);
        }
    }
    if (kv->borrows) st->borrowed0[st->n_spans] = n;
}

/* --- Check ------------------------------------------------------------------------------------ */

/* Checks runs and lenders.  No loan may be open, or the count of its lender would be one more than its runs. */
bool borrow_check(const struct kv *kv)
{
    uint64_t named = 0, counted = 0;
    uint32_t lenders = 0;
    for (const struct seq *s = NULL; (s = seq_each(kv, s));) {
        uint32_t away = 0, at = 0;
        for (uint32_t i = 0; i < s->n_borrows; i++, named++) {
            const struct borrow *b = &s->borrow[i];
            const struct seq *d = &kv->seq[b->from];
            if (!d->lent || !b->n || b->row + b->n > d->len || b->at < at || b->at > s->len)
                return false;
            at = b->at;
            away += b->n;
        }
        if (away != s->away || seq_place(s) > kv->max_len) return false;
        if (s->lent && (s->owners || s->marks || s->kept || s->n_borrows)) return false;
        lenders += s->lent > 0;
        counted += s->lent;
    }
    return named == counted && lenders == kv->n_lenders;
}
