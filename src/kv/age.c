/* age.c - the oldest snapshot of all live contents, which is evicted first.
 *
 * Order.  Snapshots are evicted in the order of their stamps.  A copy of contents has the stamps
 * of the original.  Of equal stamps, that of the contents with the lower index comes first.  The
 * snapshots of one sequence and group are in the order of their stamps.  So contents compete with
 * one stamp, that of their oldest snapshot.
 *
 * Excluded.  Snapshots of pinned contents and of contents in the open step are not evicted.
 * Snapshots that the eviction plan being made has chosen (doomed) do not compete again.
 *
 * Cost.  A choice compares one number of each of the contents, which lie side by side.  It does not depend on the number of
 * snapshots or of their pages, and a change of contents writes one number (bench/keeps.c). */
#include "kv/kv_int.h"

#include <stdio.h>

#define NEVER UINT64_MAX /* stamp of contents without a snapshot that may be evicted */

int age_arrays(struct kv *kv)
{
    struct ages *a = &kv->ages;
    bool any = false;
    for (uint32_t i = 0; i < kv->n_groups; i++)
        any |= kv->group[i].forgets && kv->group[i].c.policy.every;
    if (!any) return 0;
    uint32_t n = kv->n_contents;
    TRY(kv_array(kv, &a->stamp, n, sizeof *a->stamp));
    return kv_array(kv, &a->doomed, n, sizeof *a->doomed);
}

void age_open(struct kv *kv)
{
    for (uint32_t i = 0; kv->ages.stamp && i < kv->n_contents; i++)
        kv->ages.stamp[i] = NEVER;
}

/* Returns the stamp of the oldest snapshot of s that may be evicted, and its place. */
static uint64_t oldest_of(const struct kv *kv, const struct seq *s, uint32_t *gi, uint32_t *i)
{
    uint64_t best = NEVER;
    if (s->pinned) return NEVER;
    for (uint32_t k = 0; k < kv->n_groups; k++) {
        const struct seq_group *sg = &s->g[k];
        uint32_t at = 0;
        while (at < sg->n_keeps && sg->keep[at].doomed)
            at++;
        if (at == sg->n_keeps || sg->keep[at].stamp >= best) continue;
        best = sg->keep[at].stamp;
        *gi = k;
        *i = at;
    }
    return best;
}

void age_update(struct kv *kv, const struct seq *s)
{
    struct ages *a = &kv->ages;
    uint32_t gi, i;
    if (!a->stamp || s->id >= kv->n_contents) return; /* kept contents are evicted whole */
    if (!kv_fault.stale_age) a->stamp[s->id] = oldest_of(kv, s, &gi, &i);
}

void age_pin(struct kv *kv, struct seq *s, bool pin)
{
    s->pinned = pin;
    age_update(kv, s);
}

/* Finds the oldest snapshot by comparing all of them, for tests. */
static struct keep *walk_snapshots(const struct kv *kv)
{
    struct keep *best = NULL;
    for (uint32_t k = 0; k < kv->n_contents; k++) {
        const struct seq *s = &kv->seq[k];
        if (!(s->owners + s->marks) || s->pinned) continue;
        for (uint32_t gi = 0; gi < kv->n_groups; gi++)
            for (uint32_t i = 0; i < s->g[gi].n_keeps; i++) {
                struct keep *c = &s->g[gi].keep[i];
                if (!c->doomed && (!best || c->stamp < best->stamp)) best = c;
            }
    }
    return best;
}

struct seq *age_oldest(struct kv *kv, uint32_t *gi, uint32_t *i)
{
    struct ages *a = &kv->ages;
    struct seq *s = NULL;
    uint64_t least = NEVER;
    for (uint32_t k = 0; a->stamp && k < kv->n_contents; k++)
        if (a->stamp[k] < least) {
            least = a->stamp[k];
            s = &kv->seq[k];
        }
    if (s && oldest_of(kv, s, gi, i) == NEVER) s = NULL;
    if (!a->stamp || !kv_fault.walk_ages) return s;
    a->walked++;
    a->strayed += walk_snapshots(kv) != (s ? &s->g[*gi].keep[*i] : NULL);
    return s;
}

void age_doom(struct kv *kv, struct seq *s, uint32_t gi, uint32_t i)
{
    if (!s->n_doomed++) kv->ages.doomed[kv->ages.n_doomed++] = s->id;
    s->g[gi].keep[i].doomed = true;
    age_update(kv, s);
}

/* --- Checks ----------------------------------------------------------------------------------- */

bool age_check(const struct kv *kv)
{
    const struct ages *a = &kv->ages;
    uint32_t gi = 0, i = 0;
    if (a->n_doomed) return wrong("doomed snapshots", a->n_doomed, 0);
    for (uint32_t k = 0; k < kv->n_contents; k++) {
        const struct seq *s = &kv->seq[k];
        if (s->n_doomed || (s->pinned && !s->busy))
            return wrong("doomed or pinned", k, s->n_doomed);
        for (gi = 0; gi < kv->n_groups; gi++)
            for (i = 1; i < s->g[gi].n_keeps; i++)
                if (s->g[gi].keep[i].stamp <= s->g[gi].keep[i - 1].stamp)
                    return wrong("ages of snapshots", k, i);
        if (a->stamp && a->stamp[k] != oldest_of(kv, s, &gi, &i))
            return wrong("age of the oldest snapshot", k, gi);
    }
    return true;
}
