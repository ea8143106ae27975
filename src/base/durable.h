/* durable.h - file changes that survive a crash.  A file is either written beside its name and then renamed, or
 * appended to and then committed by a few bytes inside one sector.  Tests can make every system call fail.
 *
 * While a file is written its directory stays open, and all names are looked up in the open directory.  So the
 * locked file, the temporary file and the new name always lie in one directory, even if another process renames or
 * replaces that directory meanwhile. */
#pragma once
#include "base/base.h"

struct durable {
    int fd;
    int dir; /* owned; directory of the file, or -1 if the file is only read */
    /* owned; path of the file for errors, symbolic links resolved; its last part is the name in `dir` */
    char *path;
    char *tmp;     /* owned; temporary name in `dir` until durable_replace, or NULL */
    uint64_t size; /* when it was opened */
    bool fresh;    /* set by the caller: durable_replace replaces no file */
};
/* Opens an existing regular file for reading, or with `write` for both.  The file is locked until it is closed or the
 * process ends; ERR_BUSY if another process has locked it. */
int durable_open(struct durable *f, const char *path, bool write);
/* As durable_open, for a file in the open directory `dir`: the last part of `path` is the name.  If that name is a
 * link, opening for writing fails.  dir AT_FDCWD: as durable_open. */
int durable_open_at(struct durable *f, int dir, const char *path, bool write);
/* Creates a temporary file beside `path` (path_beside), mode 0600, and locks it.  mark: what the caller's files
 * begin with, at most 16 bytes.  A temporary file that a killed process left is reused if it belongs to this user,
 * has one name, and begins with the mark.  Any other file of that name is left alone, and the next name is tried. */
int durable_create(struct durable *f, const char *path, const char *mark);
int durable_create_at(struct durable *f, int dir, const char *path, const char *mark);
int durable_read(struct durable *f, uint64_t at, void *data, size_t n);
/* Returns how many of the n bytes from `at` on take space on the disk, that is, are not in a hole of the file. */
uint64_t durable_held(const struct durable *f, uint64_t at, uint64_t n);
int durable_write(struct durable *f, uint64_t at, const void *data, size_t n);
int durable_sync(struct durable *f);
int durable_truncate(struct durable *f, uint64_t size);
/* Renames the temporary file to its final name and syncs the directory.  ERR_BUSY if `fresh` is set and another
 * process has made a file of that name. */
int durable_replace(struct durable *f);
void durable_close(struct durable *f); /* removes a temporary file that was not renamed */

enum durable_call {
    DURABLE_OPEN,
    DURABLE_READ,
    DURABLE_WRITE,
    DURABLE_SYNC,
    DURABLE_TRUNCATE,
    DURABLE_RENAME
};
struct durable_fault {
    /* the at-th call from durable_fault_set on fails; 0: none, calls are only counted */
    uint64_t at;
    uint32_t kinds; /* calls that count: bit 1 << enum durable_call; 0: all */
    int error;      /* errno of the failing call; 0: the process dies there, for kill tests */
    bool half;      /* a failing write moves half of its bytes first */
    bool stays;     /* all later calls fail, too */
};
/* Test hook (or NULL), called with every write, sync, truncation and rename as it is made. */
extern void (*durable_trace)(enum durable_call call, uint64_t at, const void *data, size_t n);
/* Test hook (or NULL), called between opening a file and locking it, and when the size of a file opened for
 * reading is known. */
extern void (*durable_opened)(const char *path);
void durable_fault_set(const struct durable_fault *f); /* NULL: off */
uint64_t durable_fault_calls(void);
