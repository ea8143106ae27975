/* kv.h - floor 3, the cache: one block store; policies and codecs say what differs between models.
 *
 * A KV row is one position in one group of layers.  The bytes of a row exist in one or both of two
 * forms:
 *   RAW     blocks of `rows` rows in the dtype of the model.
 *   SEALED  tiles of `tile` rows, as the codec quantizes them.
 *
 * Raw blocks.  An open block has one writer.  A full block is immutable, so forks and beams share
 * it by reference, whether or not its rows are also sealed.
 *
 * Sealed tiles.  The forward that completes a tile seals it once: after the site's rows are written
 * and before the site's attention.  A tile is immutable, and it can be shared and moved.
 *
 * Which form a query reads.  The query at position p reads row j sealed if lead <= j < kv_edge(p),
 * else raw.  This depends on the sequence alone (its tokens and turns).  It never depends on the
 * step, on the rest of the batch, or on another owner of the block.
 *
 * Release.  An owner releases a raw block once every row in the block is below edge(len) and not
 * below lead.
 *
 * Pages.  Page ids are per group and form.  Page p of site s lies at base(s) + p * grain.  So one
 * table serves all sites of a group, while the pages of each site are adjacent in memory.  Page 0
 * is the null page: nothing reads page 0, and the writes of idle lanes go there.  The table cells
 * of rows that no query can reach hold page 0.
 *
 * Budget.  Everything counts: rows, states, staging, reserves, and metadata (tokens, turns, keys,
 * tables, and the arrays made at open).  A fork, a second mark, a match and a longer sequence or
 * reserve may need room for metadata alone; what undoes them never does (metadata.c).
 *
 * Rules of use.  One thread owns a store, and there are no locks.  Nothing here allocates after
 * kv_open, because the configuration sizes all arrays.  A call that fails changes nothing. */
#pragma once
#include "base/base.h"
#include "dev/view.h"
#include "kv/tier.h"

struct kv;
struct kv_step;
typedef uint32_t kv_seq; /* slot and generation; 0 is invalid, a stale handle is ERR_STALE */

/* What a group holds: a KV row of each token, one state of each sequence, or rows that one step
 * writes. */
enum kv_kind { KV_ROWS, KV_STATE, KV_FROZEN };
struct kv_policy {
    enum kv_kind kind;
    uint32_t window; /* 0: unlimited; W: the last W rows, the query's own row included */
    uint32_t chunk;  /* 0: none; C: the rows since the start of the current chunk */
    uint32_t sinks;  /* leading rows that always stay reachable */
    uint32_t slack;  /* rows held beyond the reach, so that short trims are cheap */
    uint32_t every;  /* period of the snapshots of a window or a state; 0: none */
};
/* The reach of a query at row `pos`: the rows that it may see, [0, sinks) and [lo, hi).  Attention
 * patterns differ only here.  The mask, the drop rule, the match rule and the memory estimate all
 * call kv_reach. */
struct kv_reach {
    uint32_t sinks, lo, hi;
};
struct kv_reach kv_reach(const struct kv_policy *p, uint32_t pos, uint32_t rows);

/* Which rows are read sealed.  With resid 0 the edge is pos - pos % tile. With resid R (the
 * schedule of Quanto and HQQ in Transformers) the edge covers all updates up to the last flush,
 * rounded down to the tile.  An update is a turn or one decoded token.  A flush happens after the
 * first update and whenever R rows have gathered. */
struct kv_turn {
    /* One update of several tokens as the caller appended it, whether or not it was computed in
     * chunks. */
    uint32_t pos, n;
};
struct kv_seal {
    /* tile 0: no codec.  lead: the first rows, which stay raw; at least policy.sinks. */
    uint32_t tile, lead, resid;
};
uint32_t kv_edge(const struct kv_seal *s, const struct kv_turn *turn, uint32_t n, uint32_t pos);

