/* kv_int.h - inside the store: groups, the open step, the store, and who may call what.  seq_int.h, pages_int.h,
 * stream_int.h, reserve_int.h and index_int.h, which every file of the store sees through this one, have the other nouns.
 *
 * There are three layers.
 *   pool.c hands out page ids and counts references.  It knows no sequence.
 *   keep.c, reserve.c and table cells say which pages a sequence holds and why.  queue.c says
 *   which pages may leave memory, spill.c moves them, and stage.c says how a step reads them then.
 *   store.c, seq.c, step.c and trim.c are the operations.  What they change stands between edit and
 *   edited (edit.c).
 *
 * Each operation leaves every invariant of check.c true, or returns an error and has changed
 * nothing. */
#pragma once
#include "kv/image.h"
#include "kv/index_int.h"
#include "kv/reserve_int.h"
#include "kv/seq_int.h"
#include "kv/stream_int.h"

struct group {
    struct kv_group c;
    struct pages form[FORMS]; /* n_ids 0: no such form */
    uint32_t rows[FORMS];     /* per page; state pages count as one row */
    uint32_t stride[FORMS];
    size_t offset[FORMS][KV_MAX_PLANES];
    struct kv_block tables[FORMS]; /* [n_contents][stride] for the contents that steps may name */
    uint32_t keep_rows;            /* leading rows that stay raw for ever: sinks and lead */
    bool forgets;                  /* the group is a state, or drops the rows below the reach */
    /* a codec that changes values, so a row must be read in the form that the edge says */
    bool lossy;
    /* The arrays of views. */
    /* owns the arrays that follow, as one block; the first of them is its beginning */
    struct kv_block arrays;
    uint32_t *counts;               /* [3] */
    uint32_t *len, *from;           /* [max_seqs] */
    uint32_t *lo, *hi, *edge, *dst; /* [max_tokens] */
    uint32_t *enc;                  /* [max_tokens / tile + max_seqs][2] */
    uint32_t *borrowed_edge;        /* [lanes * borrows] edges of the lanes' borrowed rows */
    /* streaming */
    bool moves[FORMS];     /* pages of the form may live in the tier */
    uint32_t unit[FORMS];  /* rows that are staged together: whole atoms, no less than a page */
    uint32_t slots[FORMS]; /* pages that fit into half of the staging area */
    /* pieces of a site in the open step; 0: the step reads nothing from the tier */
    uint32_t n_pieces;
    struct piece *piece; /* [pieces + 1] sealed rows, then raw rows */
    uint32_t *staged;    /* page ids, piece by piece */
    /* [n_contents][stride] the tables that views show in place of `tables` */
    struct kv_block shown[FORMS];
};
/* What begin did to a table cell: page `old` was replaced.  `old` keeps its reference until the
 * step ends. */
