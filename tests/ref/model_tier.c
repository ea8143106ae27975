/* model_tier.c - the memory tier of the model checker.  Addresses and sizes are multiples of 64. */
#include "model_tier.h"

#include <stdlib.h>
#include <string.h>

#define UNIT 64u

static void grow(struct tier_mem *t, size_t to)
{
    if (to <= t->cap) return;
    size_t cap = (to * 2 + UNIT - 1) / UNIT * UNIT;
    t->bytes = realloc(t->bytes, cap);
    t->state = realloc(t->state, cap / UNIT);
    if (!t->bytes || !t->state) abort();
    memset(t->bytes + t->cap, 0xDD, cap - t->cap);
    memset(t->state + t->cap / UNIT, 0, (cap - t->cap) / UNIT);
    t->cap = cap;
}

static bool fails(struct tier_mem *t)
{
    if (!t->fail_at || --t->fail_at) return false;
    t->failed = true;
    t->faults++;
    return true;
}

static int mem_start(struct kv_tier *tier, struct kv_io *io, uint32_t n)
{
    struct tier_mem *t = (struct tier_mem *)tier;
    if (fails(t)) return ERR(IO, "memory tier: no start");
    for (uint32_t i = 0; i < n; i++) {
        grow(t, io[i].at + io[i].n);
        t->bad += !io[i].n || io[i].at % UNIT || io[i].n % UNIT;
    }
    t->in_flight += n;
    t->bad += !n || t->in_flight > KV_TIER_DEPTH;
    return 0;
}

const unsigned char *tier_mem_at(const struct tier_mem *t, uint64_t at, size_t n)
{
    if (at + n > t->cap) return NULL;
    for (size_t i = at / UNIT; i < (at + n) / UNIT; i++)
        if (!t->state[i]) return NULL;
    return t->bytes + at;
}

static int mem_finish(struct kv_tier *tier, struct kv_io *io, uint32_t n)
{
    struct tier_mem *t = (struct tier_mem *)tier;
    bool fail = fails(t);
    t->in_flight -= n;
    for (uint32_t i = 0; i < n; i++) {
        io[i].err = 0;
        if (fail && i >= n / 2) { /* half of the failed transfer is done */
            io[i].err = ERR(IO, "memory tier: transfer failed");
            if (io[i].write) memset(t->bytes + io[i].at, 0xBA, io[i].n / 2);
            if (!io[i].write) memset(io[i].mem, 0xBA, io[i].n / 2);
        } else if (io[i].write) {
            memcpy(t->bytes + io[i].at, io[i].mem, io[i].n);
            memset(t->state + io[i].at / UNIT, 1, io[i].n / UNIT);
            t->writes++;
        } else {
            t->bad += !tier_mem_at(t, io[i].at, io[i].n);
            memcpy(io[i].mem, t->bytes + io[i].at, io[i].n);
            t->reads++;
        }
    }
    return fail ? ERR_IO : 0;
}

static void mem_drop(struct kv_tier *tier, uint64_t at, size_t n)
{
    struct tier_mem *t = (struct tier_mem *)tier;
    grow(t, at + n);
    memset(t->bytes + at, 0xDD, n);
    memset(t->state + at / UNIT, 0, n / UNIT);
    t->drops++;
}

static void mem_close(struct kv_tier *tier)
{
    struct tier_mem *t = (struct tier_mem *)tier;
    free(t->bytes);
    free(t->state);
    free(t);
}

struct tier_mem *tier_mem_open(void)
{
    struct tier_mem *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->tier = (struct kv_tier){.name = "memory",
                               .start = mem_start,
                               .finish = mem_finish,
                               .drop = mem_drop,
                               .close = mem_close};
    return t;
}
