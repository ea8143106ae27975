/* map.h - a whole file, read-only and memory-mapped; bounds come from its real size. */
#pragma once
#include "base/base.h"

/* Identifies one state of a file. */
struct stamp {
    uint64_t dev, inode, size;
    /* last change of the contents, and last change of contents or properties; nanoseconds since 1970 */
    int64_t mtime, ctime;
};
struct map {
    const uint8_t *data; /* valid until map_close; never NULL after a successful open */
    size_t size;
    bool mapped;        /* false: the file is empty and data points to a static byte */
    struct stamp stamp; /* at map_open; zeros if not mapped */
};
int map_open(struct map *m, const char *path);
/* Maps a file that the caller has opened and closes.  path: for errors. */
struct stat;
int map_file(struct map *m, int fd, const struct stat *st, const char *path);
/* Returns the stamp of a file from the result of stat. */
struct stamp stamp_of(const struct stat *st);
void map_close(struct map *m);
/* Returns ERR_IO if the mapped file is still at `path` and has become shorter: reading the lost pages would raise
 * SIGBUS.  A file that was replaced by another one is fine, because the old file stays mapped. */
int map_check(const struct map *m, const char *path);
/* Tells the system that bytes of a mapped file are not needed for a while.  They then do not count as memory in
 * use. */
void map_forget(const void *data, size_t n);
/* Writes the present stamp of the mapped file to *now.  False if `path` no longer names that file. */
bool map_now(const struct map *m, const char *path, struct stamp *now);