struct kv_plane {
    const char *name;
    struct kv_shape shape;
    const struct kv_codec *codec; /* NULL: native, the raw block is the final form */
};
/* One rung of a group: how its full tiles are stored once the budget is short (rung.c). */
struct kv_rung {
    struct kv_seal seal;
    const struct kv_codec *codec[KV_MAX_PLANES];
};
#define KV_RUNGS 2u
/* Sites that share one table, hence one policy and one edge. */
struct kv_group {
    struct kv_policy policy;
    struct kv_seal seal;
    uint32_t site0, n_sites; /* sites are numbered group by group */
    uint32_t rows;           /* of a raw block: 16, 32, 64, 128 or 256 */
    uint32_t n_planes;
    struct kv_plane plane[KV_MAX_PLANES]; /* k,v | latent | conv,ssm */
    /* Names the layers of the group if the model alone does not; else "".  Files of saved rows have this name. */
    char layers[64];
    /* True if full pages of the group may live in the tier; a step reads them piece by piece
     * through the staging area. */
    bool stream;
    /* For a group without a codec: the codecs that its rows get when the budget is short, one rung after the other.
     * All rungs have the same tile and lead and no residual, and each has fewer bytes than the one before.  Requires
     * that the group keeps all rows, in memory of the host. */
    uint32_t n_rungs;
    struct kv_rung rung[KV_RUNGS];
};
/* When the pages of groups with `stream` leave memory: never; from the first step on that does not fit the budget;
 * or whenever the budget cannot hold them. */
enum kv_streaming { KV_RESIDENT, KV_STREAM_ON_FULL, KV_STREAM };
struct kv_config {
    /* Pages lie in memory of this device, and the queue is a queue of this device.  Both outlive the store.  NULL:
     * the host.  Page sizes depend on the device.  The tier must be made for the same queue. */
    struct dev *dev;
    struct dev_queue *queue;
    const struct kv_group *group; /* copied */
    uint32_t n_groups;
    /* These sizes fix the arrays; max_tokens counts the tokens of one step. */
    uint32_t max_seqs, max_tokens, max_len;
    /* largest number of sequences in one step; the budget has room for a block of each.  0: max_seqs */
    uint32_t lanes;
    size_t pool_bytes; /* hard limit of rows, states, staging, reserves and metadata */
    uint32_t marks;    /* largest number of marks at once (kv_mark) */
    /* Most rows of a sequence that the caller recomputes from row 0 while a mark keeps the old ones.  A reserve has
     * room for these rows twice. */
    uint32_t redo;
    enum kv_streaming streaming;
    /* NULL if resident; the store owns the tier from a successful kv_open on */
    struct kv_tier *tier;
    bool index; /* keep sequences (kv_keep) and find their prefixes (kv_match) */
    bool turns; /* rows depend on the turns whatever the codec, so a match respects turns */
    /* part of pool_bytes; 0: two pieces of max(1 MiB, one atom of every lane) */
    size_t stage_bytes;
    /* [sites] in the order in which a step visits them, for prefetching; NULL: ascending; copied */
    const uint32_t *order;
    /* Most runs of rows that a sequence can borrow (kv_borrow); 0: borrowing is off and costs nothing.  Requires
     * that all groups keep all rows, in memory of the host.  There are at most `borrows` + `lanes` lenders. */
    uint32_t borrows;
};
#define KV_BORROWS_MOST 1024u
/* Opens a store; allocates everything that the store will ever need. */
int kv_open(struct kv **out, const struct kv_config *cfg);
/* Changes the budget to at most the pool_bytes of the opening.  A lower one evicts kept contents and snapshots, or moves
 * pages to the tier; ERR_FULL, with nothing changed, if that is not enough. */
int kv_limit(struct kv *kv, size_t bytes);
/* Closes the store; aborts an open step. */
void kv_close(struct kv *kv);
/* Returns a group as its rows are kept now: with the codecs of the present rung. */
const struct kv_group *kv_group_now(const struct kv *kv, uint32_t group);
/* Returns the present rung: 0 while rows are as they were computed, then 1 and so on.  A step, fork, reorder or
 * lower limit that does not fit the budget first evicts kept sequences, then encodes all full tiles of all
 * sequences.  From then on the store is the same as one that was opened with the codecs of that rung.  Nothing is
 * encoded while a sequence has a reserve. */
