/* survey.c - reports what one sequence holds, page by page.  It changes nothing. */
#include "kv/kv_int.h"

#include <string.h>

static void add(const struct seq *s, const struct pages *p, uint32_t id, struct kv_survey_form *f)
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
            if (table[i]) add(s, &g->form[f], table[i], &out->form[f]);
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
    enum kv_place p = KV_BLOCK_HELD;
    if (pg->refs + s->owners > 2) p |= KV_BLOCK_SHARED;
    if (form == SEALED) p |= KV_BLOCK_ENCODED;
    if (pg->spilled) p |= KV_BLOCK_SPILLED;
    if (form == RAW && (block + 1) * g->rows[RAW] > rows) p |= KV_BLOCK_OPEN;
    return p;
}
