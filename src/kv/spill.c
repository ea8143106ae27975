/* spill.c - which pages are in memory.  Pages of stream groups leave memory for the tier when a
 * step needs their room, and return only to be written again.
 *
 * Places.  A page keeps its id wherever it is.  In the tier its bytes lie at the page's address in
 * the arena, so neighbours in memory are neighbours there.
 *
 * What may leave, and in which order: see queue.c.
 *
 * Leaving takes no memory, because transfers read the page in place.  The bytes of freed pages in
 * the tier are dropped in batches. */
#include "base/trace.h"
#include "kv/kv_int.h"

#include <string.h>

static uint64_t tier_address(const struct kv *kv, const struct pages *p, uint32_t site, uint32_t id)
{
    return (uint64_t)(page_at(p, site, id) - kv->stream.arena);
}

size_t spill_can(const struct kv *kv)
{
    if (!kv->stream.active || kv->step.open) return 0;
    return kv->stream.queued - MIN(kv->stream.queued, kv->stream.doomed);
}

/* Moves the bytes of pages [id, id + n) between the tier and memory.  In memory, the bytes of neighbouring sites are
 * `span` bytes apart.  host: `mem` is memory of the host. */
static int move(struct kv *kv, const struct pages *p, uint32_t id, uint32_t n, unsigned char *mem,
                size_t span, bool write, bool host)
{
    struct stream *st = &kv->stream;
    struct kv_io *io = st->load[0].io;
    size_t bytes = n * p->grain;
    for (uint32_t site = 0; site < p->n_sites;) {
        uint32_t k = 0;
        for (; k < KV_TIER_DEPTH && site < p->n_sites; k++, site++)
            io[k] = (struct kv_io){.mem = mem + site * span,
                                   .at = tier_address(kv, p, site, id),
                                   .n = bytes,
                                   .write = write,
                                   .host = host};
        TRY(st->tier->start(st->tier, io, k));
        TRY(st->tier->finish(st->tier, io, k));
        *(write ? &st->bytes_written : &st->bytes_read) += k * bytes;
    }
    return 0;
}

int spill_copy(struct kv *kv, struct pages *p, uint32_t from, uint32_t to)
{
    return move(kv, p, from, 1, page_at(p, 0, to), p->span, false, false);
}

static void stale_set(struct kv *kv, struct pages *p, uint32_t id, bool stale)
{
    uint16_t bit = (uint16_t)(1u << id % KV_RUN), *mask = &p->run[id / KV_RUN].stale;
    if (!(*mask & bit) == !stale) return;
    *mask ^= bit;
    if (stale) {
        p->n_stale++;
        kv->stream.stale += p->bytes;
    } else {
        p->n_stale--;
        kv->stream.stale -= p->bytes;
    }
}

/* Picks or unpicks a page.  Picked pages are not in the queue. */
static void set_picked(struct kv *kv, struct pages *p, uint32_t id, bool picked)
{
    p->page[id].picked = picked;
    queue_update(kv, p, id);
}

/* Picks the pages that leave next until at least `bytes` are picked, or no page is left.  Chains
 * the picked pages of each form. */
static void pick_out(struct kv *kv, size_t bytes)
{
    struct pages *p;
    uint32_t id = 0;
    for (size_t got = 0; got < bytes && (p = queue_next(kv, &id)); got += p->bytes) {
        set_picked(kv, p, id, true);
        p->queue.at[id].next = p->queue.picked;
        p->queue.picked = id;
    }
}

/* Writes a run of picked pages and frees their memory. */
static int write_run(struct kv *kv, struct pages *p, uint32_t id, uint32_t n)
{
    int e = kv_fault.forget_write ? 0 : move(kv, p, id, n, page_at(p, 0, id), p->span, true, false);
    for (uint32_t i = id; i < id + n && e >= 0; i++) {
        page_leaves_memory(kv, p, i);
        stale_set(kv, p, i, false);
    }
    return e;
}

/* Writes the picked pages of a form, adjacent ids together.  After an error the rest stays in
 * memory. */
