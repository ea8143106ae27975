/* durable.c - the system calls of durable.h.  Interrupted calls are repeated and short writes continued; success is
 * reported only when all bytes are written. */
#include "base/durable.h"
#include "base/beside.h"
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void (*durable_trace)(enum durable_call call, uint64_t at, const void *data, size_t n);
void (*durable_opened)(const char *path);

static void trace(enum durable_call call, uint64_t at, const void *data, size_t n)
{
    if (durable_trace) durable_trace(call, at, data, n);
}

static struct durable_fault fault;
static uint64_t calls;
/* false except in tests: then no static below is written, so several threads may save at the same time */
static bool faulty;

void durable_fault_set(const struct durable_fault *f)
{
    fault = f ? *f : (struct durable_fault){0};
    faulty = f != NULL;
    calls = 0;
}

uint64_t durable_fault_calls(void)
{
    return calls;
}

/* Returns the errno that the next call must fail with, or 0.  *half: fail after half of the bytes. */
static int injected(enum durable_call call, bool *half)
{
    if (!faulty || (fault.kinds && !(fault.kinds >> call & 1))) return 0;
    calls++;
    if (!fault.at || (fault.stays ? calls < fault.at : calls != fault.at)) return 0;
    if (half) *half = fault.half;
    if (!fault.error && !(half && fault.half)) kill(getpid(), SIGKILL);
    return fault.error ? fault.error : -1;
}

static int failed(const char *path, const char *what, int e)
{
    return ERR(IO, "%s: %s: %s", path, what, fd_error(e));
}

static int lock(const char *path, int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno == EWOULDBLOCK)
        return ERR(BUSY, "%s: another process is writing it; try again, or use another file", path);
    return 0; /* a file system without locks */
}

/* Returns the last part of a path, which is a name in its directory. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return *name ? name : ".";
}

static int copy_path(struct durable *f, const char *path)
{
    f->path = mem_strdup(path);
    return f->path ? 0 : ERR_NOMEM;
}

static int copy_real_path(struct durable *f, const char *path)
{
    char real[PATH_MAX];
    TRY(path_real(path, real));
    return copy_path(f, real);
}

/* Opens the directory of the file; if the caller has given an open directory, duplicates its descriptor.  Returns
 * 0 or an errno. */
static int take_dir(struct durable *f, int dir)
{
    char at[PATH_MAX];
    if (dir != AT_FDCWD)
        f->dir = fd_open_at(dir, ".", O_PATH | O_DIRECTORY, 0);
    else if (path_dir(f->path, at) < 0)
        return ENAMETOOLONG;
    else
        f->dir = fd_open(at, O_PATH | O_DIRECTORY, 0); /* the directory may be unreadable */
    return f->dir < 0 ? errno : 0;
}

/* True if `name` still is the open file.  Another process may replace the file while this one waits for its lock. */
static bool named(int dir, const char *name, const struct stat *st)
{
    struct stat now;
    return fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == st->st_ino &&
           now.st_dev == st->st_dev;
}

/* Returns 1 if another process replaced the file before it was locked.  O_NONBLOCK: opening a FIFO must not block. */
static int open_once(struct durable *f, int dir, const char *path, bool write)
{
    struct stat st;
    *f = (struct durable){.fd = -1, .dir = -1};
    bool here = dir == AT_FDCWD;
    if (write) TRY(here ? copy_real_path(f, path) : copy_path(f, path));
    int e = injected(DURABLE_OPEN, NULL);
    if (!e && write) e = take_dir(f, dir);
    if (!e && write)
        f->fd = fd_open_at(f->dir, last_part(f->path), O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    else if (!e)
        f->fd = fd_open_at(dir, here ? path : last_part(path), O_RDONLY | O_NONBLOCK, 0);
    if (f->fd < 0 && !e) e = errno;
    if (e == ENOENT) return ERR(NOTFOUND, "%s: no such file", path);
    if (e) return failed(path, "cannot open", e);
    if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return ERR(IO, "%s: not a regular file", path);
    if (write && durable_opened) durable_opened(path);
    if (write) TRY(lock(path, f->fd));
    if (write && !named(f->dir, last_part(f->path), &st)) return 1;
    if (fstat(f->fd, &st) < 0) return failed(path, "cannot open", errno); /* it may have grown */
    f->size = (uint64_t)st.st_size;
    if (write) return 0;
    if (durable_opened) durable_opened(path);
    return here ? copy_real_path(f, path) : copy_path(f, path);
}

int durable_open(struct durable *f, const char *path, bool write)
{
    return durable_open_at(f, AT_FDCWD, path, write);
}

int durable_open_at(struct durable *f, int dir, const char *path, bool write)
{
    int e = 1;
    for (int i = 0; e == 1 && i < 8; i++) {
        e = open_once(f, dir, path, write);
        if (e) durable_close(f);
    }
    return e == 1 ? ERR(BUSY, "%s: other processes write to this file; try again later", path) : e;
}

/* True if a killed save may have left the file: the file is empty, or begins with the mark, or its first page is
 * all zeros after a power cut. */
static bool has_mark(int fd, const char *mark)
{
    char now[4096] = {0};
    size_t n = 0;
    for (ssize_t k = 1; k && n < sizeof now;) { /* a short read says nothing about the file */
        k = pread(fd, now + n, sizeof now - n, (off_t)n);
        if (k < 0 && errno != EINTR) return false;
        if (k > 0) n += (size_t)k;
    }
    if (memcmp(now, mark, strlen(mark)) == 0) return true;
    for (size_t i = 0; i < n; i++)
        if (now[i]) return false;
    return true;
}

/* Closes a file that is not ours, so that durable_close does not remove the file. */
static int leave_foreign(struct durable *f, int e)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    return e;
}

