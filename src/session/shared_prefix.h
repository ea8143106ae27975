/* shared_prefix.h - inside a shared store of prefixes: what opening (shared_open.c), writing (shared_put.c) and reading
 * (shared_fetch.c) have in common.
 *
 * Two threads use the store, so that a long write delays no read.  Each has a connection of its own.  The thread of the cache
 * copies rows out and in; it waits for neither. */
#pragma once
#include "base/thread.h"
#include "generate/handle.h"
#include "kvik_shared.h"
#include "session/shared_block.h"
#include "shared/keeper.h"

/* Keys that are known, in sets of SHARED_WAYS.  A new key takes the place of the oldest of its set, so that the keys of one text
 * do not push each other out: whoever puts it would begin again without end. */
enum { SHARED_KNOWN = 1 << 16, SHARED_WAYS = 8 };
#define SHARED_QUEUE ((size_t)128 << 20) /* bytes that may wait to be written */
#define SHARED_STAGE ((size_t)512 << 20) /* bytes that a fetch may hold */

/* One thread and what it does its calls with. */
struct lane {
    pthread_t thread;
    bool started;
    struct keeper *keeper;
    atomic_bool stop; /* calls of the keeper end soon */
    /* Left alone until then after a failure, and for how long the next time. */
    double rests_until, rest;
};
struct value { /* that waits to be written */
    struct value *next;
    struct block_build b;
};
struct known { /* a key that the store has or will have, as of some time */
    uint64_t key;
    double when;
};
struct kvik_shared {
    struct refs refs; /* the program's, and those of its fetches */
    kvik_cache *c;    /* held */
    struct address address;
    uint8_t meaning[DIGEST_BYTES]; /* of the rows: model, compute, groups */
    uint32_t tokens;               /* of a block */
    bool keeps, forgets;           /* some groups keep all rows; some forget */
    size_t most;                   /* bytes of a value */
    struct lane in, out;
    /* All that follows is under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t bell;
    bool closing;
    struct kvik_fetch *first, **last, *running; /* fetches that wait, and the one that is read */
    struct value *value, **value_last;
    bool writing; /* a value is under way */
    kvik_shared_state state;
    struct known *known; /* [SHARED_KNOWN] owned */
};

/* The beginning of the chain of keys. */
void shared_root(const struct kvik_shared *s, const struct kv_salt *salt,
                 uint8_t out[DIGEST_BYTES]);
/* True if a group gives up rows that a shorter text would need. */
bool shared_forgets(const struct kvik_shared *s, uint32_t group);
/* Under the lock: whether the store seems to have a value; and that it has, or has not. */
bool shared_knows(const struct kvik_shared *s, const uint8_t key[DIGEST_BYTES]);
void shared_learn(struct kvik_shared *s, const uint8_t key[DIGEST_BYTES], bool there);
/* Under the lock: true while the lane is left alone. */
bool shared_rests(const struct lane *l);
/* Under the lock: notes how a call of the keeper ended.  A failure lets the lane rest. */
void shared_note(struct kvik_shared *s, struct lane *l, int e);
/* The threads. */
void *shared_write(void *shared);
void *shared_read(void *shared);
/* Uses a store, and its cache, until the end of the block, as USE_CACHE does: another thread may close it meanwhile. */
int shared_enter(const kvik_shared *s, kvik_shared **used);
void shared_leave(kvik_shared **used);
#define USE_SHARED(s)                                                                              \
    kvik_shared *used_shared __attribute__((cleanup(shared_leave))) = NULL;                        \
    TRY(shared_enter(s, &used_shared));                                                            \
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;                               \
    TRY(cache_use(used_shared->c, &in_use))
void shared_hold(struct kvik_shared *s);
void shared_drop(struct kvik_shared *s);
