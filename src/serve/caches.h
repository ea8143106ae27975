/* caches.h - the caches of a server, one for each strategy that it allows, and the one budget over them.
 *
 * Each cache is opened with the whole budget, which sizes its tables, and then gets a part of it.  The sum of the parts is
 * never above the budget.  Memory that nobody uses goes to the caches that have jobs; when that is not enough for one of
 * them, others evict what they keep for reuse. */
#pragma once
#include "base/json.h"
#include "serve/serve.h"
#include "serve/shelf.h"

/* What one cache has of the budget, and of these bytes rows and tables, and rows that are kept for reuse. */
struct cache_bytes {
    uint64_t budget, used, index;
};
struct cache_use {
    struct serve_cache o;
    const char *name; /* o.implementation, or that of the library's default */
    /* Owned: an object, its keys in small letters with '_'; {}: none was given. */
    json_t *config;
    uint64_t capacity;   /* tokens of one sequence that the budget holds, at most the context */
    struct shelf *shelf; /* of the scheduler's thread, or NULL */
};
struct caches {
    struct cache_use *use; /* [n] owned; the first is the server's default */
    uint32_t n;
    uint64_t budget; /* bytes, of all together */
};
/* Divides the budget and measures capacities. */
int caches_open(const struct serve_options *o, struct caches *out);
void caches_close(struct caches *c);
/* Finds the cache that a request names with cache_implementation and cache_config, if it does; the error lists those that
 * are allowed. */
int caches_find(const struct caches *c, const json_t *body, uint32_t *out);

/* Of the scheduler's thread. */
/* Gives unused memory of caches without jobs to those that have some; jobs: [n] how many. */
void caches_balance(struct caches *c, const uint32_t *jobs);
/* Moves at least `need` bytes to cache i, of memory that others do not use or keep for reuse.  False: they have less. */
bool caches_lend(struct caches *c, uint32_t i, uint64_t need);
/* True if others have that much. */
bool caches_can_lend(const struct caches *c, uint32_t i, uint64_t need);
/* The sums over all, and what each has: [n]. */
void caches_usage(const struct caches *c, kvik_usage *sum, struct cache_bytes *each);
bool caches_shelved(const struct caches *c);
/* Saves one sequence of the shelves; false: none waits. */
bool caches_save(struct caches *c);
/* The sums of what the shared stores did; false: there are none. */
bool caches_store(const struct caches *c, kvik_shared_state *out);
/* Hands some rows of the shelves to their shared stores. */
void caches_share(struct caches *c);
/* Gives up what waits to be saved. */
void caches_unshelve(struct caches *c);
