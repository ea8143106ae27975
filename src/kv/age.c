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
 * Cost.  A tournament has a leaf for each of the contents, and in each node above the winner of its
 * two children.  A change of contents replays the matches of one leaf: at most 12 for 4 096
 * contents, whatever the number of snapshots. */
#include "kv/kv_int.h"

#include <stdio.h>

#define NEVER UINT64_MAX /* stamp of contents without a snapshot that may be evicted */

/* Returns the contents that won in node i; nodes n_contents and above are the leaves. */
static uint32_t winner(const struct kv *kv, uint32_t i)
{
    return i < kv->n_contents ? kv->ages.winner[i] : i - kv->n_contents;
}

static uint32_t match(const struct kv *kv, uint32_t node)
{
    const uint64_t *stamp = kv->ages.stamp;
    uint32_t a = winner(kv, 2 * node), b = winner(kv, 2 * node + 1);
    if (stamp[a] == stamp[b]) return MIN(a, b);
    return stamp[a] < stamp[b] ? a : b;
}

int age_arrays(struct kv *kv)
{
    struct ages *a = &kv->ages;
    bool any = false;
    for (uint32_t i = 0; i < kv->n_groups; i++)
        any |= kv->group[i].forgets && kv->group[i].c.policy.every;
    if (!any) return 0;
    uint32_t n = kv->n_contents;
    TRY(kv_array(kv, &a->stamp, n, sizeof *a->stamp));
    TRY(kv_array(kv, &a->winner, n, sizeof *a->winner));
    return kv_array(kv, &a->doomed, n, sizeof *a->doomed);
}

void age_open(struct kv *kv)
{
    struct ages *a = &kv->ages;
    if (!a->stamp) return;
    for (uint32_t i = 0; i < kv->n_contents; i++)
        a->stamp[i] = NEVER;
    for (uint32_t i = kv->n_contents - 1; i >= 1; i--)
        a->winner[i] = match(kv, i);
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
    uint32_t gi, i, k = s->id;
    if (!a->stamp || k >= kv->n_contents) return; /* kept contents are evicted whole */
    uint64_t stamp = oldest_of(kv, s, &gi, &i);
    if (stamp == a->stamp[k] || kv_fault.stale_age) return;
    a->stamp[k] = stamp;
    for (uint32_t node = (k + kv->n_contents) / 2; node; node /= 2) {
        uint32_t w = match(kv, node);
        /* nodes above see this change only if these contents win here or won here before */
        if (w == a->winner[node] && w != k) return;
        a->winner[node] = w;
    }
}

void age_pin(struct kv *kv, struct seq *s, bool pin)
{
    s->pinned = pin;
    age_update(kv, s);
}

/* Finds the oldest snapshot by comparing all of them, for tests. */
static struct keep *walk(const struct kv *kv)
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
    if (!a->stamp) return NULL;
    struct seq *s = &kv->seq[winner(kv, 1)];
    if (a->stamp[s->id] == NEVER || oldest_of(kv, s, gi, i) == NEVER) s = NULL;
    if (!kv_fault.walk_ages) return s;
    a->walked++;
    a->strayed += walk(kv) != (s ? &s->g[*gi].keep[*i] : NULL);
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
    for (uint32_t node = kv->n_contents - 1; a->stamp && node; node--)
        if (a->winner[node] != match(kv, node)) return wrong("older", node, a->winner[node]);
    return true;
}
