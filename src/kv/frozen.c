/* frozen.c - frozen rows shared between sequences that were given the same input.
 *
 * The rows of frozen groups depend only on the source and the adapter in a sequence's salt.  So a sequence without rows can
 * take the frozen rows of another sequence, live or kept, if both have the same owner, source and adapter.  The text of the
 * other sequence does not matter. */
#include "kv/frozen.h"

#include <string.h>

bool frozen_known(const struct seq *s)
{
    static const uint8_t none[KV_DIGEST];
    return memcmp(s->salt.source, none, sizeof none) != 0;
}

const struct seq *frozen_donor(const struct kv *kv, const struct seq *s)
{
    for (struct seq *d = seq_each(kv, NULL); d; d = seq_each(kv, d))
        if (d != s && d->cross && (d->owners || d->kept) && !d->busy && !d->foreign &&
            memcmp(d->salt.source, s->salt.source, KV_DIGEST) == 0 &&
            memcmp(d->salt.adapter, s->salt.adapter, KV_DIGEST) == 0 &&
            memcmp(d->salt.owner, s->salt.owner, KV_DIGEST) == 0)
            return d;
    return NULL;
}

/* Gives up the frozen pages. */
static void thaw(struct kv *kv, struct seq *s)
{
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        if (g->c.policy.kind != KV_FROZEN) continue;
        for (uint32_t f = 0; f < FORMS; f++) {
            cells_drop(kv, s, gi, f, 0, table_used(g, f, s->cross));
            s->g[gi].cut[f] = table_first(g, f);
        }
        s->g[gi].unseen = s->g[gi].raw_unseen = 0;
    }
    s->cross = 0;
}

int kv_adopt(struct kv *kv, kv_seq handle, uint32_t *rows)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    if (s->len || s->cross)
        return ERR(ARG, "cache: only an empty sequence can share frozen rows, and %#x has %u rows",
                   handle, s->len + s->cross);
    *rows = 0;
    if (!kv->index.on || !frozen_known(s)) return 0;
    struct seq *d = (struct seq *)(uintptr_t)frozen_donor(kv, s);
    if (!d) return 0;
    uint32_t slot = slot_index(kv, handle);
    s = edit(kv, slot);
    s->cross = d->cross;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        if (kv->group[gi].c.policy.kind == KV_FROZEN) cells_share(kv, d, s, gi);
    index_wanted(kv, d);
    /* Without room nothing is shared, which is no error: the caller can write the rows itself. */
    if (edited(kv, slot, "sharing frozen rows") < 0) {
        thaw(kv, edit(kv, slot));
        return edited(kv, slot, NULL);
    }
    *rows = s->cross;
    kv->index.hits++;
    return 0;
}

int kv_thaw(struct kv *kv, kv_seq handle)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    if (s->len)
        return ERR(ARG, "cache: the frozen rows of a sequence with %u others cannot be dropped",
                   s->len);
    uint32_t slot = slot_index(kv, handle);
    s = edit(kv, slot);
    thaw(kv, s);
    memset(s->salt.source, 0, sizeof s->salt.source);
    return edited(kv, slot, NULL);
}
