/* seq_int.h - inside the store: contents of sequences with their snapshots and borrowed rows, the slots that name contents,
 * and the marks that remember them. */
#pragma once
#include "kv/index_int.h"
#include "kv/pages_int.h"

/* A snapshot: a length that a trim can return to although the group forgets.  The snapshot
 * keeps the state after `pos` rows, or the pages that a query at `pos` reads.  Snapshots are
 * evictable. */
struct keep {
    uint32_t pos;
    uint32_t page; /* state groups: the snapshot's page, with a reference */
    /* rows [from[RAW], pos) are held raw, rows [from[SEALED], pos) in some form */
    uint32_t from[FORMS];
    uint64_t stamp; /* age; the snapshot with the smallest stamp is evicted first */
    bool doomed;    /* true if the eviction plan being made has chosen it */
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
/* A run of borrowed rows (borrow.c): rows [row, row + n) of the lender `from`.  The first `at` own rows stand before
 * the run. */
struct borrow {
    uint32_t from, row, n, at;
};
/* Contents, named by one slot or by several (forks that nobody has changed yet). */
struct seq {
    /* One of the slots, the head of their ring.  Contents with a reserve have only this slot. */
    uint32_t slot;
    /* Number of slots.  Contents that nobody owns, marks, keeps or borrows from are spare, and empty. */
    uint32_t owners;
    uint32_t marks; /* marks that may roll a slot back to these contents */
    /* of a lender: runs that borrow its rows, and loans; a lender has no slot */
    uint32_t lent;
    uint32_t n_doomed;   /* snapshots that the eviction plan being made has chosen */
    uint32_t len, cross; /* rows; rows of the frozen groups */
    uint32_t n_turns, n_keys;
    bool turn_open; /* the last turn is not complete */
    bool busy;
    bool stays;   /* the tail counts as held in memory for a reserve */
    bool pinned;  /* the contents' snapshots are not evicted now */
    bool held;    /* scratch of reorder: nobody continues the contents, but they must stay */
    bool noted;   /* the contents are in index.noted */
    bool foreign; /* rows not computed from the tokens, so no match resumes from them */
    struct kv_salt salt;
    /* kv.clock when the contents were kept: no slot owns them, but others may resume from them (kept.c); 0: not kept */
    uint64_t kept;
    uint64_t used;         /* kv.clock at the last use of kept contents */
    int32_t *tok;          /* [max_len], those of borrowed rows included */
    struct kv_turn *turn;  /* [max_len / 2 + 2] turns of own rows */
    struct borrow *borrow; /* [borrows] ascending */
    /* n_borrows: runs in use; away: rows of these runs, which len does not count */
    uint32_t n_borrows, away;
    unsigned char *key;  /* [n_keys] chained keys of the leading full blocks; NULL without index */
    struct seq_group *g; /* [n_groups] */
    /* For the prefix index.  The id of contents in kv.seq is their index there; the id of kept
     * contents is their place in the room. */
    uint32_t id, n_listed; /* n_listed: leading blocks that the table of the index lists */
    struct key_node *node; /* [n_listed] entries, one for each key */
    /* entries of the first block's tokens, and of the last full block of kept contents */
    struct key_node begin, end;
    unsigned char first[KV_KEY]; /* key of the tokens of the first block alone */
    uint64_t looked;             /* number of the last search that looked here */
    size_t bytes;                /* size of the arrays of kept contents, this struct included */
    struct seq *older, *newer;   /* kept contents in the order of their last use */
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
    size_t meta;         /* bytes of metadata that the slot is charged for (metadata.c) */
};
/* A mark that has not ended.  seq 0: none. */
struct mark {
    kv_seq seq;
    /* the contents; slot.reserve and slot.grow when the sequence was marked */
    uint32_t at, reserve, grow;
    uint32_t next; /* 1 + the next mark of the slot; 0: the last one */
};
