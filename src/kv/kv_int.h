/* kv_int.h - inside the store: pages, sequences, the open step, and who may call what.
 *
 * Three layers.  pool.c hands out page ids and counts references, and knows no sequence.
 * keep.c, reserve.c and table cells say which pages a sequence holds and why; spill.c which of them are
 * in memory, and stage.c how a step reads the others.  store.c, seq.c, step.c and trim.c are the
 * operations; each leaves every invariant of check.c true, or returns an error having changed nothing. */
#pragma once
#include "kv/kv.h"

enum { RAW, SEALED, FORMS };

#define KV_RUN   16u /* ids of an aligned run: 256 rows of 16-row blocks */
#define KV_KEEPS 40u /* checkpoints of one sequence and group: newest 4 and one per doubling */
#define KV_NONE  UINT32_MAX

enum { KV_PIN_ROOM = 1, KV_PIN_RESERVE = 2 }; /* for what makes room just now; for a reserve */
struct page {
    uint32_t refs;       /* table cells, checkpoints and step entries that name the page */
    uint32_t prev, next; /* in the stash that holds it */
    uint32_t stage;      /* place in the piece being shown (stage.c) */
    uint16_t stash;      /* 1 + the slot whose reserve holds the page; 0: none */
    uint16_t lent;       /* 1 + the slot from whose reserve it was taken; 0: from the pool */
    uint8_t spilled;     /* its contents are in the tier only */
    uint8_t pinned;      /* KV_PIN_ bits: it stays in memory */
    uint16_t picked;     /* scratch of spill.c, else 0 */
};
struct run {             /* ids [16k, 16k+16) */
    uint32_t prev, next; /* in the list of runs with the same number of free ids */
    uint16_t free, backed;
    uint16_t stale;  /* ids whose bytes in the tier nobody needs any more */
    uint16_t picked; /* ids that are about to leave memory */
};
/* The pages of one group in one form.  Page p of the group's i-th site lies at base + i * span +
 * p * grain, for every site: an id is taken and given back for all sites at once. */
struct pages {
    unsigned char *base;       /* a range of n_sites * span bytes */
    bool mapped;               /* of its own, else in the store's arena */
    size_t span, grain, bytes; /* bytes: grain * n_sites, what one id costs */
    uint32_t n_sites, n_ids, n_runs;
    uint32_t index;    /* group * FORMS + form */
    uint32_t n_live;   /* ids that are not free: with references, or in a stash */
    uint32_t fresh;    /* runs from here on were never used */
    uint32_t usable;   /* runs below are readable and writable */
    uint32_t hand;     /* where the next release starts looking */
    uint32_t n_backed; /* free ids that still hold memory */
    uint32_t n_spilled, n_stale;
    uint32_t list[KV_RUN + 1];
    bool state;
    struct page *page; /* [n_ids] */
    struct run *run;   /* [n_runs] */
    uint32_t *seen;    /* [n_ids] scratch of kv_check and of the eviction plan, else all 0 */
};
/* Rows of a site that are shown together; their spilled pages, of one form, are staged. */
struct piece {
    uint32_t form;
    uint32_t row0, row1;
    uint32_t first; /* of its pages in group.staged */
};
struct group {
    struct kv_group c;
    struct pages form[FORMS]; /* n_ids 0: no such form */
    uint32_t rows[FORMS];     /* per page; state pages count as one row */
    uint32_t stride[FORMS];
    size_t offset[FORMS][KV_MAX_PLANES];
    uint32_t *table[FORMS]; /* [n_contents][stride] of the contents that steps may name */
    uint32_t keep_rows;     /* leading rows that stay raw for ever: sinks and lead */
    bool forgets;           /* state, or rows below the reach are dropped */
    bool lossy;          /* a codec that loses something: rows are read in the form the edge says */
    uint32_t sum[FORMS]; /* pages that the step being begun takes */
    /* the view's arrays */
    uint32_t counts[3];
    uint32_t *len, *from;           /* [max_seqs] */
    uint32_t *lo, *hi, *edge, *dst; /* [max_tokens] */
    uint32_t *enc;                  /* [max_tokens / tile + max_seqs][2] */
    /* streaming */
    bool moves[FORMS];      /* pages of the form may live in the tier */
    uint32_t unit[FORMS];   /* rows that are staged together: whole atoms, no less than a page */
    uint32_t slots[FORMS];  /* pages that half of the staging area holds */
    uint32_t n_pieces;      /* of a site in the open step; 0: all it reads is in memory */
    struct piece *piece;    /* [pieces + 1] sealed rows, then raw ones */
    uint32_t *staged;       /* ids, piece by piece */
    uint32_t *shown[FORMS]; /* [n_contents][stride] the table a view has instead */
};
/* A length to which trim can return although the group forgets: the state after `pos` rows, or the
 * pages that a query at `pos` reads.  Evictable. */