uint32_t kv_rung(const struct kv *kv);
/* Moves to a rung now, however much of the budget is free.  Does nothing if the store is on that rung or a later
 * one.  After ERR_FULL, ERR_BUSY or ERR_UNSUPPORTED (there is no such rung) nothing has changed. */
int kv_encode(struct kv *kv, uint32_t rung);

/* Everything but tokens and turns that decides the contents of a sequence's rows.  The salt is part
 * of the keys of the prefix index, and a match also compares it.  Rows of different salts are never
 * shared. */
#define KV_DIGEST 32u
struct kv_salt {
    uint32_t regime; /* regime of the rotary frequencies (model/regime.c) */
    uint32_t pad;    /* masked columns before the first row, where the model counts them */
    uint8_t adapter[KV_DIGEST]; /* SHA-256 of the changes to the weights; zeros: no changes */
    uint8_t source[KV_DIGEST];  /* SHA-256 of the encoder's input; zeros: no encoder */
    /* Rows do not depend on the owner, but only sequences with the same owner share rows.  Zeros: no owner. */
    uint8_t owner[KV_DIGEST];
};

/* Sequences.  None of these calls copies rows.  A call is ERR_BUSY while a step
 * that names the sequence is open. */
/* Creates an empty sequence.  salt NULL: all zero. */
int kv_new(struct kv *kv, const struct kv_salt *salt, kv_seq *out);
/* Returns the salt of a sequence, all zero if the handle is stale.  Forks and reorders carry the
 * salt. */
struct kv_salt kv_salt(const struct kv *kv, kv_seq s);
/* True if both salts are equal, so that rows may be shared. */
bool kv_salt_same(const struct kv_salt *a, const struct kv_salt *b);
/* Changes the salt of a sequence without rows.  A sequence with frozen rows keeps its source and its adapter, on
 * which these rows depend; all other fields may change. */
int kv_resalt(struct kv *kv, kv_seq s, const struct kv_salt *salt);
/* Creates a second owner of the contents of src; ERR_FULL if the budget has no room for its metadata.  The fork has
 * no reserve, so its appends can be ERR_FULL until kv_reserve gives it one.  If src has a reserve, src can no longer
 * count on some of its own pages: the open block, and pages of a window.  The fork adds as many pages to that
 * reserve.  If these do not fit, the fork is ERR_FULL and changes nothing. */
int kv_fork(struct kv *kv, kv_seq src, kv_seq *out);
/* Drops the sequence; pages that nobody else holds become free. */
int kv_drop(struct kv *kv, kv_seq s);
/* Returns a number below max_seqs that no other live sequence has. */
uint32_t kv_slot(const struct kv *kv, kv_seq s);
/* Gives each beam[i] the contents that beam[from[i]] had before the call, all at once.  ERR_FULL,
 * with nothing changed, if reserves or longer sequences need room that the budget lacks. */
int kv_reorder(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n);
/* Checks a reorder and makes the room that it takes, so that the reorder cannot fail if nothing is done
 * in between.  No sequence changes. */
int kv_reorder_room(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n);
/* Takes the pages that growing to `len` rows can need from the pool, all or nothing.  Appends up to
 * len then cannot fail for lack of budget.  Other operations on s keep this promise or are
 * ERR_FULL.  len 0 gives the reserve back. */
int kv_reserve(struct kv *kv, kv_seq s, uint32_t len);
/* Returns the bytes of pages that an empty sequence takes for a reserve of `len` rows, in a store with these
 * groups, steps and streaming, with the copy of the open block that a fork needs.  SIZE_MAX if no
 * store can be so large. */
size_t kv_reserve_bytes(const struct kv_config *c, uint32_t len);
/* Returns the bytes of tokens, turns, keys and tables of one sequence of `rows` rows; one mark of the sequence takes
 * as many.  The budget holds them twice for each sequence, so that its first mark needs no room. */
size_t kv_metadata_bytes(const struct kv_config *c, uint32_t rows);
/* Returns the bytes of arrays of fixed size in a store with this configuration and pool. */
size_t kv_fixed_bytes(const struct kv_config *c);
/* Returns the smallest pool_bytes that leaves `bytes` beside the staging area and the arrays of fixed
 * size; SIZE_MAX if no store can be so large. */
