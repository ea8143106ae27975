/* tier_file.c - pages in a file: background transfers (base/aio.h) on one sparse file without a
 * name.
 *
 * The system frees a file without a name when the process ends, however it ends.  On file systems
 * without such files, the file has mode 0600 and a name that says what it is; it is removed on
 * close.  A lock that ends with the process marks it as used: the next start in that directory
 * removes files that no process holds.
 *
 * Written bytes stay in the page cache.  That is memory of the system, which takes it back when it
 * is needed.  Until then pages are read where they are, through a mapping of the file.  The mapping
 * is read only where the page cache has the bytes: a read error would be a signal (SIGBUS) there,
 * and is an error in a transfer. */
#include "base/aio.h"
#include "base/descriptor.h"
#include "kv/tier.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NAME "kvik-spill-"
#define STEP                                                                                       \
    ((uint64_t)64 << 20) /* the file's size grows by this; it is sparse, so it costs nothing */

/* Bytes that a hole begins and ends at.  Where the file system allocates larger blocks, it writes zeros to the parts of blocks at the ends.
 * st_blksize is no guide: it is what transfers should have, 1 MiB over NFS and on XFS over a RAID, where no page would ever be given back. */
#define HOLE ((uint64_t)4096)

/* Bytes of one request to read ahead.  The system reads at most the device's read-ahead at once and forgets the rest
 * of the request; the read-ahead is 128 KiB where nobody has set it. */
#define ASK ((size_t)128 << 10)

struct op {
    struct aio_op aio;
    bool used;
};
struct tier_file {
    struct kv_tier tier;
    int fd;
    struct aio *aio;
    uint64_t size;         /* of the file */
    uint64_t written;      /* end of the last write: nothing behind it can be read */
    unsigned char *window; /* where the file is mapped, or NULL; the mapping is the caller's */
    char *dir;             /* for errors */
    char *path;            /* NULL: the file has no name */
    struct op op[KV_TIER_DEPTH];
};
_Static_assert(KV_TIER_DEPTH <= AIO_DEPTH, "every transfer of the tier has room in aio");

/* --- The directory ------------------------------------------------------------------------ */

static const char *env(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

/* Returns the kind of file system if the directory lies in memory, where spilling would free nothing; else NULL. */
static const char *memory_name(const char *dir)
{
    struct statfs fs;
    int e;
    while ((e = statfs(dir, &fs)) < 0 && errno == EINTR)
        ;
    if (e < 0) return NULL;
    switch ((unsigned long)fs.f_type & 0xFFFFFFFFul) {
    case 0x01021994ul:
        return "tmpfs";
    case 0x858458F6ul:
        return "ramfs";
    case 0x958458F6ul:
        return "hugetlbfs";
    }
    return NULL;
}

static int choose_directory(const char *dir, const char **out)
{
    if (!dir || !*dir) dir = env("KVIK_SPILL_DIR");
    if (!dir) {
        dir = env("TMPDIR");
        if (!dir) dir = "/var/tmp";
        const char *fs = memory_name(dir);
        if (fs)
            return ERR(UNSUPPORTED,
                       "%s is held in memory (%s), so moving the cache there frees none: set "
                       "KVIK_SPILL_DIR to a directory on a disk (or to %s, if you mean it)",
                       dir, fs, dir);
    }
    *out = dir;
    return 0;
}

/* --- The file ----------------------------------------------------------------------------- */

static int fail(int e)
{
    errno = e;
    return -1;
}

/* Opens a file without a name, or with one if `path` is given.  Tests can inject an error, also EINTR. */
static int open_new(const char *dir, char *path)
{
    int e;
    while ((e = aio_fault(AIO_OPEN, NULL)) == EINTR)
        ;
    return e ? fail(e) : path ? fd_named(path) : fd_nameless(dir);
}

static int take_name(const char *path)
{
    int e = aio_fault(AIO_UNLINK, NULL);
    if (e) return fail(e);
    return unlink(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* True if no process uses the file.  A lock ends with its process, also where process numbers of
 * another container mean nothing; without locks the number in the name must do. */
static bool stale(int dir, const char *name)
{
    struct stat st;
    char *end;
    long pid = strtol(name + strlen(NAME), &end, 10);
    if (*end != '-' || pid <= 0) return false;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode)) return false;
    if (st.st_uid != geteuid()) return false;
    int fd = fd_lockable_at(dir, name);
    if (fd < 0) return false;
    bool free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!free && errno != EWOULDBLOCK) free = kill((pid_t)pid, 0) < 0 && errno == ESRCH;
    close(fd);
    return free;
}

/* Removes the files that killed processes have left.  A file that another process has just made and not yet locked
 * may be removed, too.  That does no harm: its maker holds the file open and wants it without a name. */
