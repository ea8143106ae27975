/* kv_int.h - inside the store: pages, sequences, the open step, and who may call what.
 *
 * There are three layers.
 *   pool.c hands out page ids and counts references.  It knows no sequence.
 *   keep.c, reserve.c and table cells say which pages a sequence holds and why.  queue.c says
 *   which pages may leave memory, spill.c moves them, and stage.c says how a step reads them then.
 *   store.c, seq.c, step.c and trim.c are the operations.
 *
 * Each operation leaves every invariant of check.c true, or returns an error and has changed
 * nothing. */
#pragma once
#include "kv/image.h"
#include "kv/index_int.h"

enum { RAW, SEALED, FORMS };

#define KV_RUN  16u /* ids of an aligned run: 256 rows of 16-row blocks */
#define KV_NONE UINT32_MAX

struct page {
    uint32_t refs;       /* table cells, snapshots and step entries that name the page */
    uint32_t prev, next; /* links in the stash that holds the page */
    uint32_t stage;      /* place in the piece being shown (stage.c) */
    uint16_t stash;      /* 1 + the slot whose reserve holds the page; 0: none */
    uint16_t lent;       /* 1 + the slot from whose reserve the page was taken; 0: the pool */
    uint8_t spilled;     /* its contents are in the tier only */
    bool picked;         /* scratch of spill.c, else false */
};
struct run {             /* ids [16k, 16k+16) */
    uint32_t prev, next; /* in the list of runs with the same number of free ids */
    uint16_t free, backed;
    uint16_t stale; /* ids whose bytes in the tier nobody needs any more */
};
/* Where a page stands in the queue of its form (queue.c). */
struct place {
    uint32_t cell;       /* 1 + the cell of every table that names the page; 0: it cannot leave */
    uint32_t tails;      /* idle contents whose tail the page belongs to */
    uint32_t stays;      /* how many reserves and plans hold the page in memory */
    uint32_t key;        /* the list that the page is in; 0: none */
    uint32_t prev, next; /* ring of the pages of that list */
};
/* The pages of a form that may leave memory.  Lists are numbered by the order of leaving, the last
 * list first. */
struct queue {
    struct place *at;  /* [n_ids]; NULL: no page of the form ever leaves */
    uint32_t *head;    /* [2 * cells + 1] first page of each list; 0: the list is empty */
    uint64_t *bits[6]; /* which lists have pages; then which words of the level before are not 0 */
    uint32_t cells, levels;
    uint32_t picked; /* scratch of spill.c: chain of pages that are about to leave */
};
/* The pages of one group in one form.  Page p of the group's i-th site lies at base + i * span + p
 * * grain.  An id is taken and given back for all sites at once. */
struct pages {
    unsigned char *base;       /* a range of n_sites * span bytes */
    bool mapped;               /* the range is a mapping of its own; else it lies in the arena */
    size_t span, grain, bytes; /* bytes: grain * n_sites, the cost of one id */
    uint32_t n_sites, n_ids, n_runs;
    uint32_t n_own;    /* ids for the pages of sequences; the others are for kept contents */
    uint32_t index;    /* group * FORMS + form */
    uint32_t n_live;   /* ids that have references or lie in a stash */
    uint32_t fresh;    /* runs from here on were never used */
    uint32_t usable;   /* runs below are readable and writable */
    size_t huge;       /* bytes of a site that were looked at for huge pages */
    uint32_t hand;     /* where the next release of memory starts looking */
    uint32_t n_backed; /* free ids that still hold memory */
    uint32_t n_spilled, n_stale;
    struct queue queue;
    uint32_t list[KV_RUN + 1];
    bool state;
    struct page *page; /* [n_ids] */
    struct run *run;   /* [n_runs] */
    uint32_t *seen;    /* [n_ids] scratch of kv_check and of the eviction plan; 0 between calls */
};
/* Rows of a site that one view shows together.  Their spilled pages, all of one form, are
 * staged. */