size_t kv_pool_bytes(const struct kv_config *c, size_t bytes);
/* Returns the smallest pool_bytes with which kv_open accepts the configuration; SIZE_MAX if no store can
 * be so large. */
size_t kv_open_bytes(const struct kv_config *c);
/* Returns the staging area (stage_bytes) with which every sequence of the configuration can be part of
 * one step; 0 if no page can leave memory, SIZE_MAX if no store can be so large. */
size_t kv_staging_bytes(const struct kv_config *c);
/* Returns the number of rows promised to the sequence; 0: no reserve. */
uint32_t kv_reserved(const struct kv *kv, kv_seq s);
/* Undo.  A mark remembers what s holds: rows, tokens, turns, salt, snapshots and reserve.
 *
 * Rolling back restores all of this whatever was done to s since, and cannot fail.  Releasing
 * forgets the mark.  Either call ends the mark, and does nothing for a mark without a sequence (seq
 * 0).  Marks use no handle, can be nested and end in any order.  A mark outlives its sequence.
 *
 * The contents of a mark stay in the budget.  After an append or a trim, s holds them in addition
 * to its new pages.  The metadata of one mark is part of each sequence's own, and a sequence with a
 * reserve has room for one mark.  kv_mark is ERR_FULL where a further mark, or forks made since,
 * need more than the budget has.
 *
 * The reserve is intact after a rollback or a release, whoever forked s meanwhile: such a fork adds
 * the pages that a rollback would lack to the reserve, or is ERR_FULL.  While s is marked its
 * reserve cannot be lowered (ERR_BUSY).  If one of several marks ends before a later one, appends
 * can be ERR_FULL, and the reserve is the greatest of theirs, until all have ended.
 *
 * No step that names s may be open. */
struct kv_mark {
    kv_seq seq;
    uint32_t at; /* used inside the store only */
};
/* Marks what s holds. */
int kv_mark(struct kv *kv, kv_seq s, struct kv_mark *out);
/* Lets appends of a marked sequence rely on its reserve up to `len` rows, until its marks have
 * ended.  A trim then needs room for as many rows beside the marked ones.  ERR_FULL if appends
 * relied on fewer rows before and the budget lacks room for more. */
int kv_rely(struct kv *kv, kv_seq s, uint32_t len);
/* Restores what the mark remembers, and ends the mark. */
void kv_rollback(struct kv *kv, struct kv_mark *m);
/* Ends the mark and leaves the sequence as it is. */
void kv_release(struct kv *kv, struct kv_mark *m);
/* Ends a transaction: rolls back if it failed, else releases. */
void kv_settle(struct kv *kv, struct kv_mark *m, bool failed);
/* The tokens and turns that a sequence had when it was marked. */
struct borrow;
struct kv_past {
    const int32_t *tok;         /* [len] */
    const struct kv_turn *turn; /* kv_past_turn knows their places among borrowed rows */
    uint32_t len, n_turns, n_borrows;
    const struct borrow *borrow;
};
struct kv_turn kv_past_turn(const struct kv_past *p, uint32_t i);
/* Returns what the mark remembers of tokens and turns.  The arrays are valid until the mark ends. */
struct kv_past kv_marked(const struct kv *kv, const struct kv_mark *m);
/* Trims s to *have <= len, the longest length that every group can resume from exactly.  The caller
 * appends tokens [*have, len) again.  ERR_LOST, with nothing changed, if one of these tokens has no
 * id. */
int kv_trim(struct kv *kv, kv_seq s, uint32_t len, uint32_t *have);
/* Makes the room that the reserves of s[n] take when each is trimmed to len[n], in this order.  len[i]
 * is a length that kv_resume gives.  These trims cannot fail then, if nothing is done in between.
 * ERR_FULL: some trim would have found no room; no sequence has changed. */
int kv_trim_room(struct kv *kv, const kv_seq *s, const uint32_t *len, uint32_t n);
/* Marks every row of s that the next token cannot see as appended without contents (by an import).
 * A trim that needs such a row recomputes it.  Snapshots of earlier states are dropped. */