enum { TAKEN = 0, AGAIN = 1, OTHER = 2 };

/* Opens and locks the temporary file f->tmp.  AGAIN: another process renamed the file first.  OTHER: the name
 * belongs to a file that is not kvik's, which is left alone.  A temporary file that a killed process left is used
 * again. */
static int take_tmp(struct durable *f, const char *mark)
{
    const int how = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
    struct stat st;
    int e = injected(DURABLE_OPEN, NULL);
    if (!e) f->fd = fd_open_at(f->dir, f->tmp, how | O_CREAT | O_EXCL, 0600);
    if (!e && f->fd < 0 && errno == EEXIST) {
        f->fd = fd_open_at(f->dir, f->tmp, how, 0);
        if (f->fd < 0) return errno == ENOENT ? AGAIN : OTHER;
    }
    if (f->fd < 0)
        return failed(f->path, "cannot create a temporary file beside it", e ? e : errno);
    if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return leave_foreign(f, OTHER);
    e = lock(f->path, f->fd);
    if (e < 0) return leave_foreign(f, e);
    if (!named(f->dir, f->tmp, &st)) return leave_foreign(f, AGAIN);
    if (fstat(f->fd, &st) < 0 || st.st_nlink != 1 || !has_mark(f->fd, mark))
        return leave_foreign(f, OTHER);
    if (fchmod(f->fd, 0600) < 0)
        return failed(f->path, "cannot create a temporary file beside it", errno);
    return durable_truncate(f, 0);
}

/* Takes the first name beside the file that is free or ours. */
static int take_any(struct durable *f, const char *mark)
{
    char tmp[PATH_MAX];
    int e = OTHER;
    for (unsigned n = 0, tries = 0; n < 4 && (e == OTHER || e == AGAIN) && tries < 8; tries++) {
        TRY(path_beside(f->path, n, tmp));
        mem_free(f->tmp);
        if (!(f->tmp = mem_strdup(last_part(tmp)))) return ERR_NOMEM;
        e = take_tmp(f, mark);
        n += e == OTHER;
    }
    if (e == AGAIN)
        return ERR(BUSY, "%s: other processes write to this file; try again later", f->path);
    if (e == OTHER)
        return ERR(IO, "%s: the names for a temporary file are taken; remove %s", f->path, tmp);
    return e;
}

int durable_create(struct durable *f, const char *path, const char *mark)
{
    return durable_create_at(f, AT_FDCWD, path, mark);
}

int durable_create_at(struct durable *f, int dir, const char *path, const char *mark)
{
    *f = (struct durable){.fd = -1, .dir = -1};
    int e = dir == AT_FDCWD ? copy_real_path(f, path) : copy_path(f, path);
    int why = e < 0 ? 0 : take_dir(f, dir);
    if (why) e = failed(f->path, "cannot create a temporary file beside it", why);
    if (e >= 0) e = take_any(f, mark);
    if (e < 0) durable_close(f);
    return e;
}

