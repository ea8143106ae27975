/* weights_digest.h - the digest of all weights, and the entries in the user's cache directory that remember it. */
#pragma once
#include "base/user_cache.h"
#include "fmt/fmt.h"

/* weights_hash.c: reads and hashes all weights.  threads 0: the CPUs of this process. */
int weights_hash(const struct checkpoint *ck, uint32_t threads, uint8_t out[DIGEST_BYTES]);

/* weights_entry.c.  What tells whether the files of a checkpoint are those of an earlier run: a SHA-256 of path, device, inode,
 * size, time of the last change of the contents, and time of the last change of the properties, for every file. */
struct weights_files {
    struct cache_key opened;      /* when the files were mapped */
    struct cache_sources current; /* at present; a file that was replaced counts as it was */
    uint8_t now[DIGEST_BYTES];    /* of `current` */
    enum {
        FILES_SAME,
        FILES_TOUCHED,
        FILES_WRITTEN
    } change; /* of a mapped file since it was opened */
};
void weights_files(const struct checkpoint *ck, struct weights_files *out);
/* Reads the entry for the files as they were opened.  False if there is none, or one that cannot be trusted. */
bool weights_recall(const struct weights_files *f, uint8_t out[DIGEST_BYTES]);
/* Writes an entry, if there is a place for it.  begun: when the hashing began, in nanoseconds since 1970.  Nothing is written
 * for small models, or if a file may change again without a change of its times. */
void weights_remember(const struct checkpoint *ck, const struct weights_files *f, int64_t begun,
                      const uint8_t digest[DIGEST_BYTES]);
void weights_forget(const struct weights_files *f);
