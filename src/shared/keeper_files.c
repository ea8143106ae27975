/* keeper_files.c - a directory as a keeper: a file for each value, for processes of one user on one machine or over a file
 * system that they share.  A value is written beside its name and renamed, so readers see all of it or none.
 *
 * Only a directory and files that nobody but the user and root can write are used.  When the files have more bytes than the
 * limit, those are removed that were not used for longest.  What a killed writer left is such a file, too. */
#include "base/beside.h"
#include "base/descriptor.h"
#include "base/hash.h"
#include "shared/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX ".rows"
#define LIMIT  ((uint64_t)1 << 30) /* bytes, where the address has none */
#define USED   60                  /* seconds after which the time of a file follows its use */
enum { NAME_BYTES = KEEPER_HEX + 32, OLD = 32 /* files that are found at a time */ };

struct files {
    struct keeper keeper; /* first */
    DIR *list;
    const struct address *at;
    const char *shown;
    uint64_t limit;
    uint64_t sum;   /* bytes of the directory at the last look */
    uint64_t fresh; /* bytes that this process has written since then */
    /* a random number in the names of files that are being written, because process numbers are not unique over
     * machines and containers */
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

struct old {
    int64_t when;
    uint64_t size;
    char name[NAME_BYTES];
};
/* Keeps the OLD files that were used first, in that order. */
static uint32_t keep_old(struct old *list, uint32_t n, const char *name, const struct stat *st)
{
    const int64_t when = nanoseconds(&st->st_mtim);
    uint32_t at = n;
    while (at && list[at - 1].when > when)
        at--;
    if (at == OLD) return n;
    n = MIN(n, OLD - 1);
    memmove(list + at + 1, list + at, (n - at) * sizeof *list);
    list[at].when = when;
    list[at].size = (uint64_t)st->st_size;
    memcpy(list[at].name, name, strlen(name) + 1);
    return n + 1;
}

/* Adds up the files, and finds those that were used first. */
static uint32_t survey(struct files *f, struct old *list)
{
    struct dirent *e;
    struct stat st;
    uint32_t n = 0;
    f->sum = f->fresh = 0;
    rewinddir(f->list);
    while ((e = readdir(f->list))) {
        if (!is_ours(e->d_name) || strlen(e->d_name) >= NAME_BYTES ||
            fstatat(dirfd(f->list), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        f->sum += (uint64_t)st.st_size;
        n = keep_old(list, n, e->d_name, &st);
    }
    return n;
}

/* Counts the bytes in the directory, because other processes write there, too.  If they exceed the limit, removes old
 * files until an eighth of the limit is free. */
static void shrink(struct files *f)
{
    struct old list[OLD];
    const uint64_t least = f->limit - f->limit / 8;
    bool full = false;
    for (uint32_t n, gone = 1; gone && (n = survey(f, list));) {
        full |= f->sum > f->limit;
        gone = 0;
        for (uint32_t i = 0; full && i < n && f->sum > least; i++) {
            if (unlinkat(dirfd(f->list), list[i].name, 0) < 0 && errno != ENOENT) return;
            f->sum -= list[i].size;
            gone = 1;
        }
    }
}

/* Opens the directory, in place of the one that is open. */
static int open_list(struct files *f)
{
    struct stat st;
    if (path_make_dir(f->at->path) < 0)
        return ERR(IO, "%s: cannot make the directory: %s", f->at->path, strerror(errno));
    DIR *list = fd_list(f->at->path);
    if (!list) return ERR(IO, "%s: %s", f->at->path, strerror(errno));
    if (fstat(dirfd(list), &st) < 0 || !fd_private(&st)) {
        closedir(list);
        return ERR(ARG, "%s: another user owns the directory or can write to it", f->at->path);
    }
    if (f->list) closedir(f->list);
    f->list = list;
    return 0;
}

/* Opens a file of the directory; if that was removed, or its file system was mounted anew, of the one in its place. */
static int open_file(struct files *f, const char *name, int how)
{
    struct stat st;
    int fd = fd_open_at(dirfd(f->list), name, how, 0600);
    if (fd >= 0 || (errno != ENOENT && errno != ESTALE)) return fd;
    int why = errno;
    if (fstat(dirfd(f->list), &st) == 0 && st.st_nlink && why != ESTALE) {
        errno = why;
        return -1;
    }
    if (open_list(f) >= 0) return fd_open_at(dirfd(f->list), name, how, 0600);
    errno = why;
    return -1;
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
    if (n > f->limit)
        return ERR(
            FULL,
            "%s: a value of %zu bytes is more than the limit of %llu; raise size in the address",
            f->shown, n, (unsigned long long)f->limit);
    snprintf(beside, sizeof beside, "%s.%016llx", name, (unsigned long long)f->mine);
    int fd = open_file(f, beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
    if (fd < 0) return failed(f);
    int dir = dirfd(f->list);
    int e = write_all(f, fd, data, n);
    if (close(fd) < 0 && e >= 0) e = failed(f);
    if (e >= 0 && renameat(dir, beside, dir, name) < 0) e = failed(f);
    if (e < 0) (void)unlinkat(dir, beside, 0);
    f->fresh += e < 0 ? 0 : n;
    if (f->sum + f->fresh > f->limit || f->fresh > f->limit / 16) shrink(f);
    return e;
}

static int read_all(const struct files *f, int fd, char *out, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, out + at, n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed(f);
        if (!got) return ERR(NOTFOUND, "%s: a file has become shorter", f->shown);
        at += (size_t)got;
    }
    return 0;
}

/* Opens a value.  What no keeper can have written, as a link or a file that others can write, is ERR_LIMIT. */
static int open_value(struct files *f, const char *name, size_t most, struct stat *st)
{
    int fd = open_file(f, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ESTALE))
        return ERR(NOTFOUND, "%s has no such value", f->shown);
    if (fd < 0 && (errno == ELOOP || errno == ENXIO || errno == EACCES))
        return ERR(LIMIT, "%s: a file in it is no value", f->shown);
    if (fd < 0) return failed(f);
    int e = fstat(fd, st) < 0 ? failed(f)
            : !S_ISREG(st->st_mode) || !fd_private(st)
                ? ERR(LIMIT, "%s: others can write to a file in it", f->shown)
            : (uint64_t)st->st_size > most
                ? ERR(LIMIT, "%s: a file in it has %llu bytes, and a value has at most %zu",
                      f->shown, (unsigned long long)st->st_size, most)
                : 0;
    if (e >= 0) return fd;
    close(fd);
    return e;
}

static int get(struct keeper *k, const uint8_t *key, size_t most, void **data, size_t *n,
               double until)
{
    struct files *f = (struct files *)k;
    char name[NAME_BYTES];
    struct stat st;
    (void)until;
    name_of(key, name);
    int e = 0, fd = open_value(f, name, most, &st);
    TRY(fd);
    char *copy = mem_alloc((size_t)st.st_size + 1);
    if (!copy) e = ERR_NOMEM;
    if (e >= 0) e = read_all(f, fd, copy, (size_t)st.st_size);
    if (e >= 0 && time(NULL) - st.st_mtime > USED) (void)futimens(fd, NULL);
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
    return fstatat(dirfd(f->list), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static int remove_file(struct keeper *k, const uint8_t *key, double until)
{
    struct files *f = (struct files *)k;
    char name[NAME_BYTES];
    (void)until;
    name_of(key, name);
    if (unlinkat(dirfd(f->list), name, 0) == 0 || errno == ENOENT) return 0;
    if (errno == EISDIR && unlinkat(dirfd(f->list), name, AT_REMOVEDIR) == 0) return 0;
    return failed(f);
}

static void close_files(struct keeper *k)
{
    closedir(((struct files *)k)->list);
    mem_free(k);
}

int keeper_files_open(const struct address *a, struct keeper **out)
{
    struct files *f = mem_alloc(sizeof *f);
    if (!f) return ERR_NOMEM;
    f->keeper = (struct keeper){put, get, exists, remove_file, close_files};
    f->at = a;
    f->shown = a->shown;
    f->limit = a->limit ? a->limit : LIMIT;
    f->mine = hash_key_new().k[0];
    int e = open_list(f);
    if (e < 0) {
        mem_free(f);
        return e;
    }
    shrink(f);
    *out = &f->keeper;
    return 0;
}
