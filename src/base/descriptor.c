/* descriptor.c - opens files, lists and streams with descriptors above 2. */
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOWEST = 3 };

int fd_take(int fd)
{
    if (fd < 0 || fd >= LOWEST) return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST), e = errno;
    close(fd);
    errno = e;
    return high;
}

int fd_open_at(int dir, const char *name, int how, mode_t mode)
{
    int fd;
    do
        fd = openat(dir, name, how | O_CLOEXEC | O_NOCTTY, mode);
    while (fd < 0 && errno == EINTR);
    return fd_take(fd);
}

int fd_open(const char *path, int how, mode_t mode)
{
    return fd_open_at(AT_FDCWD, path, how, mode);
}

int fd_lockable_at(int dir, const char *name)
{
    int fd = fd_open_at(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    return fd >= 0 ? fd : fd_open_at(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
}

int fd_nameless(const char *dir)
{
    return fd_open(dir, O_TMPFILE | O_EXCL | O_RDWR, 0600);
}

int fd_named(char *path)
{
    int fd;
    do {
        memcpy(path + strlen(path) - 6, "XXXXXX", 6);
        fd = mkostemp(path, O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return fd_take(fd);
}

int fd_pipe(int end[2])
{
    if (pipe2(end, O_CLOEXEC) < 0) return -1;
    for (int i = 0; i < 2; i++) {
        end[i] = fd_take(end[i]);
        if (end[i] >= 0) continue;
        int e = errno;
        close(end[!i]);
        errno = e;
        return -1;
    }
    return 0;
}

DIR *fd_list_at(int dir, const char *name)
{
    int fd = fd_open_at(dir, name, O_RDONLY | O_DIRECTORY, 0);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list && fd >= 0) {
        int e = errno;
        close(fd);
        errno = e;
    }
    return list;
}

DIR *fd_list(const char *path)
{
    return fd_list_at(AT_FDCWD, path);
}

FILE *fd_stream(const char *path)
{
    int fd = fd_open(path, O_RDONLY, 0);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!f && fd >= 0) {
        int e = errno;
        close(fd);
        errno = e;
    }
    return f;
}

void fd_low_take(struct fd_low *l)
{
    *l = (struct fd_low){0};
    while (l->n < LOWEST) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0) return;
        if (fd >= LOWEST) {
            close(fd);
            return;
        }
        l->fd[l->n++] = fd;
    }
}

void fd_low_drop(struct fd_low *l)
{
    while (l->n)
        close(l->fd[--l->n]);
}

void fd_fill(void)
{
    for (int fd = 0; fd < LOWEST; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0) return;
}

int fd_room(int fd, uint64_t end)
{
    struct rlimit limit;
    struct stat st;
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
        end <= limit.rlim_cur)
        return 0;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? EFBIG : 0;
}

const char *fd_error(int e)
{
    return e == EFBIG ? "the file would be larger than this process may write (ulimit -f)"
                      : strerror(e);
}

bool fd_private(const struct stat *st)
{
    return (st->st_uid == geteuid() || st->st_uid == 0) && !(st->st_mode & (S_IWGRP | S_IWOTH));
}
