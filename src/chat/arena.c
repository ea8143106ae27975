/* arena.c - bump allocation in growing blocks.  A large request gets a block of its own behind the
 * current one, so the room left in the current block stays in use. */
#include "chat/arena.h"

#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t used, cap;
    _Alignas(16) char data[];
};
#define BLOCK_FIRST 4096u
#define BLOCK_MOST  (256u << 10)

void arena_init(struct arena *a, size_t max)
{
    *a = (struct arena){.max = max};
}

void arena_done(struct arena *a)
{
    struct arena_block *b = a->head;
    while (b) {
        struct arena_block *next = b->next;
        mem_free(b);
        b = next;
    }
    *a = (struct arena){.max = a->max};
}

static struct arena_block *open_block(struct arena *a, size_t cap, int *code)
{
    size_t bytes = sizeof(struct arena_block) + cap;
    if (cap > a->max || bytes > a->max || a->total > a->max - bytes) {
        *code =
            ERR(LIMIT, "the template needs more than the limit of %zu MiB of memory", a->max >> 20);
        return NULL;
    }
    struct arena_block *b = mem_alloc(bytes);
    if (!b) {
        *code = ERR_NOMEM;
        return NULL;
    }
    b->cap = cap;
    a->total += bytes;
    return b;
}

void *arena_alloc(struct arena *a, size_t n, int *code)
{
    struct arena_block *b = a->head;
    if (n < a->max) n = (n + 15) & ~(size_t)15;
    if (b && b->cap - b->used >= n) {
        b->used += n;
        return b->data + b->used - n;
    }
    bool large = b && n > BLOCK_MOST / 4;
    size_t cap = MIN(MAX((size_t)BLOCK_FIRST, a->total), (size_t)BLOCK_MOST);
    b = open_block(a, large ? n : MAX(cap, n), code);
    if (!b) return NULL;
    b->used = n;
    struct arena_block **place = large ? &a->head->next : &a->head;
    b->next = *place;
    *place = b;
    return b->data;
}

int arena_grow(struct arena *a, void **v, size_t n, size_t *cap, size_t size)
{
    int e = 0;
    if (n < *cap) return 0;
    size_t more = *cap ? *cap * 2 : 4;
    void *p = arena_alloc(a, more * size, &e);
    if (!p) return e;
    if (n) memcpy(p, *v, n * size);
    *v = p;
    *cap = more;
    return 0;
}
