/* usage.c - counts what a store holds.
 *
 * Every operation maintains the sums over pages in memory.  Two amounts are counted here, page by
 * page: the pages that several slots own through shared contents, and the pages that only the index
 * holds (kept contents and snapshots). */
#include "kv/kv_int.h"

#include <string.h>

/* Computes the cells [*a, *b) of a table that serve only a later match or trim: all cells of kept
 * contents, and of other contents those before the cursor. */
static void index_cells(const struct group *g, const struct seq *s, uint32_t gi, uint32_t f,
                        uint32_t *a, uint32_t *b)
{
    uint32_t end = table_used(g, f, seq_rows(g, s));
    *a = s->kept ? 0 : table_first(g, f);
    *b = s->kept ? end : g->c.policy.kind == KV_STATE ? 0 : MIN(end, s->g[gi].cut[f]);
}

struct counts {
    size_t index; /* bytes in memory that only the index holds */
    size_t ours;  /* bytes of pages of which exactly one reference is not the index's */
    /* bytes of such pages where that reference is from contents of several owners */
    size_t several;
};

/* Counts one more reference of the index in `seen`. */
static void count_ref(const struct pages *p, uint32_t id, struct counts *n)
{
    const struct page *pg = &p->page[id];
    uint32_t seen = ++p->seen[id];
    if (pg->spilled) return;
    if (seen == pg->refs) n->index += p->bytes;
    if (pg->refs > 1 && seen + 1 == pg->refs) n->ours += p->bytes;
}

static void count_index(const struct kv *kv, uint32_t gi, bool clear, struct counts *n)
{
    const struct group *g = &kv->group[gi];
    const struct seq *s = NULL;
    for (uint32_t i = 0; i % FORMS || (s = seq_each(kv, s)); i++) {
        uint32_t f = i % FORMS, a, b;
        const uint32_t *table = seq_table(kv, g, f, s);
        index_cells(g, s, gi, f, &a, &b);
        for (; a < b; a++) {
            if (clear) g->form[f].seen[table[a]] = 0;
            if (!clear && table[a]) count_ref(&g->form[f], table[a], n);
        }
        for (uint32_t k = 0; f == RAW && k < s->g[gi].n_keeps; k++) {
            uint32_t id = s->g[gi].keep[k].page;
            if (clear) g->form[RAW].seen[id] = 0;
            if (!clear && id) count_ref(&g->form[RAW], id, n);
        }
    }
}

/* Visits the pages of contents that several slots own.  With `out` it marks them there; with NULL it counts those
 * that no other contents hold, for which `seen` must hold the references of the index. */
static void several_owners(const struct kv *kv, uint32_t gi, uint32_t f, uint8_t *out,
                           struct counts *n)
{
    const struct group *g = &kv->group[gi];
    const struct pages *p = &g->form[f];
    for (const struct seq *s = kv->seq; s < kv->seq + kv->n_contents; s++) {
        uint32_t a, b, end = s->owners > 1 ? table_used(g, f, seq_rows(g, s)) : 0;
        const uint32_t *table = seq_table(kv, g, f, s);
        index_cells(g, s, gi, f, &a, &b);
        for (uint32_t i = 0; i < end; i++) {
            const struct page *pg = &p->page[table[i]];
            if (!table[i] || (i >= a && i < b)) continue;
            if (out)
                out[table[i]] |= KV_BLOCK_SHARED;
            else if (!pg->spilled && pg->refs - p->seen[table[i]] == 1)
                n->several += p->bytes;
        }
    }
}

uint32_t kv_store_blocks(const struct kv *kv, uint32_t group, uint32_t form)
{
    const struct pages *p = &kv->group[group].form[form];
    return p->n_ids ? MIN(p->fresh * KV_RUN, p->n_ids) : 0;
}

