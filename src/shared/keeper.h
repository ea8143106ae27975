/* keeper.h - floor 1: keeps values by their keys for several processes.  Four calls, behind which any store can stand;
 * here a Redis (redis.c) and a directory (keeper_files.c).
 *
 * A keeper promises little.  It may be slow, lose values at any time, be full, and give wrong bytes: whoever reads a value
 * checks it.  One thread uses a keeper.  No call lasts longer than its deadline, plus a moment. */
#pragma once
#include "base/digest.h"

#include <stdatomic.h>

#define KEEPER_KEY DIGEST_BYTES
#define KEEPER_HEX (2u * KEEPER_KEY + 1u)

struct keeper {
    /* Keeps a value; one of that key is replaced.  ERR_FULL: there is no room. */
    int (*put)(struct keeper *k, const uint8_t key[KEEPER_KEY], const void *data, size_t n,
               double until);
    /* Reads a value of at most `most` bytes into memory that the caller frees (mem_free).  ERR_NOTFOUND; ERR_LIMIT:
     * it is longer, or nothing that put can have written. */
    int (*get)(struct keeper *k, const uint8_t key[KEEPER_KEY], size_t most, void **data, size_t *n,
               double until);
    /* Returns 1 if there is such a value, else 0. */
    int (*exists)(struct keeper *k, const uint8_t key[KEEPER_KEY], double until);
    int (*remove)(struct keeper *k, const uint8_t key[KEEPER_KEY], double until);
    void (*close)(struct keeper *k);
};
/* until: of now_seconds().  Other errors of the calls: ERR_BUSY, the deadline has passed or `stop` was set; ERR_IO, the
 * store cannot be reached; ERR_ARG, it refuses; ERR_FORMAT, it does not speak as it should.  After each the next call may
 * succeed. */

/* Where a store is. */
struct address {
    bool redis, tls;
    char *host, *port; /* owned, as all texts; of a directory NULL */
    char *path;        /* the directory, or the socket of a Redis on this machine */
    char *user, *password;
    uint32_t database;
    uint64_t ttl;   /* seconds that a value is kept; 0: as long as the store wants */
    uint64_t limit; /* bytes of a directory; 0: its own */
    char *ca, *cert, *key;
    char *shown; /* the address without its password, for errors */
};
/* Reads an address: redis://[[user]:password@]host[:port][/database][?options], rediss:// (TLS), unix:///socket[?options],
 * file:///directory[?size=8G].  Reads a password_file. */
int address_read(const char *text, struct address *out);
void address_done(struct address *a);

/* Opens a keeper; connects when it is first used.  The address outlives it.  *stop: once it is true, calls end soon. */
int keeper_open(const struct address *a, const atomic_bool *stop, struct keeper **out);
int redis_open(const struct address *a, const atomic_bool *stop, struct keeper **out);
int keeper_files_open(const struct address *a, struct keeper **out);
