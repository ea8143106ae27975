/* refs.h - counts of references.  Threads may take and drop references to one thing at the same time. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

/* Takes one more reference to a thing that the caller knows to be alive. */
static inline void refs_take(atomic_uint *refs)
{
    atomic_fetch_add_explicit(refs, 1, memory_order_relaxed);
}
/* Drops a reference.  Returns true for the last one: the caller then frees the thing, and sees all that other threads
 * have written to it. */
static inline bool refs_drop(atomic_uint *refs)
{
    return atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}