struct change {
    struct pages *pages;
    uint32_t *cell, old;
    struct group *copied; /* old is a shared open block of this group; NULL: old is 0 */
};
/* A span of the open step, and what abort restores. */
struct step_span {
    struct kv_span rows; /* as kv_begin got it; but `turn` is false for the rows of frozen groups */
    /* seq: index of the contents in kv.seq; tok0: the span's first token in the step */
    uint32_t seq, tok0;
    /* of the contents before the step, for abort: turn_open, and the rows of the last turn */
    bool was_open;
    uint32_t n_turns, turn_n;
};
struct kv_step {
    struct kv *kv;
    bool open, cross;
    uint32_t n_spans, n_tokens, n_changes;
    struct step_span *span; /* [max_seqs] */
    struct change *change;  /* [n_change_max] */
    struct kv_block arrays; /* owns slot, lane and pos as one block, which begins with slot */
    uint32_t *slot;         /* [max_seqs] */
    uint32_t *lane, *pos;   /* [max_tokens] */
    uint32_t *given;        /* [n_sites] pieces that kv_next has shown since it last returned 0 */
    struct kv_borrowed *borrowed; /* [lanes * borrows] the runs that the spans' sequences borrow */
    uint32_t *borrowed0;          /* [lanes + 1] the first entry of `borrowed` of each lane */
    /* times of a trace: when the step began, and when its present layer began */
    double begun, entered;
    uint32_t layer; /* site of the present layer; KV_NONE: none yet */
};
/* The oldest snapshots of live contents (age.c).  The arrays are NULL if no group makes snapshots. */
struct ages {
    uint64_t *stamp; /* [n_contents] of the oldest snapshot that may be evicted */
    /* [n_contents] contents with snapshots that the eviction plan being made has chosen */
    uint32_t *doomed, n_doomed;
    /* for tests: choices that a walk was compared with, and choices that the walk disproved */
    uint64_t walked, strayed;
};
struct kv {
    struct dev *dev;        /* pages lie in its memory */
    struct dev_queue *work; /* queue of `dev` for copies and for the operations on views */
    uint32_t n_groups, n_sites;
    uint32_t max_seqs, max_tokens, max_len, slot_bits;
    uint32_t lanes;              /* sequences of one step */
    uint32_t redo;               /* kv_config.redo */
    uint32_t borrows;            /* kv_config.borrows */
    uint32_t lenders, n_lenders; /* lenders: most lenders at once; n_lenders: lenders now */
    struct borrow *borrow;       /* [n_contents][borrows] */
    uint32_t *border;            /* [max_len] scratch of kv_lend */
    struct own *own;             /* list of all arrays of the store (kv_own) */
    struct group *group;
    uint32_t *site_group;        /* [n_sites] */
    struct slot *slot;           /* [max_seqs] */
    struct stash *stash;         /* [max_seqs][n_groups * FORMS] */
    struct seq *seq;             /* [n_contents] */
    struct seq_group *seq_group; /* [n_contents][n_groups] */
    uint32_t n_contents, max_marks, n_marks;
    struct mark *mark;     /* [max_marks] */
    struct member *member; /* [max_marks + 1] scratch of family.c */
    struct index index;
    uint32_t *idle;  /* free slots, a stack */
    uint32_t *spare; /* contents without owners, a stack */
    uint32_t n_idle, n_spare;
    uint32_t *scratch; /* [max_seqs] of reorder */
    struct kv_step step;
    uint32_t n_change_max;
    size_t pool_most; /* the budget at the opening */
    size_t pool, live, states, peak, need;
    size_t fixed;    /* bytes of metadata that do not depend on the sequences */
    size_t used;     /* bytes of metadata that slots and marks are charged for */
    size_t reserved; /* bytes of pages that are promised to reserves */
    size_t backed;   /* bytes of free pages that still hold memory, those of reserves excepted */
    /* the tier failed, so a reserve lacks pages until it is filled again */
    bool owing;
    struct ages ages;
    uint64_t clock, seals, evictions, forks, rows_copied;
    uint32_t max_refs;
    struct stream stream;
    bool has_frozen;
    bool measured; /* sizes only: the store has no arrays, pages or ranges */
    bool narrow;   /* the system granted less address space than the budget can fill */
    uint32_t rung, n_rungs, rung_since;
    uint64_t encoded[KV_RUNGS];
    /* scratch of rung.c: rung_rows bytes for a decoded plane of a tile, then one page of a site */
    unsigned char *rung_room;
    size_t rung_rows;
};

/* Faults and extra checks for tests.  All are zero in a program. */
struct kv_fault {
    bool poison;          /* fill pages with 0xFF (NaN) when taken and given back */
    bool break_refs;      /* a fork forgets to count its first reference */
    bool skip_cow;        /* write into shared open blocks */
    bool skip_own;        /* change contents that others own too */
    bool drop_early;      /* the drop rule is one row off */
    bool keep_rejected;   /* commit keeps tiles whose rows were rejected */
    size_t map_limit;     /* refuse reservations above this many bytes; 0: none */
    uint64_t fail_take;   /* the k-th take from now fails as if out of memory; 0: none */
    bool skip_wait;       /* show a piece before it is read */
    bool wrong_stage;     /* show the neighbour of a staged page */
    bool forget_write;    /* let pages leave without writing them */
    bool stale_open;      /* write into an open block without bringing its rows back */
    bool weak_keys;       /* keys of 4 bits: nearly every look-up meets others' keys */
    bool trust_keys;      /* a match does not compare tokens */
    bool match_unref;     /* a match forgets to count its first reference */
    bool forget_rollback; /* a rollback does not restore the contents */
    bool short_reserve;   /* a reserve takes one page less than it needs */
    bool walk_ages;       /* compare each choice of the oldest snapshot with a walk over all */
    bool stale_age;       /* the oldest snapshot is not looked for again after a change */
};
extern struct kv_fault kv_fault;

