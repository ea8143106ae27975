/* refs.h - counted handles.  The caller who opened a handle has one reference, which closing drops.  Objects that
 * use the handle have references of their own.  Threads may take and drop references to one handle at the same
 * time. */
#pragma once
#include "base/base.h"

#include <stdatomic.h>

struct refs {
    atomic_uint n;
    /* REFS_OPEN until the caller closes the handle.  A call with a closed handle is refused, even after the memory
     * was freed, until that memory is used for something else. */
    atomic_uint open;
};
enum { REFS_OPEN = 0x6b76696b };

static inline void refs_init(struct refs *r)
{
    atomic_store(&r->n, 1);
    atomic_store(&r->open, REFS_OPEN);
}
/* Takes one more reference to a handle that the caller knows to be alive. */
static inline void refs_take(struct refs *r)
{
    atomic_fetch_add_explicit(&r->n, 1, memory_order_relaxed);
}
/* Drops a reference.  Returns true for the last one: the caller then frees the handle, and sees everything that
 * other threads have written to it. */
static inline bool refs_drop(struct refs *r)
{
    if (atomic_fetch_sub_explicit(&r->n, 1, memory_order_acq_rel) != 1) return false;
    /* a handle that nobody had to close, such as the model inside a kvik_layers, is still marked as open */
    atomic_store(&r->open, 0);
    return true;
}
static inline bool refs_is_open(const struct refs *r)
{
    return atomic_load_explicit(&r->open, memory_order_relaxed) == REFS_OPEN;
}
/* Marks the handle as closed; the caller then drops its reference.  Returns false if the handle was closed before. */
static inline bool refs_close(struct refs *r)
{
    unsigned open = REFS_OPEN;
    return atomic_compare_exchange_strong(&r->open, &open, 0);
}
/* Returns ERR_ARG for a handle that was closed.  what: "cache". */
static inline int refs_check(const struct refs *r, const char *what)
{
    return refs_is_open(r) ? 0 : ERR(ARG, "this %s is closed; open another one", what);
}
