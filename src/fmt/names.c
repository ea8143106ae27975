/* names.c - a sorted index over structs that begin with their name: O(log n) look-ups and a way to
 * find duplicates, without moving the structs themselves. */
#include "fmt/fmt_int.h"

#include <stdlib.h>
#include <string.h>

static const char *item_name(const void *item)
{
    return *(const char *const *)item;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(item_name(*(const void *const *)a), item_name(*(const void *const *)b));
}

int names_build(struct names *x, const void *base, uint32_t n, size_t stride)
{
    const void **at = mem_array(n, sizeof *at);
    if (!at) return ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        at[i] = (const char *)base + (size_t)i * stride;
    qsort(at, n, sizeof *at, by_name);
    *x = (struct names){.at = at, .n = n};
    return 0;
}

void names_done(struct names *x)
{
    mem_free(x->at);
    *x = (struct names){0};
}

const void *names_find(const struct names *x, const char *name)
{
    uint32_t lo = 0, hi = x->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        int c = strcmp(item_name(x->at[mid]), name);
        if (c == 0) return x->at[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const char *names_twice(const struct names *x)
{
    for (uint32_t i = 1; i < x->n; i++)
        if (strcmp(item_name(x->at[i - 1]), item_name(x->at[i])) == 0) return item_name(x->at[i]);
    return NULL;
}