/* config_check.c */
int config_check(const struct kv_config *c);

/* forms.c */
/* Computes the offsets of the planes in a page at a rung, and the bytes of a page at one site. */
int form_grain(struct group *g, uint32_t form, uint32_t rung, size_t *grain);
/* Sizes all forms; each halving leaves them half as many ids. */
int forms_size(struct kv *kv, unsigned halvings);
/* Does the same and reserves their addresses.  After an error the caller closes what is open. */
int forms_open(struct kv *kv, unsigned halvings, const struct kv_tier *tier);
void forms_close(struct kv *kv);

/* store.c */
/* Returns a zeroed array that lives as long as the store; NULL: there is no memory. */
void *kv_own(struct kv *kv, size_t n, size_t size);
/* Declares such an array of fixed size: counts it as metadata, allocates it, and stores its address in the pointer at `at`.  While the store is only measured, the array is
 * counted and not made.  So a store has exactly the arrays that were measured. */
int kv_array(struct kv *kv, void *at, size_t n, size_t size);
/* Makes a table of a form with a row for each of the contents, and finds out where the device of the store sees it. */
int table_open(struct kv *kv, const struct group *g, uint32_t form, struct kv_block *b);
/* Sets the sizes of the group that follow from its configuration alone. */
int group_measure(struct group *g);
/* True if the group has rows in this form now. */
static inline bool has_form(const struct group *g, uint32_t form)
{
    return g->form[form].n_ids && (form == RAW || g->c.seal.tile);
}
/* True if the group has tiles, now or at a later rung. */
static inline bool may_seal(const struct group *g)
{
    return g->c.seal.tile || g->c.n_rungs;
}

static inline size_t staging_bytes(const struct kv *kv)
{
    return 2 * kv->stream.half;
}
/* Returns the bytes of rows, states and staging. */
static inline size_t pool_rows(const struct kv *kv)
{
    return kv->live + kv->states + staging_bytes(kv);
}
/* Returns all bytes that the budget bounds: rows, states, staging, pages of reserves, the tables of
 * the index, and metadata. */
static inline size_t pool_held(const struct kv *kv)
{
    return pool_rows(kv) + kv->reserved + kv->index.room.used + kv->fixed + kv->used;
}

/* policy.c */
/* Returns the edge of a query at `len` as if the turns ended there.  open: the last turn goes on behind `len`. */
uint32_t edge_cut(const struct kv_seal *s, const struct kv_turn *turn, uint32_t n, uint32_t len,
                  bool open);

/* seq.c */
/* Resets contents that hold no pages to those of an empty sequence. */
void seq_reset(struct kv *kv, struct seq *s);
/* Makes dst, which is empty, another owner of the pages of src. */
void seq_clone(struct kv *kv, const struct seq *src, struct seq *dst);
/* Gives up the pages of cells [from, to). */
void cells_drop(struct kv *kv, struct seq *s, uint32_t gi, uint32_t form, uint32_t from,
                uint32_t to);
/* Makes dst another owner of the pages that the cells of src name in one group, where dst has no pages. */
void cells_share(struct kv *kv, const struct seq *src, struct seq *dst, uint32_t gi);
/* Gives up every page. */
void seq_clear(struct kv *kv, struct seq *s);
/* Takes the slot from the owners of its contents, makes it idle and returns the contents.  If they have no other
 * owner, the caller gives them up or keeps them. */
struct seq *seq_part(struct kv *kv, uint32_t slot);

/* edit.c: every change of contents, or of what a slot holds, stands between edit and edited */
/* Returns contents that only the slot owns, to be changed.  Cannot fail and needs no memory: there are
 * as many contents as slots and marks. */