int kv_unseen(struct kv *kv, kv_seq s);
/* Computes the length that kv_trim would leave; changes nothing. */
int kv_resume(const struct kv *kv, kv_seq s, uint32_t len, uint32_t *have);
/* Returns the group that lowers the resume length most; UINT32_MAX if no group lowers it. */
uint32_t kv_hinders(const struct kv *kv, kv_seq s, uint32_t len);
struct kv_usage {
    /* Bytes.  reserved: pages of reserves that hold no rows yet.  peak: highest sum of live, states
     * and staging. */
    size_t live, shared, states, reserved, free, peak, pool;
    size_t need; /* bytes that the last failed begin or reserve was short of, else 0 */
    uint64_t seals, evictions, forks, rows_copied; /* counted since open */
    uint32_t max_refs, seqs;
    /* Bytes of memory that serve only a later match or trim: kept sequences and snapshots.  They
     * are evicted before any call fails, so they count as free.  live, shared and states do not
     * include them. */
    size_t index;
    size_t index_tables;              /* part of index: tables and tokens of kept sequences */
    uint32_t kept;                    /* kept sequences */
    uint64_t hits, hit_rows;          /* counted by kv_match since open */
    uint64_t rows;                    /* sum of kv_len over all sequences */
    size_t staging, spilled;          /* bytes: the staging area; pages that only the tier holds */
    uint64_t tier_read, tier_written; /* bytes since open */
    bool streaming;                   /* true once pages have left memory */
    uint32_t streaming_since; /* rows of the longest sequence in the step that began streaming */
    /* bytes of tables, tokens and other arrays: those of fixed size, and those that the sequences
     * use; part of the pool */
    size_t metadata;
    uint32_t rung;       /* kv_rung */
    uint32_t rung_since; /* rows of the longest sequence when the store moved to that rung */
    /* rows that each move to a rung has encoded; shared rows count once */
    uint64_t encoded[KV_RUNGS];
};
/* Fills in the usage; looks at every page of kept sequences and snapshots. */
void kv_usage(const struct kv *kv, struct kv_usage *out);
/* Adds what one more store holds, where the stores hold different layers of the same sequences. */
void kv_usage_add(struct kv_usage *sum, const struct kv_usage *one);
/* Returns kv_usage().streaming. */
bool kv_streams(const struct kv *kv);
/* A survey says what one sequence holds in one group. */
struct
    /* Counts whole pages.  shared: with other sequences or with snapshots.  spilled: in the tier
     * only. */
    kv_survey_form {
    uint32_t pages, shared, spilled;
    size_t bytes, shared_bytes, spilled_bytes;
};
struct kv_survey {
    uint32_t rows, blocks;          /* blocks of block_rows rows, dropped blocks included */
    uint32_t block_rows, tile_rows; /* tile_rows 0: no codec */
    uint32_t keeps, reserved;       /* snapshots; rows promised by the reserve */
    size_t page[2];                 /* bytes of a block (or a state), and of a tile, at all sites */
    struct kv_survey_form form[2];  /* raw blocks (or states), sealed tiles */
};
/* Fills in what s holds in one group. */
int kv_survey(const struct kv *kv, kv_seq s, uint32_t group, struct kv_survey *out);
/* Where one block is.  ENCODED: its rows are held in sealed form only. */
enum kv_place {
    KV_BLOCK_GONE = 0,
    KV_BLOCK_HELD = 1,
    KV_BLOCK_SHARED = 2,
    KV_BLOCK_ENCODED = 4,
    KV_BLOCK_SPILLED = 8,
    KV_BLOCK_OPEN = 16,
    /* in kv_store_map only: no sequence has the block, but a later match or trim may reuse it */
    KV_BLOCK_KEPT = 32
};
/* Returns where one block of s is, as a set of KV_BLOCK_ bits. */
enum kv_place kv_survey_block(const struct kv *kv, kv_seq s, uint32_t group, uint32_t block);
/* Returns how many blocks (form RAW) or tiles (form SEALED) of a group have been in use since the opening: all whose
 * ids are below this number.  kv_store_map writes where each of them is to out[0, number), as a set of KV_BLOCK_
 * bits; 0: it is free. */