static void remove_left_files(const char *dir)
{
    struct dirent *d;
    DIR *list = aio_fault(AIO_OPEN, NULL) ? NULL : fd_list(dir);
    if (!list) return;
    while ((d = readdir(list)) != NULL)
        if (strncmp(d->d_name, NAME, strlen(NAME)) == 0 && stale(dirfd(list), d->d_name))
            unlinkat(dirfd(list), d->d_name, 0);
    closedir(list);
}

static int open_file(struct tier_file *t)
{
    size_t n = strlen(t->dir) + sizeof "/" NAME "-XXXXXX" + 20;
    remove_left_files(t->dir);
    t->fd = open_new(t->dir, NULL);
    if (t->fd >= 0) return 0;
    t->path = mem_alloc(n);
    if (!t->path) return ERR_NOMEM;
    snprintf(t->path, n, "%s/" NAME "%ld-XXXXXX", t->dir, (long)getpid());
    t->fd = open_new(t->dir, t->path);
    if (t->fd < 0) {
        int e = errno;
        mem_free(t->path);
        t->path = NULL;
        return ERR(IO,
                   "cannot make a file in %s for cache pages: %s; give a directory on a disk "
                   "where this process may write (spill_dir, else KVIK_SPILL_DIR)",
                   t->dir, strerror(e));
    }
    while (flock(t->fd, LOCK_EX | LOCK_NB) < 0 && errno == EINTR)
        ;
    if (take_name(t->path) == 0) {
        mem_free(t->path);
        t->path = NULL;
    }
    return 0;
}

/* Sets the size of the file.  It checks the process's limit (RLIMIT_FSIZE) first, because the system sends a signal
 * if a file grows beyond it. */
static int resize(struct tier_file *t, uint64_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        size > limit.rlim_cur)
        return EFBIG;
    for (;;) {
        int e = aio_fault(AIO_SIZE, NULL);
        if (!e && ftruncate(t->fd, (off_t)size) == 0) break;
        if (!e) e = errno;
        if (e != EINTR) return e;
    }
    t->size = size;
    return 0;
}

/* Makes the file at least `end` bytes long, in large steps where they are allowed. */
static int grow_file(struct tier_file *t, uint64_t end)
{
    if (end <= t->size) return 0;
    int e = resize(t, (end + STEP - 1) / STEP * STEP);
    if (e) e = resize(t, end);
    if (e)
        return ERR(IO, "the file for cache pages in %s cannot grow to %llu bytes: %s", t->dir,
                   (unsigned long long)end, strerror(e));
    return 0;
}

/* --- The tier ----------------------------------------------------------------------------- */

static int check_transfers(struct tier_file *t, const struct kv_io *io, uint32_t n, uint64_t *end)
{
    uint64_t max = INT64_MAX - STEP, size = t->size;
    for (uint32_t i = 0; i < n; i++) {
        if (io[i].n > max || io[i].at > max - io[i].n)
            return ERR(LIMIT, "cache pages at byte %llu do not fit in a file of %llu bytes",
                       (unsigned long long)io[i].at, (unsigned long long)max);
        if (io[i].write) size = MAX(size, io[i].at + io[i].n);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!io[i].write && io[i].at + io[i].n > t->written)
            return ERR(IO, "cache pages at byte %llu were never written to the file in %s",
                       (unsigned long long)io[i].at, t->dir);
    *end = size;
    return 0;
}

static int file_start(struct kv_tier *tier, struct kv_io *io, uint32_t n)
{
    struct tier_file *t = (struct tier_file *)tier;
    struct aio_op *start[KV_TIER_DEPTH];
    uint64_t end;
    uint32_t free = 0;
    for (uint32_t i = 0; i < KV_TIER_DEPTH; i++)
        free += !t->op[i].used;
    if (n > free)
        return ERR(BUSY,
                   "%u transfers of cache pages are in flight and %u more asked for; at most %u",
                   KV_TIER_DEPTH - free, n, KV_TIER_DEPTH);
    TRY(check_transfers(t, io, n, &end));
    TRY(grow_file(t, end));
    for (uint32_t i = 0, k = 0; i < n; i++, k++) {
        while (t->op[k].used)
            k++;
        t->op[k].used = true;
        t->op[k].aio =
            (struct aio_op){.mem = io[i].mem, .at = io[i].at, .n = io[i].n, .write = io[i].write};
        io[i].slot = k;
        io[i].err = 0;
        start[i] = &t->op[k].aio;
    }
    aio_start(t->aio, start, n);
    return 0;
}

static int report(const struct tier_file *t, const struct kv_io *io, int e)
{
    const char *verb = io->write ? "writing" : "reading";
    if (e == ENOSPC || e == EDQUOT)
        return ERR(IO,
                   "no space left for cache pages in %s (%zu bytes wanted): free some, or "
                   "name a larger disk (spill_dir, else KVIK_SPILL_DIR)",
                   t->dir, io->n);
    return ERR(IO, "%s %zu bytes of cache pages at byte %llu of the file in %s: %s", verb, io->n,
               (unsigned long long)io->at, t->dir,
               e == ENODATA ? "the file became shorter" : strerror(e));
}

