/* shim.c - the functions of the C library that shim.h stands before. Each asks whether it must fail, calls the real
 * function, and books what came of it. */
#undef _FORTIFY_SOURCE /* its header functions would have the same names */
#include "shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

/* --- Faults --------------------------------------------------------------------------------- */

static struct shim_fault fault; /* written only while nothing is armed */
static atomic_bool armed;
static atomic_uint_fast64_t calls, hits;
static atomic_int_fast64_t blocks, maps, files;

const char *shim_name(enum shim_kind k)
{
    static const char *const names[] = {
#define SHIM_TEXT(name) #name,
        SHIM_KINDS(SHIM_TEXT)
#undef SHIM_TEXT
    };
    return names[k];
}

void shim_arm(const struct shim_fault *f)
{
    fault = *f;
    atomic_store(&calls, 0);
    atomic_store(&hits, 0);
    atomic_store(&armed, true);
}

uint64_t shim_disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&calls);
}

uint64_t shim_hits(void)
{
    return atomic_load(&hits);
}

struct shim_live shim_live(void)
{
    return (struct shim_live){atomic_load(&blocks), atomic_load(&maps), atomic_load(&files)};
}

/* True, with errno set, if this call must fail. A transfer that must be short gets *n = 1. */
static bool fails(enum shim_kind k, size_t *n)
{
    if (!atomic_load_explicit(&armed, memory_order_acquire) || !(fault.kinds >> k & 1))
        return false;
    uint64_t c = atomic_fetch_add(&calls, 1) + 1;
    if (!fault.at || (fault.stays ? c < fault.at : c != fault.at)) return false;
    if (!fault.error && !n) return false;
    atomic_fetch_add(&hits, 1);
    if (fault.error) {
        errno = fault.error;
        return true;
    }
    if (*n > 1) *n = 1;
    return false;
}

/* --- Memory --------------------------------------------------------------------------------- */

#if defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#endif
#ifdef SANITIZED
#define BASE(name) __interceptor_##name
#else
#define BASE(name) __libc_##name
#endif
void *BASE(malloc)(size_t n);
void *BASE(calloc)(size_t n, size_t size);
void *BASE(realloc)(void *p, size_t n);
void *BASE(memalign)(size_t align, size_t n);
void BASE(free)(void *p);

static void *booked(void *p)
{
    if (p) atomic_fetch_add_explicit(&blocks, 1, memory_order_relaxed);
    return p;
}

PUBLIC void *malloc(size_t n)
{
    return fails(SHIM_ALLOC, NULL) ? NULL : booked(BASE(malloc)(n));
}

PUBLIC void *calloc(size_t n, size_t size)
{
    return fails(SHIM_ALLOC, NULL) ? NULL : booked(BASE(calloc)(n, size));
}

PUBLIC void *realloc(void *p, size_t n)
{
    if (fails(SHIM_ALLOC, NULL)) return NULL;
    return p ? BASE(realloc)(p, n) : booked(BASE(realloc)(p, n));
}

PUBLIC int posix_memalign(void **out, size_t align, size_t n)
{
    int kept = errno;
    void *p = fails(SHIM_ALLOC, NULL) ? NULL : booked(BASE(memalign)(align, n));
    errno = kept;
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

PUBLIC void *aligned_alloc(size_t align, size_t n)
{
    return fails(SHIM_ALLOC, NULL) ? NULL : booked(BASE(memalign)(align, n));
}

PUBLIC void *memalign(size_t align, size_t n);
PUBLIC void *memalign(size_t align, size_t n)
{
    return aligned_alloc(align, n);
}

PUBLIC void free(void *p)
{
    if (p) atomic_fetch_sub_explicit(&blocks, 1, memory_order_relaxed);
    BASE(free)(p);
}

/* NEXT(name) is the function of the C library. */
#define NEXT(name)                                                                                 \
    static __typeof__(&name) next;                                                                 \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

PUBLIC void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    NEXT(mmap);
    if (fails(SHIM_MAP, NULL)) return MAP_FAILED;
    void *p = next(at, n, prot, flags, fd, from);
    if (p != MAP_FAILED && !(flags & MAP_FIXED)) atomic_fetch_add(&maps, 1);
    return p;
}

PUBLIC int munmap(void *at, size_t n)
{
    NEXT(munmap);
    int e = next(at, n);
    if (e == 0) atomic_fetch_sub(&maps, 1);
    return e;
}

