/* map.c - maps a file, reads a whole file, writes a whole file. */
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_regular(const char *path, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK |
                            O_NOCTTY); /* O_NONBLOCK: opening a FIFO must not block */
    if (fd < 0)
        return err_set(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, st) < 0 || !S_ISREG(st->st_mode)) {
        close(fd);
        return ERR(IO, "%s: not a regular file", path);
    }
    return fd;
}

static int64_t nanoseconds(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static struct map stamp(const struct stat *st)
{
    return (struct map){.size = (size_t)st->st_size,
                        .dev = st->st_dev,
                        .inode = st->st_ino,
                        .mtime = nanoseconds(&st->st_mtim),
                        .ctime = nanoseconds(&st->st_ctim)};
}

int map_open(struct map *m, const char *path)
{
    struct stat st;
    int fd = open_regular(path, &st);
    if (fd < 0) return fd;
    size_t size = (size_t)st.st_size;
    if (size == 0) {
        close(fd);
        *m = (struct map){.data = (const uint8_t *)""};
        return 0;
    }
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    int e = errno;
    close(fd);
    if (p == MAP_FAILED) return ERR(IO, "%s: cannot map %zu bytes: %s", path, size, strerror(e));
    *m = stamp(&st);
    m->data = p;
    m->mapped = true;
    return 0;
}

void map_close(struct map *m)
{
    if (m->mapped) munmap((void *)(uintptr_t)m->data, m->size);
    *m = (struct map){0};
}

int map_check(const struct map *m, const char *path)
{
    struct stat st;
    if (!m->mapped || stat(path, &st) < 0) return 0;
    if (st.st_dev != m->dev || st.st_ino != m->inode || (uint64_t)st.st_size >= m->size) return 0;
    return ERR(IO, "%s: the file shrank from %zu to %llu bytes while it was in use", path, m->size,
               (unsigned long long)st.st_size);
}

bool map_now(const struct map *m, const char *path, struct map *now)
{
    struct stat st;
    if (!m->mapped || stat(path, &st) < 0) return false;
    *now = stamp(&st);
    return now->dev == m->dev && now->inode == m->inode;
}

int file_read(const char *path, size_t max, char **out, size_t *len)
{
    struct stat st;
    size_t got = 0;
    int fd = open_regular(path, &st);
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

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool write_all(int fd, const struct span *s)
{
    const char *p = s->data;
    size_t left = s->n;
    while (left) {
        ssize_t k = write(fd, p, left);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        left -= (size_t)k;
    }
    return true;
}

/* Writes into a device or a FIFO, which a new file must not replace. */
static int write_into(const char *path, const struct span *span, size_t n_spans)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY), e = fd < 0 ? errno : 0;
    for (size_t i = 0; !e && i < n_spans; i++)
        if (!write_all(fd, &span[i])) e = errno;
    if (fd >= 0 && close(fd) < 0 && !e) e = errno;
    return e ? ERR(IO, "%s: %s", path, strerror(e)) : 0;
}

int file_write_spans(const char *path, const struct span *span, size_t n_spans)
{
    char tmp[4096], real[PATH_MAX];
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return write_into(path, span, n_spans);
    if (realpath(path, real)) path = real; /* a link stays, its file is replaced */
    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid()) >= sizeof tmp)
        return ERR(LIMIT, "%.200s...: path too long", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return ERR(IO, "%s: %s", tmp, strerror(errno));
    for (size_t i = 0; i < n_spans; i++)
        if (!write_all(fd, &span[i])) goto fail;
    if (fsync(fd) < 0) goto fail;
    if (close(fd) < 0) {
        fd = -1;
        goto fail;
    }
    fd = -1;
    if (rename(tmp, path) < 0) goto fail;
    return 0;
fail:;
    int e = errno;
    if (fd >= 0) close(fd);
    unlink(tmp);
    return ERR(IO, "%s: %s", path, strerror(e));
}

int file_write(const char *path, const void *data, size_t n)
{
    return file_write_spans(path, &(struct span){data, n}, 1);
}