struct piece {
    uint32_t form;
    uint32_t row0, row1;
    uint32_t first; /* index in group.staged of the piece's first page */
};
struct group {
    struct kv_group c;
    struct pages form[FORMS]; /* n_ids 0: no such form */
    uint32_t rows[FORMS];     /* per page; state pages count as one row */
    uint32_t stride[FORMS];
    size_t offset[FORMS][KV_MAX_PLANES];
    uint32_t *table[FORMS]; /* [n_contents][stride] for the contents that steps may name */
    uint32_t keep_rows;     /* leading rows that stay raw for ever: sinks and lead */
    bool forgets;           /* the group is a state, or drops the rows below the reach */
    /* a codec that changes values, so a row must be read in the form that the edge says */
    bool lossy;
    uint32_t sum[FORMS]; /* pages that the step now beginning takes */
    /* the view's arrays */
    uint32_t counts[3];
    uint32_t *len, *from;           /* [max_seqs] */
    uint32_t *lo, *hi, *edge, *dst; /* [max_tokens] */
    uint32_t *enc;                  /* [max_tokens / tile + max_seqs][2] */
    /* streaming */
    bool moves[FORMS];     /* pages of the form may live in the tier */
    uint32_t unit[FORMS];  /* rows that are staged together: whole atoms, no less than a page */
    uint32_t slots[FORMS]; /* pages that half of the staging area holds */
    /* pieces of a site in the open step; 0: all rows that it reads are in memory */
    uint32_t n_pieces;
    struct piece *piece;    /* [pieces + 1] sealed rows, then raw rows */
    uint32_t *staged;       /* page ids, piece by piece */
    uint32_t *shown[FORMS]; /* [n_contents][stride] the table that views show instead */
};
/* A snapshot: a length that a trim can return to although the group forgets.  The snapshot
 * keeps the state after `pos` rows, or the pages that a query at `pos` reads.  Snapshots are
 * evictable. */
struct keep {
    uint32_t pos;
    uint32_t page;     /* state groups: the snapshot's page, with a reference */
    uint32_t raw_from; /* rows [raw_from, pos) are held raw */
    uint32_t row_from; /* rows [row_from, pos) are held in some form */
    uint64_t stamp;    /* age; the snapshot with the smallest stamp is evicted first */
    bool doomed;       /* true if the eviction plan being made has chosen it */
};
struct seq_group {
    uint32_t *table[FORMS]; /* page ids: [stride]; of kept contents only the cells in use */
    /* first page not yet released; before it only leading pages and those of snapshots remain */
    uint32_t cut[FORMS];
    uint32_t unseen;     /* rows before it, sinks excepted, have no contents (kv_unseen) */
    uint32_t raw_unseen; /* rows before it, leading ones excepted, were not loaded raw (load.c) */
    uint32_t n_keeps;
    struct keep *keep; /* [KV_KEEPS] ascending; NULL where the group makes none */
};
/* Contents, named by one slot or by several (forks that nobody has changed yet). */
struct seq {
    /* One of the slots, the head of their ring.  Contents with a reserve have only this slot. */
    uint32_t slot;
    /* Number of slots.  Contents without owners and marks are spare, and empty. */
    uint32_t owners;
    uint32_t marks;      /* marks that may roll a slot back to these contents */
    uint32_t n_doomed;   /* snapshots that the eviction plan being made has chosen */
    uint64_t edits;      /* kv.edits when the contents may last have changed */
    uint32_t held;       /* scratch of reorder */
    uint32_t len, cross; /* rows; rows of the frozen groups */
    uint32_t n_turns, n_keys;
    bool turn_open; /* the last turn is not complete */
    bool busy;
    bool stays;   /* the tail counts as held in memory for a reserve */
    bool pinned;  /* the contents' snapshots are not evicted now */
    bool kept;    /* no slot owns the contents, but others may resume from them (index.c) */
    bool noted;   /* the contents are in index.noted */
    bool foreign; /* rows not computed from the tokens, so no match resumes from them */
    struct kv_salt salt;
    uint64_t used;        /* kv.clock at the last use of kept contents */
    int32_t *tok;         /* [max_len] */
    struct kv_turn *turn; /* [max_len / 2 + 2] */
    unsigned char *key;   /* [n_keys] chained keys of the leading full blocks; NULL without index */
    struct seq_group *g;  /* [n_groups] */
    /* For the prefix index.  The id of contents in kv.seq is their index there; the id of kept
     * contents is their place in the room. */
    uint32_t id, n_listed; /* leading blocks in the table of the index */
    struct node *node;     /* [n_listed] entries, one for each key */
    struct node begin,
        end; /* entries of the first block's tokens, and of the last full block of kept contents */
    unsigned char first[KV_KEY]; /* key of the tokens of the first block alone */
    uint64_t looked;             /* number of the last search that looked here */
    size_t bytes;                /* size of the arrays of kept contents, this struct included */
    struct seq *older, *newer;   /* kept contents in the order of their last use */
};
/* Pages of one group and form that a reserve holds.  They are taken from the pool and have no
 * references. */
