/* user_cache.h - entries in the user's cache directory: what an earlier run has computed from files that are still
 * the same.
 *
 *     $XDG_CACHE_HOME/kvik/FOLDER/NAME, or ~/.cache/kvik/FOLDER/NAME    directory 0700, file 0600
 *
 * An entry only saves time.  An entry is ignored if other users could have written it, if it was made from other
 * files, or if it is damaged; the caller then computes again.  A directory that cannot be written is no error. */
#pragma once
#include "base/digest.h"
#include "base/map.h"

/* What one folder holds. */
struct cache_kind {
    const char *folder;
    const char *mark;   /* first bytes of the contents, at most 16 */
    const char *suffix; /* suffix of the names of entries, or "" */
    size_t least;       /* least bytes of sources for which an entry is made */
    uint32_t most;      /* most entries in the folder; the oldest are removed */
    /* The contents are so large that they are hashed only at the first use of an entry, and again if the file has
     * been touched since. */
    bool large;
};

/* Identifies the files that an entry is made from. */
struct cache_key {
    /* digest of purpose and paths: files that have changed replace their old entry */
    uint8_t name[DIGEST_BYTES];
    uint8_t state[DIGEST_BYTES]; /* digest of purpose, paths and stamps */
};
struct cache_sources {
    struct digest name, state;
    int64_t newest; /* latest of all times, in nanoseconds since 1970 */
    uint64_t bytes;
};
/* Begins the list of source files.  purpose: names what is computed and the version of its format, so that
 * different entries of the same files have different keys. */
void cache_sources_begin(struct cache_sources *s, const char *purpose);
void cache_sources_add(struct cache_sources *s, const char *path, const struct stamp *stamp);
void cache_sources_end(struct cache_sources *s, struct cache_key *out);
/* True if the sources are worth an entry and their stamps can be trusted.  Worth: they have at least kind->least
 * bytes.  Trusted: all their times lie before `begun`, by more than a tick of the file system's clock.  `begun` is
 * the time, in nanoseconds since 1970, before the caller read the sources.  A younger file could change again
 * within the same tick, and its stamp would stay the same. */
bool cache_sources_settled(const struct cache_kind *kind, const struct cache_sources *s,
                           int64_t begun);

/* An entry that is mapped.  Its contents are data[0..size). */
struct cache_entry {
    struct map map; /* longer than the contents: the lines behind them belong to user_cache.c */
    size_t size;
    char *path; /* owned */
};
/* Finds and maps the entry of these sources.  False if there is none that can be believed. */
bool cache_find(const struct cache_kind *kind, const struct cache_key *key,
                struct cache_entry *out);
void cache_entry_close(struct cache_entry *e);
void cache_forget(const struct cache_kind *kind, const struct cache_key *key);

/* Writes a new entry.  After any failure the earlier entry is still there, or none. */
struct cache_writer;
/* room: bytes of the contents.  The disk must have twice as much room. */
int cache_write_begin(const struct cache_kind *kind, const struct cache_key *key, uint64_t room,
                      struct cache_writer **out);
int cache_write(struct cache_writer *w, const void *data, size_t n);
/* Completes the entry.  Frees the writer also after a failure. */
int cache_write_end(struct cache_writer *w);
void cache_write_drop(struct cache_writer *w); /* NULL: nothing */

/* Test hook: limits for all kinds of entries; NULL restores the defaults. */
struct cache_limits {
    int64_t margin; /* nanoseconds by which all times of a source must be older than `begun` */
    size_t least;
    uint32_t most;
};
void cache_limits_set(const struct cache_limits *l);