int durable_read(struct durable *f, uint64_t at, void *data, size_t n)
{
    char *p = data;
    int e = injected(DURABLE_READ, NULL);
    while (!e && n) {
        ssize_t k = pread(f->fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            e = k < 0 ? errno : ENODATA;
            break;
        }
        p += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return e ? failed(f->path, "cannot read", e) : 0;
}

uint64_t durable_held(const struct durable *f, uint64_t at, uint64_t n)
{
    const uint64_t end = at + n;
    uint64_t sum = 0;
    while (at < end) {
        off_t from = lseek(f->fd, (off_t)at, SEEK_DATA);
        if (from < 0 && errno == ENXIO) return sum; /* a hole up to the end of the file */
        off_t to = from < 0 ? -1 : lseek(f->fd, from, SEEK_HOLE);
        if (to < 0) return sum + (end - at); /* the file system cannot report holes */
        if ((uint64_t)from < end) sum += MIN((uint64_t)to, end) - (uint64_t)from;
        at = (uint64_t)to;
    }
    return sum;
}

int durable_write(struct durable *f, uint64_t at, const void *data, size_t n)
{
    const char *p = data;
    bool half = false;
    int e = injected(DURABLE_WRITE, &half);
    trace(DURABLE_WRITE, at, data, n);
    if (!e) e = fd_room(f->fd, at + n);
    if (e && half) n /= 2;
    while ((!e || half) && n) {
        ssize_t k = pwrite(f->fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            e = k < 0 ? errno : ENOSPC;
            break;
        }
        p += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    if (half && e < 0) kill(getpid(), SIGKILL);
    return e ? failed(f->path, "cannot write", e) : 0;
}

int durable_sync(struct durable *f)
{
    int e = injected(DURABLE_SYNC, NULL);
    while (!e && fsync(f->fd) < 0)
        if (errno != EINTR) e = errno;
    trace(DURABLE_SYNC, 0, NULL, 0);
    return e ? failed(f->path, "cannot sync", e) : 0;
}

int durable_truncate(struct durable *f, uint64_t size)
{
    int e = injected(DURABLE_TRUNCATE, NULL);
    if (!e) e = fd_room(f->fd, size);
    while (!e && ftruncate(f->fd, (off_t)size) < 0)
        if (errno != EINTR) e = errno;
    trace(DURABLE_TRUNCATE, size, NULL, 0);
    return e ? failed(f->path, "cannot truncate", e) : 0;
}

/* Some file systems cannot sync a directory (EINVAL).  That is not an error. */
static int sync_dir(const struct durable *f)
{
    int e = injected(DURABLE_SYNC, NULL);
    int fd = fd_open_at(f->dir, ".", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return 0; /* a directory may be writable and not readable */
    while (!e && fsync(fd) < 0)
        if (errno != EINTR) e = errno;
    close(fd);
    return e && e != EINVAL
               ? failed(f->path, "the file is written, but its directory cannot be synced", e)
               : 0;
}

/* Renames the temporary file to a name that no file has.  Some file systems cannot do that in one call. */
static int rename_new(const struct durable *f)
{
    const char *name = last_part(f->path);
    if (renameat2(f->dir, f->tmp, f->dir, name, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    if (linkat(f->dir, f->tmp, f->dir, name, 0) == 0) {
        (void)unlinkat(f->dir, f->tmp, 0);
        return 0;
    }
    if (errno == EEXIST) return EEXIST;
    return renameat(f->dir, f->tmp, f->dir, name) < 0 ? errno : 0;
}

int durable_replace(struct durable *f)
{
    TRY(durable_sync(f));
    int e = injected(DURABLE_RENAME, NULL);
    if (!e && f->fresh) e = rename_new(f);
    if (!e && !f->fresh && renameat(f->dir, f->tmp, f->dir, last_part(f->path)) < 0) e = errno;
    if (e == EEXIST)
        return ERR(BUSY, "%s: another process made this file meanwhile; save under another name",
                   f->path);
    if (e) return failed(f->path, "cannot rename the temporary file", e);
    trace(DURABLE_RENAME, 0, NULL, 0);
    mem_free(f->tmp);
    f->tmp = NULL;
    return sync_dir(f);
}

void durable_close(struct durable *f)
{
    if (f->tmp && f->fd >= 0) (void)unlinkat(f->dir, f->tmp, 0);
    if (f->fd >= 0) close(f->fd);
    if (f->dir >= 0) close(f->dir);
    mem_free(f->path);
    mem_free(f->tmp);
    *f = (struct durable){.fd = -1, .dir = -1};
}