uint32_t kv_store_blocks(const struct kv *kv, uint32_t group, uint32_t form);
void kv_store_map(const struct kv *kv, uint32_t group, uint32_t form, uint8_t *out);
/* held.c: predicts what a sequence will hold.  Bytes are those of whole pages. */
struct kv_growth {
    uint32_t turn, len; /* the first `turn` of `len` rows are one turn, the others single tokens */
};
struct kv_held {
    size_t raw, sealed, states;
    /* the part of raw, sealed and states that each fork made at the end of the turn has for itself */
    size_t own;
    size_t streamed; /* the part of raw and sealed that may live in the tier */
    size_t metadata; /* bytes of the sequence's metadata, and of one mark of it */
    size_t fixed;    /* bytes of the store's arrays of fixed size */
    uint64_t seen;   /* rows that the last token sees, over all sites */
};
void kv_held(const struct kv *kv, const struct kv_growth *w, struct kv_held *out);
/* Returns the most bytes of pages while a turn from row 0 on is computed. */
size_t kv_turn_peak(const struct kv *kv, uint32_t turn);
/* Returns the number of rows of a sequence, borrowed ones included, which is the position of its next token. */
uint32_t kv_len(const struct kv *kv, kv_seq s);
/* Returns how many frozen rows the sequence has; 0: none were written. */
uint32_t kv_cross(const struct kv *kv, kv_seq s);
/* Returns the tokens, [kv_len]; -1: a row without token id (an embedding). */
const int32_t *kv_tokens(const struct kv *kv, kv_seq s);
const struct kv_turn *kv_turns(const struct kv *kv, kv_seq s, uint32_t *n);
/* True if the contents of rows depend on the turns, too. */
bool kv_by_turns(const struct kv *kv);
uint32_t kv_max_len(const struct kv *kv);
uint32_t kv_max_tokens(const struct kv *kv);
/* Returns the largest number of sequences of one step, since pages that stream are staged for all
 * of them at once.  UINT32_MAX while nothing has to stream; a kv_begin that is refused may lower it
 * (KV_STREAM_ON_FULL). */
uint32_t kv_step_lanes(const struct kv *kv);
/* True if every invariant holds; for assert and tests. */
bool kv_check(const struct kv *kv);

/* The prefix index.  A match looks at every sequence that is not in an open step and at the kept
 * sequences.  A match never finds rows without token ids, nor imported rows. */
struct kv_prefix {
    const int32_t *tok;
    uint32_t n; /* pass all but the last token if the logits of the last are wanted */
    /* The turns in which the tokens would be appended, where rows depend on turns.  n_turns 0: one
     * turn that continues after the tokens, or (singly) one token at a time. */
    const struct kv_turn *turn;
    uint32_t n_turns;
    bool singly;
};
enum kv_miss {
    KV_HIT,
    KV_MISS_OFF,   /* the store has no index */
    KV_MISS_NEW,   /* no cached sequence begins with these tokens */
    KV_MISS_SHORT, /* fewer tokens than a block of 16 */
    KV_MISS_IDS,
    KV_MISS_SALT,
    KV_MISS_TURNS,
    KV_MISS_SNAPSHOT, /* the rows are no longer cached in a form to resume from */
    KV_MISS_EVICTED,
    KV_MISS_ROOM, /* a reserve could no longer promise its rows */
    KV_MISSES
};
/* Drops the sequence.  If it was the last owner of its contents, the contents stay within the budget until something
 * else needs the room. */
int kv_keep(struct kv *kv, kv_seq s);
/* Makes the empty sequence s, which has its salt, an owner of the longest cached prefix: *have rows
 * (0: no hit).  Copies no row, and evicts nothing but kept sequences. */
int kv_match(struct kv *kv, kv_seq s, const struct kv_prefix *p, uint32_t *have);
/* Makes s, a sequence without rows of any kind, an owner of frozen rows.  They are those of a sequence, live or
 * kept, with the same source and adapter.  *rows is their number, 0 if there are none.  Copies no row. */