static int file_finish(struct kv_tier *tier, struct kv_io *io, uint32_t n)
{
    struct tier_file *t = (struct tier_file *)tier;
    int first = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct op *op = &t->op[io[i].slot];
        aio_wait(t->aio, &op->aio);
        op->used = false;
        io[i].err = 0;
        if (!op->aio.error) {
            if (io[i].write) t->written = MAX(t->written, io[i].at + io[i].n);
            continue;
        }
        io[i].err = first ? ERR_IO : report(t, &io[i], op->aio.error);
        if (!first) first = io[i].err;
    }
    return first;
}

/* Returns bytes to the file system.  A failure only costs disk space. */
static void file_drop(struct kv_tier *tier, uint64_t at, size_t n)
{
    struct tier_file *t = (struct tier_file *)tier;
    uint64_t from, to;
    if (at >= t->size) return;
    from = (at + HOLE - 1) / HOLE * HOLE;
    to = (at + MIN((uint64_t)n, t->size - at)) / HOLE * HOLE;
    if (from >= to || aio_fault(AIO_PUNCH, NULL)) return;
    while (fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                     (off_t)(to - from)) < 0 &&
           errno == EINTR)
        ;
}

/* --- The mapping -------------------------------------------------------------------------- */

/* True if the mapping shows what is written to the file, which some network file systems do not promise.  Tested
 * with the first bytes of the file, which belong to a page that never leaves memory. */
static bool coherent(struct tier_file *t)
{
    static const char text[] = "kvik cache pages";
    if (grow_file(t, sizeof text) < 0) return false;
    if (pwrite(t->fd, text, sizeof text, 0) != sizeof text) return false;
    unsigned char *p = mmap(NULL, sizeof text, PROT_READ, MAP_SHARED, t->fd, 0);
    if (p == MAP_FAILED) return false;
    bool same = memcmp(p, text, sizeof text) == 0;
    same = same && pwrite(t->fd, "K", 1, 0) == 1 && p[0] == 'K';
    munmap(p, sizeof text);
    return same;
}

static int file_map(struct kv_tier *tier, void *mem, size_t n)
{
    struct tier_file *t = (struct tier_file *)tier;
    const char *wanted = env("KVIK_SPILL_MAP");
    if ((wanted && strcmp(wanted, "0") == 0) || !coherent(t)) return ENOTSUP;
    if (mmap(mem, n, PROT_READ, MAP_SHARED | MAP_FIXED, t->fd, 0) == MAP_FAILED) return errno;
    t->window = mem;
    return 0;
}

static bool file_ready(struct kv_tier *tier, uint64_t at, size_t n)
{
    struct tier_file *t = (struct tier_file *)tier;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char held[4096];
    uint64_t from = at / page * page, end = at + n;
    if (end > t->written) return false;
    for (size_t k; from < end; from += k * page) {
        k = MIN((size_t)((end - from + page - 1) / page), sizeof held);
        if (mincore(t->window + from, k * page, held) < 0) return false;
        for (size_t i = 0; i < k; i++)
            if (!(held[i] & 1)) return false;
    }
    return true;
}

static void file_ahead(struct kv_tier *tier, uint64_t at, size_t n)
{
    struct tier_file *t = (struct tier_file *)tier;
    for (size_t done = 0; done < n; done += ASK)
        (void)posix_fadvise(t->fd, (off_t)(at + done), (off_t)MIN(n - done, ASK),
                            POSIX_FADV_WILLNEED);
}

static void file_close(struct kv_tier *tier)
{
    struct tier_file *t = (struct tier_file *)tier;
    if (!t) return;
    for (uint32_t i = 0; i < KV_TIER_DEPTH; i++)
        if (t->op[i].used) aio_wait(t->aio, &t->op[i].aio);
    aio_close(t->aio);
    if (t->fd >= 0) close(t->fd);
    if (t->path) unlink(t->path);
    mem_free(t->path);
    mem_free(t->dir);
    mem_free(t);
}

int kv_tier_file_open(const char *dir, const char *backend, struct kv_tier **out)
{
    TRY(choose_directory(dir, &dir));
    struct tier_file *t = mem_alloc(sizeof *t);
    if (!t) return ERR_NOMEM;
    t->tier = (struct kv_tier){"file",     NULL,     file_start, file_finish, file_drop,
                               file_close, file_map, file_ready, file_ahead};
    t->fd = -1;
    t->dir = mem_strdup(dir);
    int err = t->dir ? open_file(t) : ERR_NOMEM;
    if (err == 0) err = aio_open(t->fd, backend, &t->aio);
    if (err < 0) {
        file_close(&t->tier);
        return err;
    }
    *out = &t->tier;
    return 0;
}
