/* pool.c - pages: address ranges reserved at open, ids in aligned runs, reference counts, bytes.
 *
 * Memory.  A range of addresses is reserved for every group and form.  The range becomes usable in
 * ascending extents as runs are first used.  The CPU gives memory page by page as rows are
 * written, another device at once.  Free pages keep their memory for the next taker until live bytes
 * plus such memory exceed the budget.  Then pool_trim returns that memory to the device, so the past
 * peak of one form is not charged to another form.  What was given back is asked for again before it is
 * written.
 *
 * Ids.  Ids come in aligned runs of 16.  A sequence that holds id p takes p + 1 next.  A new
 * sequence starts in a wholly free run, at the place of its block in a span of 256 rows.  The rows
 * that an attention atom reads then lie side by side.  This placement is a hint: when no run is
 * wholly free, any id serves.
 *
 * Huge pages.  Reading a long sequence from small pages costs the processor more than the reading itself.  So
 * 2 MiB of a site are put into one huge page, where the system has them, once nearly all ids that lie in them
 * have been in use: so no memory is taken that rows do not need.  Of a huge page that is given back in part, the system
 * takes that part when it needs memory. */
#include "dev/dev.h"
#include "kv/kv_int.h"

#include <string.h>

#define EXTENT_BYTES ((size_t)64 << 10) /* smallest piece of a range made usable at once */
#define HUGE_BYTES   ((uintptr_t)2 << 20)
#define HUGE_LAG                                                                                   \
    ((size_t)1 << 20) /* runs that several sequences may still be filling, in bytes: 1 to 4 runs */

struct kv_fault kv_fault;

static void list_unlink(struct pages *p, uint32_t r)
{
    struct id_run *run = &p->run[r];
    uint32_t k = (uint32_t)__builtin_popcount(run->free);
    if (!k) return;
    if (run->prev == KV_NONE)
        p->list[k] = run->next;
    else
        p->run[run->prev].next = run->next;
    if (run->next != KV_NONE) p->run[run->next].prev = run->prev;
}

static void list_link(struct pages *p, uint32_t r)
{
    struct id_run *run = &p->run[r];
    uint32_t k = (uint32_t)__builtin_popcount(run->free);
    if (!k) return;
    run->prev = KV_NONE;
    run->next = p->list[k];
    if (run->next != KV_NONE) p->run[run->next].prev = r;
    p->list[k] = r;
}

/* True if nearly all ids with bytes in [from, to) of a site's range have been in use. */
static bool well_used(const struct pages *p, size_t from, size_t to)
{
    uint32_t id = (uint32_t)(from / p->grain), end = (uint32_t)((to - 1) / p->grain) + 1;
    uint32_t n = end - id, used = 0;
    /* run 0, with the null page, serves no sequence until the other runs are used up */
    for (; id < end; id++)
        used += id < KV_RUN || p->run[id / KV_RUN].backed >> id % KV_RUN & 1;
    return used >= n - n / 8;
}

/* Asks for huge pages at every site, for the bytes of runs that sequences have filled since the last call.  Does
 * nothing where the system has no huge pages. */
static void make_huge(struct pages *p)
{
    uint32_t lag = (uint32_t)MAX(1, MIN(4, HUGE_LAG / (KV_RUN * p->grain)));
    size_t before = p->huge, used = (p->fresh - MIN(p->fresh, lag)) * KV_RUN * p->grain;
    p->huge = used;
    for (uint32_t s = 0; s < p->n_sites; s++) {
        unsigned char *site = p->base + s * p->span;
        size_t skew = (uintptr_t)site %
                      HUGE_BYTES; /* the site's first huge page begins so many bytes before it */
        for (size_t i = (before + skew) / HUGE_BYTES; (i + 1) * HUGE_BYTES <= used + skew; i++) {
            if (i * HUGE_BYTES < skew) continue;
            size_t at = i * HUGE_BYTES - skew;
            if (!well_used(p, at, at + HUGE_BYTES)) continue;
            (void)dev_range_set(p->dev, site + at, HUGE_BYTES, DEV_RANGE_HUGE);
        }
    }
}