struct keep {
    uint32_t pos;
    uint32_t page;     /* state groups: holds a reference */
    uint32_t raw_from; /* rows [raw_from, pos) are held raw, */
    uint32_t row_from; /* rows [row_from, pos) in some form */
    uint64_t stamp;    /* age: the smallest is evicted first */
    bool doomed;       /* chosen by the eviction plan being made */
};
struct seq_group {
    uint32_t *table[FORMS]; /* page ids: [stride], of kept contents only as many as they use */
    uint32_t hand[FORMS];   /* scratch of spill.c: cells not yet looked at */
    /* Cells [gone0, gone1) are in the tier, as far as spill.c knows: it passes them without a look. */
    uint32_t gone0[FORMS], gone1[FORMS];
    uint32_t cut[FORMS]; /* first page not yet given up; before it only leading and kept pages */
    uint32_t unseen;     /* rows before it, but for sinks, were never given (kv_unseen) */
    uint32_t raw_unseen; /* leading ones aside, rows before it were not loaded raw (load.c) */
    uint32_t n_keeps;
    struct keep *keep; /* [KV_KEEPS] ascending; NULL where the group makes none */
};
/* Where the prefix index lists one key of one sequence (index_table.c).  References are 0, or a sequence's id + 1 and
 * the number of the block. */
struct node {
    uint64_t prev, next; /* other sequences with the same key; prev 0: the first of them */
    uint64_t chain;      /* of a first one: the next key of the same bucket */
};
#define KV_KEY 32u /* bytes of a key: SHA-256 */
struct seq {       /* contents, named by one slot or several (forks that nobody has changed yet) */
    uint32_t slot; /* one of them, the head of their ring; the only one if it has a reserve */
    uint32_t owners;     /* how many; 0 of these and of marks: the contents are spare, and empty */
    uint32_t marks;      /* that may roll a slot back to these contents */
    uint64_t edits;      /* kv.edits when they last may have changed */
    uint32_t held;       /* scratch of reorder */
    uint32_t len, cross; /* rows; of frozen groups */
    uint32_t n_turns, n_keys;
    bool turn_open; /* the last turn is not complete */
    bool busy;
    bool pinned;  /* its checkpoints are not evicted now */
    bool kept;    /* nobody owns them, but others may go on from them (index.c) */
    bool foreign; /* rows that were not computed from the tokens: nobody goes on from them */
    struct kv_salt salt;
    uint64_t used;        /* kv.clock when kept contents were last wanted */
    int32_t *tok;         /* [max_len] */
    struct kv_turn *turn; /* [max_len / 2 + 2] */
    unsigned char *key;   /* [n_keys] chained keys of the leading full blocks; NULL: no index */
    struct seq_group *g;  /* [n_groups] */
    /* The prefix index's: contents of kv.seq have their index as id, kept ones their place in the room. */
    uint32_t id, n_listed; /* leading blocks that the table of the index lists */
    struct node *node;     /* [n_listed] one for each of their keys */
    struct node begin,
        end; /* the tokens of the first block; the last full block of kept contents */
    unsigned char first[KV_KEY]; /* key of the tokens of the first block alone */
    uint64_t looked;             /* the last search that came by */
    size_t bytes;                /* of a kept one's arrays, this struct included */
    struct seq *older, *newer;   /* kept ones, by when they were last wanted */
};
/* Pages of one group and form that a reserve holds: taken from the pool, without references. */
struct stash {
    uint32_t head, tail, n; /* n 0: head and tail mean nothing */
};
struct slot {
    uint32_t gen, seq, reserve; /* reserve: rows promised to the handle, 0: none */
    uint32_t prev, next;        /* ring of the slots with the same contents */
    bool used, named;           /* named: scratch of reorder */
    uint32_t marks;             /* to which the slot may be rolled back */
    struct stash *stash;        /* [n_groups * FORMS] */
};
/* What begin did to a table cell: `old` (still referenced until the step ends) became another
 * page. */
