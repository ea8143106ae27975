/* shim.h - stands between a test program and the C library. Every allocation and every call that touches a file passes
 * through: one of them can be made to fail, all are counted, and changes below one directory can be recorded.
 *
 * A program gets the shim by linking shim.o. Its functions have the names of the C library's, so that they also serve the
 * libraries that kvik uses. Nothing happens until a test asks for it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHIM_KINDS(X)                                                                              \
    X(ALLOC)    /* malloc, calloc, realloc, posix_memalign */                                      \
    X(MAP)      /* mmap, mprotect */                                                               \
    X(THREAD)   /* pthread_create */                                                               \
    X(OPEN)     /* open, openat, mkostemp */                                                       \
    X(CLOSE)    /* close */                                                                        \
    X(READ)     /* read, pread */                                                                  \
    X(WRITE)    /* write, pwrite */                                                                \
    X(SYNC)     /* fsync, fdatasync */                                                             \
    X(TRUNCATE) /* ftruncate */                                                                    \
    X(SPACE)    /* fallocate */                                                                    \
    X(RENAME)   /* rename, renameat, renameat2, link, linkat */                                    \
    X(UNLINK)   /* unlink, unlinkat */                                                             \
    X(MKDIR)    /* mkdir */                                                                        \
    X(LOCK)     /* flock */                                                                        \
    X(STAT)     /* stat, lstat, fstat, fstatat, statfs */                                          \
    X(LIST)     /* opendir, readdir */                                                             \
    X(MODE)     /* fchmod, utimensat */
enum shim_kind {
#define SHIM_ENUM(name) SHIM_##name,
    SHIM_KINDS(SHIM_ENUM)
#undef SHIM_ENUM
        SHIM_COUNT
};
const char *shim_name(enum shim_kind k);
#define SHIM_MEMORY (1u << SHIM_ALLOC | 1u << SHIM_MAP)
#define SHIM_FILES  (((1u << SHIM_COUNT) - 1) & ~SHIM_MEMORY & ~(1u << SHIM_THREAD))

struct shim_fault {
    uint64_t at;    /* the at-th call from shim_arm on; 0: none, calls are only counted */
    uint32_t kinds; /* calls that count: bits 1 << enum shim_kind */
    int error; /* errno it fails with; 0: a read or write moves one byte, and other calls succeed */
    bool stays; /* and so do all calls after it */
};
/* Counts calls from now on. The fault is copied. */
void shim_arm(const struct shim_fault *f);
/* Ends that. Returns how many calls were counted. */
uint64_t shim_disarm(void);
/* Returns how many calls the fault has changed since shim_arm. */
uint64_t shim_hits(void);

/* What the process holds: blocks of memory, mapped ranges, descriptors. */
struct shim_live {
    int64_t blocks, maps, files;
};
struct shim_live shim_live(void);

/* A change of a file or directory, in the order of the calls. */
struct shim_op {
    enum shim_kind kind; /* OPEN (a file was made), WRITE, TRUNCATE, SYNC, RENAME, UNLINK */
    bool link;           /* RENAME: the old name stays */
    bool dir;            /* SYNC: of the directory */
    uint64_t file;       /* number of the inode */
    char name[64], to[64];
    uint64_t at; /* WRITE: offset; TRUNCATE: size */
    size_t n;
    char *data;
};
/* Records the changes below a directory, which has no subdirectories. NULL ends the recording and frees the record. */
void shim_record(const char *dir);
const struct shim_op *shim_ops(size_t *n);
