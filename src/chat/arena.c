/* arena.c - bump allocation in growing blocks.  A request larger than the rest of the current block
 * opens a new one; large requests get a block of their own behind the current one, so the room left
 * in the current block stays in use. */
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
    if (bytes > a->max || a->total > a->max - bytes) {
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
    if (n > a->max) {
        *code =
            ERR(LIMIT, "the template needs more than the limit of %zu MiB of memory", a->max >> 20);
        return NULL;
    }
    n = (n + 15) & ~(size_t)15;
    struct arena_block *b = a->head;
    if (b && b->cap - b->used >= n) {
        b->used += n;
        return b->data + b->used - n;
    }
    bool large = n > BLOCK_MOST / 4;
    size_t cap = large ? n : MIN(MAX((size_t)BLOCK_FIRST, a->total), (size_t)BLOCK_MOST);
    b = open_block(a, MAX(cap, n), code);
    if (!b) return NULL;
    b->used = n;
    if (large && a->head) {
        b->next = a->head->next;
        a->head->next = b;
    } else {
        b->next = a->head;
        a->head = b;
    }
    return b->data;
}