struct change {
    struct pages *pages;
    uint32_t *cell, old;
    struct group *copied; /* old is a shared open block of this group; else NULL and old is 0 */
};
struct step_span {
    uint32_t seq, n, undo, tok0;
    bool turn, last;
    /* Contents that the sequence shared before it got its own, KV_NONE: none; abort goes back to them
     * unless they changed since. */
    uint32_t shared;
    uint64_t edits;
    /* as before begin */
    bool was_open;
    uint32_t n_turns, turn_n;
};
/* One half of the staging area, and what is read into it. */
struct load {
    unsigned char *mem;
    uint32_t site, piece; /* KV_NONE: nothing */
    uint32_t at, end;     /* pages of group.staged not yet asked for */
    uint32_t n_io;        /* transfers in flight */
    struct kv_io *io;     /* [KV_TIER_DEPTH] */
};
/* What the store has when pages may leave memory. */
struct stream {
    struct kv_tier *tier;     /* owned; NULL: no page ever leaves */
    unsigned char *arena;     /* owned: all ranges, then the staging area */
    size_t arena_bytes, half; /* half: of the staging area */
    bool active;              /* they leave when a step needs their room */
    bool on_full;             /* active only once the budget is short */
    bool began;               /* some have left */
    uint32_t since, lanes;    /* kv_usage, kv_step_lanes */
    uint32_t *order, *rank;   /* [n_sites] */
    struct load load[2];
    size_t spilled, stale; /* bytes */
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
    uint32_t *given;        /* [n_sites] pieces that kv_next has shown since it last said 0 */
};
#define KV_GONE 64u /* prefixes given up for room that are remembered */
/* Memory of kept contents: blocks of 1 KiB times a power of two out of one range of addresses (index_room.c). */
#define KV_ROOM_UNIT   1024u
#define KV_ROOM_ORDERS 24u
struct room_unit { /* of the unit that a block begins with */
    uint32_t prev, next;
    uint8_t order;
    bool free;
};
struct room {
    unsigned char *base; /* NULL: there is none */
    uint32_t n_units;    /* a power of two */
    uint32_t usable;     /* units below are readable and writable */
    struct room_unit *unit;
    uint32_t list[KV_ROOM_ORDERS]; /* free blocks of each size */
    size_t used;                   /* bytes of blocks that are taken */
};
struct index {
    bool on;
    bool turns;                  /* what a row holds depends on the turns, too */
    uint32_t n;                  /* kept contents */
    struct seq *oldest, *newest; /* of them: those wanted least recently are given up first */
    struct seq *doomed; /* the newest of those that the eviction plan being made has chosen */
    struct room room;   /* their memory */
    uint64_t *bucket;   /* [n_buckets] first keys */
    uint32_t n_buckets; /* a power of two */
    uint64_t searches;  /* numbered, for seq.looked */
    size_t tier_most;   /* bytes in the tier beyond which kept contents are given up */
    unsigned char *key; /* [max_len / KV_STRIP] of what is looked for */
    unsigned char (*gone)[KV_KEY]; /* [KV_GONE] first keys of what was given up */
    uint32_t n_gone;
    const struct seq *donor; /* contents that the last match went on from */
    enum kv_miss miss;
    uint64_t hits, hit_rows;
};
struct kv {
    uint32_t n_groups, n_sites;
    uint32_t max_seqs, max_tokens, max_len, slot_bits;
    struct group *group;
    uint32_t *site_group; /* [n_sites] */
    struct slot *slot;    /* [max_seqs] */
    struct seq *seq;      /* [n_contents] as many as slots */
    uint32_t n_contents, max_marks, n_marks;
    struct index index;
    uint32_t *idle;  /* free slots, a stack */
    uint32_t *spare; /* contents without owners, a stack */
    uint32_t n_idle, n_spare;
    uint64_t edits;
    uint32_t *scratch; /* [2 * max_seqs] of reorder */
    struct kv_step step;
    uint32_t n_change_max;
    size_t pool, live, states, shared, peak, need;
    size_t reserved; /* bytes of pages in stashes */
    size_t backed;   /* bytes of free pages that still hold memory */
    uint32_t heir;   /* slot whose reserve gets the pages that are freed now; KV_NONE: the pool */
    bool owing;      /* the tier failed, so a reserve lacks pages until it is filled again */
    uint64_t clock, seals, evictions, forks, rows_copied, rows_copied_by_fork;
    uint32_t max_refs;
    struct stream stream;
    bool has_frozen;
    bool narrow; /* the system granted less address space than the budget can fill */
};

