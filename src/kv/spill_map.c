/* spill_map.c - reading spilled pages where they are: in a mapping of the tier, instead of copies.
 *
 * Place.  The tier has the address space of the arena.  It is mapped behind the arena, at a distance that
 * is a multiple of every grain.  So a spilled page has an id of its own there, and a view keeps its
 * base and its grain.
 *
 * Ready.  A site is read in place if all its spilled pages can be read without waiting.  Such pages lie
 * in the page cache of the system, and a step pays no copy for them.  The pages of other sites pass
 * through the staging area (stage.c), where a read error is an error and not a signal.
 *
 * Ahead.  As soon as one page was not ready, the system is asked for the pages of the sites that follow.
 * Order and contents are known, because each step reads all sites in order; behind the last site follow
 * those of the next step.  The system may give up what it has read before the next step comes, so that step asks
 * for it again.  This costs system calls, so nothing is asked for while all is ready. */
#include "base/trace.h"
#include "kv/kv_int.h"

#include <unistd.h>

/* Bytes to read ahead: some milliseconds of a fast disk. */
#define AHEAD ((size_t)16 << 20)
#define TOP                                                                                        \
    ((size_t)1                                                                                     \
     << 46) /* limit of the distance to the mapping, less than the address space of a process */

size_t window_distance(const struct kv *kv, const struct kv_tier *tier)
{
    const struct stream *st = &kv->stream;
    size_t step = (size_t)sysconf(_SC_PAGESIZE);
    if (!tier || !tier->map) return 0;
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++) {
        const struct group *g = &kv->group[i / FORMS];
        size_t grain = g->form[i % FORMS].grain, a = grain, b = step;
        if (!g->moves[i % FORMS]) continue;
        while (b) {
            size_t rest = a % b;
            a = b;
            b = rest;
        }
        if (!ck_mul(step, grain / a, &step) || step > TOP) return 0;
    }
    size_t window = (st->arena_bytes + step - 1) / step * step;
    return window <= TOP ? window : 0;
}

void window_open(struct kv *kv, struct kv_tier *tier)
{
    struct stream *st = &kv->stream;
    st->direct = KV_NONE;
    for (uint32_t i = 0; st->window && i < FORMS * kv->n_groups; i++) {
        const struct pages *p = &kv->group[i / FORMS].form[i % FORMS];
        if (kv->group[i / FORMS].moves[i % FORMS] && st->window / p->grain > UINT32_MAX - p->n_ids)
            st->window = 0; /* no mapping: views name pages by 32 bits */
    }
    if (!st->window) return;
    const size_t bytes = st->arena_bytes - 2 * st->half;
    if (tier->map(tier, st->arena + st->window, bytes) != 0) st->window = 0;
}

static size_t site_bytes(const struct group *g)
{
    size_t sum = 0;
    for (uint32_t k = 0; k < g->n_pieces; k++)
        sum += (g->piece[k + 1].first - g->piece[k].first) * g->form[g->piece[k].form].grain;
    return sum;
}

/* Visits the spilled pages of a site, adjacent ones together.  With `ask` it asks the system to read them.  Else it
 * returns true if all of them can be read without waiting. */
static bool site_pages(struct kv *kv, uint32_t site, bool ask)
{
    const struct group *g = &kv->group[kv->site_group[site]];
    struct kv_tier *tier = kv->stream.tier;
    for (uint32_t k = 0; k < g->n_pieces; k++) {
        const struct pages *p = &g->form[g->piece[k].form];
        for (uint32_t i = g->piece[k].first, n = 0; i < g->piece[k + 1].first; i += n) {
            uint32_t id = g->staged[i];
            for (n = 1; i + n < g->piece[k + 1].first && g->staged[i + n] == id + n;)
                n++;
            uint64_t at = (uint64_t)(page_at(p, site - g->c.site0, id) - kv->stream.arena);
            if (ask)
                tier->ahead(tier, at, n * p->grain);
            else if (!tier->ready(tier, at, n * p->grain))
                return false;
        }
    }
    return true;
}

/* Asks the system to read the pages of sites, from the i-th of the order on.  After the last site it continues with
 * the first, for the next step. */
static void ask_ahead(struct kv *kv, uint32_t i)
{
    struct stream *st = &kv->stream;
    uint64_t r = st->passed + i;
    for (size_t sum = 0; sum < AHEAD && r < st->passed + i + kv->n_sites; r++) {
        uint32_t site = st->order[r % kv->n_sites];
        if (r >= st->ahead) {
            const double begun = trace_now();
            (void)site_pages(kv, site, true);
            trace_add(TRACE_FETCH, "ask ahead", begun, site,
                      site_bytes(&kv->group[kv->site_group[site]]));
            st->ahead = r + 1;
        }
        sum += site_bytes(&kv->group[kv->site_group[site]]);
    }
}

void window_look(struct kv *kv, uint32_t site)
{
    struct stream *st = &kv->stream;
    if (!st->window) return;
    const double begun = trace_now();
    bool ready = site_pages(kv, site, false);
    trace_add(TRACE_WAIT, ready ? "in place" : "not ready", begun, site, 0);
    if (!ready) st->cold = st->missed = true;
    if (st->cold) ask_ahead(kv, st->rank[site]);
    st->direct = ready ? site : KV_NONE;
    if (ready) st->bytes_read += site_bytes(&kv->group[kv->site_group[site]]);
}

bool window_step(struct kv *kv)
{
    struct stream *st = &kv->stream;
    st->passed += kv->n_sites;
    st->cold = st->missed;
    st->missed = false;
    st->ahead = MIN(st->ahead, st->passed);
    if (st->window && st->cold) ask_ahead(kv, 0);
    return st->window && !st->cold;
}
