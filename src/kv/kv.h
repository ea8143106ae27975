/* kv.h - floor 3, the cache: one block store, everything else is policy.
 *
 * A row is one position in one group.  Its bytes exist in one or both of two forms:
 *   RAW     blocks of `rows` rows, model dtype.  One writer while open; a full block is immutable,
 *           so forks and beams share it by reference, encoded or not.
 *   SEALED  tiles of `tile` rows, encoded once, inside the forward that fills them, after the
 *           site's rows are written and before its attention.  Immutable, shared, movable.
 * Query p reads row j sealed iff lead <= j < kv_edge(p), else raw: a function of the sequence
 * (tokens, turns), never of the step, the batch mates or another owner of the block.  A raw
 * block is released by an owner once every row in it is below edge(len) and not below lead.
 *
 * Page ids are per (group, form); page p of site s lies at base(s) + p * grain, so one table
 * serves all sites, while each site's pages are adjacent in memory.  Page 0 is the null page:
 * never read, and writes of idle lanes land there.  Rows nobody can reach map to it.
 *
 * One thread owns a store; there are no locks.  After kv_open nothing here allocates: all arrays
 * are sized by the config.  A call that fails changes nothing. */
#pragma once
#include "base/base.h"
#include "dev/view.h"
#include "kv/tier.h"

struct kv;
struct kv_step;
typedef uint32_t kv_seq; /* slot and generation; 0 is invalid, a stale one is ERR_STALE */

/* Reach: what a query at row `pos` may see, [0,sinks) and [lo,hi).  The only place where attention
 * patterns differ; mask, drop rule, match rule and memory estimate all call it. */
enum kv_kind { KV_ROWS, KV_STATE, KV_FROZEN }; /* per token; per sequence; written by one step */
struct kv_policy {
    enum kv_kind kind;
    uint32_t window; /* 0: unlimited; W: the last W rows, own row included */
    uint32_t chunk;  /* 0: none; C: from the start of the current chunk */
    uint32_t sinks;  /* leading rows that are always kept */
    uint32_t slack;  /* rows kept beyond reach for cheap trims */
    uint32_t every;  /* checkpoint period of groups that forget (window, state); 0: none */
};
struct kv_reach {
    uint32_t sinks, lo, hi;
};
struct kv_reach kv_reach(const struct kv_policy *p, uint32_t pos, uint32_t rows);

/* Form: which rows are read sealed.  resid 0: pos - pos % tile.  resid R (quanto, hqq): the rows
 * of all updates up to the last flush, where an update is a turn or one decoded token and a
 * flush happens after the first update and whenever R rows have gathered; rounded down to the
 * tile. */
struct kv_turn {
    uint32_t pos, n; /* one multi-token update as the caller fed it, chunked inside or not */
};
struct kv_seal {
    uint32_t tile, lead, resid; /* tile 0: no codec; lead: first rows stay raw, >= policy.sinks */
};
uint32_t kv_edge(const struct kv_seal *s, const struct kv_turn *turn, uint32_t n, uint32_t pos);

struct kv_plane {
    const char *name;
    struct kv_shape shape;
    const struct kv_codec *codec; /* NULL: native, the raw block is the final form */
};
struct kv_group { /* sites that share one table, hence one policy and one edge */
    struct kv_policy policy;
    struct kv_seal seal;
    uint32_t site0, n_sites; /* numbered group by group */
    uint32_t rows;           /* per raw block: 16, 32, .. 256 */
    uint32_t n_planes;
    struct kv_plane plane[KV_MAX_PLANES]; /* k,v | latent | conv,ssm */
    /* its full pages may live in the tier; they pass through staging, piece by piece */
    bool stream;
};
/* When pages of stream groups leave memory: never; once a step would not fit the budget; always, as far
 * as the budget does not hold them. */
