/* keeper_files.c - a directory as a keeper: a file for each value, for processes of one user on one machine or over a file
 * system that they share.  A value is written beside its name and renamed, so readers see all of it or none.
 *
 * Only a directory and files that nobody but the user and root can write are used.  When the files have more than LIMIT
 * bytes, the oldest are removed. */
#include "base/descriptor.h"
#include "base/hash.h"
#include "shared/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".rows"
#define LIMIT  ((uint64_t)1 << 30)
enum { NAME_BYTES = KEEPER_HEX + 32 };

struct files {
    struct keeper keeper; /* first */
    DIR *list;
    const char *shown;
    uint64_t sum; /* bytes, as far as this process knows */
    /* In the names of files that are being written.  Numbers of processes are not unique over machines and containers. */
    uint64_t mine;
};

static void name_of(const uint8_t *key, char out[NAME_BYTES])
{
    char hex[KEEPER_HEX];
    digest_hex(key, hex);
    snprintf(out, NAME_BYTES, "%s" SUFFIX, hex);
}

static int failed(const struct files *f)
{
    int e = errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? ERR_FULL : ERR_IO;
    return err_set(e, "%s: %s", f->shown, fd_error(errno));
}

static bool is_ours(const char *name)
{
    return strspn(name, "0123456789abcdef") == KEEPER_HEX - 1 &&
           !strncmp(name + KEEPER_HEX - 1, SUFFIX, strlen(SUFFIX));
}

/* Adds up the files, and finds the one that was written first. */
static uint64_t survey(const struct files *f, char oldest[NAME_BYTES])
{
    uint64_t sum = 0;
    int64_t when = INT64_MAX;
    struct dirent *e;
    struct stat st;
    *oldest = 0;
    rewinddir(f->list);
    while ((e = readdir(f->list))) {
        if (!is_ours(e->d_name) || strlen(e->d_name) >= NAME_BYTES ||
            fstatat(dirfd(f->list), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        sum += (uint64_t)st.st_size;
        int64_t t = nanoseconds(&st.st_mtim);
        if (t >= when) continue;
        when = t;
        memcpy(oldest, e->d_name, strlen(e->d_name) + 1);
    }
    return sum;
}

static void shrink(struct files *f)
{
    char oldest[NAME_BYTES];
    while ((f->sum = survey(f, oldest)) > LIMIT - LIMIT / 8 && *oldest)
        if (unlinkat(dirfd(f->list), oldest, 0) < 0 && errno != ENOENT) break;
}

static int write_all(const struct files *f, int fd, const char *data, size_t n)
{
    if ((errno = fd_room(fd, n))) return failed(f);
    for (size_t at = 0; at < n;) {
        ssize_t put = write(fd, data + at, n - at);
        if (put < 0 && errno != EINTR) return failed(f);
        at += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

static int put(struct keeper *k, const uint8_t *key, const void *data, size_t n, double until)
{
    struct files *f = (struct files *)k;
    char name[NAME_BYTES], beside[NAME_BYTES + 24];
    (void)until;
    name_of(key, name);
    snprintf(beside, sizeof beside, "%s.%016llx", name, (unsigned long long)f->mine);
    int dir = dirfd(f->list);
    int fd = fd_open_at(dir, beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (fd < 0) return failed(f);
    int e = write_all(f, fd, data, n);
    if (close(fd) < 0 && e >= 0) e = failed(f);
    if (e >= 0 && renameat(dir, beside, dir, name) < 0) e = failed(f);
    if (e < 0) (void)unlinkat(dir, beside, 0);
    f->sum += e < 0 ? 0 : n;
    if (f->sum > LIMIT) shrink(f);
    return e;
}

static int read_all(const struct files *f, int fd, char *out, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, out + at, n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed(f);
        if (!got) return ERR(IO, "%s: a file has become shorter", f->shown);
        at += (size_t)got;
    }
    return 0;
}

static int get(struct keeper *k, const uint8_t *key, size_t most, void **data, size_t *n,
               double until)
{
    struct files *f = (struct files *)k;
    char name[NAME_BYTES];
    struct stat st;
    (void)until;
    name_of(key, name);
    int fd = fd_open_at(dirfd(f->list), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0 && errno == ENOENT) return ERR(NOTFOUND, "%s has no such value", f->shown);
    if (fd < 0) return failed(f);
    int e = fstat(fd, &st) < 0 ? failed(f)
            : !S_ISREG(st.st_mode) || !fd_private(&st)
                ? ERR(ARG, "%s: others can write to a file in it", f->shown)
            : (uint64_t)st.st_size > most ? ERR(LIMIT, "%s: a file is too long", f->shown)
                                          : 0;
    char *copy = e < 0 ? NULL : mem_alloc((size_t)st.st_size + 1);
    if (e >= 0 && !copy) e = ERR_NOMEM;
    if (e >= 0) e = read_all(f, fd, copy, (size_t)st.st_size);
    close(fd);
    if (e < 0) {
        mem_free(copy);
        return e;
    }
    *data = copy;
    *n = (size_t)st.st_size;
    return 0;
}

static int exists(struct keeper *k, const uint8_t *key, double until)
{
    struct files *f = (struct files *)k;
    char name[NAME_BYTES];
    struct stat st;
    (void)until;
    name_of(key, name);
    return fstatat(dirfd(f->list), name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int remove_file(struct keeper *k, const uint8_t *key, double until)
{
    struct files *f = (struct files *)k;
    char name[NAME_BYTES];
    (void)until;
    name_of(key, name);
    return unlinkat(dirfd(f->list), name, 0) == 0 || errno == ENOENT ? 0 : failed(f);
}

static void close_files(struct keeper *k)
{
    closedir(((struct files *)k)->list);
    mem_free(k);
}

int keeper_files_open(const struct address *a, struct keeper **out)
{
    struct stat st;
    char oldest[NAME_BYTES];
    if (mkdir(a->path, 0700) < 0 && errno != EEXIST)
        return ERR(IO, "%s: cannot make the directory: %s", a->path, strerror(errno));
    struct files *f = mem_alloc(sizeof *f);
    if (!f) return ERR_NOMEM;
    f->keeper = (struct keeper){put, get, exists, remove_file, close_files};
    f->shown = a->shown;
    f->mine = hash_key_new().k[0];
    f->list = fd_list(a->path);
    int e = 0;
    if (!f->list)
        e = ERR(IO, "%s: %s", a->path, strerror(errno));
    else if (fstat(dirfd(f->list), &st) < 0 || !fd_private(&st))
        e = ERR(ARG, "%s: another user owns the directory or can write to it", a->path);
    if (e < 0) {
        if (f->list) closedir(f->list);
        mem_free(f);
        return e;
    }
    f->sum = survey(f, oldest);
    *out = &f->keeper;
    return 0;
}