/* Faults and extra checks for tests; all zero in a program. */
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
};
extern struct kv_fault kv_fault;

/* pool.c */
/* Sizes alone; *total: address space. */
int pages_size(struct pages *p, uint32_t n_ids, size_t grain, uint32_t n_sites, size_t *total);
void *pool_reserve(size_t bytes); /* address space without memory; NULL: refused */
/* at: reserved address space, or NULL to reserve some. */
int pages_open(struct pages *p, void *at);
void pages_close(struct pages *p);
/* A page with one reference, after `after` if that is free, else the index-th of a free run,
 * else any; 0: no memory behind it.  The caller has checked the budget. */
uint32_t pages_take(struct kv *kv, struct pages *p, uint32_t after, uint32_t index);
void page_ref(struct kv *kv, struct pages *p, uint32_t id);
void page_unref(struct kv *kv, struct pages *p, uint32_t id);
/* Moves a page without references into the stash of a slot, first or last; and back to the pool. */
void page_stash(struct kv *kv, struct pages *p, uint32_t id, uint32_t slot, bool last);
void page_unstash(struct kv *kv, struct pages *p, uint32_t id);
/* Gives up the reference of a page that the open step took; it goes back to where it came from. */
void page_untake(struct kv *kv, struct pages *p, uint32_t id);
/* Takes a page from the slot's stash with one reference, page `after` + 1 if it is there; 0: the stash is empty. */
uint32_t stash_take(struct kv *kv, struct pages *p, uint32_t slot, uint32_t after);
void pool_trim(struct kv *kv); /* gives memory of free pages back while it exceeds the budget */
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
/* Bytes of memory in use: of rows, states and staging; and all that the budget bounds, with the pages of reserves and the
 * tables of the index. */
static inline size_t pool_rows(const struct kv *kv)
{
    return kv->live + kv->states + staging_bytes(kv);
}
static inline size_t pool_held(const struct kv *kv)
{
    return pool_rows(kv) + kv->reserved + kv->index.room.used;
}

/* policy.c */
/* The edge of a query at `len` after the turns were cut there; open: the last turn goes on. */
uint32_t edge_cut(const struct kv_seal *s, const struct kv_turn *turn, uint32_t n, uint32_t len,
                  bool open);

/* seq.c */
void seq_reset(struct kv *kv, struct seq *s); /* empty; holds nothing */
/* Before contents change: if other slots own them too, the slot gets a copy of its own (tables and
 * references, never rows).  Cannot fail and costs no memory: there are as many contents as slots. */
