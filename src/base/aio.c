/* aio.c - choosing a backend, the rules of progress that both share, and the fault hook. */
#include "base/aio_int.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IDLE_MAX 1000u /* interruptions in a row after which a transfer fails */

static const struct aio_kind *const kinds[] = {
#ifdef KVIK_URING
    &aio_uring,
#endif
    &aio_threads,
};

static int find_backend(const char *name, const struct aio_kind **out)
{
    for (size_t i = 0; i < countof(kinds); i++)
        if (strcmp(kinds[i]->name, name) == 0) {
            *out = kinds[i];
            return 0;
        }
    if (strcmp(name, "uring") == 0)
        return ERR(UNSUPPORTED, "this kvik was built without io_uring (liburing); use 'threads'");
    return ERR(ARG, "KVIK_AIO=%s is no backend for background transfers; use uring or threads",
               name);
}

int aio_open(int fd, const char *backend, struct aio **out)
{
    const struct aio_kind *named = NULL;
    if (!backend || !*backend) backend = getenv("KVIK_AIO");
    if (backend && *backend) TRY(find_backend(backend, &named));
    struct aio *a = mem_alloc(sizeof *a);
    if (!a) return ERR_NOMEM;
    int err = ERR_UNSUPPORTED;
    for (size_t i = 0; i < countof(kinds) && err < 0; i++) {
        if (named && kinds[i] != named) continue;
        *a = (struct aio){.kind = kinds[i], .fd = fd};
        err = kinds[i]->open(a);
    }
    if (err < 0) {
        mem_free(a);
        return err;
    }
    *out = a;
    return 0;
}

void aio_close(struct aio *a)
{
    if (!a) return;
    a->kind->close(a);
    mem_free(a);
}

const char *aio_backend(const struct aio *a)
{
    return a->kind->name;
}

void aio_start(struct aio *a, struct aio_op *const *op, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        op[i]->error = op[i]->forced = 0;
        op[i]->idle = 0;
        op[i]->done = 0;
        op[i]->next = NULL;
        op[i]->busy = true;
    }
    a->kind->start(a, op, n);
}

void aio_wait(struct aio *a, struct aio_op *op)
{
    a->kind->wait(a, op);
}

bool aio_more(struct aio_op *op, ssize_t moved)
{
    if (moved > 0) {
        op->done += (size_t)moved;
        op->idle = 0;
        return op->done < op->n;
    }
    if (moved == 0 && op->n == 0) return false;
    if ((moved == -EINTR || moved == -EAGAIN) && ++op->idle < IDLE_MAX) return true;
    op->error = moved < 0 ? (int)-moved : op->write ? EIO : ENODATA;
    return false;
}

static ssize_t transfer(int fd, struct aio_op *op)
{
    char *mem = (char *)op->mem + op->done;
    off_t at = (off_t)(op->at + op->done);
    size_t n = MIN(op->n - op->done, AIO_PIECE);
    int e = aio_fault(op->write ? AIO_WRITE : AIO_READ, &n);
    if (e) return -e;
    ssize_t moved = op->write ? pwrite(fd, mem, n, at) : pread(fd, mem, n, at);
    return moved < 0 ? -errno : moved;
}

void aio_block(int fd, struct aio_op *op)
{
    while (aio_more(op, transfer(fd, op)))
        ;
}

/* Workers read these in aio_fault.  They are set only while no transfer is in flight, so no lock is needed. */
static struct aio_fault fault;
static atomic_bool armed;
static atomic_uint_fast64_t n_calls;

void aio_fault_set(const struct aio_fault *f)
{
    fault = f ? *f : (struct aio_fault){0};
    atomic_store(&n_calls, 0);
    atomic_store(&armed, f != NULL);
}

uint64_t aio_fault_calls(void)
{
    return atomic_load(&n_calls);
}

int aio_fault(enum aio_call call, size_t *n)
{
    if (!atomic_load_explicit(&armed, memory_order_acquire)) return 0;
    if (fault.kinds && !(fault.kinds & 1u << call)) return 0;
    uint64_t k = atomic_fetch_add(&n_calls, 1) + 1;
    if (fault.at == 0 || k < fault.at) return 0;
    if (fault.every ? (k - fault.at) % fault.every != 0 : k != fault.at) return 0;
    if (fault.error == 0 && n && *n > 1) *n = (*n + 1) / 2;
    return fault.error;
}