/* Makes the runs up to and including r usable.  Returns -1 if the system refuses. */
static int extend(struct pages *p, uint32_t r)
{
    if (r < p->usable || p->usable == p->n_runs) return 0;
    size_t run_bytes = KV_RUN * p->grain, os = dev_page(p->dev);
    uint32_t n = (uint32_t)((EXTENT_BYTES + run_bytes - 1) / run_bytes);
    uint32_t end = MIN(r + n, p->n_runs);
    size_t from = p->usable * run_bytes / os * os;
    size_t to = MIN((end * run_bytes + os - 1) / os * os, p->span);
    for (uint32_t s = 0; s < p->n_sites; s++)
        if (dev_range_set(p->dev, p->base + s * p->span + from, to - from, DEV_RANGE_USED) != 0)
            return -1;
    p->usable = end;
    return 0;
}

int pages_size(struct pages *p, uint32_t n_ids, size_t grain, uint32_t n_sites, size_t *total)
{
    size_t os = dev_page(p->dev), bytes;
    p->n_runs = (n_ids + KV_RUN - 1) / KV_RUN;
    p->n_ids = p->n_runs * KV_RUN;
    p->grain = grain;
    p->n_sites = n_sites;
    if (!ck_mul(p->n_ids, grain, &bytes) || !ck_add(bytes, os - 1, &bytes) ||
        !ck_mul(bytes / os * os, n_sites, total) || !ck_mul(grain, n_sites, &p->bytes))
        return ERR(
            LIMIT,
            "cache: %u pages of %zu bytes in each of %u layers exceed the address space; lower "
            "max_cache_len, max_sequences or cache_memory",
            p->n_ids, grain, n_sites);
    p->span = bytes / os * os;
    return 0;
}

void *pool_reserve(struct dev *dev, size_t bytes)
{
    bool refused = kv_fault.map_limit && bytes > kv_fault.map_limit;
    void *at = refused ? NULL : dev_range(dev, bytes);
    if (at) return at;
    (void)ERR(
        LIMIT,
        "cache: the system has no range of %zu bytes of address space; raise ulimit -v, or lower max_cache_len, max_sequences or cache_memory",
        bytes);
    return NULL;
}

static void poison(const struct pages *p, uint32_t id)
{
    for (uint32_t s = 0; s < p->n_sites; s++)
        memset(page_at(p, s, id), 0xFF, p->grain); /* tests do this with memory of the host */
}

int pages_open(struct pages *p, void *at)
{
    p->mapped = !at;
    p->base = at ? at : pool_reserve(p->dev, p->n_sites * p->span);
    if (!p->base) return ERR_LIMIT;
    for (uint32_t k = 0; k <= KV_RUN; k++)
        p->list[k] = KV_NONE;
    p->page = mem_array(p->n_ids, sizeof *p->page);
    p->run = mem_array(p->n_runs, sizeof *p->run);
    p->seen = mem_array(p->n_ids, sizeof *p->seen);
    if (!p->page || !p->run || !p->seen) return ERR_NOMEM; /* the caller closes the pages */
    if (extend(p, 0) < 0)
        return ERR(
            NOMEM,
            "cache: the system refuses the first %zu bytes; end other programs, or raise ulimit -v",
            p->grain);
    p->run[0].free = 0xFFFE; /* id 0 is the null page */
    p->fresh = 1;
    list_link(p, 0);
    if (kv_fault.poison) poison(p, 0);
    return 0;
}

void pages_close(struct pages *p)
{
    if (p->base && p->mapped) dev_range_close(p->dev, p->base, p->n_sites * p->span);
    mem_free(p->page);
    mem_free(p->run);
    mem_free(p->seen);
    memset(p, 0, sizeof *p);
}

