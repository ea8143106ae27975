/* index_int.h - inside the prefix index: its structs, the search (index.c), contents that no slot owns any more
 * (kept.c), the table that finds keys, and the memory of kept contents. */
#pragma once
#include "base/hash.h"
#include "kv/image.h"

struct pages;
struct seq;

/* An entry of the prefix index's table: one key of one sequence (index_table.c).  A reference to an
 * entry is a sequence's id + 1 and the number of the block; 0: none. */
struct key_node {
    uint64_t prev, next; /* other sequences with the same key; prev 0: the first sequence */
    uint64_t chain;      /* in the first sequence of a key only: the next key of the same bucket */
};
#define KV_KEY  32u /* bytes of a key: SHA-256 */
#define KV_GONE 64u /* evicted prefixes that the index remembers */
/* Memory of kept contents: blocks of 1 KiB times a power of two, out of one range of addresses
 * (index_room.c). */
#define KV_ROOM_UNIT   1024u
#define KV_ROOM_ORDERS 24u
/* Belongs to the first unit of each block. */
struct room_unit {
    uint32_t prev, next;
    uint8_t order;
    bool free;
};
struct room {
    unsigned char *base; /* NULL: there is no room */
    uint32_t n_units;    /* a power of two */
    uint32_t usable;     /* units below are readable and writable */
    struct room_unit *unit;
    uint32_t list[KV_ROOM_ORDERS]; /* free blocks of each size */
    size_t used;                   /* bytes of blocks that are taken */
};
struct index {
    bool on;
    bool turns;                  /* the contents of rows depend on the turns, too */
    uint32_t n;                  /* number of kept contents */
    struct seq *oldest, *newest; /* kept contents; the least recently used are evicted first */
    struct seq *doomed; /* the newest contents that the eviction plan being made has chosen */
    struct room room;   /* memory of kept contents */
    uint64_t *bucket;   /* [n_buckets] references to first entries */
    uint32_t n_buckets; /* a power of two */
    struct hash_key secret;
    uint64_t searches;  /* counter that numbers the searches, for seq.looked */
    size_t tier_most;   /* limit of bytes in the tier; beyond it kept contents are evicted */
    unsigned char *key; /* [max_len / KV_STRIP] keys of the query */
    unsigned char (*gone)[KV_KEY]; /* [KV_GONE] first keys of evicted prefixes */
    uint32_t n_gone;
    uint32_t *noted; /* [n_contents] live contents with blocks that are not listed */
    uint32_t n_noted;
    const struct seq *donor; /* the contents from which the last match resumed */
    kv_on_block watch;       /* called for blocks that come and go, or NULL */
    void *watch_ctx;
    enum kv_miss miss;
    uint64_t hits, hit_rows;
};
/* index.c */
/* Sizes the index and declares its arrays. */
int index_arrays(struct kv *kv, const struct kv_config *c);
int index_open(struct kv *kv);
/* Most sequences that one search looks at, and that it passes at one key. */
#define KV_LOOKS 64u
/* Returns the number of leading rows with token ids. */
uint32_t index_known(const int32_t *tok, uint32_t n);
/* True if other sequences can resume from these contents. */
bool index_donor(const struct seq *s);
/* Computes the keys of the first `most` full blocks.  It stops at the first row without token id
 * and, where turns count, before an incomplete turn. */
void index_keys(struct kv *kv, struct seq *s, uint32_t most);
/* Returns the longest length at which contents q can resume from d.  pages: instead returns the length up to which
 * pages of d hold the rows of q, even if q cannot resume there.  q and d have the keys of n tokens in common.  If the
 * result is 0, *why is the reason. */
uint32_t index_look(const struct kv *kv, const struct seq *q, const struct seq *d, uint32_t n,
                    bool pages, enum kv_miss *why);
/* Notes that contents have full blocks that are not listed. */
void index_note(struct kv *kv, struct seq *s);
/* Lists the full blocks of all contents that were noted since the last call. */
void index_list_live(struct kv *kv);
/* Returns a sequence with the rows of the leading *rows tokens of the image, or NULL.  Only its pages are shared, so
 * it need not be able to resume at *rows. */
const struct seq *index_twin(struct kv *kv, const struct kv_image *im, uint32_t *rows);

/* kept.c */
/* Notes a use of s by a match. */
void index_wanted(struct kv *kv, struct seq *s);
void index_evict(struct kv *kv, struct seq *s);
/* Evicts rows of s, the last rows first, until `bytes` more fit. */
void index_shrink(struct kv *kv, struct seq *s, size_t bytes);
/* Evicts kept contents until p has n free ids, and until the rest takes no more of the tier than kept contents may. */
void index_yield(struct kv *kv, const struct pages *p, uint32_t n);

/* index_room.c */
/* Returns the units of a room of that many bytes. */
uint32_t room_units(size_t bytes);
/* Reserves address space for n_units, or less if the system refuses that much. */
int room_open(struct room *r, uint32_t n_units);
void room_close(struct room *r);
/* Takes zeroed memory; rounds *bytes up to the size of the block.  NULL: no block of that size is
 * free. */
void *room_take(struct room *r, size_t *bytes);
void room_give(struct room *r, void *at);

/* index_table.c: lists which sequences have which keys. */
/* Given as the block's number: the key of the tokens of the first block, whatever the salt and the turns. */
#define KV_LIST_BEGIN (UINT32_MAX - 1)
/* Given as the block's number: the key of the last full block of kept contents. */
#define KV_LIST_END UINT32_MAX
/* Sizes the hash table and declares its array. */
int table_array(struct kv *kv);
/* Lists all keys of s. */
void index_list(struct kv *kv, struct seq *s);
/* Removes the keys of blocks `from` and later. */
void index_hide(struct kv *kv, struct seq *s, uint32_t from);
/* Returns the first sequence that is listed with this key for block `what` (a number, or a KV_LIST_ value); 0: none. */
uint64_t index_find(const struct kv *kv, uint32_t what, const unsigned char *key);
/* Returns the next sequence listed with the same key; 0: none. */
uint64_t index_next(const struct kv *kv, uint64_t ref);
/* Returns the first sequence of the bucket's next key. */
uint64_t index_chain(const struct kv *kv, uint64_t first);
struct seq *index_seq(const struct kv *kv, uint64_t ref);

/* index_watch.c */
/* Calls the observer: s is the first sequence listed with the key of its block `what`, or was the last one. */
void index_tell(struct kv *kv, const struct seq *s, uint32_t what, bool stored);

/* index_key.c */
/* Computes the key of the first block's tokens alone. */
void key_tokens(const int32_t *tok, unsigned char out[KV_KEY]);
/* Computes the start of a chain of keys: the salt, and what the groups keep. */
void key_first(const struct kv *kv, const struct kv_salt *salt, unsigned char out[KV_KEY]);
/* Computes the key of block i from the key of the block before; the first block follows
 * key_first. */
void key_next(const struct kv *kv, const unsigned char *before, const int32_t *tok,
              const struct kv_turn *turn, uint32_t n_turns, uint32_t i, unsigned char out[KV_KEY]);
