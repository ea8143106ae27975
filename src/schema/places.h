/* places.h - where the entries of an array lie by their hash, so that equal ones are found: open addressing, at most a quarter
 * full.  The array, the hash and what is equal are the caller's:
 *
 *     for (at = hash & p->mask; p->entry[at]; at = (at + 1) & p->mask)
 *         entry p->entry[at] - 1 is compared */
#pragma once
#include "base/base.h"

struct places {      /* zeroed: none */
    uint32_t *entry; /* owned, [mask + 1]: number + 1, 0: free */
    uint32_t mask;
};

/* Makes room for n entries, a power of two; there are none then. */
static inline int places_clear(struct places *p, uint32_t n)
{
    mem_free(p->entry);
    p->mask = n * 4 - 1;
    p->entry = mem_array((size_t)p->mask + 1, sizeof *p->entry);
    return p->entry ? 0 : ERR_NOMEM;
}
static inline void places_add(struct places *p, uint32_t hash, uint32_t i)
{
    uint32_t at = hash & p->mask;
    while (p->entry[at])
        at = (at + 1) & p->mask;
    p->entry[at] = i + 1;
}
