/* durable.h - files whose changes survive a crash: written beside and renamed, or appended to and then named by a few
 * bytes inside one sector.  Every call to the system can be made to fail, for tests. */
#pragma once
#include "base/base.h"

struct durable {
    int fd;
    char *path;    /* owned; what the file is or will be called, links followed */
    char *tmp;     /* owned; its name until durable_replace, or NULL */
    uint64_t size; /* when it was opened */
};
/* An existing regular file.  write: also to be written; held by a lock that ends with the process, ERR_BUSY where
 * another one holds it. */
int durable_open(struct durable *f, const char *path, bool write);
/* A new file beside `path`, mode 0600, held likewise; what a killed process left of one is used again, unless it is
 * another user's or has a second name. */
int durable_create(struct durable *f, const char *path);
int durable_read(struct durable *f, uint64_t at, void *data, size_t n);
int durable_write(struct durable *f, uint64_t at, const void *data, size_t n);
int durable_sync(struct durable *f);
int durable_truncate(struct durable *f, uint64_t size);
/* The new file takes its name, and the directory is told. */
int durable_replace(struct durable *f);
void durable_close(struct durable *f); /* a file that did not take its name is removed */

enum durable_call {
    DURABLE_OPEN,
    DURABLE_READ,
    DURABLE_WRITE,
    DURABLE_SYNC,
    DURABLE_TRUNCATE,
    DURABLE_RENAME
};
struct durable_fault {
    uint64_t at;    /* the at-th call from durable_fault_set on; 0: none, only count */
    uint32_t kinds; /* calls that count: bit 1 << enum durable_call; 0: all */
    int error;      /* errno it fails with; 0: the process dies there, for kill tests */
    bool half;      /* a write moves half of its bytes before */
    bool stays;     /* and so do all after it */
};
/* Tests: told of writes, syncs, truncations and renames of files as they are made, or NULL. */
extern void (*durable_trace)(enum durable_call call, uint64_t at, const void *data, size_t n);
/* Tests: called between opening a file and locking it or, for reading, after its size was taken; or NULL. */
extern void (*durable_opened)(const char *path);
void durable_fault_set(const struct durable_fault *f); /* NULL: off */
uint64_t durable_fault_calls(void);
