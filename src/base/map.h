/* map.h - a whole file, read-only and memory-mapped; bounds come from its real size. */
#pragma once
#include "base/base.h"

struct map {
    const uint8_t *data; /* valid until map_close; never NULL after a successful open */
    size_t size;
    bool mapped; /* false: an empty file */
};
int map_open(struct map *m, const char *path);
void map_close(struct map *m);
/* The whole file as a NUL-terminated string of *len bytes (mem_free); ERR_LIMIT above `max`. */
int file_read(const char *path, size_t max, char **out, size_t *len);
bool file_exists(const char *path);
bool dir_exists(const char *path);
/* Writes through a temporary file beside `path`, fsync and rename: whole or not at all. */
int file_write(const char *path, const void *data, size_t n);
