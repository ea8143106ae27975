/* caches.h - the caches of a server, one for each strategy that it allows, and the one budget over them.
 *
 * Each cache is opened with the whole budget, which sizes its tables, and then gets a part of it.  The sum of the parts is
 * never above the budget.  Memory that nobody uses goes to the caches that have jobs; when that is not enough for one of
 * them, others evict what they keep for reuse. */
#pragma once
#include "base/json.h"
#include "serve/serve.h"
#include "serve/shelf.h"

/* Bytes of one cache: its part of the budget; in use by rows and tables; in use by rows that are kept for reuse. */
struct cache_bytes {
    uint64_t budget, used, index;
};
struct cache_use {
    struct serve_cache o;
    const char *name; /* o.implementation, or the name of the library's default */
    /* Owned: an object whose keys are in small letters with '_'; {} if the request gave none. */
    json_t *config;
    uint64_t capacity;   /* tokens of one sequence that the budget holds, at most the context */
    uint64_t tokens;     /* tokens that the budget holds, of as many sequences as that takes */
    struct shelf *shelf; /* used by the scheduler's thread only; or NULL */
};
struct caches {
    struct cache_use *use; /* [n] owned; the first is the server's default */
    uint32_t n;
    uint64_t budget; /* bytes, of all caches together */
};
/* Divides the budget and measures capacities. */
int caches_open(const struct serve_options *o, struct caches *out);
void caches_close(struct caches *c);
/* Finds the cache that a request names by cache_implementation and cache_config.  A request that names none gets the
 * first cache.  The error lists the allowed caches. */
int caches_find(const struct caches *c, const json_t *body, uint32_t *out);

/* Of the scheduler's thread. */
/* Only the scheduler's thread calls this function and those below.  This one moves unused memory from caches without
 * jobs to caches with jobs.  jobs: [n] number of jobs of each cache. */
void caches_balance(struct caches *c, const uint32_t *jobs);
/* Moves at least `need` bytes to cache i, out of memory that other caches do not use or only keep for reuse.  False
 * if they have less. */
bool caches_lend(struct caches *c, uint32_t i, uint64_t need);
/* True if other caches could give `need` bytes. */
bool caches_can_lend(const struct caches *c, uint32_t i, uint64_t need);
/* Fills in the sums over all caches, and the bytes of each: [n]. */
void caches_usage(const struct caches *c, kvik_usage *sum, struct cache_bytes *each);
bool caches_shelved(const struct caches *c);
/* Saves one sequence that waits on a shelf; false: none waits. */
bool caches_save(struct caches *c);
/* Says why the directory of saved prompts fails; "": it works, or there is none. */
const char *caches_dir_error(const struct caches *c);
/* Fills in the sums of what the shared stores did; false: there are no stores. */
bool caches_store(const struct caches *c, kvik_shared_state *out);
/* Hands some rows that wait on the shelves to the shared stores. */
void caches_share(struct caches *c);
/* Gives up all sequences that wait to be saved. */
void caches_unshelve(struct caches *c);
