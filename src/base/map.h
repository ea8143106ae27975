/* map.h - a whole file, read-only and memory-mapped; bounds come from its real size. */
#pragma once
#include "base/base.h"

struct map {
    const uint8_t *data; /* valid until map_close; never NULL after a successful open */
    size_t size;
    bool mapped;         /* false: the file is empty and data points to a static byte */
    uint64_t dev, inode; /* identity of the file, for map_check */
    /* when its contents, and its contents or properties, last changed before the map_open; nanoseconds since 1970 */
    int64_t mtime, ctime;
};
int map_open(struct map *m, const char *path);
void map_close(struct map *m);
/* Returns ERR_IO if the mapped file is still at `path` and has become shorter: reading the lost pages would raise
 * SIGBUS.  A file that was replaced by another one is fine, because the old file stays mapped. */
int map_check(const struct map *m, const char *path);
/* Writes the present size and times of the mapped file to *now.  False if `path` no longer names that file. */
bool map_now(const struct map *m, const char *path, struct map *now);
/* The whole file as a NUL-terminated string of *len bytes (mem_free); ERR_LIMIT above `max`. */
int file_read(const char *path, size_t max, char **out, size_t *len);
/* True also if the system fails to look at the path: opening it then gives the error. */
bool file_exists(const char *path);
bool dir_exists(const char *path);
/* Writes the whole file or nothing: a temporary file beside `path`, fsync, rename.  The new file has the mode of the old
 * one, and links are followed.  A device or a FIFO is written into. */
int file_write(const char *path, const void *data, size_t n);
struct span { /* borrowed bytes */
    const void *data;
    size_t n;
};
int file_write_spans(const char *path, const struct span *span, size_t n_spans);