void kv_store_map(const struct kv *kv, uint32_t group, uint32_t form, uint8_t *out)
{
    const struct pages *p = &kv->group[group].form[form];
    struct counts n = {0};
    count_index(kv, group, false, &n);
    for (uint32_t id = 0; id < kv_store_blocks(kv, group, form); id++) {
        const struct page *pg = &p->page[id];
        uint32_t owners = pg->refs - p->seen[id];
        out[id] = 0;
        if (!id || !pg->refs) continue;
        out[id] = KV_BLOCK_HELD;
        if (form == SEALED) out[id] |= KV_BLOCK_ENCODED;
        if (pg->spilled) out[id] |= KV_BLOCK_SPILLED;
        if (!owners) out[id] |= KV_BLOCK_KEPT;
        if (owners > 1) out[id] |= KV_BLOCK_SHARED;
    }
    count_index(kv, group, true, NULL);
    several_owners(kv, group, form, out, NULL);
}

static void usage_owners(const struct kv *kv, struct kv_usage *out)
{
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        bool index = kv->index.n || (g->forgets && g->c.policy.every);
        struct counts n = {0};
        if (index) count_index(kv, gi, false, &n);
        for (uint32_t f = 0; f < FORMS; f++)
            several_owners(kv, gi, f, NULL, &n);
        if (index) count_index(kv, gi, true, NULL);
        out->index += n.index;
        out->shared += n.several;
        out->shared -= n.ours;
        *(g->c.policy.kind == KV_STATE ? &out->states : &out->live) -= n.index;
    }
    out->index += kv->index.room.used;
}

bool kv_streams(const struct kv *kv)
{
    return kv->stream.began;
}

void kv_usage(const struct kv *kv, struct kv_usage *out)
{
    *out = (struct kv_usage){.live = kv->live,
                             .shared = kv->shared,
                             .states = kv->states,
                             .reserved = kv->reserved,
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
                             .index_tables = kv->index.room.used,
                             .hits = kv->index.hits,
                             .hit_rows = kv->index.hit_rows,
                             .streaming = kv->stream.began,
                             .streaming_since = kv->stream.since,
                             .metadata = kv->fixed + kv->used,
                             .rung = kv->rung,
                             .rung_since = kv->rung_since};
    memcpy(out->encoded, kv->encoded, sizeof out->encoded);
    for (uint32_t i = 0; i < kv->n_contents; i++) {
        const struct seq *s = &kv->seq[i];
        out->rows += (uint64_t)s->owners * s->len;
    }
    usage_owners(kv, out);
    size_t used = pool_held(kv) - out->index;
    out->free = used < kv->pool ? kv->pool - used : 0;
}

void kv_usage_add(struct kv_usage *sum, const struct kv_usage *one)
{
    sum->live += one->live;
    sum->shared += one->shared;
    sum->states += one->states;
    sum->reserved += one->reserved;
    sum->free += one->free;
    sum->peak += one->peak;
    sum->pool += one->pool;
    sum->need += one->need;
    sum->seals += one->seals;
    sum->evictions += one->evictions;
    sum->forks += one->forks;
    sum->rows_copied += one->rows_copied;
    sum->rows_copied_by_fork += one->rows_copied_by_fork;
    sum->index += one->index;
    sum->index_tables += one->index_tables;
    sum->staging += one->staging;
    sum->spilled += one->spilled;
    sum->tier_read += one->tier_read;
    sum->tier_written += one->tier_written;
    sum->metadata += one->metadata;
    /* Every store counts the same sequences and rows. */
    sum->max_refs = MAX(sum->max_refs, one->max_refs);
    sum->seqs = MAX(sum->seqs, one->seqs);
    sum->rows = MAX(sum->rows, one->rows);
    sum->kept = MAX(sum->kept, one->kept);
    sum->hits = MAX(sum->hits, one->hits);
    sum->hit_rows = MAX(sum->hit_rows, one->hit_rows);
    for (uint32_t i = 0; i < KV_RUNGS; i++)
        sum->encoded[i] = MAX(sum->encoded[i], one->encoded[i]);
    sum->rung = MAX(sum->rung, one->rung);
    sum->rung_since = MAX(sum->rung_since, one->rung_since);
    sum->streaming |= one->streaming;
    sum->streaming_since = MAX(sum->streaming_since, one->streaming_since);
}
