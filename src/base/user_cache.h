/* user_cache.h - entries in the user's cache directory: what an earlier run has computed from files that are still the same.
 *
 *     $XDG_CACHE_HOME/kvik/FOLDER/NAME, or ~/.cache/kvik/FOLDER/NAME    directory 0700, file 0600
 *
 * An entry only saves time.  One that others could have written, one of other files and a damaged one count as none, and the
 * caller computes again.  A directory that cannot be written is no error. */
#pragma once
#include "base/digest.h"
#include "base/map.h"

/* What one folder holds. */
struct cache_kind {
    const char *folder;
    const char *mark;   /* what the contents begin with, at most 16 bytes */
    const char *suffix; /* of the names; "" for none */
    size_t least;       /* bytes of the sources that are worth an entry */
    uint32_t most;      /* entries; the oldest are removed */
    /* True: contents so large that they are hashed only when an entry is used for the first time, or was touched since. */
    bool large;
};

/* Which files an entry was made of. */
struct cache_key {
    uint8_t name
        [DIGEST_BYTES]; /* of the purpose and the paths alone: files that changed have the same entry */
    uint8_t state[DIGEST_BYTES]; /* of paths and stamps as well */
};
struct cache_sources {
    struct digest name, state;
    int64_t newest; /* latest of all times, in nanoseconds since 1970 */
    uint64_t bytes;
};
/* purpose: tells entries of the same files apart, with the version of their format. */
void cache_sources_begin(struct cache_sources *s, const char *purpose);
void cache_sources_add(struct cache_sources *s, const char *path, const struct stamp *stamp);
void cache_sources_end(struct cache_sources *s, struct cache_key *out);
/* True if an entry may be made of sources that were read from `begun` on, in nanoseconds since 1970, and have not changed since:
 * they are large enough, and old enough that every later change gives them another time.  A file can change twice within one
 * tick of its clock. */
bool cache_sources_settled(const struct cache_kind *kind, const struct cache_sources *s,
                           int64_t begun);

/* An entry that is mapped.  Its contents are data[0..size). */
struct cache_entry {
    struct map map; /* has more bytes than the contents: what follows is the mechanism's own */
    size_t size;
    char *path; /* owned */
};
/* False if there is no entry that can be believed. */
bool cache_find(const struct cache_kind *kind, const struct cache_key *key,
                struct cache_entry *out);
void cache_entry_close(struct cache_entry *e);
void cache_forget(const struct cache_kind *kind, const struct cache_key *key);

/* An entry that is being written.  Every failure leaves the earlier entry, or none. */
struct cache_writer;
/* room: bytes of the contents, for which the disk must have room, and as much again. */
int cache_write_begin(const struct cache_kind *kind, const struct cache_key *key, uint64_t room,
                      struct cache_writer **out);
int cache_write(struct cache_writer *w, const void *data, size_t n);
/* Makes the entry.  The writer is gone, also after a failure. */
int cache_write_end(struct cache_writer *w);
void cache_write_drop(struct cache_writer *w); /* NULL: nothing */

/* Test hook, for all kinds; NULL sets the defaults. */
struct cache_limits {
    int64_t margin; /* nanoseconds that the times of a source must lie before its reading */
    size_t least;
    uint32_t most;
};
void cache_limits_set(const struct cache_limits *l);
