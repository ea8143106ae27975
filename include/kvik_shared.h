/* kvik_shared.h - prefixes that several processes share, on one machine or on many.
 *
 * The functions are in the same library as those of kvik.h, whose conventions hold here. */
#pragma once
#include "kvik.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Shared: prefixes that another process has computed -------------------------------------------
 *
 * A shared store keeps rows of texts, 128 tokens in each value, in a Redis or a directory.  What one process has
 * computed, another with the same model reads.  Rows from the store have the bits of computing.
 *
 *     kvik_shared_open(cache, "redis://cache-host:6379", &shared);
 *     kvik_shared_seek(shared, ids, n, NULL, 0, &fetch);           // another thread reads
 *     do kvik_fetch_look(fetch, &state); while (!state.over);      // or compute meanwhile
 *     int64_t have = kvik_fetch_take(fetch, &seq);                 // a sequence with the first `have` tokens
 *     kvik_fetch_free(fetch);
 *     ...
 *     while (kvik_shared_put(shared, seq) > 0)                     // another thread writes
 *         kvik_shared_flush(shared, 100);
 *     kvik_shared_close(shared);
 *
 * No call waits for the store but kvik_shared_flush and close.  A store that is slow, full, empty or gone costs
 * nothing but the reuse: errors of the store are counted (kvik_shared_look) and not returned, and after one it is
 * left alone for a while.  Each value has a checksum; one that is damaged or foreign is not used, and removed.
 * Whoever can write to the store can change what texts say: let only servers that you trust reach it. */

typedef struct kvik_shared kvik_shared;
typedef struct kvik_fetch kvik_fetch;
/* Opens a store for a cache, which it holds.  Addresses: redis://[[user]:password@]host[:port][/database],
 * rediss:// with TLS, unix:///socket, file:///directory?size=8G (1G without a size).  Options of a Redis behind '?',
 * with '&' between them: db, ttl (seconds), password_file, and ssl_ca_certs, ssl_certfile, ssl_keyfile.  Without a
 * password it is that of $REDISCLI_AUTH.  Nothing is connected yet.  KVIK_UNSUPPORTED: this build lacks what the
 * address needs; rows depend on turns (quanto, hqq); the model has an encoder. */
KVIK_API int kvik_shared_open(kvik_cache *c, const char *address, kvik_shared **out);
/* Writes what waits for at most 5 seconds, and closes.  A lookup of the store's name that the system has not ended
 * goes on in a thread of its own: then do not unload the library. */
KVIK_API void kvik_shared_close(kvik_shared *s);
/* Waits at most so many milliseconds until all is written that was put.  Returns 1 if it is, else 0. */
KVIK_API int kvik_shared_flush(kvik_shared *s, uint32_t milliseconds);
/* Copies rows of a sequence that the store does not seem to have, at most 8 MiB in a call, for the thread that
 * writes.  Returns 1 if there are more, or much waits: call again later; 0: that was all.  The last tokens, fewer
 * than 128, are not put. */
KVIK_API int kvik_shared_put(kvik_shared *s, kvik_seq seq);
/* So many tokens are worth a fetch: fewer are computed sooner. */
enum { KVIK_SHARED_LEAST = 256 };
/* Begins to read the longest prefix of ids, among those that were put with this cache_salt (NULL: without one).
 * have: so many tokens are in the cache already, and are not read. */
KVIK_API int kvik_shared_seek(kvik_shared *s, const int32_t *ids, size_t n, const char *cache_salt,
                              size_t have, kvik_fetch **out);
/* What a store did since it was opened. */
typedef struct kvik_shared_state {
    size_t size;
    /* Values and their bytes. */
    uint64_t reads, misses, bytes_read, writes, bytes_written;
    /* Values that were damaged or foreign; and calls that failed or came too late. */
    uint64_t damaged, failures;
    /* Bytes that wait to be written. */
    uint64_t waiting;
    /* Seconds of reading for each token, smoothed; 0: not known. */
    double token_seconds;
    /* 1 while the store is left alone after a failure: of reads; of writes. */
    uint64_t reads_rest, writes_rest;
    /* The last failure; "": none. */
    char error[256];
    /* 1 if the last read has failed; the last write. */
    uint64_t reads_fail, writes_fail;
} kvik_shared_state;
KVIK_API int kvik_shared_look(kvik_shared *s, kvik_shared_state *out);
/* How far a fetch is. */
typedef struct kvik_fetched {
    size_t size;
    /* Tokens of the prefix that can be taken now, and at most. */
    uint64_t tokens, most;
    uint64_t bytes;
    /* Seconds since the first read of this fetch began; 0: it waits. */
    double seconds;
    /* 1: nothing more will come. */
    uint64_t over;
} kvik_fetched;
KVIK_API int kvik_fetch_look(const kvik_fetch *f, kvik_fetched *out);
/* Ends the fetch and makes a sequence of what was read.  Returns its number of tokens, or 0 and no sequence. */
KVIK_API int64_t kvik_fetch_take(kvik_fetch *f, kvik_seq *out);
/* Ends and frees a fetch. */
KVIK_API void kvik_fetch_free(kvik_fetch *f);

/* ---- Saved rows, beside other work -----------------------------------------------------------------
 *
 * kvik_prefix_load_salted and kvik_cache_load wait for the disk and read a whole text in one call.  A reading does the
 * same for a program that steps requests meanwhile: a thread of its own finds the file, reads it and checks it, and
 * each call of the program makes rows of some tokens only.
 *
 *     kvik_prefix_read(cache, dir, ids, n, NULL, 0, &reading);
 *     while ((e = kvik_reading_take(reading, 256, &seq, NULL)) > 0)
 *         kvik_request_step(requests, n_requests);
 *     kvik_reading_free(reading);
 */
typedef struct kvik_reading kvik_reading;
/* Begins what kvik_prefix_load_salted does.  have: so many tokens are in the cache already, and are not read. */
KVIK_API int kvik_prefix_read(kvik_cache *c, const char *dir, const int32_t *ids, size_t n,
                              const char *cache_salt, size_t have, kvik_reading **out);
/* Begins what kvik_cache_load does, of a file with one sequence. */
KVIK_API int kvik_session_read(kvik_cache *c, const char *path, kvik_reading **out);
/* Makes rows of at most so many tokens more, or of a tile if that has more; tokens 0: of all.  Where layers have
 * windows or states, or rows depend on turns, the first call makes all of them.  Returns 2 while the thread reads; 1 if
 * there are more; 0 at the end: *seq is the sequence, 0 if no prefix was found, and *note (NULL: not wanted) the note
 * of a session (kvik_free), else NULL.  Later calls return 0 and no sequence. */
KVIK_API int kvik_reading_take(kvik_reading *r, uint32_t tokens, kvik_seq *seq, char **note);
/* Ends and frees a reading.  Rows that it has made stay in the cache for later prompts. */
KVIK_API void kvik_reading_free(kvik_reading *r);

#ifdef __cplusplus
}
#endif
