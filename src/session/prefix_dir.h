/* prefix_dir.h - finding a prompt in a directory of session files (prefix_dir.c), for calls that load it at once and for
 * readings (reading.c). */
#pragma once
#include "session/session.h"

#include <dirent.h>
#include <stdatomic.h>

#define PREFIX_DIR_BYTES  4096
#define PREFIX_NAME_BYTES 256
#define PREFIX_PATH_BYTES (PREFIX_DIR_BYTES + PREFIX_NAME_BYTES)

struct prefix_dir { /* an open directory that was checked */
    DIR *list;
    int fd; /* descriptor of the list of names */
    const char *path;
};

struct prefix_search {
    kvik_cache *cache;
    const struct prefix_dir *place;
    struct session_need need;
    json_t *meta; /* owned, from prefix_search_begin to prefix_search_end */
    const int32_t *ids;
    size_t n;
    /* in a save: most bytes of the directory */
    uint64_t max;
    struct kv_salt salt; /* salt of ids; in a load only its owner is set */
    /* the file with the longest usable prefix of ids or, for a save, with the longest prefix; "": none */
    char best[PREFIX_NAME_BYTES];
    /* length of that prefix; number of its tokens that can be used (session_usable) */
    uint32_t common, usable;
    char cover
        [PREFIX_NAME_BYTES]; /* the file with a sequence that begins with all of ids; "": none */
    char home[PREFIX_NAME_BYTES]; /* the file in which ids shall become a branch; "": a new file */
    uint32_t home_common;
    const atomic_bool *stop; /* ends the search; NULL: nothing does */
    char strange
        [PREFIX_PATH_BYTES]; /* a file that was not used, because others can write it; "": none */
};

/* Opens the directory for a load.  Returns 0, with nothing open, if there is none, if others can write it, or if rows
 * of this cache are not found again. */
int prefix_find_begin(kvik_cache *c, const char *dir, struct prefix_dir *p);
void prefix_place_close(struct prefix_dir *p);
/* Search all files; `stop` (or NULL) ends the search.  Only the first and the last of these belong to the cache's thread. */
int prefix_search_begin(kvik_cache *c, const struct prefix_dir *p, struct prefix_search *s);
void prefix_search_run(struct prefix_search *s, const atomic_bool *stop);
void prefix_search_end(struct prefix_search *s);
/* True if the search has found a prefix that is worth a load. */
bool prefix_found(const struct prefix_search *s);
/* Tells the user, once, of a file that others can write. */
void prefix_tell(kvik_cache *c, const struct prefix_search *s);
/* Notes that the file was used, because the oldest files are removed first. */
void prefix_used(const struct prefix_search *s);

struct prefix_file { /* the file that a search has found, open */
    struct durable f;
    struct session s;
    struct session_seq *q;   /* its nearest sequence; NULL: it is not open */
    uint32_t common, usable; /* as in the search */
};
/* Opens the file, on any thread.  False: it has changed or vanished meanwhile. */
bool prefix_open(struct prefix_search *found, struct prefix_file *out);
void prefix_close(struct prefix_file *file);
/* Makes a sequence of the rows that the cache can use.  Returns its number of tokens; -1: there are none. */
int prefix_load(kvik_cache *c, struct prefix_file *file, kvik_seq *out);
/* Removes the file if kvik has made it and its rows are damaged, because every search would choose it again.  On any
 * thread. */
void prefix_discard(const struct prefix_search *found);
/* Rows of a multiple of so many tokens can be loaded. */
uint32_t prefix_tile(const kvik_cache *c);