struct seq *seq_own(struct kv *kv, uint32_t slot);
/* The slot's own contents, equal to those it had before (`was`, unchanged since), become spare. */
void seq_give(struct kv *kv, struct seq *s); /* contents of no owner become empty and spare */
/* dst, empty, becomes another owner of what src holds. */
void seq_clone(struct kv *kv, const struct seq *src, struct seq *dst);
void seq_clear(struct kv *kv, struct seq *s);       /* gives up every page */
struct seq *seq_part(struct kv *kv, uint32_t slot); /* the slot is no owner any more, and idle */
void seq_rejoin(struct kv *kv, uint32_t slot, uint32_t was, uint64_t edits);
static inline uint32_t seq_reserve(const struct kv *kv, const struct seq *s)
{
    return s->owners ? kv->slot[s->slot].reserve : 0;
}
/* True if others than one slot own the contents, so that a change needs a copy. */
static inline bool seq_shared(const struct seq *s)
{
    return s->owners + s->marks > 1;
}
static inline bool slot_marked(const struct kv *kv, const struct seq *s)
{
    return s->owners && kv->slot[s->slot].marks;
}
static inline uint32_t slot_index(const struct kv *kv, kv_seq s) /* of a valid handle */
{
    return s & ((1u << kv->slot_bits) - 1);
}
struct slot *slot_find(const struct kv *kv, kv_seq s); /* NULL: stale */
/* The slot, of none so far, becomes an owner; or is one no longer, and what nobody owns is left to the caller. */
void own_join(struct kv *kv, uint32_t slot, struct seq *s);
struct seq *own_part(struct kv *kv, uint32_t slot);
int seq_find(const struct kv *kv, kv_seq s, struct seq **out); /* ERR_STALE; busy is not checked */
int seq_idle(const struct kv *kv, kv_seq s, struct seq **out); /* and ERR_BUSY */
static inline uint32_t *seq_table(const struct kv *kv, const struct group *g, uint32_t form,
                                  const struct seq *s)
{
    return s->g[g - kv->group].table[form];
}
static inline uint32_t seq_rows(const struct group *g, const struct seq *s)
{
    return g->c.policy.kind == KV_FROZEN ? s->cross : s->len;
}
/* Cells of a table that may be nonzero when the group has `rows` rows. */
static inline uint32_t table_used(const struct group *g, uint32_t form, uint32_t rows)
{
    if (!g->form[form].n_ids) return 0;
    if (g->c.policy.kind == KV_STATE) return 1;
    return form == RAW ? (rows + g->rows[RAW] - 1) / g->rows[RAW] : rows / g->rows[SEALED];
}
/* First cell that the drop rule may clear. */
static inline uint32_t table_first(const struct group *g, uint32_t form)
{
    return form == RAW ? (g->keep_rows + g->rows[RAW] - 1) / g->rows[RAW]
                       : g->c.seal.lead / g->rows[SEALED]; /* tiles below lead are never made */
}

/* First block, leading ones aside, that the next step after `rows` may write on or encode from: the
 * open one, and those of the tile that is not complete. */
static inline uint32_t table_tail(const struct group *g, uint32_t rows)
{
    uint32_t whole = (rows - rows % MAX(g->c.seal.tile, 1)) / g->rows[RAW];
    return MAX(whole, MIN(rows / g->rows[RAW], table_first(g, RAW)));
}

/* trim.c */
uint32_t seq_resume(const struct kv *kv, const struct seq *s, uint32_t m);
/* Cuts s to a length that seq_resume gave. */
void seq_cut(struct kv *kv, struct seq *s, uint32_t m);

/* index.c */
int index_open(struct kv *kv, const struct kv_config *c);
void index_close(struct kv *kv);
#define KV_LOOKS 64u /* sequences that one search looks at, and passes at one key */
uint32_t index_known(const int32_t *tok, uint32_t n); /* leading rows with ids */
bool index_donor(const struct seq *s);                /* others can go on from it */
/* Makes the keys of the first `most` full blocks, as far as rows have ids and, if turns count, are of whole turns. */
void index_keys(struct kv *kv, struct seq *s, uint32_t most);
/* Up to where two lists of turns are the same: rows before it are, if no turn goes on across it. */
uint32_t index_turns_same(const struct kv_turn *a, uint32_t n_a, const struct kv_turn *b,
                          uint32_t n_b);
