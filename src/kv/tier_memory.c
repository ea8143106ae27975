/* tier_memory.c - pages in a second range of memory.
 *
 * It is used for devices with memory of their own, for tests, and as the example of docs/ADDING-A-TIER.md.  On the CPU it saves
 * nothing, since pages move from memory to memory.  The address space is reserved at once, and the system gives memory where
 * bytes are written.  A transfer is a copy of the queue, which runs beside the queue's operations.
 *
 * A device with memory of its own copies faster if the host's memory is pinned.  So each piece, of one page of the device, is
 * pinned while some byte in the piece is in use.  With its last byte the piece goes back to the system. */
#include "dev/pin.h"
#include "kv/tier.h"

#include <sys/mman.h>
#include <unistd.h>

struct tier_memory {
    struct kv_tier tier;
    unsigned char *base; /* [size] in `whole`; begins with a piece */
    size_t size, page;
    uint64_t written; /* end of the last write: nothing behind it can be read */
    struct dev *dev;  /* the device for which pieces are pinned; NULL: none are */
    size_t piece;     /* bytes */
    /* Two arrays in one mapping, owned.  n_live[size / piece]: how many pages of a piece are in use.
     * live[size / page]: 1 if a page of the system is in use. */
    uint32_t *n_live;
    uint8_t *live;
    size_t marks; /* size of the mapping that n_live and live lie in */
    void *whole;  /* owned: a mapping of size + 2 * piece bytes */
};

static size_t pieces(const struct tier_memory *t)
{
    return t->size / t->piece + 1;
}

/* Pins the pieces of bytes that are written. */
static void pin_pieces(struct tier_memory *t, uint64_t at, size_t n)
{
    for (uint64_t i = at / t->page; t->dev && i * t->page < at + n; i++) {
        uint64_t piece = i * t->page / t->piece;
        if (t->live[i]) continue;
        t->live[i] = 1;
        if (!t->n_live[piece]++) dev_pin(t->dev, t->base + piece * t->piece, t->piece, true);
    }
}

/* Marks whole pages of the system in bytes [from, to) as unused, and gives back pieces without used pages. */
static void unuse(struct tier_memory *t, uint64_t from, uint64_t to)
{
    for (uint64_t i = from / t->page; i * t->page < to; i++) {
        uint64_t piece = i * t->page / t->piece;
        if (!t->live[i]) continue;
        t->live[i] = 0;
        if (--t->n_live[piece]) continue;
        unsigned char *here = t->base + piece * t->piece;
        dev_pin(t->dev, here, t->piece, false);
        madvise(here, t->piece, MADV_DONTNEED);
    }
}

static struct dev_queue *queue_of(const struct kv_tier *tier, const struct kv_io *io)
{
    return io->host || !tier->queue ? &dev_host_queue : tier->queue;
}

static int memory_start(struct kv_tier *tier, struct kv_io *io, uint32_t n)
{
    struct tier_memory *t = (struct tier_memory *)tier;
    for (uint32_t i = 0; i < n; i++) { /* all are checked before the first is done */
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
        if (io[i].write) pin_pieces(t, io[i].at, io[i].n);
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
    if (from >= to) return;
    if (t->dev)
        unuse(t, from, to);
    else
        madvise(t->base + from, to - from, MADV_DONTNEED);
}

static void memory_close(struct kv_tier *tier)
{
    struct tier_memory *t = (struct tier_memory *)tier;
    if (!t) return;
    if (t->n_live) unuse(t, 0, t->written);
    if (t->n_live) munmap(t->n_live, t->marks);
    if (t->whole) munmap(t->whole, t->size + 2 * t->piece);
    mem_free(t);
}

static void *reserve_space(size_t n)
{
    void *at =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static bool room(struct tier_memory *t)
{
    size_t all;
    t->whole = ck_add(t->size, 2 * t->piece, &all) ? reserve_space(all) : NULL;
    if (!t->whole) return false;
    t->base = (unsigned char *)t->whole + (t->piece - (size_t)t->whole % t->piece) % t->piece;
    if (!t->dev) return true;
    t->marks = pieces(t) * sizeof *t->n_live + t->size / t->page + 1;
    t->n_live = reserve_space(t->marks);
    t->live = t->n_live ? (uint8_t *)(t->n_live + pieces(t)) : NULL;
    return t->live;
}

int kv_tier_memory_open(struct dev_queue *queue, size_t size, struct kv_tier **out)
{
    if (size == 0) return ERR(ARG, "a memory tier of 0 bytes holds nothing");
    struct tier_memory *t = mem_alloc(sizeof *t);
    if (!t) return ERR_NOMEM;
    t->size = size;
    t->page = t->piece = (size_t)sysconf(_SC_PAGESIZE);
    if (queue && !dev_base(queue)->kind->is_host) {
        t->dev = dev_base(queue)->dev;
        t->piece = MAX(dev_page(t->dev), t->page);
    }
    if (!room(t)) {
        memory_close(&t->tier);
        return ERR(NOMEM, "cannot reserve %zu bytes for a memory tier", size);
    }
    t->tier = (struct kv_tier){.name = "memory",
                               .queue = queue,
                               .start = memory_start,
                               .finish = memory_finish,
                               .drop = memory_drop,
                               .close = memory_close};
    *out = &t->tier;
    return 0;
}