/* Picks a free id: in a wholly free run at its natural place, else in a run that is mostly free. */
static uint32_t pick(struct pages *p, uint32_t index)
{
    uint32_t r = p->list[KV_RUN];
    if (r == KV_NONE && p->fresh < p->n_runs && extend(p, p->fresh) == 0) {
        make_huge(p);
        r = p->fresh++;
        p->run[r].free = 0xFFFF;
        list_link(p, r);
    }
    if (r != KV_NONE) return r * KV_RUN + index % KV_RUN;
    for (uint32_t k = KV_RUN - 1; k > 0; k--) {
        r = p->list[k];
        if (r != KV_NONE) return r * KV_RUN + (uint32_t)__builtin_ctz(p->run[r].free);
    }
    return 0;
}

static size_t *bytes_of(struct kv *kv, const struct pages *p)
{
    return p->state ? &kv->states : &kv->live;
}

/* Updates two counts: free ids that hold memory (`backed`) and promised ids.  kv.backed excludes as many backed ids
 * as are promised, because reserves are charged for them. */
static void count_free(struct kv *kv, struct pages *p, uint32_t backed, uint32_t promised)
{
    kv->backed -= (p->n_backed - MIN(p->n_backed, p->n_promised)) * p->bytes;
    p->n_backed = backed;
    p->n_promised = promised;
    kv->backed += (backed - MIN(backed, promised)) * p->bytes;
}

/* Gets memory for a page that gave some of its memory back.  Returns -1 if the system has none. */
static int cover(struct pages *p, uint32_t id)
{
    size_t os = dev_page(p->dev), from = id * p->grain, to = from + p->grain;
    struct id_run *run = &p->run[id / KV_RUN];
    uint16_t bit = (uint16_t)(1u << id % KV_RUN);
    if (!(run->bare & bit)) return 0;
    from = from / os * os;
    to = (to + os - 1) / os * os;
    for (uint32_t s = 0; s < p->n_sites; s++)
        if (dev_range_set(p->dev, p->base + s * p->span + from, to - from, DEV_RANGE_USED) != 0)
            return -1;
    run->bare &= (uint16_t)~bit;
    return 0;
}

static uint32_t take_page(struct kv *kv, struct pages *p, uint32_t after, uint32_t index)
{
    uint32_t id = after ? after + 1 : 0;
    if (!id || id % KV_RUN == 0 || !(p->run[id / KV_RUN].free >> id % KV_RUN & 1))
        id = pick(p, index);
    if (!id || cover(p, id) < 0) return 0;
    struct id_run *run = &p->run[id / KV_RUN];
    uint16_t bit = (uint16_t)(1u << id % KV_RUN);
    list_unlink(p, id / KV_RUN);
    run->free &= (uint16_t)~bit;
    list_link(p, id / KV_RUN);
    if (run->backed & bit) count_free(kv, p, p->n_backed - 1, p->n_promised);
    run->backed |= bit;
    p->page[id] = (struct page){.refs = 1};
    p->n_live++;
    *bytes_of(kv, p) += p->bytes;
    kv->max_refs = MAX(kv->max_refs, 1);
    queue_place(kv, p, id, index);
    if (kv_fault.poison) poison(p, id);
    return id;
}

/* Returns true if a test wants this take to fail: counts n pages down to that take.  Without that fault nothing is written,
 * because caches of several threads call this at the same time. */
static bool take_fails(uint32_t n)
{
    if (!kv_fault.fail_take) return false;
    bool fails = kv_fault.fail_take <= n;
    kv_fault.fail_take -= MIN(kv_fault.fail_take, n);
    return fails;
}

/* Makes sure that n more ids are usable, beside the ids in use and the promised ones.  Evicts kept contents if ids
 * run out. */
