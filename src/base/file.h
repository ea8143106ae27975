/* file.h - whole files: read into memory, written beside and renamed. */
#pragma once
#include "base/base.h"

struct stat;

/* Opens a regular file for reading and writes its properties to *st.  Returns the descriptor; ERR_NOTFOUND if nothing has
 * this name, ERR_IO for a broken link and for all else. */
int file_open(const char *path, struct stat *st);
/* Reads the whole file as a NUL-terminated string of *len bytes (mem_free); ERR_LIMIT above `max`. */
int file_read(const char *path, size_t max, char **out, size_t *len);
/* Tell whether a path is there, for optional files.  Both return true also if the system fails to look, since
 * opening the file then gives the error: an optional file that exists must be readable.  file_exists: the path
 * leads to a regular file.  path_exists: something has this name, even a broken link. */
bool file_exists(const char *path);
bool path_exists(const char *path);
bool dir_exists(const char *path);
/* Writes the whole file or nothing: a temporary file beside `path`, fsync, rename.  The new file has the mode of the old
 * one, and links are followed.  A device or a FIFO is written into; ERR_IO if no process reads from the FIFO within 3 s. */
int file_write(const char *path, const void *data, size_t n);
struct span { /* borrowed bytes */
    const void *data;
    size_t n;
};
int file_write_spans(const char *path, const struct span *span, size_t n_spans);
/* Fails where file_write would fail for this path, as far as can be seen beforehand.  For calls that compute long
 * and write at the end. */
int file_writable(const char *path);
