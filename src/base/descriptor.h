/* descriptor.h - the only place that opens files.  A program may run with descriptors 0, 1 or 2 closed.  The next
 * file that is opened would take such a number, and text meant for the terminal would be written into that file.
 * So every descriptor of kvik is above 2, and exec closes every one. */
#pragma once
#include "base/base.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/types.h>

struct stat;

/* As open, with O_CLOEXEC and O_NOCTTY; an interrupted call is repeated.  Returns -1 and sets errno on failure. */
int fd_open(const char *path, int how, mode_t mode);
int fd_open_at(int dir, const char *name, int how, mode_t mode);
/* Opens a file that another process may be writing, to see whether it holds its lock: for writing if it may, because
 * over NFS an exclusive flock needs that, but nothing is written. */
int fd_lockable_at(int dir, const char *name);
/* Moves a descriptor that another call opened above 2, and returns it.  -1 stays -1. */
int fd_take(int fd);
/* Opens a file without a name in `dir`, for reading and writing.  Returns -1 also if the file system cannot make
 * such files; the caller then uses fd_named. */
int fd_nameless(const char *dir);
/* Makes a file of mode 0600 at `path`, whose last six characters the call replaces by ones that make the name new. */
int fd_named(char *path);
/* Makes a pipe: end 0 is read, end 1 written. */
int fd_pipe(int end[2]);
/* Opens a directory for reading its names; closedir closes the list. */
DIR *fd_list(const char *path);
DIR *fd_list_at(int dir, const char *name);
/* Opens a file for reading as a stream. */
FILE *fd_stream(const char *path);
/* Opens /dev/null for each of the descriptors 0 to 2 that is closed.  For programs, not for the library. */
void fd_fill(void);

/* Keeps the descriptors below 3 in use while a library opens descriptors of its own. */
struct fd_low {
    int fd[3], n;
};
void fd_low_take(struct fd_low *l);
void fd_low_drop(struct fd_low *l);

/* Returns EFBIG if the limit of the process (RLIMIT_FSIZE) forbids a regular file to reach byte `end`, else 0.  A
 * write past the limit raises a signal that ends the process, so every writer asks first. */
int fd_room(int fd, uint64_t end);
/* Returns the sentence for an errno; EFBIG names the limit of fd_room. */
const char *fd_error(int e);
/* True if only this user and root can have written the file or directory: its owner is one of them, and neither the
 * group nor others may write. */
bool fd_private(const struct stat *st);
