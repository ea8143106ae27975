/* step_view.c - what kernels see of an open step.
 *
 * step_fill writes the arrays of the views once per step.  kv_next only adds the address of a site. */
#include "base/trace.h"
#include "dev/dev.h"
#include "kv/kv_int.h"

#include <string.h>

/* Fills in what the tokens of a span read. */
static void fill_reads(struct kv_step *st, struct group *g, const struct step_span *sp,
                       uint32_t lane)
{
    const struct seq *s = &st->kv->seq[sp->seq];
    const struct kv_seal *seal = &g->c.seal;
    uint32_t rows = step_rows(st, g, sp), e = 0;
    g->len[lane] = rows;
    for (uint32_t t = 0; t < sp->rows.n; t++) {
        uint32_t pos = s->len + t, at = sp->tok0 + t;
        struct kv_reach r = kv_reach(&g->c.policy, pos, rows);
        g->lo[at] = r.lo;
        g->hi[at] = r.hi;
        g->dst[at] = 0; /* the null page, unless the step writes rows of the group */
        /* all queries of a turn have the edge of its first query */
        if (g->c.policy.kind == KV_FROZEN)
            e = rows - rows % MAX(seal->tile, 1);
        else if (!t || !sp->rows.turn || !seal->resid)
            e = kv_edge(seal, s->turn, s->n_turns, pos);
        g->edge[at] = seal->tile ? MAX(e, seal->lead) : 0;
    }
}

static void fill_writes(struct kv_step *st, struct group *g, const struct step_span *sp,
                        uint32_t lane)
{
    struct kv *kv = st->kv;
    struct seq *s = &kv->seq[sp->seq];
    uint32_t len = seq_rows(g, s), rows = g->rows[RAW], *table = seq_table(kv, g, RAW, s);
    for (uint32_t t = 0; t < sp->rows.n; t++)
        g->dst[sp->tok0 + t] = table[(len + t) / rows] * rows + (len + t) % rows;
    if (!has_form(g, SEALED)) return;
    uint32_t end = table_used(g, SEALED, len + sp->rows.n);
    for (uint32_t i = step_tiles_begun(g, len); i < end; i++) {
        uint32_t *e = &g->enc[2 * (size_t)g->counts[2]++];
        e[0] = lane;
        e[1] = i;
    }
}

static void put_block(struct kv *kv, const struct kv_block *b, size_t from, size_t n)
{
    dev_put(kv->work, b->at + from, b->host + from, n * sizeof *b->at);
}

/* Makes the arrays of a group visible to the device, and of its tables the rows of this step.  A step that writes
 * frozen groups shows only these. */
static void put_group(struct kv_step *st, struct group *g)
{
    struct kv *kv = st->kv;
    if (st->cross && g->c.policy.kind != KV_FROZEN) return;
    put_block(kv, &g->arrays, 0, g->arrays.n);
    for (uint32_t i = 0; i < FORMS * st->n_spans; i++) {
        const struct step_span *sp = &st->span[i / FORMS];
        uint32_t f = i % FORMS;
        put_block(kv, &g->tables[f], (size_t)sp->seq * g->stride[f],
                  table_used(g, f, step_rows(st, g, sp)));
    }
}

void step_fill(struct kv_step *st, const struct kv_span *span)
{
    struct kv *kv = st->kv;
    for (uint32_t i = 0; i < st->n_spans; i++) {
        const struct step_span *sp = &st->span[i];
        struct seq *s = &kv->seq[sp->seq];
        st->slot[i] = sp->seq;
        for (uint32_t t = 0; t < sp->rows.n; t++) {
            st->lane[sp->tok0 + t] = i;
            st->pos[sp->tok0 + t] = (st->cross ? 0 : s->len) + t;
            if (!st->cross)
                s->tok[seq_place(s) + t] = span[i].tok && span[i].tok[t] >= 0 ? span[i].tok[t] : -1;
        }
    }
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        g->counts[0] = st->n_spans;
        g->counts[1] = st->n_tokens;
        g->counts[2] = 0;
        for (uint32_t i = 0; i < st->n_spans; i++) {
            const struct step_span *sp = &st->span[i];
            if (g->c.policy.kind == KV_STATE) {
                g->from[i] = *seq_table(kv, g, RAW, &kv->seq[sp->seq]);
                g->len[i] = kv->seq[sp->seq].len + sp->rows.n;
                continue;
            }
            fill_reads(st, g, sp, i);
            if (step_writes(st, g)) fill_writes(st, g, sp, i);
        }
        put_group(st, g);
    }
    borrow_fill(st);
    put_block(kv, &st->arrays, 0, st->arrays.n);
    memset(st->given, 0, kv->n_sites * sizeof *st->given);
}

