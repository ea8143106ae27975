/* refs.h - handles that are counted.  The caller who opened one has one reference, which closing gives up; what uses the
 * handle holds it with another.  Threads may take and drop references to one handle at the same time. */
#pragma once
#include "base/base.h"

#include <stdatomic.h>

struct refs {
    atomic_uint n;
    /* REFS_OPEN until the caller closes the handle.  So a call with a closed one is refused, also after its memory was
     * freed, until that memory serves something else. */
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
/* Drops a reference.  Returns true for the last one: the caller then frees the handle, and sees all that other threads
 * have written to it. */
static inline bool refs_drop(struct refs *r)
{
    if (atomic_fetch_sub_explicit(&r->n, 1, memory_order_acq_rel) != 1) return false;
    /* Of a handle that nobody had to close, such as the model inside a kvik_layers. */
    atomic_store(&r->open, 0);
    return true;
}
static inline bool refs_is_open(const struct refs *r)
{
    return atomic_load_explicit(&r->open, memory_order_relaxed) == REFS_OPEN;
}
/* Marks the handle as closed; its caller's reference is then to be dropped.  Returns false if that was done before. */
static inline bool refs_close(struct refs *r)
{
    unsigned open = REFS_OPEN;
    return atomic_compare_exchange_strong(&r->open, &open, 0);
}
/* ERR_ARG for a handle that was closed.  what: "cache". */
static inline int refs_check(const struct refs *r, const char *what)
{
    return refs_is_open(r) ? 0 : ERR(ARG, "this %s is closed; open another one", what);
}