PUBLIC int mprotect(void *at, size_t n, int prot)
{
    NEXT(mprotect);
    return fails(SHIM_MAP, NULL) ? -1 : next(at, n, prot);
}

PUBLIC int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *ctx)
{
    NEXT(pthread_create);
    int kept = errno;
    if (!fails(SHIM_THREAD, NULL)) return next(t, attr, fn, ctx);
    errno = kept;
    return fault.error;
}

/* --- The record ----------------------------------------------------------------------------- */

enum { MOST_OPS = 4096 };
static struct shim_op ops[MOST_OPS];
static size_t n_ops;
static char root[PATH_MAX]; /* "": nothing is recorded */

void shim_record(const char *dir)
{
    for (size_t i = 0; i < n_ops; i++)
        BASE(free)(ops[i].data);
    n_ops = 0;
    root[0] = 0;
    if (dir) snprintf(root, sizeof root, "%s", dir);
}

const struct shim_op *shim_ops(size_t *n)
{
    *n = n_ops;
    return ops;
}

/* Returns the name of a path in the recorded directory, or NULL for other paths. */
static const char *inside(const char *path)
{
    size_t n = strlen(root);
    if (!n || strncmp(path, root, n) != 0 || path[n] != '/' || strchr(path + n + 1, '/'))
        return NULL;
    return path + n + 1;
}

/* Finds the path of an open descriptor. */
static const char *path_of(int fd, char out[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    out[n < 0 ? 0 : n] = 0;
    return out;
}

static struct shim_op *add_op(enum shim_kind kind, const char *name, int fd)
{
    struct stat st = {0};
    if (n_ops == MOST_OPS) {
        fputs("shim: the record is full\n", stderr);
        _exit(99);
    }
    struct shim_op *o = &ops[n_ops++];
    *o = (struct shim_op){.kind = kind};
    snprintf(o->name, sizeof o->name, "%s", name);
    if (fd >= 0 && fstat(fd, &st) == 0) o->file = st.st_ino;
    return o;
}

/* Records a call on a descriptor. A file that has lost its name is recorded under its number as well. */
static struct shim_op *on_fd(enum shim_kind kind, int fd)
{
    char path[PATH_MAX];
    if (!root[0]) return NULL;
    int kept = errno;
    struct shim_op *o = NULL;
    const char *name = inside(path_of(fd, path));
    if (name) o = add_op(kind, name, fd);
    if (!name && kind == SHIM_SYNC && strcmp(path, root) == 0) {
        o = add_op(kind, ".", fd);
        o->dir = true;
    }
    errno = kept;
    return o;
}

static void on_write(int fd, const void *data, ssize_t n, off_t at)
{
    struct shim_op *o = n > 0 ? on_fd(SHIM_WRITE, fd) : NULL;
    if (!o) return;
    o->at = (uint64_t)at;
    o->n = (size_t)n;
    o->data = BASE(malloc)(o->n);
    memcpy(o->data, data, o->n);
}

static void on_names(enum shim_kind kind, const char *from, const char *to, bool link)
{
    const char *a = inside(from), *b = to ? inside(to) : NULL;
    if (!a && !b) return;
    struct shim_op *o = add_op(kind, a ? a : "", -1);
    struct stat st;
    if (b) snprintf(o->to, sizeof o->to, "%s", b);
    if (b && fstatat(AT_FDCWD, to, &st, AT_SYMLINK_NOFOLLOW) == 0) o->file = st.st_ino;
    o->link = link;
}

/* Writes the path of a name in an open directory to `out`, if it must be made.  Returns the path. */
static const char *path_at(int dir, const char *name, char out[PATH_MAX])
{
    char at[64];
    if (dir == AT_FDCWD || name[0] == '/') return name;
    snprintf(at, sizeof at, "/proc/self/fd/%d", dir);
    ssize_t n = readlink(at, out, PATH_MAX - 1);
    if (n < 0) return name;
    snprintf(out + n, PATH_MAX - (size_t)n, "/%s", name);
    return out;
}

static void on_names_at(enum shim_kind kind, int a, const char *from, int b, const char *to,
                        bool link)
{
    char first[PATH_MAX], second[PATH_MAX];
    if (!root[0]) return;
    on_names(kind, path_at(a, from, first), to ? path_at(b, to, second) : NULL, link);
}

/* --- Files ---------------------------------------------------------------------------------- */

static int opened(int fd, bool made)
{
    if (fd < 0) return fd;
    atomic_fetch_add(&files, 1);
    if (made) (void)on_fd(SHIM_OPEN, fd);
    return fd;
}

/* True if an open with these flags makes a file with a name. */
static bool makes(int dir, const char *path, int flags)
{
    struct stat st;
    int kept = errno;
    bool new = root[0] && (flags & O_CREAT) && fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0;
    errno = kept;
    return new;
}

static int open_at(int dir, const char *path, int flags, mode_t mode)
{
    static int (*next)(int, const char *, int, ...);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "openat");
    if (fails(SHIM_OPEN, NULL)) return -1;
    bool new = makes(dir, path, flags);
    return opened(next(dir, path, flags, mode), new);
}

