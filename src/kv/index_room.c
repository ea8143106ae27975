/* index_room.c - memory for the contents that the prefix index keeps: a buddy heap in one range of
 * addresses.
 *
 * The lengths of kept contents differ by orders of magnitude.  Arrays sized for the longest would
 * cost more than the rows of most.  So each takes one block of 1 KiB times a power of two.
 *
 * The range is reserved when the cache is opened and becomes memory as it is used.  Keeping a
 * sequence therefore calls no allocator, and the used part counts in the budget.  Arrays beside the
 * range link the blocks, so free blocks hold no memory at all. */
#include "dev/dev.h"
#include "kv/kv_int.h"

#include <string.h>

#define EXTENT 1024u /* units that become usable together */

static void link_free(struct room *r, uint32_t at, uint8_t order)
{
    struct room_unit *u = &r->unit[at];
    *u = (struct room_unit){.prev = KV_NONE, .next = r->list[order], .order = order, .free = true};
    if (u->next != KV_NONE) r->unit[u->next].prev = at;
    r->list[order] = at;
}

static void unlink_free(struct room *r, uint32_t at)
{
    struct room_unit *u = &r->unit[at];
    if (u->prev == KV_NONE)
        r->list[u->order] = u->next;
    else
        r->unit[u->prev].next = u->next;
    if (u->next != KV_NONE) r->unit[u->next].prev = u->prev;
    u->free = false;
}

uint32_t room_units(size_t bytes)
{
    uint8_t order = 0;
    while (order + 1u < KV_ROOM_ORDERS && (size_t)KV_ROOM_UNIT << (order + 1) <= bytes)
        order++;
    return 1u << order;
}

int room_open(struct room *r, uint32_t n_units)
{
    uint8_t order = (uint8_t)__builtin_ctz(n_units);
    for (; !(r->base = pool_reserve(&dev_host, (size_t)KV_ROOM_UNIT << order)) && order > 6;
         order--)
        ;
    r->n_units = 1u << order;
    if (!r->base) return 0;
    for (uint32_t i = 0; i < KV_ROOM_ORDERS; i++)
        r->list[i] = KV_NONE;
    r->unit = mem_array(r->n_units, sizeof *r->unit);
    if (!r->unit) return ERR_NOMEM;
    link_free(r, 0, order);
    return 0;
}

void room_close(struct room *r)
{
    if (r->base) dev_range_close(&dev_host, r->base, (size_t)r->n_units * KV_ROOM_UNIT);
    mem_free(r->unit);
    memset(r, 0, sizeof *r);
}

/* Makes the units below `to` usable; false if the system refuses memory. */
static bool extend(struct room *r, uint32_t to)
{
    if (to <= r->usable) return true;
    to = MIN((to + EXTENT - 1) / EXTENT * EXTENT, r->n_units);
    size_t from = (size_t)r->usable * KV_ROOM_UNIT, end = (size_t)to * KV_ROOM_UNIT;
    if (dev_range_set(&dev_host, r->base + from, end - from, DEV_RANGE_USED) != 0) return false;
    r->usable = to;
    return true;
}

void *room_take(struct room *r, size_t *bytes)
{
    uint8_t order = 0, from;
    while (order < KV_ROOM_ORDERS && (size_t)KV_ROOM_UNIT << order < *bytes)
        order++;
    for (from = order; from < KV_ROOM_ORDERS && (!r->base || r->list[from] == KV_NONE);)
        from++;
    if (from >= KV_ROOM_ORDERS) return NULL;
    uint32_t at = r->list[from];
    if (!extend(r, at + (1u << order))) return NULL;
    unlink_free(r, at);
    while (from > order) {
        from--;
        link_free(r, at + (1u << from), from);
    }
    r->unit[at].order = order;
    *bytes = (size_t)KV_ROOM_UNIT << order;
    r->used += *bytes;
    void *out = r->base + (size_t)at * KV_ROOM_UNIT;
    memset(out, 0, *bytes);
    return out;
}

void room_give(struct room *r, void *at)
{
    uint32_t i = (uint32_t)(((unsigned char *)at - r->base) / KV_ROOM_UNIT);
    uint8_t order = r->unit[i].order;
    size_t bytes = (size_t)KV_ROOM_UNIT << order, os = dev_page(&dev_host);
    r->used -= bytes;
    if (bytes >= os) (void)dev_range_set(&dev_host, at, bytes, DEV_RANGE_DROPPED);
    for (; 1u << order < r->n_units; order++) { /* joins a free block and its free neighbour */
        uint32_t other = i ^ 1u << order;
        if (!r->unit[other].free || r->unit[other].order != order) break;
        unlink_free(r, other);
        i &= ~(1u << order);
    }
    link_free(r, i, order);
}