static int write_picked(struct kv *kv, struct pages *p)
{
    int e = 0;
    for (uint32_t id = p->queue.picked, next; id; id = next) {
        uint32_t from = id, to = id + 1;
        next = p->queue.at[id].next;
        if (!p->page[id].picked) continue; /* already written together with a neighbour */
        while (p->page[from - 1].picked)
            from--;
        while (to < p->n_ids && p->page[to].picked)
            to++;
        if (e >= 0) e = write_run(kv, p, from, to - from);
        for (uint32_t i = from; i < to; i++)
            p->page[i].picked = false;
    }
    return e;
}

int spill_out(struct kv *kv, size_t bytes)
{
    const double begun = trace_now();
    const uint64_t written = kv->stream.bytes_written;
    int e = 0;
    pick_out(kv, bytes);
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        struct pages *p = &kv->group[n / FORMS].form[n % FORMS];
        if (!p->queue.picked) continue;
        int e2 = write_picked(kv, p);
        if (e >= 0) e = e2;
        for (uint32_t id = p->queue.picked, next; id; id = next) { /* unpicks the pages that stay */
            next = p->queue.at[id].next;
            queue_update(kv, p, id);
        }
        p->queue.picked = 0;
    }
    kv->stream.began |= kv->stream.spilled > 0;
    trace_add(TRACE_WAIT, "evict", begun, KV_NONE, kv->stream.bytes_written - written);
    return e;
}

int spill_back(struct kv *kv, struct pages *p, uint32_t id)
{
    if (page_comes_back(kv, p, id) < 0)
        return ERR(NOMEM,
                   "cache: the system has no memory for a page that comes back from the tier");
    int e = kv_fault.stale_open ? 0 : spill_copy(kv, p, id, id);
    if (e < 0)
        page_leaves_memory(kv, p, id);
    else
        stale_set(kv, p, id, true);
    return e;
}

int spill_read(struct kv *kv, const struct pages *p, uint32_t id, unsigned char *out)
{
    /* The open step of another sequence may have reads in flight.  Their records lie in the memory that `move` uses.
     * So the reads end here, and the step starts them again. */
    stage_end(kv);
    return move(kv, p, id, 1, out, p->grain, false, true);
}

/* Drops all stale bytes of one form, run by run. */
static void drop_stale(struct kv *kv, struct pages *p)
{
    struct kv_tier *tier = kv->stream.tier;
    for (uint32_t id = 1, n; id < p->n_ids && p->n_stale; id += n) {
        for (n = 0; id + n < p->n_ids; n++) {
            if (!(p->run[(id + n) / KV_RUN].stale >> (id + n) % KV_RUN & 1)) break;
            stale_set(kv, p, id + n, false);
        }
        for (uint32_t site = 0; n && site < p->n_sites; site++)
            tier->drop(tier, tier_address(kv, p, site, id), n * p->grain);
        n += !n;
    }
}

void spill_forget(struct kv *kv, struct pages *p, uint32_t id)
{
    p->page[id].spilled = false;
    p->n_spilled--;
    kv->stream.spilled -= p->bytes;
    stale_set(kv, p, id, true);
    if (kv->stream.stale <= kv->pool + kv->stream.spilled) return;
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++)
        if (kv->group[n / FORMS].moves[n % FORMS])
            drop_stale(kv, &kv->group[n / FORMS].form[n % FORMS]);
}

/* Switches streaming on or off and refills the reserves.  A form that may leave memory needs only the pages of one
 * step in a reserve.  Other forms need all pages up to the reserved length. */
static void activate(struct kv *kv, bool on)
{
    kv->stream.active = on;
    for (uint32_t i = 0; i < kv->max_seqs; i++)
        if (kv->slot[i].used && kv->slot[i].reserve)
            kv->owing |= reserve_fill(kv, i, "a reserve") < 0;
}

bool spill_begin(struct kv *kv)
{
    if (!kv->stream.half || kv->stream.active || kv->step.open) return false;
    activate(kv, true);
    return true;
}

void spill_call_off(struct kv *kv)
{
    if (kv->stream.on_full && kv->stream.active && !kv->stream.began) activate(kv, false);
}

int spill_arrays(struct kv *kv, const struct kv_config *c)
{
    struct stream *st = &kv->stream;
    if (c->streaming == KV_RESIDENT) return 0;
    st->on_full = c->streaming == KV_STREAM_ON_FULL;
    st->active = !st->on_full;
    for (int i = 0; i < 2; i++)
        TRY(kv_array(kv, &st->load[i].io, KV_TIER_DEPTH, sizeof *st->load[i].io));
    return 0;
}