enum kv_streaming { KV_RESIDENT, KV_STREAM_ON_FULL, KV_STREAM };
struct kv_config {
    const struct kv_group *group; /* copied */
    uint32_t n_groups;
    uint32_t max_seqs, max_tokens, max_len; /* size the fixed arrays; max_tokens: of one step */
    size_t pool_bytes;                      /* hard */
    uint32_t marks;                         /* most that are held at once (kv_mark) */
    enum kv_streaming streaming;
    struct kv_tier *tier; /* NULL if resident; owned by the store from a successful kv_open on */
    bool index; /* keep sequences for others to go on from (kv_keep), and find them (kv_match) */
    bool turns; /* rows depend on the turns whatever the codec, so a match has to respect them */
    size_t stage_bytes; /* inside the pool; 0: two pieces of max(1 MiB, one atom of every lane) */
    /* [sites] in the order a step visits them, for prefetching; NULL: ascending; copied */
    const uint32_t *order;
};
int kv_open(struct kv **out, const struct kv_config *cfg);
void kv_close(struct kv *kv); /* an open step is aborted */

/* All but tokens and turns that decides what the rows of a sequence hold.  It is part of the keys of the prefix index and
 * compared besides: rows of another salt are never shared. */
#define KV_DIGEST 32u
struct kv_salt {
    uint32_t regime; /* of rotary frequencies (model/regime.c) */
    uint32_t pad;    /* masked columns before the first row, where the model counts them */
    uint8_t adapter[KV_DIGEST]; /* SHA-256 of what changes the weights; zeros: nothing does */
    uint8_t source[KV_DIGEST];  /* SHA-256 of what an encoder was given; zeros: there is none */
};

/* Sequences.  Nothing here copies rows.  ERR_BUSY while a step that names the sequence is open. */
int kv_new(struct kv *kv, const struct kv_salt *salt, kv_seq *out); /* NULL: all zero */
/* All zero of a stale one; forks and reorders carry it. */
struct kv_salt kv_salt(const struct kv *kv, kv_seq s);
bool kv_salt_same(const struct kv_salt *a, const struct kv_salt *b);
int kv_resalt(struct kv *kv, kv_seq s, const struct kv_salt *salt); /* ERR_ARG if s has rows */
/* The fork has no reserve, so its appends can be ERR_FULL until kv_reserve gives it one.  If src has a reserve, the fork
 * takes the pages that src can no longer count on (a copy of the open block, pages of a window) into that reserve, or is
 * ERR_FULL and changes nothing. */
int kv_fork(struct kv *kv, kv_seq src, kv_seq *out);
int kv_drop(struct kv *kv, kv_seq s);
/* beam[i] becomes what beam[from[i]] was, all at once. */
int kv_reorder(struct kv *kv, const kv_seq *beam, const uint32_t *from, uint32_t n);
/* Takes the pages that growing to `len` rows can need from the pool, all or nothing; appends up to len then cannot fail
 * for want of budget.  Other operations on s keep that true or are ERR_FULL.  0 gives the reserve up. */
int kv_reserve(struct kv *kv, kv_seq s, uint32_t len);
uint32_t kv_reserved(const struct kv *kv, kv_seq s); /* rows promised to it; 0: none */
/* Undo.  A mark remembers what s holds: rows, tokens, turns, salt, checkpoints, reserve.  Rolling back makes s that again,
 * whatever was done to it, and cannot fail; release forgets the mark.  Either ends the mark, and does nothing if the mark
 * has no sequence (seq 0).  Marks take no handle, may be nested, and end in any order; a mark outlives its sequence.
 *
 * What a mark holds stays in the budget: s, appended to or trimmed, holds it besides what is new.  A sequence with a reserve
 * has the room for one mark; kv_mark is ERR_FULL where another one, or forks since, need more than there is.  If forks of s
 * were made after the mark, pages that they hold may be missing in the reserve after a rollback; it takes them as soon as
 * there is room.  No step that names s may be open.  While s is marked its reserve cannot be lowered (ERR_BUSY). */