int kv_adopt(struct kv *kv, kv_seq s, uint32_t *rows);
/* Drops the frozen rows of a sequence that has no other rows, and clears the source in its salt. */
int kv_thaw(struct kv *kv, kv_seq s);
/* Borrowing.  A sequence can read rows that another sequence computed for the same tokens, although the tokens
 * before them and their positions differ.  Only tables and references change hands.  Rows that are computed after
 * borrowed rows depend on them, so they are not reused as a prefix. */
struct kv_loan {
    uint32_t from, row, n; /* used inside the store only */
};
/* Finds a sequence, live or kept, that has these adjacent tokens and whose rows s may read.  Returns 1 if there is
 * one.  Its rows then stay until kv_loan_end, and as long as a sequence borrows them.  Returns 0 if no sequence has
 * the tokens, if s has `borrows` runs already, or if there is no room or no further lender.  Reads the tokens of all
 * sequences once. */
int kv_lend(struct kv *kv, kv_seq s, const int32_t *tok, uint32_t n, struct kv_loan *loan);
/* Appends the rows of a loan without the first `skip` of them.  *rows is the number of appended rows, 0 if there is
 * no room. */
int kv_borrow(struct kv *kv, kv_seq s, const struct kv_loan *loan, uint32_t skip, uint32_t *rows);
void kv_loan_end(struct kv *kv, const struct kv_loan *loan);
/* Returns how many rows of s are borrowed. */
uint32_t kv_borrowed(const struct kv *kv, kv_seq s);
/* Returns the borrowed rows of all lanes of an open step, in the order of views. */
uint32_t kv_step_borrowed(const struct kv_step *st, const struct kv_borrowed **out);
/* True if the store has an index. */
bool kv_indexes(const struct kv *kv);
/* Returns the reason for the result of the last kv_match. */
enum kv_miss kv_match_reason(const struct kv *kv);
/* Returns the reason in words. */
const char *kv_miss_text(enum kv_miss why);
/* Empties the index. */
void kv_forget(struct kv *kv);
/* A full block of tokens.  Later matches can share its rows, or can do so no longer (stored false). */
struct kv_prefix_block {
    /* [32] keys of this block and of the block before it; before NULL: this is the first block. */
    const unsigned char *key, *before;
    const int32_t *tok; /* [16] */
    uint32_t number;    /* among the blocks of its sequence, from 0 */
    bool stored;        /* true: the block is new; false: it was removed */
};
/* Called while the store changes, so it must not use the store. */
typedef void (*kv_on_block)(void *ctx, const struct kv_prefix_block *b);
/* Calls `watch` for every block that exists now, and later for every change, at the latest when the step that made
 * the change commits.  watch NULL ends the calls.  ERR_UNSUPPORTED without an index. */
int kv_watch(struct kv *kv, kv_on_block watch, void *ctx);

/* One forward.
 *
 * kv_begin takes every page that the step can need, or fails with ERR_FULL (kv_usage().need is set)
 * and changes nothing.  Until commit nothing allocates and no address changes.  kv_abort restores
 * the tables bit for bit. */
struct kv_span {
    kv_seq seq; /* at most once in a step */
    uint32_t n;
    uint32_t undo;      /* trailing rows that commit may reject (draft tokens) */
    const int32_t *tok; /* NULL: embeddings */
    bool cross;         /* the span writes the rows of the frozen groups */
    bool turn, last;    /* turn: part of an update of several tokens; last: ends the update */
};
/* Begins a step of n spans. */
int kv_begin(struct kv *kv, const struct kv_span *span, uint32_t n, struct kv_step **out);
/* Commits the accepted rows of each span; accepted NULL: all rows.  After an error for a wrong argument the step is
 * still open.  After an error of the device in an operation of the step, the step is aborted. */
int kv_commit(struct kv_step *st, const uint32_t *accepted);
/* Ends the step without its rows.  Returns an error of the device in an operation of the step, or 0. */
int kv_abort(struct kv_step *st);
/* Fills in the view of the next piece of a site.  Returns 1 for a view, 0 after the last piece (the
 * next call starts over), or an error, after which the caller aborts. */
int kv_next(struct kv_step *st, uint32_t site, struct kv_view *v);
