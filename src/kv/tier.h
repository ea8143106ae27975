/* tier.h - a place for pages that are not in memory: one flat, sparse address space.
 *
 * A tier is one file (tier_*.c) that fills this struct.  The store is its only user and calls it
 * from one thread.  Transfers run in the background between start and finish.  A transfer moves all
 * of its n bytes or fails; the tier itself continues transfers that were interrupted or short. */
#pragma once
#include "base/base.h"

struct kv_io {
    void *mem;   /* must stay valid until finish */
    uint64_t at; /* byte address in the tier */
    size_t n;
    bool write;
    bool host;     /* mem is memory of the host, whatever `queue` says */
    int err;       /* set by finish: 0 or a negative code */
    uint32_t slot; /* belongs to the tier from start to finish */
};
struct kv_tier {
    const char *name;        /* "file" */
    struct dev_queue *queue; /* mem is memory of its device; NULL: of the host */
    /* Starts n transfers, in any order among themselves.  On error none was started.  Bytes that
     * were never written cannot be read: an error where the tier can tell, else zeros. */
    int (*start)(struct kv_tier *t, struct kv_io *io, uint32_t n);
    /* Waits for the n transfers of one start.  Each has its own code in io[i].err; the result is the first error, or
     * 0. */
    int (*finish)(struct kv_tier *t, struct kv_io *io, uint32_t n);
    /* Gives the space of these bytes back.  No transfer that touches them may be in flight. */
    void (*drop)(struct kv_tier *t, uint64_t at, size_t n);
    void (*close)(struct kv_tier *t); /* frees t and everything it holds on disk */
    /* map, ready and ahead may be NULL together.  Maps the first n bytes at `mem`, in reserved address space, for
     * reading: what a finished transfer has written can be read there.  Fails with an errno where the system cannot
     * do this; nothing has changed then. */
    int (*map)(struct kv_tier *t, void *mem, size_t n);
    /* True if these bytes can be read in the mapping now, without waiting for a device. */
    bool (*ready)(struct kv_tier *t, uint64_t at, size_t n);
    /* Asks the system to get these bytes ready soon. */
    void (*ahead)(struct kv_tier *t, uint64_t at, size_t n);
};
/* Transfers that may be in flight at once, over all starts. */
#define KV_TIER_DEPTH 64u

/* Opens a tier on a file without a name (with a name and mode 0600 where the system needs one).
 * The file goes when the process ends, however it ends.  dir NULL: $KVIK_SPILL_DIR, else $TMPDIR,
 * else /var/tmp; a directory in memory (tmpfs) is refused unless it was named by dir or
 * $KVIK_SPILL_DIR.  backend: "uring", "threads" or NULL for $KVIK_AIO or the best this system
 * grants. */
int kv_tier_file_open(const char *dir, const char *backend, struct kv_tier **out);
/* Opens a tier in a range of the host's memory.  Its rows come from memory of the queue's device; the queue outlives
 * the tier.  queue NULL: rows of the host, for tests.  docs/ADDING-A-TIER.md walks through it. */
int kv_tier_memory_open(struct dev_queue *queue, size_t size, struct kv_tier **out);