struct seq *edit(struct kv *kv, uint32_t slot);
/* Derives again all that follows from what the slot holds.  With `what` it also makes the room that the slot then
 * lacks.  If there is none it returns ERR_FULL, and the caller undoes the change by another edit.  With NULL the
 * slot lacks nothing (or the tier has failed), and there is no error. */
int edited(struct kv *kv, uint32_t slot, const char *what);
/* The same pair of calls for contents without a slot, and for slots that the caller charges later. */
void edit_contents(struct kv *kv, struct seq *s);
void edited_contents(struct kv *kv, struct seq *s);
/* Makes a slot without contents an owner of s. */
void own_join(struct kv *kv, uint32_t slot, struct seq *s);
/* Ends the slot's ownership and returns the contents.  If they have no other owner, the caller gives them up or
 * keeps them. */
struct seq *own_part(struct kv *kv, uint32_t slot);
/* Gives the slot a copy of its contents if they have other owners. */
struct seq *seq_own(struct kv *kv, uint32_t slot);
/* Takes empty contents that nobody owns. */
struct seq *spare_take(struct kv *kv);
/* Gives up the pages of contents without owners, and makes the contents spare. */
void seq_give(struct kv *kv, struct seq *s);
static inline uint32_t seq_reserve(const struct kv *kv, const struct seq *s)
{
    return s->owners ? kv->slot[s->slot].reserve : 0;
}
/* True if the contents have several owners or marks, so that a change needs a copy. */
static inline bool seq_shared(const struct seq *s)
{
    return s->owners + s->marks > 1;
}
/* True if the contents are in use by nobody. */
static inline bool seq_spare(const struct seq *s)
{
    return !s->owners && !s->marks && !s->lent && !s->kept;
}
/* Returns the slot index of a valid handle. */
static inline uint32_t slot_index(const struct kv *kv, kv_seq s)
{
    return s & ((1u << kv->slot_bits) - 1);
}
/* Returns the slot; NULL if the handle is stale. */
struct slot *slot_find(const struct kv *kv, kv_seq s);
/* Finds the contents of a handle, busy or not; ERR_STALE. */
int seq_find(const struct kv *kv, kv_seq s, struct seq **out);
/* Finds the contents of a handle; ERR_STALE, or ERR_BUSY in an open step. */
int seq_idle(const struct kv *kv, kv_seq s, struct seq **out);
static inline uint32_t *seq_table(const struct kv *kv, const struct group *g, uint32_t form,
                                  const struct seq *s)
{
    return s->g[g - kv->group].table[form];
}
/* Returns the row of some contents in a table of all. */
static inline uint32_t *block_row(const struct group *g, uint32_t form, const struct kv_block *b,
                                  uint32_t seq)
{
    return (uint32_t *)(uintptr_t)b->host + (size_t)seq * g->stride[form];
}
static inline uint32_t seq_rows(const struct group *g, const struct seq *s)
{
    return g->c.policy.kind == KV_FROZEN ? s->cross : s->len;
}
/* Returns how many leading cells of a table may be nonzero when the group has `rows` rows. */
static inline uint32_t table_used(const struct group *g, uint32_t form, uint32_t rows)
{
    if (!has_form(g, form)) return 0;
    if (g->c.policy.kind == KV_STATE) return 1;
    return form == RAW ? (rows + g->rows[RAW] - 1) / g->rows[RAW] : rows / g->rows[SEALED];
}
/* Returns the first cell that the drop rule may clear. */
static inline uint32_t table_first(const struct group *g, uint32_t form)
{
    return form == RAW ? (g->keep_rows + g->rows[RAW] - 1) / g->rows[RAW]
                       : g->c.seal.lead / g->rows[SEALED]; /* no tile below lead exists */
}

/* Returns the first block after the leading ones that the step after `rows` may write or seal from:
 * the open block, or the first block of the incomplete tile. */
static inline uint32_t table_tail(const struct group *g, uint32_t rows)
{
    uint32_t whole = (rows - rows % MAX(g->c.seal.tile, 1)) / g->rows[RAW];
    return MAX(whole, MIN(rows / g->rows[RAW], table_first(g, RAW)));
}

