/* usage.c - counts what a store holds, and what one sequence holds, page by page.
 *
 * Every operation maintains the sums over pages in memory.  Two amounts are counted here, page by
 * page: the pages that several slots own, and the pages that nobody owns, because only the index
 * holds them (kept contents and snapshots). */
#include "kv/kv_int.h"

#include <string.h>

/* Adds to `seen` of each page its number of owners minus its references (modulo 2^32).  A reference that serves only
 * a later match or trim is no owner.  A reference of contents with several owners counts as all of them. */
static void count_owners(const struct kv *kv, uint32_t gi, uint32_t f)
{
    const struct group *g = &kv->group[gi];
    uint32_t *seen = g->form[f].seen;
    for (const struct seq *s = NULL; (s = seq_each(kv, s));) {
        const uint32_t *table = seq_table(kv, g, f, s);
        uint32_t end = table_used(g, f, seq_rows(g, s)), a = s->kept ? 0 : table_first(g, f);
        uint32_t b = s->kept ? end : g->c.policy.kind == KV_STATE ? 0 : MIN(end, s->g[gi].cut[f]);
        for (uint32_t i = s->owners > 1 ? 0 : a; i < (s->owners > 1 ? end : b); i++)
            seen[table[i]] += i >= a && i < b ? UINT32_MAX : s->owners - 1;
        for (uint32_t k = 0; f == RAW && k < s->g[gi].n_keeps; k++)
            seen[s->g[gi].keep[k].page] += UINT32_MAX;
    }
}

/* Returns the number of a page's owners, and resets its count. */
static uint32_t owners_of(const struct pages *p, uint32_t id)
{
    uint32_t n = p->page[id].refs + p->seen[id];
    p->seen[id] = 0;
    return n;
}

/* Returns where a page with this number of owners is, as a set of KV_BLOCK_ bits. */
static uint32_t place_of(const struct page *pg, uint32_t form, uint32_t owners)
{
    return KV_BLOCK_HELD | (form == SEALED ? KV_BLOCK_ENCODED : 0u) |
           (pg->spilled ? KV_BLOCK_SPILLED : 0u) | (owners > 1 ? KV_BLOCK_SHARED : 0u) |
           (owners ? 0u : KV_BLOCK_KEPT);
}

uint32_t kv_store_blocks(const struct kv *kv, uint32_t group, uint32_t form)
{
    const struct pages *p = &kv->group[group].form[form];
    return p->n_ids ? MIN(p->fresh * KV_RUN, p->n_ids) : 0;
}

void kv_store_map(const struct kv *kv, uint32_t group, uint32_t form, uint8_t *out)
{
    const struct pages *p = &kv->group[group].form[form];
    count_owners(kv, group, form);
    for (uint32_t id = 0; id < kv_store_blocks(kv, group, form); id++) {
        uint32_t owners = owners_of(p, id);
        bool used = id && p->page[id].refs;
        out[id] = used ? (uint8_t)place_of(&p->page[id], form, owners) : 0;
    }
}

static void usage_owners(const struct kv *kv, struct kv_usage *out)
{
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        const struct pages *p = &kv->group[n / FORMS].form[n % FORMS];
        size_t index = 0;
        count_owners(kv, n / FORMS, n % FORMS);
        for (uint32_t id = 0; id < kv_store_blocks(kv, n / FORMS, n % FORMS); id++) {
            uint32_t owners = owners_of(p, id);
            if (!id || !p->page[id].refs || p->page[id].spilled) continue;
            if (!owners) index += p->bytes;
            if (owners > 1) out->shared += p->bytes;
        }
        out->index += index;
        *(p->state ? &out->states : &out->live) -= index;
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
                             .states = kv->states,
                             .reserved = kv->reserved,
                             .peak = kv->peak,
                             .pool = kv->pool,
                             .need = kv->need,
                             .seals = kv->seals,
                             .evictions = kv->evictions,
                             .forks = kv->forks,
                             .rows_copied = kv->rows_copied,
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
        out->rows += (uint64_t)s->owners * seq_place(s);
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
    sum->index += one->index;
    sum->index_tables += one->index_tables;
    sum->staging += one->staging;
    sum->spilled += one->spilled;
    sum->tier_read += one->tier_read;
    sum->tier_written += one->tier_written;
    sum->metadata += one->metadata;
    /* all stores have the same sequences and rows */
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

static void add_page(const struct seq *s, const struct pages *p, uint32_t id,
                     struct kv_survey_form *f)
{
    const struct page *pg = &p->page[id];
    uint32_t refs = pg->refs + s->owners - 1;
    f->pages++;
    f->bytes += p->bytes;
    if (refs > 1) {
        f->shared++;
        f->shared_bytes += p->bytes;
    }
    if (pg->spilled) {
        f->spilled++;
        f->spilled_bytes += p->bytes;
    }
}

int kv_survey(const struct kv *kv, kv_seq handle, uint32_t group, struct kv_survey *out)
{
    struct seq *s;
    TRY(seq_find(kv, handle, &s));
    if (group >= kv->n_groups) return ERR(ARG, "cache: there is no group %u", group);
    const struct group *g = &kv->group[group];
    *out = (struct kv_survey){.rows = seq_rows(g, s),
                              .block_rows = g->rows[RAW],
                              .tile_rows = has_form(g, SEALED) ? g->rows[SEALED] : 1,
                              .keeps = s->g[group].n_keeps,
                              .page = {g->form[RAW].bytes, g->form[SEALED].bytes},
                              .reserved = kv->slot[s->slot].reserve};
    out->blocks = table_used(g, RAW, out->rows);
    for (uint32_t f = 0; f < FORMS; f++) {
        const uint32_t *table = seq_table(kv, g, f, s);
        uint32_t n = table_used(g, f, out->rows);
        for (uint32_t i = 0; i < n; i++)
            if (table[i]) add_page(s, &g->form[f], table[i], &out->form[f]);
    }
    return 0;
}

enum kv_place kv_survey_block(const struct kv *kv, kv_seq handle, uint32_t group, uint32_t block)
{
    struct seq *s;
    if (seq_find(kv, handle, &s) < 0 || group >= kv->n_groups) return KV_BLOCK_GONE;
    const struct group *g = &kv->group[group];
    uint32_t rows = seq_rows(g, s), at = 0, form = RAW;
    if (block < table_used(g, RAW, rows)) at = seq_table(kv, g, RAW, s)[block];
    if (!at && has_form(g, SEALED)) {
        uint32_t tile = block * g->rows[RAW] / g->rows[SEALED];
        form = SEALED;
        if (tile < table_used(g, SEALED, rows)) at = seq_table(kv, g, SEALED, s)[tile];
    }
    if (!at) return KV_BLOCK_GONE;
    const struct page *pg = &g->form[form].page[at];
    uint32_t p = place_of(pg, form, pg->refs + s->owners - 1);
    if (form == RAW && (block + 1) * g->rows[RAW] > rows) p |= KV_BLOCK_OPEN;
    return p;
}
