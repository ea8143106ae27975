/* aio_uring.c - background transfers by io_uring, where the kernel and the sandbox grant it.
 *
 * Only the caller's thread touches the ring.  aio_wait takes in completions and submits short or interrupted
 * transfers again.  A transfer that cannot be submitted is made at once with pread or pwrite; its request may
 * stay in the ring as a no-op.  After a wait the kernel holds no pointer to the caller's memory. */
#ifdef KVIK_URING
#include "base/aio_int.h"
#include "base/built.h"
#include "base/descriptor.h"

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <time.h>

#define TRIES                                                                                      \
    100 /* submissions the kernel may put off in a row before pread and pwrite take over */

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static int uring_open(struct aio *a)
{
    struct io_uring *r = mem_alloc(sizeof *r);
    if (!r) return ERR_NOMEM;
    struct fd_low low;
    fd_low_take(&low);
    int e = io_uring_queue_init(AIO_DEPTH, r, 0);
    fd_low_drop(&low);
    if (e == 0 && !(r->features & IORING_FEAT_RW_CUR_POS)) { /* 5.6: plain reads and writes */
        io_uring_queue_exit(r);
        e = -ENOSYS;
    }
    if (e < 0) {
        mem_free(r);
        return ERR(UNSUPPORTED, "io_uring is not granted here (%s); use 'threads'", strerror(-e));
    }
    a->own = r;
    return 0;
}

static void uring_close(struct aio *a)
{
    io_uring_queue_exit(a->own);
    mem_free(a->own);
}

static void prepare_entry(struct io_uring_sqe *sqe, int fd, struct aio_op *op)
{
    char *mem = (char *)op->mem + op->done;
    uint64_t at = op->at + op->done;
    size_t n = MIN(op->n - op->done, AIO_PIECE);
    op->forced = aio_fault(op->write ? AIO_WRITE : AIO_READ, &n);
    if (op->forced)
        io_uring_prep_nop(sqe);
    else if (op->write)
        io_uring_prep_write(sqe, fd, mem, (unsigned)n, at);
    else
        io_uring_prep_read(sqe, fd, mem, (unsigned)n, at);
    /* A kernel worker makes the transfer, so that copying from the page cache does not run in the caller's thread. */
    sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data(sqe, op);
}

/* Submits the ring; returns how many requests the kernel did not take. */
static unsigned submit(struct io_uring *r)
{
    for (int tries = 0; io_uring_sq_ready(r) && tries < TRIES;) {
        int e = -aio_fault(AIO_SUBMIT, NULL);
        if (e == 0) e = io_uring_submit(r);
        if (e > 0) continue;
        if (e != -EINTR && e != -EAGAIN && e != -EBUSY) break;
        tries++;
        if (e != -EINTR) nap();
    }
    return io_uring_sq_ready(r);
}

static void uring_start(struct aio *a, struct aio_op *const *op, uint32_t n)
{
    struct io_uring *r = a->own;
    struct io_uring_sqe *sqe[AIO_DEPTH];
    uint32_t put = 0;
    while (put < MIN(n, AIO_DEPTH) && (sqe[put] = io_uring_get_sqe(r)) != NULL) {
        prepare_entry(sqe[put], a->fd, op[put]);
        put++;
    }
    /* The kernel takes requests in order, so the last ones are left over.  It reads the ring only inside submit. */
    uint32_t lost = MIN(submit(r), put);
    for (uint32_t i = put - lost; i < put; i++) {
        io_uring_prep_nop(sqe[i]);
        io_uring_sqe_set_data(sqe[i], NULL);
    }
    for (uint32_t i = put - lost; i < n; i++) {
        aio_block(a->fd, op[i]);
        op[i]->busy = false;
    }
}

/* Waits for one completion and records it. */
static void reap(struct aio *a)
{
    struct io_uring *r = a->own;
    struct io_uring_cqe *cqe;
    int e = -aio_fault(AIO_WAIT, NULL);
    if (e == 0) e = io_uring_wait_cqe(r, &cqe);
    if (e < 0) { /* the kernel may still write to our memory, so the wait must go on */
        if (e != -EINTR) nap();
        if (io_uring_peek_cqe(r, &cqe) != 0) return;
    }
    struct aio_op *op = io_uring_cqe_get_data(cqe);
    ssize_t moved = cqe->res;
    io_uring_cqe_seen(r, cqe);
    if (!op) return;
    if (op->forced) moved = -op->forced;
    if (aio_more(op, moved))
        uring_start(a, &op, 1);
    else
        op->busy = false;
}

static void uring_wait(struct aio *a, struct aio_op *op)
{
    while (op->busy)
        reap(a);
}

const struct aio_kind aio_uring = {"uring", uring_open, uring_close, uring_start, uring_wait};

static int name(struct buf *b)
{
    return buf_puts(b, "liburing");
}
BUILT(uring, BUILT_LIBRARIES, name);
#endif