/* Returns the first cell of the tail after `rows`, or the first cell after the leading ones. */
static inline uint32_t tail_first(const struct group *g, uint32_t rows)
{
    return MAX(table_tail(g, rows), table_first(g, RAW));
}

/* borrow.c */
/* Returns the position of the next token. */
static inline uint32_t seq_place(const struct seq *s)
{
    return s->len + s->away;
}
/* A length in tokens, split into own rows, whole borrowed runs, and the first rows of one more run. */
struct borrow_cut {
    uint32_t rows, runs, last; /* last: rows of run number `runs`, 0 if none */
};
struct borrow_cut borrow_at(const struct seq *s, uint32_t len);
/* Returns the largest number of tokens that includes only the first `rows` own rows of s.  It counts the borrowed
 * rows behind these, too. */
uint32_t borrow_place(const struct seq *s, uint32_t rows);
/* Drops the borrowed rows that the cut does not include. */
void borrow_trim(struct kv *kv, struct seq *s, struct borrow_cut c);
/* Makes dst, which borrows nothing, a borrower of all that src borrows. */
void borrow_clone(struct kv *kv, const struct seq *src, struct seq *dst);
int borrow_arrays(struct kv *kv);
/* Lists what the spans of the step borrow. */
void borrow_fill(struct kv_step *st);
bool borrow_check(const struct kv *kv);

/* trim.c */
/* Returns the longest length up to m that every group can resume from.  Lengths count own rows only. */
uint32_t seq_resume(const struct kv *kv, const struct seq *s, uint32_t m);
/* Cuts s to a length that seq_resume returned. */
void seq_cut(struct kv *kv, struct seq *s, uint32_t m);

/* Returns the contents after s: those of kv.seq, then the kept ones from the least recently used
 * on.  NULL begins and ends the walk. */
static inline struct seq *seq_each(const struct kv *kv, const struct seq *s)
{
    if (s && s->kept) return s->newer;
    uint32_t i = s ? (uint32_t)(s - kv->seq) + 1 : 0;
    return i < kv->n_contents ? &kv->seq[i] : kv->index.oldest;
}

/* keep.c: what a sequence still needs */
struct need {
    /* The group needs rows from from[RAW] on raw, and rows from from[SEALED] on in either form. */
    uint32_t from[FORMS];
};
/* Returns what a sequence of `len` rows needs of the group; slack: rows to keep beyond reach. */
struct need need_at(const struct group *g, const struct seq *s, uint32_t len, uint32_t slack,
                    bool open);
/* Returns the first cell behind the leading ones that contents of `rows` rows need. */
uint32_t need_cell(const struct group *g, uint32_t form, const struct need *n, uint32_t rows);
/* Returns the cursor at `len`, which a trim may move back.  All pages from the cursor on are
 * held. */
uint32_t cut_at(const struct group *g, const struct seq *s, uint32_t gi, uint32_t form,
                uint32_t len);
void keep_add(struct kv *kv, struct seq *s, uint32_t gi, uint32_t pos, uint32_t page);
void keep_thin(struct kv *kv, struct seq *s, uint32_t gi, uint32_t len);
void keep_remove(struct kv *kv, struct seq *s, uint32_t gi, uint32_t i);
/* Returns the snapshot at row `pos`, or NULL. */
struct keep *keep_at(const struct seq_group *sg, uint32_t pos);
/* Returns the page of a state after `row` rows, the newest one or that of a snapshot; 0: there is none. */
uint32_t state_after(const struct kv *kv, const struct group *g, const struct seq *s, uint32_t row);
bool keep_holds(const struct group *g, const struct seq_group *sg, uint32_t form, uint32_t index);
/* True if contents that follow the drop rule hold a page of the cell, which has rows. */
bool cell_held(const struct group *g, const struct seq_group *sg, uint32_t form, uint32_t index);
void drop_unreachable(struct kv *kv, struct seq *s, uint32_t gi);
/* Makes room for `bytes` more of pages and `meta` more of metadata: evicts kept contents and
 * snapshots, then moves pages to the tier.  ERR_FULL (need is set, nothing is evicted) if that is
 * impossible. */