uint32_t index_turns_whole(const struct seq *s,
                           uint32_t m); /* m, or where the turn around it begins */
/* Lists live sequences as far as they begin with the keys; since they were listed they have grown. */
void index_list_live(struct kv *kv, const unsigned char *key, uint32_t n_keys);

/* kept.c */
void index_wanted(struct kv *kv, struct seq *s); /* somebody goes on from s */
void index_evict(struct kv *kv, struct seq *s);
/* Gives up rows of s, the last ones first, until `bytes` more fit. */
void index_shrink(struct kv *kv, struct seq *s, size_t bytes);
/* Gives up kept contents until p has n free ids, and until the tier holds no more than they may take there. */
void index_yield(struct kv *kv, const struct pages *p, uint32_t n);
/* All contents: those of kv.seq, then the kept ones from the least recently wanted on.  NULL begins and ends. */
static inline struct seq *seq_each(const struct kv *kv, const struct seq *s)
{
    if (s && s->kept) return s->newer;
    uint32_t i = s ? (uint32_t)(s - kv->seq) + 1 : 0;
    return i < kv->n_contents ? &kv->seq[i] : kv->index.oldest;
}

/* index_room.c */
int room_open(struct room *r, size_t bytes); /* address space; less if the system refuses so much */
void room_close(struct room *r);
/* Zeroed memory; *bytes is rounded up to what it takes.  NULL: there is none of that size. */
void *room_take(struct room *r, size_t *bytes);
void room_give(struct room *r, void *at);

/* index_table.c: which sequences have which keys */
#define KV_LIST_BEGIN                                                                              \
    (UINT32_MAX - 1)           /* the tokens of a first block, whatever the salt and the turns */
#define KV_LIST_END UINT32_MAX /* the last full block of kept contents */
int table_open(struct kv *kv);
void index_list(struct kv *kv, struct seq *s);                /* all its keys */
void index_hide(struct kv *kv, struct seq *s, uint32_t from); /* those of blocks from `from` on */
/* The first sequence listed with the key as its `what`-th block (or as above), and the next; 0: none. */
uint64_t index_find(const struct kv *kv, uint32_t what, const unsigned char *key);
uint64_t index_next(const struct kv *kv, uint64_t ref);
uint64_t index_chain(const struct kv *kv, uint64_t first); /* the first of the bucket's next key */
struct seq *index_seq(const struct kv *kv, uint64_t ref);

/* index_key.c */
void key_tokens(const int32_t *tok,
                unsigned char out[KV_KEY]); /* of the first block's tokens alone */
void key_first(const struct kv *kv, const struct kv_salt *salt, unsigned char out[KV_KEY]);
/* Of block i, after the key of the block before (of the first: key_first). */
void key_next(const struct kv *kv, const unsigned char *before, const int32_t *tok,
              const struct kv_turn *turn, uint32_t n_turns, uint32_t i, unsigned char out[KV_KEY]);

/* keep.c: what a sequence still needs */
struct need {
    uint32_t raw_from, row_from; /* rows needed raw from here on; in some form from here on */
};
struct need need_at(const struct group *g, const struct seq *s, uint32_t len, uint32_t slack,
                    bool open);
/* The cursor at `len`, which a trim may move back: pages from it on are all held. */
uint32_t cut_at(const struct group *g, const struct seq *s, uint32_t gi, uint32_t form,
                uint32_t len);
void keep_add(struct kv *kv, struct seq *s, uint32_t gi, uint32_t pos, uint32_t page);
void keep_thin(struct kv *kv, struct seq *s, uint32_t gi, uint32_t len);
void keep_remove(struct kv *kv, struct seq *s, uint32_t gi, uint32_t i);
bool keep_holds(const struct group *g, const struct seq_group *sg, uint32_t form, uint32_t index);
void drop_unreachable(struct kv *kv, struct seq *s, uint32_t gi);
/* Evicts kept contents and checkpoints, then sends pages to the tier, until `bytes` more fit in memory.
 * ERR_FULL (need set, nothing evicted) if impossible. */
