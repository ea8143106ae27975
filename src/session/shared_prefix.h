/* shared_prefix.h - what the files of a shared store of prefixes have in common: shared_open.c, shared_put.c
 * (writing) and shared_fetch.c (reading).
 *
 * The store has two threads, one for reads and one for writes, so that a long write delays no read.  Each has a
 * connection of its own.  The thread of the cache copies rows to and from memory, and waits for neither thread. */
#pragma once
#include "base/thread.h"
#include "generate/handle.h"
#include "kvik_shared.h"
#include "session/shared_block.h"
#include "shared/keeper.h"

/* Number of keys that are remembered, and how many of them form a set.  A new key replaces the oldest key of its
 * set.  With one key per set, two keys of one text could replace each other forever, and every call of
 * kvik_shared_put would write both again. */
enum { SHARED_KNOWN = 1 << 16, SHARED_WAYS = 8 };
#define SHARED_QUEUE ((size_t)128 << 20) /* most bytes that wait to be written */
#define SHARED_STAGE ((size_t)512 << 20) /* most bytes that a fetch holds */

/* A thread and its connection to the store. */
struct lane {
    pthread_t thread;
    bool started;
    struct keeper *keeper;
    atomic_bool stop; /* calls of the keeper shall end soon */
    /* After a failure the lane is not used before `rests_until`; `rest` is the length of that pause in seconds. */
    double rests_until, rest;
};
struct value { /* a value that waits to be written */
    struct value *next;
    struct block_build b;
};
struct known { /* a key that the store has or will have, and when that was learned */
    uint64_t key;
    double when;
};
struct kvik_shared {
    struct refs refs; /* one for the program, one for each fetch */
    kvik_cache *c;    /* held */
    struct address address;
    /* digest of all that rows depend on: model, compute mode, groups */
    uint8_t meaning[DIGEST_BYTES];
    uint32_t tokens;     /* tokens of a block */
    bool keeps, forgets; /* some groups keep all rows; some forget rows */
    size_t most;         /* most bytes of a value */
    struct lane in, out;
    /* The fields below are under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t bell;
    bool closing;
    /* waiting fetches, and the one that is being read */
    struct kvik_fetch *first, **last, *running;
    struct value *value, **value_last;
    bool writing; /* a value is being written */
    kvik_shared_state state;
    struct known *known; /* [SHARED_KNOWN] owned */
};

/* Computes the key that stands before the key of the first block. */
void shared_root(const struct kvik_shared *s, const struct kv_salt *salt,
                 uint8_t out[DIGEST_BYTES]);
/* True if the group drops rows that a shorter text would need. */
bool shared_forgets(const struct kvik_shared *s, uint32_t group);
/* shared_knows: true if the store seems to have a value.  shared_learn: notes whether it has the value.  Under the
 * lock. */
bool shared_knows(const struct kvik_shared *s, const uint8_t key[DIGEST_BYTES]);
void shared_learn(struct kvik_shared *s, const uint8_t key[DIGEST_BYTES], bool there);
/* True while the lane is not used after a failure.  Under the lock. */
bool shared_rests(const struct lane *l);
/* Notes how a call of the keeper ended; a failure starts a pause of the lane.  Under the lock. */
void shared_note(struct kvik_shared *s, struct lane *l, int e);
/* Run the two threads of a store: one that writes and one that reads. */
void *shared_write(void *shared);
void *shared_read(void *shared);
/* Uses a store and its cache until the end of the enclosing block, like USE_CACHE.  Meanwhile another thread may
 * close the store. */
int shared_enter(const kvik_shared *s, kvik_shared **used);
void shared_leave(kvik_shared **used);
#define USE_SHARED(s)                                                                              \
    kvik_shared *used_shared __attribute__((cleanup(shared_leave))) = NULL;                        \
    TRY(shared_enter(s, &used_shared));                                                            \
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;                               \
    TRY(cache_use(used_shared->c, &in_use))
void shared_hold(struct kvik_shared *s);
void shared_drop(struct kvik_shared *s);