struct kv_mark {
    kv_seq seq;
    uint32_t at, reserve; /* inside */
};
int kv_mark(struct kv *kv, kv_seq s, struct kv_mark *out);
void kv_rollback(struct kv *kv, struct kv_mark *m);
void kv_release(struct kv *kv, struct kv_mark *m);
/* The end of a transaction: rolls back if it failed, else releases. */
void kv_settle(struct kv *kv, struct kv_mark *m, bool failed);
/* Leaves s at *have <= len, the longest length every group can resume from exactly; the caller
 * feeds tokens [*have, len) again.  ERR_LOST, nothing changed, if one of those has no token id. */
int kv_trim(struct kv *kv, kv_seq s, uint32_t len, uint32_t *have);
/* Of the rows of s only those count that its next token sees; the others, which were fed without their contents, are
 * computed again should a trim need them. */
int kv_unseen(struct kv *kv, kv_seq s);
/* What kv_trim would leave; changes nothing. */
int kv_resume(const struct kv *kv, kv_seq s, uint32_t len, uint32_t *have);
/* The group that takes most of the difference; UINT32_MAX: there is none. */
uint32_t kv_hinders(const struct kv *kv, kv_seq s, uint32_t len);
struct kv_usage {
    /* Bytes; reserved: of pages that reserves hold and that have no rows yet; peak: of live+states+staging. */
    size_t live, shared, states, reserved, free, peak, pool;
    size_t need; /* bytes short of the begin or reserve that failed last, else 0 */
    uint64_t seals, evictions, forks, rows_copied, rows_copied_by_fork; /* since open */
    uint32_t max_refs, seqs;
    /* Bytes in memory held only so that others, or a trim, can go on from them: kept sequences, checkpoints.
     * They go before anything fails and count as free; live, shared and states are without them. */
    size_t index;
    size_t index_tables;     /* of these, bytes of tables and tokens of kept sequences */
    uint32_t kept;           /* sequences */
    uint64_t hits, hit_rows; /* of kv_match, since open */
    uint64_t rows;           /* held, over all sequences (kv_len summed) */
    size_t staging, spilled; /* bytes: set aside for pieces; of pages that only the tier has */
    uint64_t tier_read, tier_written; /* bytes since open */
    bool streaming;                   /* pages have left memory */
    uint32_t streaming_since; /* rows of the longest sequence of the step that first needed it */
};
void kv_usage(const struct kv *kv, struct kv_usage *out); /* looks at every page that is kept */
bool kv_streams(const struct kv *kv);                     /* kv_usage().streaming */
/* survey.c: what one sequence holds in one group. */
struct
    kv_survey_form { /* whole pages; shared: with other sequences, or checkpoints; spilled: in the tier only */
    uint32_t pages, shared, spilled;
    size_t bytes, shared_bytes, spilled_bytes;
};
struct kv_survey {
    uint32_t rows, blocks;          /* blocks: of block_rows rows, forgotten ones counted */
    uint32_t block_rows, tile_rows; /* tile_rows 0: no codec */
    uint32_t keeps, reserved;       /* checkpoints; rows promised */
    struct kv_survey_form form[2];  /* raw blocks (states), sealed tiles */
};
int kv_survey(const struct kv *kv, kv_seq s, uint32_t group, struct kv_survey *out);
enum kv_place { /* of one block; encoded: its rows are held in that form only */
                KV_BLOCK_GONE = 0,
                KV_BLOCK_HELD = 1,
                KV_BLOCK_SHARED = 2,
                KV_BLOCK_ENCODED = 4,
                KV_BLOCK_SPILLED = 8,
                KV_BLOCK_OPEN = 16
};
enum kv_place kv_survey_block(const struct kv *kv, kv_seq s, uint32_t group, uint32_t block);
uint32_t kv_len(const struct kv *kv, kv_seq s);
uint32_t kv_cross_len(const struct kv *kv, kv_seq s);    /* rows of the frozen groups */
const int32_t *kv_tokens(const struct kv *kv, kv_seq s); /* [kv_len]; -1: no id (embedding) */
const struct kv_turn *kv_turns(const struct kv *kv, kv_seq s, uint32_t *n);
bool kv_by_turns(const struct kv *kv); /* what rows hold depends on the turns, too */
uint32_t kv_max_len(const struct kv *kv);
uint32_t kv_max_tokens(const struct kv *kv);
/* Most sequences of one step: pages that stream are staged for all of them at once.  UINT32_MAX while
 * nothing has to stream; a kv_begin that is refused may lower it (KV_STREAM_ON_FULL). */
