/* keeper.h - floor 1: keeps values by their keys for several processes.  A keeper has four calls, which any store
 * can implement; here these are a Redis (redis.c) and a directory (keeper_files.c).
 *
 * A keeper promises little.  It may be slow, lose values at any time, be full, or return wrong bytes, so the reader
 * of a value checks it.  A keeper is used by one thread.  No call lasts longer than its deadline, plus a moment. */
#pragma once
#include "base/digest.h"

#include <stdatomic.h>

#define KEEPER_KEY DIGEST_BYTES
#define KEEPER_HEX (2u * KEEPER_KEY + 1u)

struct keeper {
    /* Stores a value, and replaces an older one with that key.  ERR_FULL: there is no room. */
    int (*put)(struct keeper *k, const uint8_t key[KEEPER_KEY], const void *data, size_t n,
               double until);
    /* Reads a value of at most `most` bytes into memory that the caller frees (mem_free).  ERR_NOTFOUND: there is
     * none; ERR_LIMIT: the value is longer, or is nothing that put can have written. */
    int (*get)(struct keeper *k, const uint8_t key[KEEPER_KEY], size_t most, void **data, size_t *n,
               double until);
    /* Returns 1 if there is a value with that key, else 0. */
    int (*exists)(struct keeper *k, const uint8_t key[KEEPER_KEY], double until);
    int (*remove)(struct keeper *k, const uint8_t key[KEEPER_KEY], double until);
    void (*close)(struct keeper *k);
};
/* until: a time of now_seconds().  All calls can also return: ERR_BUSY, the deadline has passed or `stop` was set;
 * ERR_IO, the store cannot be reached; ERR_ARG, the store refuses the call; ERR_FORMAT, the store's reply is
 * malformed.  The next call may succeed in any case. */

/* Where a store is. */
struct address {
    bool redis, tls;
    char *host, *port; /* owned, as all texts; NULL for a directory */
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

/* Opens a keeper, which connects when it is first used.  The address must outlive it.  Once *stop is true, calls end
 * soon. */
int keeper_open(const struct address *a, const atomic_bool *stop, struct keeper **out);
int redis_open(const struct address *a, const atomic_bool *stop, struct keeper **out);
int keeper_files_open(const struct address *a, struct keeper **out);