void step_trace_layer(struct kv_step *st, uint32_t site)
{
    if (!atomic_load_explicit(&trace_on, memory_order_relaxed) || st->layer == site) return;
    if (st->layer != KV_NONE) trace_add(TRACE_LAYER, "layer", st->entered, st->layer, 0);
    st->layer = site;
    st->entered = trace_now();
}

void view_form(const struct group *g, uint32_t form, uint32_t site, struct kv_form *out)
{
    const struct pages *p = &g->form[form];
    *out = (struct kv_form){0};
    if (!has_form(g, form)) return;
    out->base = page_at(p, site - g->c.site0, 0);
    out->grain = p->grain;
    out->rows = g->rows[form];
    out->stride = g->stride[form];
    out->table = g->tables[form].host;
    memcpy(out->offset, g->offset[form], sizeof out->offset);
}

int kv_next(struct kv_step *st, uint32_t site, struct kv_view *v)
{
    if (!st || !st->open) return ERR(ARG, "cache: no step is open");
    struct kv *kv = st->kv;
    if (site >= kv->n_sites)
        return ERR(ARG, "cache: layer %u does not exist; there are %u", site, kv->n_sites);
    struct group *g = &kv->group[kv->site_group[site]];
    if (st->cross && g->c.policy.kind != KV_FROZEN)
        return ERR(ARG, "cache: this step writes frozen groups, and layer %u is in none", site);
    uint32_t piece = st->given[site];
    if (piece >= MAX(g->n_pieces, 1)) {
        st->given[site] = 0;
        return 0;
    }
    bool state = g->c.policy.kind == KV_STATE;
    uint32_t rows = state ? 0 : g->stride[RAW] * g->rows[RAW];
    *v = (struct kv_view){.queue = kv->work,
                          .n_planes = g->c.n_planes,
                          .row1 = (rows + KV_ATOM - 1) / KV_ATOM * KV_ATOM,
                          .raw1 = (rows + KV_ATOM - 1) / KV_ATOM * KV_ATOM,
                          .first = true,
                          .last = true,
                          .sinks = g->c.policy.sinks,
                          .lead = g->c.seal.tile ? g->c.seal.lead : 0,
                          .counts = g->counts,
                          .slot = st->slot,
                          .len = g->len,
                          .lane = st->lane,
                          .pos = st->pos,
                          .lo = g->lo,
                          .hi = g->hi,
                          .edge = g->edge,
                          .dst = g->dst,
                          .enc = g->enc,
                          .from = g->from,
                          .borrowed0 =
                              st->borrowed0 && st->borrowed0[st->n_spans] ? st->borrowed0 : NULL,
                          .borrowed_edge = g->borrowed_edge,
                          .borrowed = st->borrowed,
                          .block = {g->arrays, st->arrays, g->tables[RAW], g->tables[SEALED]}};
    view_form(g, RAW, site, &v->raw);
    view_form(g, SEALED, site, &v->sealed);
    for (uint32_t i = 0; i < g->c.n_planes; i++) {
        v->shape[i] = g->c.plane[i].shape;
        v->codec[i] = g->c.plane[i].codec;
    }
    step_trace_layer(st, site);
    TRY(stage_show(st, site, piece, v));
    st->given[site] = v->last ? MAX(g->n_pieces, 1) : piece + 1;
    return 1;
}
