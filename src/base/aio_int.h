/* aio_int.h - what the backends of aio.h share. */
#pragma once
#include "base/aio.h"

#include <sys/types.h>

#define AIO_PIECE                                                                                  \
    ((size_t)1 << 30) /* bytes of one system call; Linux moves less than 2 GiB per call */

struct aio_kind {
    const char *name;
    /* a has only fd and kind set; ERR_UNSUPPORTED: the system does not grant this backend */
    int (*open)(struct aio *a);
    void (*close)(struct aio *a);
    void (*start)(struct aio *a, struct aio_op *const *op, uint32_t n);
    void (*wait)(struct aio *a, struct aio_op *op);
};
struct aio {
    const struct aio_kind *kind;
    int fd;
    void *own; /* memory of the backend */
};
extern const struct aio_kind aio_threads;
#ifdef KVIK_URING
extern const struct aio_kind aio_uring;
#endif

/* Records that a system call moved `moved` bytes or failed (a negative errno).  True if the transfer is unfinished. */
bool aio_more(struct aio_op *op, ssize_t moved);
void aio_block(int fd, struct aio_op *op); /* makes the whole transfer before it returns */