struct stash {
    uint32_t head, tail, n; /* n 0: head and tail have no meaning */
};
struct slot {
    uint32_t gen, seq, reserve; /* reserve: rows promised to the handle, 0: none */
    /* rows that appends can rely on now; less than `reserve` only while the slot has marks */
    uint32_t grow;
    uint32_t prev, next; /* ring of the slots with the same contents */
    bool used, named;    /* named: scratch of reorder */
    /* 1 + the first of the marks that may roll the slot back; 0: none */
    uint32_t marks;
    struct stash *stash; /* [n_groups * FORMS], part of kv.stash */
    /* rows and bytes of metadata that the slot is charged for (metadata.c) */
    uint32_t meta_rows;
    size_t meta;
};
/* A mark that has not ended.  seq 0: none. */
struct mark {
    kv_seq seq;
    /* the contents; slot.reserve and slot.grow when the sequence was marked */
    uint32_t at, reserve, grow;
    uint32_t next; /* 1 + the next mark of the slot; 0: the last one */
    size_t meta;   /* bytes of metadata that the mark is charged for once its sequence is dropped */
};
/* Contents that a slot with marks has or may get back.  foreign: other slots own or mark them, too. */
struct member {
    const struct seq *s;
    uint32_t own, lead, from; /* scratch of family.c */
    bool foreign;
};
/* What begin did to a table cell: page `old` was replaced.  `old` keeps its reference until the
 * step ends. */
struct change {
    struct pages *pages;
    uint32_t *cell, old;
    struct group *copied; /* old is a shared open block of this group; NULL: old is 0 */
};
/* A span of the open step, with what abort returns to. */
struct step_span {
    struct kv_span rows; /* as given; `turn` is false for the rows of frozen groups */
    uint32_t seq, tok0;  /* the place of its contents; its first token in the step */
    /* The contents that the sequence shared before the step gave it a copy; KV_NONE: not shared.
     * Abort returns to them unless they have changed since. */
    uint32_t shared;
    uint64_t edits;
    /* values before begin */
    bool was_open;
    uint32_t n_turns, turn_n;
};
/* One half of the staging area, and the piece that is read into it. */
struct load {
    unsigned char *mem;
    uint32_t site, piece; /* KV_NONE: nothing */
    uint32_t at, end;     /* range of group.staged whose reads have not started */
    uint32_t n_io;        /* transfers in flight */
    double begun;         /* of these transfers, for a trace */
    struct kv_io *io;     /* [KV_TIER_DEPTH] */
};
/* The state of a store whose pages may leave memory. */
struct stream {
    struct kv_tier *tier;     /* owned; NULL: no page ever leaves memory */
    unsigned char *arena;     /* owned: all ranges, then the staging area */
    size_t arena_bytes, half; /* half: of the staging area */
    bool active;              /* true if pages leave when a step needs their room */
    bool on_full;             /* streaming becomes active only once the budget is short */
    bool began;               /* true once a page has left */
    uint32_t since, lanes;    /* kv_usage, kv_step_lanes */
    uint32_t *order, *rank;   /* [n_sites] */
    struct load load[2];
    /* Distance from a page in the arena to the same page in the mapping of the tier, a multiple of every grain
     * that moves; 0: no mapping.  arena_all: bytes of the reservation, with the mapping. */
    size_t window, arena_all;
    uint32_t direct;      /* the site whose spilled pages are read in the mapping; KV_NONE: none */
    bool cold, missed;    /* some page was not ready in this step or the one before; in this step */
    uint64_t turn, ahead; /* sites of all steps before this one; the first not asked for yet */
    size_t spilled, stale; /* bytes */
    size_t queued;         /* bytes of the pages in queues */
    size_t doomed;         /* bytes of those that the eviction plan being made frees */
    uint64_t bytes_read, bytes_written;
};
struct kv_step {
    struct kv *kv;
    bool open, cross;
    uint32_t n_spans, n_tokens, n_changes;
    struct step_span *span; /* [max_seqs] */
    struct change *change;  /* [n_change_max] */
    uint32_t *slot;         /* [max_seqs] */
    uint32_t *lane, *pos;   /* [max_tokens] */
    uint32_t *given;        /* [n_sites] pieces that kv_next has shown since it last returned 0 */
    double begun, entered;  /* for a trace: the step; the layer that is being computed */
    uint32_t layer;         /* its site; KV_NONE: none yet */
};
/* The oldest snapshot of all live contents (age.c).  The arrays are NULL if no group makes
 * snapshots. */
