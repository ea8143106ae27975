/* usage.c - what a store holds, counted for whoever asks.
 *
 * Pages in memory have sums that every operation keeps up.  What several slots own through shared contents, and
 * what only the index holds (kept contents, and checkpoints), is counted here, page by page. */
#include "kv/kv_int.h"

/* Bytes in memory that one contents of several owners alone hold. */
static size_t joint_bytes(const struct kv *kv, const struct seq *s)
{
    size_t sum = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        for (uint32_t f = 0; f < FORMS; f++) {
            const struct pages *p = &g->form[f];
            const uint32_t *table = seq_table(kv, g, f, s);
            for (uint32_t i = 0; i < table_used(g, f, seq_rows(g, s)); i++)
                if (p->page[table[i]].refs == 1 && !p->page[table[i]].spilled) sum += p->bytes;
        }
        for (uint32_t i = 0; i < s->g[gi].n_keeps; i++)
            if (g->form[RAW].page[s->g[gi].keep[i].page].refs == 1) sum += g->form[RAW].bytes;
    }
    return sum;
}

/* Counts, in `seen`, the references to pages of one group that only serve going on from earlier rows: all of kept
 * contents, and of others the pages before the cursor.  clear: makes them 0 again; else returns the bytes in
 * memory that no other reference holds. */
static size_t kept_bytes(const struct kv *kv, uint32_t gi, bool clear)
{
    const struct group *g = &kv->group[gi];
    size_t sum = 0;
    for (uint32_t n = 0; n < FORMS * kv->n_contents; n++) {
        const struct seq *s = &kv->seq[n / FORMS];
        uint32_t f = n % FORMS, first = table_first(g, f), end = table_used(g, f, seq_rows(g, s));
        const struct pages *p = &g->form[f];
        const uint32_t *table = seq_table(kv, g, f, s);
        bool state = g->c.policy.kind == KV_STATE;
        if (!s->kept) end = state ? 0 : MIN(end, s->g[gi].cut[f]);
        for (uint32_t i = s->kept ? 0 : first; i < end; i++) {
            if (clear) p->seen[table[i]] = 0;
            if (clear || !table[i]) continue;
            if (++p->seen[table[i]] == p->page[table[i]].refs && !p->page[table[i]].spilled)
                sum += p->bytes;
        }
        for (uint32_t i = 0; f == RAW && i < s->g[gi].n_keeps; i++) {
            uint32_t id = s->g[gi].keep[i].page;
            if (clear) p->seen[id] = 0;
            if (!clear && id && ++p->seen[id] == p->page[id].refs) sum += p->bytes;
        }
    }
    return sum;
}

static void usage_index(const struct kv *kv, struct kv_usage *out)
{
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        if (!kv->index.n && !(g->forgets && g->c.policy.every)) continue;
        size_t bytes = kept_bytes(kv, gi, false);
        (void)kept_bytes(kv, gi, true);
        out->index += bytes;
        *(g->c.policy.kind == KV_STATE ? &out->states : &out->live) -= bytes;
    }
}

void kv_usage(const struct kv *kv, struct kv_usage *out)
{
    *out = (struct kv_usage){.live = kv->live,
                             .shared = kv->shared,
                             .states = kv->states,
                             .reserved = kv->pledged + kv->mark_debt,
                             .peak = kv->peak,
                             .pool = kv->pool,
                             .need = kv->need,
                             .seals = kv->seals,
                             .evictions = kv->evictions,
                             .forks = kv->forks,
                             .rows_copied = kv->rows_copied,
                             .rows_copied_by_fork = kv->rows_copied_by_fork,
                             .max_refs = kv->max_refs,
                             .seqs = kv->max_seqs - kv->n_idle,
                             .staging = staging_bytes(kv),
                             .spilled = kv->stream.spilled,
                             .tier_read = kv->stream.bytes_read,
                             .tier_written = kv->stream.bytes_written,
                             .kept = kv->index.n,
                             .hits = kv->index.hits,
                             .hit_rows = kv->index.hit_rows,
                             .streaming = kv->stream.began,
                             .streaming_since = kv->stream.since};
    for (uint32_t i = 0; i < kv->n_contents; i++) {
        const struct seq *s = &kv->seq[i];
        out->rows += (uint64_t)s->owners * s->len;
        if (s->owners > 1) out->shared += joint_bytes(kv, s);
    }
    usage_index(kv, out);
    size_t used = pool_used(kv) - out->index;
    out->free = used < kv->pool ? kv->pool - used : 0;
}
