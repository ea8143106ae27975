/* file.c - reads a whole file, writes a whole file. */
#include "base/file.h"
#include "base/beside.h"
#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { READER_MS = 3000, STEP_MS = 20 }; /* how long a FIFO may be without a reader */

/* Returns the error for a file that cannot be opened.  A broken link has an error of its own, because an incomplete download leaves such links. */
static int cannot_open(const char *path, int e)
{
    char to[PATH_MAX];
    if (e == ENAMETOOLONG) return ERR(IO, "%.60s...: %s", path, strerror(e));
    if (e != ENOENT) return ERR(IO, "%s: %s", path, strerror(e));
    ssize_t n = readlink(path, to, sizeof to);
    if (n < 0) return ERR(NOTFOUND, "%s: %s", path, strerror(e));
    return ERR(IO, "%s: a broken link: its target %.*s is not there", path, (int)MIN(n, 500), to);
}

int file_open(const char *path, struct stat *st)
{
    int fd = fd_open(path, O_RDONLY | O_NONBLOCK, 0); /* opening a FIFO must not block */
    if (fd < 0) return cannot_open(path, errno);
    *st = (struct stat){0};
    if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode)) {
        bool dir = S_ISDIR(st->st_mode);
        close(fd);
        return ERR(IO, "%s: %snot a regular file", path, dir ? "a directory, " : "");
    }
    return fd;
}

int file_read(const char *path, size_t max, char **out, size_t *len)
{
    struct stat st;
    size_t got = 0;
    int fd = file_open(path, &st);
    if (fd < 0) return fd;
    size_t size = (size_t)st.st_size;
    if (size > max) {
        close(fd);
        return ERR(LIMIT, "%s: %zu bytes, the limit is %zu", path, size, max);
    }
    char *p = mem_alloc(size + 1);
    if (!p) {
        close(fd);
        return ERR_NOMEM;
    }
    while (got < size) {
        ssize_t n = read(fd, p + got, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        got += (size_t)n;
    }
    close(fd);
    if (got != size) {
        mem_free(p);
        return ERR(IO, "%s: read %zu of %zu bytes", path, got, size);
    }
    *out = p;
    *len = size;
    return 0;
}

/* True if a failed stat says that no file has this name.  Any other failure must not count as absent: the caller
 * would silently do without a file that exists. */
static bool absent(int e)
{
    return e == ENOENT || e == ENOTDIR || e == ENAMETOOLONG;
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? S_ISREG(st.st_mode) : !absent(errno);
}

bool path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 || !absent(errno);
}

bool dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int write_failed(const char *path, int e)
{
    return ERR(IO, "%s: %s", path, fd_error(e));
}

/* Returns 0 or an errno.  If the reader of a FIFO goes away, the call fails with EPIPE.  The signal SIGPIPE that
 * comes with it is removed, because it would end the process. */
static int write_all(int fd, const struct span *span, size_t n_spans)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n_spans; i++)
        sum += span[i].n;
    int e = fd_room(fd, sum);
    for (size_t i = 0; !e && i < n_spans; i++) {
        const char *p = span[i].data;
        for (size_t left = span[i].n; !e && left;) {
            ssize_t k = write(fd, p, left);
            if (k < 0 && errno == EINTR) continue;
            if (k <= 0) {
                e = k < 0 ? errno : ENOSPC;
                break;
            }
            p += k;
            left -= (size_t)k;
        }
    }
    return e;
}

/* Opens a device or a FIFO.  A FIFO can be opened only when it has a reader: the call waits for one, at most
 * READER_MS. */
static int open_into(const char *path)
{
    const int how = O_WRONLY | O_NONBLOCK;
    int fd = -1;
    for (int left = READER_MS; (fd = fd_open(path, how, 0)) < 0 && errno == ENXIO && left > 0;
         left -= STEP_MS)
        (void)nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    if (fd < 0) return -1;
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0) (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    return fd;
}

