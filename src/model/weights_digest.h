/* weights_digest.h - the digest of all weights, and the entries in the user's cache directory that keep it. */
#pragma once
#include "base/user_cache.h"
#include "fmt/fmt.h"

/* weights_hash.c: reads and hashes all weights.  threads 0: the CPUs of this process. */
int weights_hash(const struct checkpoint *ck, uint32_t threads, uint8_t out[DIGEST_BYTES]);

/* weights_entry.c.  Tells whether the files of a checkpoint are those of an earlier run.  They are identified by a
 * SHA-256 over the path, device, inode, size, time of the last change of the contents, and time of the last change
 * of the properties of every file. */
struct weights_files {
    struct cache_key opened; /* when the files were mapped */
    /* present state of the files; a file that was replaced counts with its old state */
    struct cache_sources current;
    uint8_t now[DIGEST_BYTES]; /* digest of `current` */
    enum {
        FILES_SAME,
        FILES_TOUCHED,
        FILES_WRITTEN
    } change; /* tells if a mapped file has changed since it was opened */
};
void weights_files(const struct checkpoint *ck, struct weights_files *out);
/* Reads the entry for the files as they were opened.  False if there is none that can be trusted. */
bool weights_recall(const struct weights_files *f, uint8_t out[DIGEST_BYTES]);
/* Writes an entry, if the user has a cache directory.  begun: the time when the hashing began, in nanoseconds
 * since 1970.  Nothing is written for small models, or if a file is so young that it may change again without a
 * change of its times. */
void weights_remember(const struct checkpoint *ck, const struct weights_files *f, int64_t begun,
                      const uint8_t digest[DIGEST_BYTES]);
void weights_forget(const struct weights_files *f);