#define MODE_OF(last)                                                                              \
    mode_t mode = 0;                                                                               \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                           \
        va_list ap;                                                                                \
        va_start(ap, last);                                                                        \
        mode = va_arg(ap, mode_t);                                                                 \
        va_end(ap);                                                                                \
    }

PUBLIC int open(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

PUBLIC int openat(int dir, const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(dir, path, flags, mode);
}

/* The names that _FORTIFY_SOURCE gives. */
PUBLIC int __open_2(const char *path, int flags);
PUBLIC int __open_2(const char *path, int flags)
{
    return open_at(AT_FDCWD, path, flags, 0);
}

PUBLIC int __openat_2(int dir, const char *path, int flags);
PUBLIC int __openat_2(int dir, const char *path, int flags)
{
    return open_at(dir, path, flags, 0);
}

PUBLIC int mkostemp(char *path, int flags)
{
    NEXT(mkostemp);
    if (fails(SHIM_OPEN, NULL)) return -1;
    return opened(next(path, flags), root[0] != 0);
}

PUBLIC int close(int fd)
{
    NEXT(close);
    bool bad = fails(SHIM_CLOSE, NULL);
    int kept = errno, e = next(fd); /* the descriptor is gone, also after an error */
    if (e == 0) atomic_fetch_sub(&files, 1);
    if (!bad) return e;
    errno = kept;
    return -1;
}

PUBLIC ssize_t read(int fd, void *data, size_t n)
{
    NEXT(read);
    return fails(SHIM_READ, &n) ? -1 : next(fd, data, n);
}

PUBLIC ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    NEXT(pread);
    return fails(SHIM_READ, &n) ? -1 : next(fd, data, n, at);
}

PUBLIC ssize_t __read_chk(int fd, void *data, size_t n, size_t room);
PUBLIC ssize_t __read_chk(int fd, void *data, size_t n, size_t room)
{
    return n > room ? (abort(), -1) : read(fd, data, n);
}

PUBLIC ssize_t __pread_chk(int fd, void *data, size_t n, off_t at, size_t room);
PUBLIC ssize_t __pread_chk(int fd, void *data, size_t n, off_t at, size_t room)
{
    return n > room ? (abort(), -1) : pread(fd, data, n, at);
}

PUBLIC ssize_t write(int fd, const void *data, size_t n)
{
    NEXT(write);
    if (fails(SHIM_WRITE, &n)) return -1;
    off_t at = root[0] ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t k = next(fd, data, n);
    on_write(fd, data, k, at);
    return k;
}

PUBLIC ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    NEXT(pwrite);
    if (fails(SHIM_WRITE, &n)) return -1;
    ssize_t k = next(fd, data, n, at);
    on_write(fd, data, k, at);
    return k;
}

PUBLIC int fsync(int fd)
{
    NEXT(fsync);
    int e = fails(SHIM_SYNC, NULL) ? -1 : next(fd);
    if (e == 0) (void)on_fd(SHIM_SYNC, fd);
    return e;
}

PUBLIC int fdatasync(int fd)
{
    return fsync(fd);
}

PUBLIC int ftruncate(int fd, off_t size)
{
    NEXT(ftruncate);
    int e = fails(SHIM_TRUNCATE, NULL) ? -1 : next(fd, size);
    struct shim_op *o = e == 0 ? on_fd(SHIM_TRUNCATE, fd) : NULL;
    if (o) o->at = (uint64_t)size;
    return e;
}