int make_room(struct kv *kv, size_t bytes, const char *what);
/* Runs `attempt`, which makes room; if the budget is short and pages could leave for the tier, begins streaming and runs
 * it again.  Streaming is called off when that fails too. */
int with_room(struct kv *kv, int (*attempt)(struct kv *kv, void *ctx), void *ctx);
/* Bytes that go free when nobody holds the pages of s any more, after those counted before; reset: forgets the count. */
size_t gain_whole(struct kv *kv, const struct seq *s, bool reset);

/* reserve.c */
/* Pages that the reserve of the sequence has to hold so that growing from `len` rows on takes none from the pool. */
uint32_t reserve_need(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t form,
                      uint32_t len);
/* The same for a slot that is about to own s. */
struct reserve_for {
    uint32_t reserve;    /* rows promised to the slot */
    bool marked, shared; /* the slot has marks; others own s too */
};
uint32_t reserve_need_as(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t form,
                         uint32_t len, const struct reserve_for *r);
/* The reserve of the slot gives back what it does not need and takes what it lacks; ERR_FULL if the budget has no room
 * for that, and nothing is taken. */
int reserve_fill(struct kv *kv, uint32_t slot, const char *what);
/* After an operation that made room for what the reserve lacks: only a tier that fails can prevent it, and then the next
 * step, or whatever else takes pages, tries again first. */
void reserve_refill(struct kv *kv, uint32_t slot);
int reserve_fill_all(struct kv *kv, const char *what);
int reserve_settle(struct kv *kv); /* fills the reserves that lack pages since the tier failed */
void reserve_spare(struct kv *kv, uint32_t slot);  /* gives back what the reserve does not need */
void reserve_return(struct kv *kv, uint32_t slot); /* every page goes back to the pool */
/* Bytes that the slot's reserve would lack, or (negative) not need, after a trim of its sequence to `len`. */
ptrdiff_t reserve_short(const struct kv *kv, uint32_t slot, uint32_t len);

/* spill.c: pages that leave memory */
int spill_open(struct kv *kv, const struct kv_config *c);
void spill_close(struct kv *kv);
static inline bool leaves(const struct kv *kv, const struct group *g, uint32_t form)
{
    return kv->stream.active && g->moves[form];
}
/* Pages of s stay in memory, for the reason given by a KV_PIN_ bit: those that a step after `len` rows goes on from, and those
 * of the rows after. */
void pin_from(struct kv *kv, const struct seq *s, uint32_t len, uint8_t why, bool pin);
/* Bytes that could leave, as far as they are counted: at least `enough`, or all there are; none while a step is open. */
size_t spill_can(struct kv *kv, size_t enough);
/* That many leave, those of the highest rows first; no step may be open. */
int spill_out(struct kv *kv, size_t bytes);
int spill_back(struct kv *kv, struct pages *p, uint32_t id); /* into memory again, to be written */
int spill_copy(struct kv *kv, struct pages *p, uint32_t from, uint32_t to); /* a whole page */
/* Its bytes at every site, [n_sites][grain]. */
int spill_read(struct kv *kv, const struct pages *p, uint32_t id, unsigned char *out);
void spill_forget(struct kv *kv, struct pages *p, uint32_t id); /* a spilled page is freed */
/* The budget is short: true if streaming begins now.  Or ends, as nothing has left yet. */
bool spill_begin(struct kv *kv);
void spill_call_off(struct kv *kv);

/* stage.c: what a step reads of them */
int stage_room(struct kv *kv, const struct kv_config *c); /* sizes the staging area */
int stage_open(struct kv *kv, const struct kv_config *c);
void stage_close(struct kv *kv);
void stage_plan(struct kv_step *st); /* pieces of every group; starts to read the first */
/* Fills in rows and tables of the k-th piece of a site. */
int stage_show(struct kv_step *st, uint32_t site, uint32_t k, struct kv_view *v);
void stage_end(struct kv *kv); /* waits for what is still being read */

/* step.c */
void step_undo(struct kv_step *st);