struct ages {
    uint64_t *stamp;  /* [n_contents] of the oldest snapshot that may be evicted */
    uint32_t *winner; /* [n_contents] of the two nodes below: the contents with the lower stamp */
    /* [n_contents] contents with snapshots that the eviction plan being made has chosen */
    uint32_t *doomed, n_doomed;
    uint64_t walked, strayed; /* choices that a walk was compared with, and that it disproved */
};
struct kv {
    uint32_t n_groups, n_sites;
    uint32_t max_seqs, max_tokens, max_len, slot_bits;
    uint32_t lanes; /* sequences of one step */
    uint32_t redo;  /* kv_config.redo */
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
    uint64_t edits;
    uint32_t *scratch; /* [2 * max_seqs] of reorder */
    struct kv_step step;
    uint32_t n_change_max;
    size_t pool, live, states, shared, peak, need;
    size_t fixed;    /* bytes of metadata whose size no sequence changes */
    size_t used;     /* bytes of metadata that slots and marks are charged for */
    size_t reserved; /* bytes of pages in stashes */
    size_t backed;   /* bytes of free pages that still hold memory */
    uint32_t heir;   /* slot whose reserve gets pages that are freed now; KV_NONE: the pool does */
    /* a reserve lacks pages until it is filled again, because the tier failed */
    bool owing;
    struct ages ages;
    uint64_t clock, seals, evictions, forks, rows_copied, rows_copied_by_fork;
    uint32_t max_refs;
    struct stream stream;
    bool has_frozen;
    bool measured; /* sizes only: the store has no arrays, pages or ranges */
    bool narrow;   /* the system granted less address space than the budget can fill */
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

/* store.c */
/* Declares an array that lives as long as the store: counts it as metadata of fixed size, allocates
 * it, and stores its address in the pointer at `at`.  While the store is only measured, the array is
 * counted and not made.  So a store has exactly the arrays that were measured. */
int kv_array(struct kv *kv, void *at, size_t n, size_t size);

/* pool.c */
/* Computes the sizes; *total: bytes of address space. */
int pages_size(struct pages *p, uint32_t n_ids, size_t grain, uint32_t n_sites, size_t *total);
/* Reserves address space without memory; NULL if the system refuses. */
void *pool_reserve(size_t bytes);
/* Opens the pages at reserved address space; at NULL: reserves some. */
int pages_open(struct pages *p, void *at);
void pages_close(struct pages *p);
/* Takes a page with one reference: page `after` + 1 if that page is free, else the index-th of a
 * free run, else any.  0 if the system has no memory for a page.  The caller has checked the
 * budget. */
uint32_t pages_take(struct kv *kv, struct pages *p, uint32_t after, uint32_t index);
void page_ref(struct kv *kv, struct pages *p, uint32_t id);
void page_unref(struct kv *kv, struct pages *p, uint32_t id);
/* Moves a page without references into the stash of a slot, first or last. */
void page_stash(struct kv *kv, struct pages *p, uint32_t id, uint32_t slot, bool last);
/* Moves a page out of its stash, back to the pool. */
void page_unstash(struct kv *kv, struct pages *p, uint32_t id);
/* Gives up the reference of a page that the open step took.  The page returns to the reserve or
 * pool that it came from. */
void page_untake(struct kv *kv, struct pages *p, uint32_t id);
/* Takes a page from the slot's stash with one reference, preferably page `after` + 1; 0 if the
 * stash is empty. */
uint32_t stash_take(struct kv *kv, struct pages *p, uint32_t slot, uint32_t after);
/* Returns memory of free pages to the system while it exceeds the budget. */
void pool_trim(struct kv *kv);
void page_leaves_memory(struct kv *kv, struct pages *p, uint32_t id);
void page_comes_back(struct kv *kv, struct pages *p, uint32_t id);
static inline unsigned char *page_at(const struct pages *p, uint32_t site, uint32_t id)
{
    return p->base + site * p->span + id * p->grain;
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

/* metadata.c */
/* Ids that contents may need beside one for each cell of a table: a copy on write holds both pages,
 * and a reserve has copies. */
#define KV_SPARE_IDS 3u
/* Returns the bytes of the record of one page: where pages may leave memory, with its place in the
 * queue and in the staging plan. */
size_t meta_record(bool moves);
/* Returns the bytes of the tables, snapshots and page records of contents in one group. */
size_t meta_group(const struct group *g, const bool moves[FORMS], uint32_t rows);
/* Returns the bytes of tokens, turns and keys. */
size_t meta_tokens(bool index, uint32_t rows);
/* Rounds rows up to the step in which charges grow. */
uint32_t meta_round(uint32_t rows);
/* Returns the bytes of the metadata of contents of `rows` rows, rounded up. */
size_t meta_unit(const struct kv *kv, uint32_t rows);
/* Returns how many bytes the slot's charge changes if its contents are replaced by others of `rows`
 * rows. */
ptrdiff_t meta_change(const struct kv *kv, uint32_t slot, uint32_t rows);
/* Returns the bytes that the slot's charge lacks for what the slot has. */
size_t meta_lacks(const struct kv *kv, uint32_t slot);
/* Returns the bytes that the slot's charge lacks for a step that ends at `rows` rows. */
size_t meta_step(const struct kv *kv, uint32_t slot, uint32_t rows);
/* Raises the slot's charge for such a step; the caller has made room. */
void meta_grow(struct kv *kv, uint32_t slot, uint32_t rows);
/* Charges the slot for exactly what it has.  The caller has made room if meta_lacks is not 0. */
void meta_settle(struct kv *kv, uint32_t slot);
/* Charges the marks of a slot that is being dropped, each for its own contents. */
void meta_orphan(struct kv *kv, struct slot *slot);
/* Recounts the charges for kv_check. */
bool meta_check(const struct kv *kv);

/* store.c */
/* Sets the sizes of the group that follow from its configuration alone. */
int group_measure(struct group *g);

/* policy.c */
/* Returns the edge of a query at `len` after the turns were cut there; open: the last turn
 * continues. */
uint32_t edge_cut(const struct kv_seal *s, const struct kv_turn *turn, uint32_t n, uint32_t len,
                  bool open);

/* seq.c */
/* Resets contents that hold no pages to those of an empty sequence. */
void seq_reset(struct kv *kv, struct seq *s);
/* Gives the slot a copy of its contents if other slots own them too (tables and references, never
 * rows).  Every change of contents calls it first.  Cannot fail and needs no memory: there are as
 * many contents as slots. */
struct seq *seq_own(struct kv *kv, uint32_t slot);
/* Gives up the pages of contents without owners, and makes the contents spare. */
void seq_give(struct kv *kv, struct seq *s);
/* Makes dst, which is empty, another owner of the pages of src. */
void seq_clone(struct kv *kv, const struct seq *src, struct seq *dst);
/* Gives up every page. */
void seq_clear(struct kv *kv, struct seq *s);
/* Takes the slot out of the owners of its contents, makes it idle and returns the contents.  The
 * caller disposes of contents that nobody owns any more. */
struct seq *seq_part(struct kv *kv, uint32_t slot);
/* Makes the slot an owner of contents `was` again if they have not changed since `edits`
 * and no reserve is involved.  The slot's own contents, which must equal them, become spare. */
void seq_rejoin(struct kv *kv, uint32_t slot, uint32_t was, uint64_t edits);
static inline uint32_t seq_grow(const struct kv *kv, const struct seq *s)
{
    return s->owners ? kv->slot[s->slot].grow : 0;
}
static inline uint32_t seq_reserve(const struct kv *kv, const struct seq *s)
{
    return s->owners ? kv->slot[s->slot].reserve : 0;
}
/* True if the contents have several owners or marks, so that a change needs a copy. */
static inline bool seq_shared(const struct seq *s)
{
    return s->owners + s->marks > 1;
}
static inline bool slot_marked(const struct kv *kv, const struct seq *s)
{
    return s->owners && kv->slot[s->slot].marks;
}
/* Returns the slot index of a valid handle. */
static inline uint32_t slot_index(const struct kv *kv, kv_seq s)
{
    return s & ((1u << kv->slot_bits) - 1);
}
/* Returns the slot; NULL if the handle is stale. */
struct slot *slot_find(const struct kv *kv, kv_seq s);
/* Makes a slot without contents an owner of s. */
void own_join(struct kv *kv, uint32_t slot, struct seq *s);
/* Ends the slot's ownership and returns the contents; the caller disposes of contents that nobody
 * owns any more. */
struct seq *own_part(struct kv *kv, uint32_t slot);
/* Finds the contents of a handle, busy or not; ERR_STALE. */
int seq_find(const struct kv *kv, kv_seq s, struct seq **out);
/* Finds the contents of a handle; ERR_STALE, or ERR_BUSY in an open step. */
int seq_idle(const struct kv *kv, kv_seq s, struct seq **out);
static inline uint32_t *seq_table(const struct kv *kv, const struct group *g, uint32_t form,
                                  const struct seq *s)
{
    return s->g[g - kv->group].table[form];
}
static inline uint32_t seq_rows(const struct group *g, const struct seq *s)
{
    return g->c.policy.kind == KV_FROZEN ? s->cross : s->len;
}
/* Returns how many leading cells of a table may be nonzero when the group has `rows` rows. */
static inline uint32_t table_used(const struct group *g, uint32_t form, uint32_t rows)
{
    if (!g->form[form].n_ids) return 0;
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

/* trim.c */
/* Returns the longest length up to m that every group can resume from. */
uint32_t seq_resume(const struct kv *kv, const struct seq *s, uint32_t m);
/* Cuts s to a length that seq_resume returned. */
void seq_cut(struct kv *kv, struct seq *s, uint32_t m);

/* index.c */
/* Sizes the index and declares its arrays. */
int index_arrays(struct kv *kv, const struct kv_config *c);
int index_open(struct kv *kv);
void index_close(struct kv *kv);
/* Most sequences that one search looks at, and that it passes at one key. */
#define KV_LOOKS 64u
/* Returns the number of leading rows with token ids. */
uint32_t index_known(const int32_t *tok, uint32_t n);
/* True if other sequences can resume from these contents. */
bool index_donor(const struct seq *s);
/* Computes the keys of the first `most` full blocks.  It stops at the first row without token id
 * and, where turns count, before an incomplete turn. */
void index_keys(struct kv *kv, struct seq *s, uint32_t most);
/* Returns the row up to which two lists of turns are equal.  Rows before it are equal unless a turn
 * continues across it. */
uint32_t index_turns_same(const struct kv_turn *a, uint32_t n_a, const struct kv_turn *b,
                          uint32_t n_b);
uint32_t index_turns_whole(const struct seq *s,
                           /* Returns m, or the start of the turn that m lies inside. */
                           uint32_t m);
/* Notes that contents have full blocks that are not listed. */
void index_note(struct kv *kv, struct seq *s);
/* Lists the full blocks of all contents that were noted since the last call. */
void index_list_live(struct kv *kv);
/* Returns a sequence with the rows of the leading *rows tokens of the image, or NULL. */
struct kv_image;
const struct seq *index_twin(struct kv *kv, const struct kv_image *im, uint32_t *rows);

/* kept.c */
/* Notes a use of s by a match. */
void index_wanted(struct kv *kv, struct seq *s);
void index_evict(struct kv *kv, struct seq *s);
/* Evicts rows of s, the last rows first, until `bytes` more fit. */
void index_shrink(struct kv *kv, struct seq *s, size_t bytes);
/* Evicts kept contents until p has n free ids and the tier holds no more than kept contents may
 * take there. */
void index_yield(struct kv *kv, const struct pages *p, uint32_t n);
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
    /* First row that is needed raw, and first row that is needed in some form. */
    uint32_t raw_from, row_from;
};
/* Returns what a sequence of `len` rows needs of the group; slack: rows to keep beyond reach. */
struct need need_at(const struct group *g, const struct seq *s, uint32_t len, uint32_t slack,
                    bool open);
/* Returns the cursor at `len`, which a trim may move back.  All pages from the cursor on are
 * held. */
uint32_t cut_at(const struct group *g, const struct seq *s, uint32_t gi, uint32_t form,
                uint32_t len);
void keep_add(struct kv *kv, struct seq *s, uint32_t gi, uint32_t pos, uint32_t page);
void keep_thin(struct kv *kv, struct seq *s, uint32_t gi, uint32_t len);
void keep_remove(struct kv *kv, struct seq *s, uint32_t gi, uint32_t i);
bool keep_holds(const struct group *g, const struct seq_group *sg, uint32_t form, uint32_t index);
void drop_unreachable(struct kv *kv, struct seq *s, uint32_t gi);
/* Makes room for `bytes` more of pages and `meta` more of metadata: evicts kept contents and
 * snapshots, then moves pages to the tier.  ERR_FULL (need is set, nothing is evicted) if that is
 * impossible. */
int make_room(struct kv *kv, size_t bytes, size_t meta, const char *what);
/* Runs `attempt`, which makes room.  If the budget is short and pages could move to the tier,
 * begins streaming and runs `attempt` again.  Calls streaming off if that fails too. */
int with_room(struct kv *kv, int (*attempt)(struct kv *kv, void *ctx), void *ctx);
/* Returns the bytes that go free when nobody holds the pages of s any more, after those counted
 * before.  reset: forgets the earlier counts. */
size_t gain_whole(struct kv *kv, const struct seq *s, bool reset);

/* age.c: which snapshot is evicted first */
int age_arrays(struct kv *kv);
void age_open(struct kv *kv);
void age_close(struct kv *kv);
/* Notes a change of what decides the oldest snapshot of s: its snapshots, `pinned`, `busy`, or
 * kv.step.open. */
void age_update(struct kv *kv, const struct seq *s);
/* Pins or unpins all snapshots of s. */
void age_pin(struct kv *kv, struct seq *s, bool pin);
/* Returns the contents with the oldest snapshot that may be evicted, and its place; NULL: there
 * is none. */
struct seq *age_oldest(struct kv *kv, uint32_t *gi, uint32_t *i);
/* Adds the oldest snapshot of s to the eviction plan being made. */
void age_doom(struct kv *kv, struct seq *s, uint32_t gi, uint32_t i);
bool age_check(const struct kv *kv);

/* reserve.c */
/* Returns the pages that the sequence's reserve must hold so that growing from `len` rows on takes
 * none from the pool, and ending the marks of its slot neither. */
uint32_t reserve_need(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t form,
                      uint32_t len);
/* Contents of one slot: member 0 has the slot, and marks remember the others. */
struct family {
    struct member *of;
    uint32_t n, reserve; /* reserve: the most rows that a mark promises */
};
/* What reserve_need_as must know of a slot that is about to own the contents. */
struct reserve_for {
    uint32_t reserve;    /* rows promised to the slot */
    bool marked, shared; /* the slot has marks; others own s too */
    /* pages that only these contents hold are the slot's own; or NULL */
    const struct family *family;
};
/* Returns the same number for a slot that is about to own s. */
uint32_t reserve_need_as(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t form,
                         uint32_t len, const struct reserve_for *r);
/* Gives back the pages that the slot's reserve does not need, and takes those that it lacks.
 * Charges the slot for its metadata.  ERR_FULL if the budget has no room; then nothing is taken. */
int reserve_fill(struct kv *kv, uint32_t slot, const char *what);
/* Makes room for the metadata of one more slot in the same attempt, and charges that slot, too. */
int reserve_fill_beside(struct kv *kv, uint32_t slot, uint32_t beside, const char *what);
/* Fills the reserve after an operation that made room for it.  Only a failing tier can prevent
 * this; then the next step, or any other call that takes pages, first tries again. */
void reserve_refill(struct kv *kv, uint32_t slot);
int reserve_fill_all(struct kv *kv, const char *what);
/* Fills the reserves that lack pages since the tier failed or a mark was rolled back. */
int reserve_settle(struct kv *kv);
/* Gives back the pages that the reserve does not need. */
void reserve_spare(struct kv *kv, uint32_t slot);
/* Returns every page of the reserve to the pool. */
void reserve_return(struct kv *kv, uint32_t slot);
/* Returns the bytes that the slot's reserve would lack (negative: would have to spare) after a trim
 * of its sequence to `len`.  A marked sequence's reserve spares nothing. */
ptrdiff_t reserve_short(const struct kv *kv, uint32_t slot, uint32_t len);

/* family.c: what a slot with marks needs */
/* True if only the family holds page `id`, which is in cell i. */
bool family_alone(const struct kv *kv, const struct family *f, uint32_t gi, uint32_t form,
                  uint32_t i, uint32_t id);
/* Returns the pages that a marked slot's reserve needs so that it lacks none after its marks have
 * ended, once its own contents are cut to `len`.  0 for pages that may leave memory: they are
 * replaced by writing others to the tier. */
uint32_t family_need(const struct kv *kv, uint32_t slot, uint32_t gi, uint32_t form, uint32_t len);
/* Returns the pages that the slot's reserve needs for a rollback of any of its marks, if other
 * sequences keep all pages that the slot holds now. */
uint32_t family_need_marks(const struct kv *kv, uint32_t slot, uint32_t gi, uint32_t form);

/* queue.c: which pages may leave memory */
int queue_open(struct kv *kv, struct group *g, uint32_t form);
void queue_close(struct group *g, uint32_t form);
/* Puts a page where it belongs after a change of its references or its place in memory. */
void queue_update(struct kv *kv, struct pages *p, uint32_t id);
/* Notes the cell of a page that committed tables name. */
void queue_place(struct kv *kv, struct group *g, uint32_t form, uint32_t id, uint32_t cell);
/* Finds the page that leaves next, and returns its form; NULL: none may leave. */
struct pages *queue_next(const struct kv *kv, uint32_t *id);
/* Counts the tail of s among those of its pages, and takes it out again.  Length and cells must not
 * change in between.  A sequence that is part of a step has taken its tail out. */
void tail_add(struct kv *kv, struct seq *s);
void tail_drop(struct kv *kv, struct seq *s);
/* Updates what holds the tail of s in memory after its owner or the owner's reserve has changed. */
void tail_settle(struct kv *kv, struct seq *s);
/* Notes a page that a loading s has taken or shares, and counts it if it belongs to the tail. */
void tail_take(struct kv *kv, const struct seq *s, struct group *g, uint32_t form, uint32_t cell);
/* Pins or unpins pages of s: those that a step after `len` rows continues from, and those of later
 * rows.  Pinned pages stay in memory. */
void pin_from(struct kv *kv, const struct seq *s, uint32_t len, bool pin);
/* Pins or unpins all pages of s, those of frozen groups included. */
void pin_whole(struct kv *kv, const struct seq *s, bool pin);
/* Checks the queues for kv_check. */
bool queue_check(const struct kv *kv);

/* spill.c: pages that leave memory */
int spill_arrays(struct kv *kv, const struct kv_config *c);
void spill_close(struct kv *kv);
static inline bool leaves(const struct kv *kv, const struct group *g, uint32_t form)
{
    return kv->stream.active && g->moves[form];
}
/* Returns the bytes that could leave memory beside those that the eviction plan being made frees; 0
 * while a step is open. */
size_t spill_can(const struct kv *kv);
/* Moves that many bytes to the tier, the highest rows first.  No step may be open. */
int spill_out(struct kv *kv, size_t bytes);
/* Brings a page back into memory, to be written. */
int spill_back(struct kv *kv, struct pages *p, uint32_t id);
/* Copies a whole page. */
int spill_copy(struct kv *kv, struct pages *p, uint32_t from, uint32_t to);
/* Reads the page's bytes at every site, [n_sites][grain]. */
int spill_read(struct kv *kv, const struct pages *p, uint32_t id, unsigned char *out);
/* Forgets the tier's copy of a page that is freed. */
void spill_forget(struct kv *kv, struct pages *p, uint32_t id);
/* Begins streaming because the budget is short; true if streaming begins now. */
bool spill_begin(struct kv *kv);
/* Ends streaming that has moved no page yet. */
void spill_call_off(struct kv *kv);

/* stage.c: what a step reads of them */
bool form_moves(const struct group *g, uint32_t form); /* its pages may leave memory */
/* Sizes the staging area. */
int stage_room(struct kv *kv, const struct kv_config *c);
int stage_arrays(struct kv *kv);
int stage_open(struct kv *kv, const struct kv_config *c);
void stage_close(struct kv *kv);
/* Plans the pieces of every group and starts to read the first. */
void stage_plan(struct kv_step *st);
/* Fills in the rows and tables of a site's k-th piece. */
int stage_show(struct kv_step *st, uint32_t site, uint32_t k, struct kv_view *v);
/* Waits for the reads in flight. */
void stage_end(struct kv *kv);

/* spill_map.c: returns how far behind the arena a mapping of the tier may begin; 0: there can be none. */
size_t window_distance(const struct kv *kv, const struct kv_tier *tier);
/* Maps the tier, if that is possible; without a mapping all pages are staged. */
void window_open(struct kv *kv, struct kv_tier *tier);
/* Begins a step with spilled pages.  Returns true if its first pages are expected to be ready. */
bool window_step(struct kv *kv);
/* Sees if the spilled pages of a site can be read in place, and sets stream.direct. */
void window_look(struct kv *kv, uint32_t site);

/* step.c */
/* Undoes everything that kv_begin did. */
void step_undo(struct kv_step *st);
/* True if the step writes rows of the group: frozen groups in a step of an encoder, all others else. */
static inline bool step_writes(const struct kv_step *st, const struct group *g)
{
    return (g->c.policy.kind == KV_FROZEN) == st->cross;
}
/* Returns the tiles that are full or begun with so many rows. */
static inline uint32_t step_tiles_begun(const struct group *g, uint32_t rows)
{
    return MAX(table_used(g, SEALED, rows), table_first(g, SEALED));
}
/* step_view.c: writes the arrays of the views of a step that has its pages */
void step_fill(struct kv_step *st, const struct kv_span *span);
/* Ends the layer that was being computed and enters another one (KV_NONE: none).  A layer ends where the next one first
 * asks for its rows. */
void step_trace_layer(struct kv_step *st, uint32_t site);
