/* aio.h - reads and writes of a file in the background, through io_uring or a few threads.
 *
 * One thread starts transfers and waits for them.  A transfer either moves all of its bytes or fails: the
 * backend continues short and interrupted transfers, and a read past the end of the file is an error.
 * Nothing here allocates after aio_open. */
#pragma once
#include "base/base.h"

#define AIO_DEPTH 64u /* transfers that may be in flight at once */

struct aio;
struct aio_op { /* the caller's; lives until aio_wait returns */
    void *mem;
    uint64_t at;
    size_t n;
    bool write;
    int error; /* after aio_wait: 0 or an errno; ENODATA: the file ends before the read does */
    /* The rest belongs to the backend. */
    bool busy;
    int forced;    /* errno injected by a test instead of the transfer */
    uint32_t idle; /* interruptions in a row without a byte */
    size_t done;
    struct aio_op *next;
};

/* Opens a backend for transfers of the file fd, which stays the caller's.  backend: "uring" or "threads"; NULL:
 * $KVIK_AIO, else the best one that this system grants. */
int aio_open(int fd, const char *backend, struct aio **out);
void aio_close(struct aio *a);                /* no transfer may be in flight */
const char *aio_backend(const struct aio *a); /* "uring" or "threads" */
/* Starts n transfers; at most AIO_DEPTH may be in flight.  Cannot fail: a transfer that the system refuses to
 * run in the background is done before aio_start returns. */
void aio_start(struct aio *a, struct aio_op *const *op, uint32_t n);
void aio_wait(struct aio *a, struct aio_op *op);

/* Faults for tests.  Each system call on a file is counted.  The chosen call is not made and fails with `error`;
 * with error 0 a read or write moves only a part of its bytes. */
enum aio_call {
    AIO_OPEN, /* with a name or without, and the list of a directory */
    AIO_UNLINK,
    AIO_SIZE,
    AIO_READ,
    AIO_WRITE,
    AIO_SUBMIT,
    AIO_WAIT,
    AIO_PUNCH
};
struct aio_fault {
    /* calls before the failing one, and that one, counted from aio_fault_set; 0: nothing fails, calls are only
     * counted */
    uint64_t at;
    uint32_t kinds; /* calls that count: bit 1 << enum aio_call; 0: all */
    int error;
    /* after the first failure every `every`-th call fails, too; 0: no further one */
    uint32_t every;
};
void aio_fault_set(const struct aio_fault *f); /* NULL: off; no transfer may be in flight */
uint64_t aio_fault_calls(void);                /* calls counted since aio_fault_set */
/* Returns the errno that the next call must fail with, or 0.  May reduce *n (if not NULL) to make the call short. */
int aio_fault(enum aio_call call, size_t *n);