PUBLIC int fallocate(int fd, int mode, off_t at, off_t n)
{
    NEXT(fallocate);
    return fails(SHIM_SPACE, NULL) ? -1 : next(fd, mode, at, n);
}

PUBLIC int rename(const char *from, const char *to)
{
    NEXT(rename);
    int e = fails(SHIM_RENAME, NULL) ? -1 : next(from, to);
    if (e == 0) on_names(SHIM_RENAME, from, to, false);
    return e;
}

PUBLIC int renameat(int a, const char *from, int b, const char *to)
{
    NEXT(renameat);
    int e = fails(SHIM_RENAME, NULL) ? -1 : next(a, from, b, to);
    if (e == 0) on_names_at(SHIM_RENAME, a, from, b, to, false);
    return e;
}

PUBLIC int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    NEXT(renameat2);
    int e = fails(SHIM_RENAME, NULL) ? -1 : next(a, from, b, to, flags);
    if (e == 0) on_names_at(SHIM_RENAME, a, from, b, to, false);
    return e;
}

PUBLIC int link(const char *from, const char *to)
{
    NEXT(link);
    int e = fails(SHIM_RENAME, NULL) ? -1 : next(from, to);
    if (e == 0) on_names(SHIM_RENAME, from, to, true);
    return e;
}

PUBLIC int linkat(int a, const char *from, int b, const char *to, int flags)
{
    NEXT(linkat);
    int e = fails(SHIM_RENAME, NULL) ? -1 : next(a, from, b, to, flags);
    if (e == 0) on_names_at(SHIM_RENAME, a, from, b, to, true);
    return e;
}

PUBLIC int unlink(const char *path)
{
    NEXT(unlink);
    int e = fails(SHIM_UNLINK, NULL) ? -1 : next(path);
    if (e == 0) on_names(SHIM_UNLINK, path, NULL, false);
    return e;
}

PUBLIC int unlinkat(int dir, const char *path, int flags)
{
    NEXT(unlinkat);
    int e = fails(SHIM_UNLINK, NULL) ? -1 : next(dir, path, flags);
    if (e == 0) on_names_at(SHIM_UNLINK, dir, path, -1, NULL, false);
    return e;
}

PUBLIC int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    return fails(SHIM_MKDIR, NULL) ? -1 : next(path, mode);
}

PUBLIC int flock(int fd, int how)
{
    NEXT(flock);
    return fails(SHIM_LOCK, NULL) ? -1 : next(fd, how);
}

PUBLIC int stat(const char *path, struct stat *st)
{
    NEXT(stat);
    return fails(SHIM_STAT, NULL) ? -1 : next(path, st);
}

PUBLIC int lstat(const char *path, struct stat *st)
{
    NEXT(lstat);
    return fails(SHIM_STAT, NULL) ? -1 : next(path, st);
}

PUBLIC int fstat(int fd, struct stat *st)
{
    NEXT(fstat);
    return fails(SHIM_STAT, NULL) ? -1 : next(fd, st);
}

PUBLIC int fstatat(int dir, const char *path, struct stat *st, int flags)
{
    NEXT(fstatat);
    return fails(SHIM_STAT, NULL) ? -1 : next(dir, path, st, flags);
}

PUBLIC int statfs(const char *path, struct statfs *fs)
{
    NEXT(statfs);
    return fails(SHIM_STAT, NULL) ? -1 : next(path, fs);
}

PUBLIC DIR *opendir(const char *path)
{
    NEXT(opendir);
    DIR *d = fails(SHIM_LIST, NULL) ? NULL : next(path);
    if (d) atomic_fetch_add(&files, 1);
    return d;
}

PUBLIC struct dirent *readdir(DIR *d)
{
    NEXT(readdir);
    return fails(SHIM_LIST, NULL) ? NULL : next(d);
}

PUBLIC int closedir(DIR *d)
{
    NEXT(closedir);
    int e = next(d);
    if (e == 0) atomic_fetch_sub(&files, 1);
    return e;
}

PUBLIC int fchmod(int fd, mode_t mode)
{
    NEXT(fchmod);
    return fails(SHIM_MODE, NULL) ? -1 : next(fd, mode);
}

PUBLIC int utimensat(int dir, const char *path, const struct timespec t[2], int flags)
{
    NEXT(utimensat);
    return fails(SHIM_MODE, NULL) ? -1 : next(dir, path, t, flags);
}