static int provide(struct kv *kv, struct pages *p, uint32_t n)
{
    if (kv->index.n) index_yield(kv, p, n);
    return take_fails(n) ? -1 : extend(p, (p->n_live + n) / KV_RUN);
}

uint32_t pages_take(struct kv *kv, struct pages *p, uint32_t after, uint32_t index)
{
    if (provide(kv, p, 1) < 0 || p->n_live + 1 >= p->n_ids) return 0; /* the rest is promised */
    return take_page(kv, p, after, index);
}

int no_page(const struct pages *p)
{
    return ERR(
        NOMEM,
        "cache: the system has no memory for another page of %zu bytes; lower cache_memory to what the system has",
        p->bytes);
}

static void promise(struct kv *kv, struct pages *p, struct stash *st, uint32_t n)
{
    p->n_live += n - st->n;
    count_free(kv, p, p->n_backed, p->n_promised + n - st->n);
    kv->reserved += n * p->bytes - st->n * p->bytes;
    st->n = n;
}

int pages_promise(struct kv *kv, struct pages *p, uint32_t slot, uint32_t n)
{
    struct stash *st = &kv->slot[slot].stash[p->index];
    if (n > st->n && provide(kv, p, n - st->n) < 0) return -1;
    promise(kv, p, st, n);
    return 0;
}

uint32_t stash_take(struct kv *kv, struct pages *p, uint32_t slot, uint32_t after, uint32_t index)
{
    struct stash *st = &kv->slot[slot].stash[p->index];
    if (!st->n) return pages_take(kv, p, after, index);
    promise(kv, p, st, st->n - 1);
    st->lent++;
    return take_page(kv, p, after, index);
}

void stash_end(struct kv *kv, uint32_t slot, bool undo)
{
    const struct slot *s = &kv->slot[slot];
    for (uint32_t i = 0; (s->reserve || s->marks) && i < FORMS * kv->n_groups; i++) {
        struct stash *st = &s->stash[i];
        if (undo) promise(kv, &kv->group[i / FORMS].form[i % FORMS], st, st->n + st->lent);
        st->lent = 0;
    }
}

/* Returns an id to the pool. */
static void id_give(struct kv *kv, struct pages *p, uint32_t id)
{
    struct id_run *run = &p->run[id / KV_RUN];
    list_unlink(p, id / KV_RUN);
    run->free |= (uint16_t)(1u << id % KV_RUN);
    list_link(p, id / KV_RUN);
    p->n_live--;
    if (p->page[id].spilled) {
        spill_forget(kv, p, id);
        return;
    }
    count_free(kv, p, p->n_backed + 1, p->n_promised);
    *bytes_of(kv, p) -= p->bytes;
    if (kv_fault.poison) poison(p, id);
}

void page_ref(struct kv *kv, struct pages *p, uint32_t id)
{
    struct page *pg = &p->page[id];
    pg->refs++;
    kv->max_refs = MAX(kv->max_refs, pg->refs);
    queue_update(kv, p, id);
}

void page_unref(struct kv *kv, struct pages *p, uint32_t id)
{
    struct page *pg = &p->page[id];
    pg->refs--;
    queue_update(kv, p, id);
    if (!pg->refs) id_give(kv, p, id);
}

/* True if no page with bytes in [from, to) of a site's range holds memory. */
static bool all_bare(const struct pages *p, size_t from, size_t to)
{
    for (size_t id = from / p->grain; id * p->grain < to; id++)
        if (id >= p->n_ids || p->run[id / KV_RUN].backed >> id % KV_RUN & 1 || !id) return false;
    return true;
}

/* Returns the memory of one page, which is no longer backed, to the device.  At every site this covers the whole
 * pages of the device inside the page.  It also covers device pages that the page shares only with pages that hold
 * no memory. */