/* Writes into a device or a FIFO.  A new file must not replace these. */
static int write_into(const char *path, const struct span *span, size_t n_spans)
{
    sigset_t pipe, was;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &was);
    int fd = open_into(path), e = fd < 0 ? errno : 0;
    if (!e) e = write_all(fd, span, n_spans);
    if (fd >= 0 && close(fd) < 0 && !e) e = errno;
    if (e == EPIPE && !sigismember(&was, SIGPIPE))
        (void)sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (e == ENXIO) return ERR(IO, "%s: no process reads from it", path);
    return e ? write_failed(path, e) : 0;
}

/* Gives the new file the owner, group and mode of the file that it replaces, as far as the system allows. */
static int keep_mode(int fd, const struct stat *old)
{
    struct stat st;
    if (fstat(fd, &st) < 0) return errno;
    bool moved = st.st_uid != old->st_uid || st.st_gid != old->st_gid;
    bool same = !moved || fchown(fd, old->st_uid, old->st_gid) == 0;
    /* a group that is not the old one gets no rights of the old one */
    mode_t mode = old->st_mode & (same ? 0777u : 0707u);
    return fchmod(fd, mode) < 0 ? errno : 0;
}

/* Opens the new file.  Where the file system allows, it has no name, so that a killed process leaves nothing
 * behind. */
static int open_new(const char *path, bool named, char tmp[PATH_MAX])
{
    static atomic_uint number;
    char dir[PATH_MAX];
    int fd = -1;
    errno = ENAMETOOLONG;
    if (path_dir(path, dir) < 0) return -1;
    for (int tries = 0; tries < 100; tries++) {
        unsigned n = (unsigned)getpid() * 64u + atomic_fetch_add(&number, 1u) % 64u;
        if (path_beside(path, n, tmp) < 0) return -1;
        if (!named) return fd_open(dir, O_TMPFILE | O_RDWR, 0666);
        fd = fd_open(tmp, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd >= 0 || errno != EEXIST) break;
    }
    return fd;
}

static int give_name(int fd, const char *tmp)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, tmp, AT_SYMLINK_FOLLOW) < 0 ? errno : 0;
}

/* Writes a new file beside `path` and renames it.  Returns 0 or an errno. */
static int replace_file(const char *path, const struct stat *old, bool named,
                        const struct span *span, size_t n_spans)
{
    char tmp[PATH_MAX];
    int fd = open_new(path, named, tmp), e = fd < 0 ? errno : 0;
    bool linked = !e && named;
    if (!e && old) e = keep_mode(fd, old);
    if (!e) e = write_all(fd, span, n_spans);
    if (!e && fsync(fd) < 0) e = errno;
    if (!e && !named) {
        e = give_name(fd, tmp);
        linked = !e;
    }
    if (fd >= 0 && close(fd) < 0 && !e) e = errno;
    if (!e && rename(tmp, path) < 0) e = errno;
    if (e && linked) unlink(tmp);
    return e;
}

int file_write_spans(const char *path, const struct span *span, size_t n_spans)
{
    char real[PATH_MAX];
    struct stat st;
    bool old = stat(path, &st) == 0;
    if (old && S_ISDIR(st.st_mode)) return write_failed(path, EISDIR);
    if (old && !S_ISREG(st.st_mode)) return write_into(path, span, n_spans);
    TRY(path_real(path, real));
    int e = replace_file(real, old ? &st : NULL, false, span, n_spans);
    /* the file system has no nameless files, or the system no /proc */
    if (e == EOPNOTSUPP || e == EISDIR || e == EINVAL || e == ENOENT || e == EXDEV || e == EEXIST)
        e = replace_file(real, old ? &st : NULL, true, span, n_spans);
    return e ? write_failed(path, e) : 0;
}

int file_write(const char *path, const void *data, size_t n)
{
    return file_write_spans(path, &(struct span){data, n}, 1);
}

int file_writable(const char *path)
{
    char real[PATH_MAX], dir[PATH_MAX];
    struct stat st;
    bool old = stat(path, &st) == 0;
    if (old && S_ISDIR(st.st_mode)) return write_failed(path, EISDIR);
    if (old && !S_ISREG(st.st_mode)) return access(path, W_OK) < 0 ? write_failed(path, errno) : 0;
    TRY(path_real(path, real));
    TRY(path_dir(real, dir));
    return access(dir, W_OK | X_OK) < 0 ? write_failed(path, errno) : 0;
}
