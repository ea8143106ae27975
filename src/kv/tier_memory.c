/* tier_memory.c - pages in a second range of memory.
 *
 * For devices with memory of their own, for tests, and as the example of docs/ADDING-A-TIER.md: without such a device, moving
 * pages from memory to memory frees none.  The address space is reserved at once and gets memory where it is
 * written.  A transfer is a copy of the queue, beside its operations. */
#include "dev/dev.h"
#include "kv/tier.h"

#include <sys/mman.h>
#include <unistd.h>

struct tier_memory {
    struct kv_tier tier;
    unsigned char *base; /* owned: a mapping of size bytes */
    size_t size, page;
    uint64_t written; /* the end of all that was ever written */
};

static struct dev_queue *queue_of(const struct kv_tier *tier, const struct kv_io *io)
{
    return io->host || !tier->queue ? &dev_host_queue : tier->queue;
}

static int memory_start(struct kv_tier *tier, struct kv_io *io, uint32_t n)
{
    struct tier_memory *t = (struct tier_memory *)tier;
    for (uint32_t i = 0; i < n; i++) { /* all are checked before one is done */
        uint64_t end = io[i].write ? t->size : t->written;
        if (io[i].n <= end && io[i].at <= end - io[i].n) continue;
        if (io[i].write)
            return ERR(LIMIT, "cache pages at byte %llu: the memory tier has %zu bytes",
                       (unsigned long long)io[i].at, t->size);
        return ERR(IO, "cache pages at byte %llu were never written to memory",
                   (unsigned long long)io[i].at);
    }
    for (uint32_t i = 0; i < n; i++) {
        unsigned char *here = t->base + io[i].at;
        struct dev_queue *q = queue_of(tier, &io[i]);
        io[i].slot = 0;
        if (io[i].n == 0) continue;
        if (io[i].write)
            io[i].slot = dev_get_begin(q, here, io[i].mem, io[i].n);
        else
            io[i].slot = dev_put_begin(q, io[i].mem, here, io[i].n);
        if (io[i].write) t->written = MAX(t->written, io[i].at + io[i].n);
    }
    return 0;
}

static int memory_finish(struct kv_tier *tier, struct kv_io *io, uint32_t n)
{
    int e = 0;
    for (uint32_t i = 0; i < n; i++) {
        io[i].err = io[i].n ? dev_copied(queue_of(tier, &io[i]), io[i].slot) : 0;
        if (e >= 0) e = io[i].err;
    }
    return e;
}

/* Returns whole pages to the system.  A page of which only a part is dropped keeps its memory. */
static void memory_drop(struct kv_tier *tier, uint64_t at, size_t n)
{
    struct tier_memory *t = (struct tier_memory *)tier;
    if (at >= t->size) return;
    uint64_t from = (at + t->page - 1) / t->page * t->page;
    uint64_t to = (at + MIN(n, t->size - at)) / t->page * t->page;
    if (from < to) madvise(t->base + from, to - from, MADV_DONTNEED);
}

static void memory_close(struct kv_tier *tier)
{
    struct tier_memory *t = (struct tier_memory *)tier;
    if (!t) return;
    munmap(t->base, t->size);
    mem_free(t);
}

int kv_tier_memory_open(struct dev_queue *queue, size_t size, struct kv_tier **out)
{
    if (size == 0) return ERR(ARG, "a memory tier of 0 bytes holds nothing");
    struct tier_memory *t = mem_alloc(sizeof *t);
    if (!t) return ERR_NOMEM;
    t->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (t->base == MAP_FAILED) {
        mem_free(t);
        return ERR(NOMEM, "cannot reserve %zu bytes for a memory tier", size);
    }
    t->tier = (struct kv_tier){.name = "memory",
                               .queue = queue,
                               .start = memory_start,
                               .finish = memory_finish,
                               .drop = memory_drop,
                               .close = memory_close};
    t->size = size;
    t->page = (size_t)sysconf(_SC_PAGESIZE);
    *out = &t->tier;
    return 0;
}