uint32_t kv_step_lanes(const struct kv *kv);
size_t kv_row_bytes(const struct kv *kv); /* raw bytes of one row over all KV_ROWS groups */
bool kv_check(const struct kv *kv);       /* full invariant check, for assert and tests */

/* The prefix index.  A match looks at every sequence that is not in an open step and at those that kv_keep left behind;
 * rows without ids and imported ones are never found.  kv_keep is kv_drop, but what the last owner of
 * contents lets go stays, within the budget, until something else needs the room. */
struct kv_prefix {
    const int32_t *tok;
    uint32_t n; /* may be shared; pass one less than there are, if logits of the last are wanted */
    /* How they would be fed, where rows depend on that; n_turns 0: as one turn that goes on after them, or singly. */
    const struct kv_turn *turn;
    uint32_t n_turns;
    bool singly;
};
enum kv_miss {
    KV_HIT,
    KV_MISS_OFF,   /* the store has no index */
    KV_MISS_NEW,   /* nothing held begins with these tokens */
    KV_MISS_SHORT, /* fewer tokens than a block of 16 */
    KV_MISS_IDS,
    KV_MISS_SALT,
    KV_MISS_TURNS,
    KV_MISS_CHECKPOINT, /* the rows are not held any more in a form to go on from */
    KV_MISS_EVICTED,
    KV_MISS_ROOM, /* a reserve would lose its certainty */
    KV_MISSES
};
int kv_keep(struct kv *kv, kv_seq s);
/* s, which is empty and has its salt, becomes an owner of the longest prefix held, *have rows (0: none); no row is
 * copied and nothing is evicted but what the index keeps. */
int kv_match(struct kv *kv, kv_seq s, const struct kv_prefix *p, uint32_t *have);
bool kv_indexes(const struct kv *kv);              /* the store has an index */
enum kv_miss kv_match_reason(const struct kv *kv); /* of the last kv_match */
const char *kv_miss_text(enum kv_miss why);
void kv_forget(struct kv *kv); /* empties the index */
/* The i-th of the sequences kept, in no order; false: there are fewer.  To write one to disk, match an empty sequence
 * of that salt with its tokens and turns and save that; to put one in, load it and kv_keep it. */
struct kv_kept {
    const int32_t *tok;
    uint32_t len;
    const struct kv_turn *turn;
    uint32_t n_turns;
    struct kv_salt salt;
    uint64_t used; /* grows with every time it is wanted */
};
bool kv_kept(const struct kv *kv, uint32_t i, struct kv_kept *out);

/* One forward.  begin reserves every page the step can need, or fails (ERR_FULL, kv_usage().need
 * set) and changes nothing; until commit nothing allocates and no address changes.  abort
 * restores the tables bit for bit. */
struct kv_span {
    kv_seq seq; /* at most once per step */
    uint32_t n;
    uint32_t undo;      /* trailing rows that commit may reject (drafts) */
    const int32_t *tok; /* NULL: embeddings */
    bool cross;         /* the rows of the frozen groups */
    bool turn, last;    /* part of a multi-token update; ends it */
};
int kv_begin(struct kv *kv, const struct kv_span *span, uint32_t n, struct kv_step **out);
int kv_commit(struct kv_step *st, const uint32_t *accepted); /* NULL: all; cannot fail otherwise */
void kv_abort(struct kv_step *st);
/* >0: view filled; 0: no more pieces (the next call starts over); <0: error, then kv_abort(). */
int kv_next(struct kv_step *st, uint32_t site, struct kv_view *v);

/* A codec that stores the same rows in another order, losslessly: proves the in-forward encode
 * hook. */
extern const struct kv_codec kv_codec_shuffle; /* tile 128 */