static void give_back(struct pages *p, uint32_t id)
{
    size_t os = dev_page(p->dev), from = id * p->grain, to = from + p->grain;
    size_t lo = from / os * os, hi = (to + os - 1) / os * os;
    if (lo < from && !all_bare(p, lo, from)) lo += os;
    if (hi > to && !all_bare(p, to, hi)) hi -= os;
    for (uint32_t s = 0; s < p->n_sites && lo < hi; s++)
        (void)dev_range_set(p->dev, p->base + s * p->span + lo, hi - lo, DEV_RANGE_DROPPED);
    for (size_t i = lo / p->grain; lo < hi && i * p->grain < hi; i++)
        p->run[i / KV_RUN].bare |= (uint16_t)(1u << i % KV_RUN);
}

static void release(struct kv *kv, struct pages *p, uint32_t id)
{
    p->run[id / KV_RUN].backed &= (uint16_t) ~(1u << id % KV_RUN);
    count_free(kv, p, p->n_backed - 1, p->n_promised);
    give_back(p, id);
}

void page_leaves_memory(struct kv *kv, struct pages *p, uint32_t id)
{
    struct page *pg = &p->page[id];
    if (kv_fault.poison) poison(p, id);
    pg->spilled = true;
    p->n_spilled++;
    kv->live -= p->bytes;
    kv->stream.spilled += p->bytes;
    p->run[id / KV_RUN].backed &= (uint16_t) ~(1u << id % KV_RUN);
    if (!kv_fault.poison) give_back(p, id);
    queue_update(kv, p, id);
}

int page_comes_back(struct kv *kv, struct pages *p, uint32_t id)
{
    struct page *pg = &p->page[id];
    if (cover(p, id) < 0) return -1;
    pg->spilled = false;
    p->n_spilled--;
    kv->live += p->bytes;
    kv->stream.spilled -= p->bytes;
    p->run[id / KV_RUN].backed |= (uint16_t)(1u << id % KV_RUN);
    queue_update(kv, p, id);
    return 0;
}

void pages_regrain(struct kv *kv, struct pages *p, size_t grain)
{
    size_t os = dev_page(p->dev), was = p->bytes, old = p->fresh * KV_RUN * p->grain;
    uint32_t live = p->n_live - p->n_promised, backed = 0;
    count_free(kv, p, 0, p->n_promised); /* with the old size of a page */
    p->grain = grain;
    p->bytes = grain * p->n_sites;
    kv->live -= live * (was - p->bytes);
    kv->reserved -= p->n_promised * (was - p->bytes);
    /* The new address of a free page lies in memory that some page has used, so all free pages are backed. */
    for (uint32_t r = 0; r < p->fresh; r++) {
        p->run[r].backed |= p->run[r].free;
        p->run[r].bare = 0;
        backed += (uint32_t)__builtin_popcount(p->run[r].free);
    }
    count_free(kv, p, backed, p->n_promised);
    size_t from = (p->fresh * KV_RUN * grain + os - 1) / os * os, to = old / os * os;
    for (uint32_t s = 0; s < p->n_sites && from < to; s++)
        (void)dev_range_set(p->dev, p->base + s * p->span + from, to - from, DEV_RANGE_DROPPED);
    p->huge = MIN(p->huge, p->fresh * KV_RUN * grain);
}

static void trim_form(struct kv *kv, struct pages *p)
{
    for (uint32_t i = 0; i < p->fresh && p->n_backed > p->n_promised; i++) {
        uint32_t r = p->hand++ % p->fresh;
        for (uint32_t m = p->run[r].free & p->run[r].backed; m; m &= m - 1) {
            release(kv, p, r * KV_RUN + (uint32_t)__builtin_ctz(m));
            if (pool_held(kv) + kv->backed <= kv->pool) return;
        }
    }
}

void pool_trim(struct kv *kv)
{
    for (uint32_t g = 0; g < kv->n_groups; g++)
        for (uint32_t f = 0; f < FORMS; f++) {
            if (pool_held(kv) + kv->backed <= kv->pool) return;
            trim_form(kv, &kv->group[g].form[f]);
        }
}