int make_room(struct kv *kv, size_t bytes, size_t meta, const char *what);
/* True if an operation that makes room shall be tried: the first time (tries 0), and once more after ERR_FULL if
 * pages could move to the tier.  That second try begins streaming; if it fails as well, streaming is called off. */
bool room_try(struct kv *kv, uint32_t *tries, int e);
/* Returns the bytes that become free when s gives up pages, after those of earlier calls: the pages of rows and
 * states after `len`, or (whole) all pages.  pages.freed has the number of these pages.  reset: forgets the earlier
 * calls. */
size_t gain_cut(struct kv *kv, const struct seq *s, uint32_t len, bool whole, bool reset);

/* rung.c */
int rung_arrays(struct kv *kv);
/* Checks the rungs of a group. */
int rung_check(const struct kv_config *c, uint32_t gi);
/* Like room_try, but first encodes tiles, before pages move to the tier.  Only for operations that need no other
 * tables after that. */
bool room_try_encode(struct kv *kv, uint32_t *tries, int e);

/* age.c: which snapshot is evicted first */
int age_arrays(struct kv *kv);
void age_open(struct kv *kv);
/* Updates the oldest snapshot of s after a change of its snapshots, of `pinned` or `busy`, or of kv.step.open. */
void age_update(struct kv *kv, const struct seq *s);
/* Pins or unpins all snapshots of s. */
void age_pin(struct kv *kv, struct seq *s, bool pin);
/* Returns the contents with the oldest snapshot that may be evicted, and its place; NULL: there
 * is none. */
struct seq *age_oldest(struct kv *kv, uint32_t *gi, uint32_t *i);
/* Adds the oldest snapshot of s to the eviction plan being made. */
void age_doom(struct kv *kv, struct seq *s, uint32_t gi, uint32_t i);
bool age_check(const struct kv *kv);
/* check.c: prints what kv_check found wrong; returns false */
bool wrong(const char *what, uint32_t a, uint32_t b);

static inline bool leaves(const struct kv *kv, const struct group *g, uint32_t form)
{
    return kv->stream.active && g->moves[form];
}

/* step.c */
/* Undoes everything that kv_begin did; returns what kv_abort returns. */
int step_undo(struct kv_step *st);
/* True if the step writes rows of the group.  An encoder's step writes frozen groups only, all other steps write the
 * other groups only. */
static inline bool step_writes(const struct kv_step *st, const struct group *g)
{
    return (g->c.policy.kind == KV_FROZEN) == st->cross;
}
/* Returns how many rows of a group the span's contents have in the step, including the rows that the step writes. */
static inline uint32_t step_rows(const struct kv_step *st, const struct group *g,
                                 const struct step_span *sp)
{
    const struct seq *s = &st->kv->seq[sp->seq];
    if (g->c.policy.kind != KV_FROZEN) return s->len + sp->rows.n;
    return st->cross ? sp->rows.n : s->cross;
}
/* Returns how many tiles `rows` rows fill or begin. */
static inline uint32_t step_tiles_begun(const struct group *g, uint32_t rows)
{
    return MAX(table_used(g, SEALED, rows), table_first(g, SEALED));
}
/* Returns how many rows before the end of a turn the snapshot of that turn is taken.  A search with the same tokens
 * reuses all but the last one, whose logits it wants.  Where rows depend on turns, only whole turns are reused. */
static inline uint32_t step_turn_back(const struct kv *kv)
{
    return kv->index.turns ? 0 : 1;
}
/* step_pages.c */
/* Notes the shared open blocks that will be copied, counts what the step takes from the pool, and makes room for that. */
int step_plan(struct kv_step *st);
/* Takes the pages that step_plan has counted.  After an error step_undo gives them back. */
int step_take(struct kv_step *st);
/* step_view.c */
/* Fills in where the pages of a form lie at a site. */
void view_form(const struct group *g, uint32_t form, uint32_t site, struct kv_form *out);
/* Writes the arrays of the views of a step that has its pages. */
void step_fill(struct kv_step *st, const struct kv_span *span);
/* For a trace: ends the present layer and enters another one (KV_NONE: none).  A layer begins when the step first
 * asks for its rows. */
void step_trace_layer(struct kv_step *st, uint32_t site);
