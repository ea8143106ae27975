/* memory.c - memory of the CPU as a device: that of the host.  So an array is its own mirror, and the host looks at pages where
 * they are. */
#include "dev/cpu/cpu.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

void *cpu_alloc(struct dev_queue *d, size_t n)
{
    void **own = mem_grow(d->own, d->n_own + 1u, sizeof *own);
    if (!own) return NULL;
    d->own = own;
    void *p = mem_aligned(n);
    if (p) own[d->n_own++] = p;
    return p;
}

void *cpu_mirror(struct dev_queue *d, const void *host, size_t n)
{
    (void)d, (void)n;
    return (void *)(uintptr_t)host;
}

void *cpu_weights(struct dev *d, const void *host, size_t n)
{
    (void)d, (void)n;
    return (void *)(uintptr_t)host;
}

void *cpu_lend(struct dev_queue *d, const void *host, size_t n)
{
    return cpu_mirror(d, host, n);
}

void cpu_mirror_close(struct dev_queue *d, void *at, size_t n)
{
    (void)d, (void)at, (void)n;
}

void cpu_put(struct dev_queue *d, void *at, const void *host, size_t n)
{
    (void)d;
    if (at != host) memcpy(at, host, n);
}

void cpu_get(struct dev_queue *d, void *host, const void *at, size_t n)
{
    cpu_put(d, host, at, n);
}

uint32_t cpu_put_begin(struct dev_queue *d, void *at, const void *host, size_t n)
{
    cpu_put(d, at, host, n);
    return 0;
}

uint32_t cpu_get_begin(struct dev_queue *d, void *host, const void *at, size_t n)
{
    cpu_put(d, host, at, n);
    return 0;
}

int cpu_copied(struct dev_queue *d, uint32_t copy)
{
    (void)d, (void)copy;
    return 0;
}

size_t cpu_page(const struct dev *d)
{
    (void)d;
    return (size_t)sysconf(_SC_PAGESIZE);
}

void *cpu_range(struct dev *d, size_t n)
{
    (void)d;
    void *at = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void cpu_range_close(struct dev *d, void *at, size_t n)
{
    (void)d;
    munmap(at, n);
}

int cpu_range_set(struct dev *d, void *at, size_t n, enum dev_range_as as)
{
    (void)d;
    if (as == DEV_RANGE_USED) return mprotect(at, n, PROT_READ | PROT_WRITE);
    if (as == DEV_RANGE_DROPPED) {
        madvise(at, n, MADV_DONTNEED);
        return 0;
    }
    madvise(at, n, MADV_HUGEPAGE); /* pages become huge ones when they are first written */
    madvise(at, n, MADV_COLLAPSE);
    return 0;
}

const void *cpu_look(struct dev_queue *d, const void *at, size_t n, void *room)
{
    (void)d, (void)n, (void)room;
    return at;
}

void cpu_move(struct dev_queue *d, void *to, const void *from, size_t n, size_t parts,
              size_t stride)
{
    (void)d;
    for (size_t i = 0; i < parts; i++)
        memcpy((unsigned char *)to + i * stride, (const unsigned char *)from + i * stride, n);
}
