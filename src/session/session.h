/* session.h - floor 6: what saving and loading sessions share. */
#pragma once
#include "base/durable.h"
#include "generate/handle.h"
#include "session/session_file.h"

struct session_disk { /* an open file that a session is read from */
    struct session_io io;
    struct durable *f;
};
void session_disk_init(struct session_disk *d, struct durable *f);
/* Returns what this cache can use of a file with at most n sequences. */
struct session_need session_need(const kvik_cache *c, uint32_t n);
/* Describes what the KV rows of the cache depend on (model, compute mode, groups), as an object for the file. */
int session_meta(kvik_cache *c, json_t **out);
/* Returns 0 if KV rows of `theirs` can be used where `mine` are, else an error that names both.  what: the file. */
int session_agree(const json_t *mine, const json_t *theirs, const char *what);
/* Returns from how many of the first n tokens a cache can resume at most, if it loads this sequence of a file. */
uint32_t session_usable(const kvik_cache *c, const struct session_seq *q, uint32_t n);
/* Saves a sequence into a session as a branch.  The sequences of the session stay, except for those that the new
 * one begins with.  If one of them begins with the whole new one, nothing is written.  Creates the file if there
 * is none, or if it does not fit the cache. */
int session_save_branch(kvik_cache *c, int dir, const char *path, kvik_seq s);
/* session_load.c: opens a file and reads its manifest; the caller closes both.  need NULL: no limits.  trusted:
 * NULL, or a function that is asked about the open file before it is read; if it returns false, ERR_ARG.  dir: as
 * for durable_open_at, here and above. */
int session_open_file(int dir, const char *path, const struct session_need *need,
                      bool (*trusted)(void *ctx, const struct durable *f), void *ctx,
                      struct durable *f, struct session *s);
/* Reads every live block of an open session and compares its digest. */
int session_check(struct durable *f, const struct session *s);
/* Loads the sequences of an open file, as kvik_cache_load does. */
int session_load(kvik_cache *c, struct durable *f, const struct session *s, uint32_t max,
                 kvik_seq *out, char **note);

/* Loads the first len tokens of one sequence of an open file. */
int session_load_cut(kvik_cache *c, struct durable *f, const struct session *s,
                     const struct session_seq *q, uint32_t len, kvik_seq *out);

/* True if a load of any first whole tiles of the sequence is possible, and a later one of more of them shares their
 * rows instead of reading them again. */
bool session_cuts(const kvik_cache *c, const struct session_seq *q);

/* prefix_dir.c: sets how many seconds a save waits for other processes that save to its directory.  For tests. */
void prefix_dir_patience(double seconds);
