/* arena.h - bump allocation with a hard limit.  Everything that a template or one rendering makes lives until the
 * arena is freed.  So no value has an owner, and every allocation counts towards the limit. */
#pragma once
#include "base/base.h"

struct arena_block;
struct arena {
    struct arena_block *head;
    size_t total, max; /* bytes taken from the heap, and their limit */
};
void arena_init(struct arena *a, size_t max);
void arena_done(struct arena *a);
/* Returns n zeroed bytes, aligned to 16, or NULL and ERR_LIMIT or ERR_NOMEM in *code. */
void *arena_alloc(struct arena *a, size_t n, int *code);
/* Makes room for one more item behind the n items of v.  v moves when *cap is reached. */
int arena_grow(struct arena *a, void **v, size_t n, size_t *cap, size_t size);
#define ARENA_NEW(a, p, count)                                                                     \
    do {                                                                                           \
        int e_new = 0;                                                                             \
        (p) = arena_alloc((a), sizeof *(p) * (size_t)(count), &e_new);                             \
        if (!(p)) return e_new < 0 ? e_new : ERR_NOMEM;                                            \
    } while (0)
#define ARENA_GROW(a, x) TRY(arena_grow((a), (void **)&(x)->v, (x)->n, &(x)->cap, sizeof *(x)->v))
