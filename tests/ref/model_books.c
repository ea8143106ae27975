/* model_books.c - comparing a store with the reference: row bytes, lengths, tokens, turns, and
 * whether anything changed at all. The comparison reads the tables, so it needs no step and evicts
 * nothing. */
#include "model_int.h"

#include <stdio.h>
#include <string.h>

static void want_row(struct model *m, const struct kv_view *v, uint32_t site, uint32_t plane,
                     uint32_t head, const unsigned char *base, uint32_t rows, uint32_t h_at,
                     uint32_t r, uint64_t name, uint32_t row)
{
    const struct kv_shape *s = &v->shape[plane];
    for (uint32_t d = 0; d < s->dim; d++) {
        uint32_t x = flat_value(name, site, plane, head * s->dim + d);
        size_t at = s->layout == KV_FLAT ? (head * s->dim + d) * dtype_size(s->dtype)
                                         : flat_offset(s, rows, h_at, r, d);
        if (memcmp(base + at, &x, dtype_size(s->dtype)) != 0)
            model_differ(m, "row bytes", row, site);
    }
}

/* Returns the bytes of a page that a table names: in memory, or in the tier if only the tier has
 * them. */
static const unsigned char *in_tier(struct model *m, uint32_t site, uint32_t form, uint32_t id,
                                    size_t offset, const unsigned char *page)
{
    const struct group *g = &m->kv->group[m->kv->site_group[site]];
    const struct pages *p = &g->form[form];
    if (!p->page[id].spilled) return page;
    uint64_t at = (uint64_t)(page_at(p, site - g->c.site0, id) - m->kv->stream.arena);
    const unsigned char *bytes = tier_mem_at(m->tier, at, p->grain);
    WANT(bytes, "a spilled page is not in the tier", id, site);
    return bytes + offset;
}

/* Compares rows [a, b) of the sequence in table row `slot`, in the form that the edge gives. */
void model_want_rows(struct model *m, const struct kv_view *v, uint32_t site, uint32_t slot,
                     const uint64_t *name, uint32_t a, uint32_t b, uint32_t edge)
{
    static unsigned char tile[64 * 1024];
    for (uint32_t p = 0; p < v->n_planes; p++)
        for (uint32_t h = 0; h < v->shape[p].heads; h++) {
            uint32_t decoded = UINT32_MAX;
            for (uint32_t j = a; j < b; j++) {
                bool sealed = j >= v->lead && j < edge;
                uint32_t row0 = sealed ? v->row0 : v->raw0, row1 = sealed ? v->row1 : v->raw1;
                if (j < row0 || j >= row1) continue; /* the row belongs to another piece */
                const struct kv_form *f = sealed ? &v->sealed : &v->raw;
                uint32_t id = f->table[slot * f->stride + j / f->rows];
                WANT(id != 0, sealed ? "a sealed row is missing" : "a raw row is missing", j, site);
                const unsigned char *page = f->base + id * f->grain + f->offset[p];
                if (m->peeking) page = in_tier(m, site, sealed, id, f->offset[p], page);
                if (sealed && decoded != j / f->rows) {
                    decoded = j / f->rows;
                    v->codec[p]->decode(v->codec[p], &v->shape[p], h, tile, 0, page);
                }
                want_row(m, v, site, p, h, sealed ? tile : page, f->rows, sealed ? 0 : h,
                         j % f->rows, name[j], j);
                m->t->verified_rows++;
            }
        }
}

void model_want_state(struct model *m, const struct kv_view *v, uint32_t site, uint32_t page,
                      uint64_t name)
{
    for (uint32_t p = 0; p < v->n_planes; p++)
        for (uint32_t h = 0; h < v->shape[p].heads; h++)
            want_row(m, v, site, p, h, v->raw.base + page * v->raw.grain + v->raw.offset[p], 1, 0,
                     0, name, 0);
}

/* Compares the rows below `written` that a query at pos reads, in an update starting at `start`. */
void model_want_query(struct model *m, const struct kv_view *v, const struct kv_group *g,
                      uint32_t site, uint32_t slot, const struct mseq *s, uint32_t pos,
                      uint32_t start, uint32_t written)
{
    uint32_t edge = flat_edge(g, s->start, start, pos), a = 0;
    while (a < written) { /* runs of visible rows */
        while (a < written && !flat_sees(&g->policy, pos, a))
            a++;
        uint32_t b = a;
        while (b < written && flat_sees(&g->policy, pos, b))
            b++;
        model_want_rows(m, v, site, slot, s->row, a, b, edge);
        a = b;
    }
}

static void peek(const struct model *m, uint32_t site, struct kv_view *v)
{
    struct kv *kv = m->kv;
    const struct group *g = &kv->group[kv->site_group[site]];
    memset(v, 0, sizeof *v);
    v->row1 = v->raw1 = UINT32_MAX;
    v->last = true;
    v->n_planes = g->c.n_planes;
    v->sinks = g->c.policy.sinks;
    v->lead = g->c.seal.tile ? g->c.seal.lead : 0;
    struct kv_form *form[2] = {&v->raw, &v->sealed};
    for (uint32_t f = 0; f < FORMS; f++) {
        if (!g->form[f].n_ids) continue;
        form[f]->base = page_at(&g->form[f], site - g->c.site0, 0);
        form[f]->grain = g->form[f].grain;
        form[f]->rows = g->rows[f];
        form[f]->stride = g->stride[f];
        form[f]->table = g->tables[f].host;
        memcpy(form[f]->offset, g->offset[f], sizeof g->offset[f]);
    }
    for (uint32_t i = 0; i < g->c.n_planes; i++) {
        v->shape[i] = g->c.plane[i].shape;
        v->codec[i] = g->c.plane[i].codec;
    }
}

struct seq *model_inside(struct model *m, const struct mseq *s)
{
    struct seq *q = NULL;
    WANT(seq_find(m->kv, s->handle, &q) == 0, "handle lost", s->handle, 0);
    return q;
}

/* Compares turns: the updates of two rows or more, and the turn that is still open. */
static void want_turns(struct model *m, const struct mseq *s)
{
    uint32_t n, k = 0;
    const struct kv_turn *turn = kv_turns(m->kv, s->handle, &n);
    for (uint32_t at = 0, end; at < s->len; at = end) {
        for (end = at + 1; end < s->len && s->start[end] == s->start[at];)
            end++;
        if (end - at < 2 && !(s->open && end == s->len)) continue;
        WANT(k < n && turn[k].pos == at && turn[k].n == end - at, "turn", at, end);
        k++;
    }
    WANT(k == n, "turns", k, n);
}

/* Checks that without snapshots a table holds exactly the pages with a row that can still be
 * needed. A query at len - slack or later sees such a row, in the form it is read in, or the row
 * belongs to an incomplete tile. */
static void want_needed(struct model *m, const struct mseq *s, const struct seq *q, uint32_t gi)
{
    const struct kv_group *g = &m->group[gi];
    const struct group *in = &m->kv->group[gi];
    uint32_t len = s->len, tile = g->seal.tile, whole = tile ? len / tile * tile : len;
    uint32_t from = len > g->policy.slack ? len - g->policy.slack : 0;
    uint32_t edge = flat_edge(g, s->start, s->open && len ? s->start[len - 1] : len, len);
    uint32_t lead = tile ? MAX(g->seal.lead, g->policy.sinks) : g->policy.sinks;
    const uint32_t *raw = seq_table(m->kv, in, RAW, q), *sealed = seq_table(m->kv, in, SEALED, q);
    for (uint32_t b = 0; b * g->rows < len; b++) {
        bool need = b * g->rows < lead;
        for (uint32_t j = b * g->rows; j < (b + 1) * g->rows; j++) {
            bool seen = j >= from || flat_sees(&g->policy, from, j);
            need |= (seen && j >= edge) || (tile && j >= whole) || j >= len;
        }
        WANT(need == (raw[b] != 0), need ? "a needed block is gone" : "a block is kept in vain", b,
             gi);
    }
    for (uint32_t k = 0; tile && k < len / tile; k++) {
        bool need = false;
        for (uint32_t j = MAX(k * tile, g->seal.lead); j < (k + 1) * tile; j++)
            need |= j >= from || flat_sees(&g->policy, from, j);
        WANT(need == (sealed[k] != 0), need ? "a needed tile is gone" : "a tile is kept in vain", k,
             gi);
    }
}

void model_verify(struct model *m, const struct mseq *s)
{
    struct seq *q = model_inside(m, s);
    uint32_t slot = (uint32_t)(q - m->kv->seq);
    WANT(kv_len(m->kv, s->handle) == s->len, "length", kv_len(m->kv, s->handle), s->len);
    WANT(q->cross == s->cross, "cross length", q->cross, s->cross);
    want_turns(m, s);
    for (uint32_t i = 0; i < s->len; i++)
        WANT(kv_tokens(m->kv, s->handle)[i] == s->tok[i], "token", i, (uint64_t)s->tok[i]);
    /* A trim may leave fewer rows than slack asks for. */
    for (uint32_t gi = 0; gi < m->kv->n_groups; gi++)
        if (m->group[gi].policy.kind == KV_ROWS && !m->group[gi].policy.every && !s->trimmed)
            want_needed(m, s, q, gi);
    for (uint32_t site = 0; site < m->kv->n_sites; site++) {
        const struct kv_group *g = &m->group[m->kv->site_group[site]];
        struct kv_view v;
        peek(m, site, &v);
        m->peeking = true;
        if (g->policy.kind == KV_STATE) {
            uint32_t id = v.raw.table[slot];
            WANT(!id == !s->len, "state page", id, s->len);
            if (id) model_want_state(m, &v, site, id, s->row[s->len - 1]);
        } else if (g->policy.kind == KV_FROZEN) {
            uint32_t edge = g->seal.tile ? s->cross / g->seal.tile * g->seal.tile : 0;
            model_want_rows(m, &v, site, slot, s->xrow, 0, s->cross, edge);
        } else {
            model_want_query(m, &v, g, site, slot, s, s->len, s->len, s->len);
            if (s->open && s->len)
                model_want_query(m, &v, g, site, slot, s, s->len, s->start[s->len - 1], s->len);
        }
        m->peeking = false;
    }
}

void model_verify_all(struct model *m)
{
    for (uint32_t i = 0; i < SEQS; i++)
        if (m->seq[i].used && !m->seq[i].busy) model_verify(m, &m->seq[i]);
    if (m->opt->check && !kv_check(m->kv)) {
        fprintf(stderr, "%s\n", err_last());
        model_differ(m, "kv_check", 0, 0);
    }
}

#define SHOT(p, bytes) (memcpy(out + n, p, bytes), n += (bytes))
static size_t shoot_contents(const struct kv *kv, const struct seq *s, unsigned char *out)
{
    const uint32_t flags[] = {s->len, s->cross, s->n_turns, s->turn_open, s->busy};
    size_t n = 0;
    SHOT(flags, sizeof flags);
    SHOT(s->turn, sizeof *s->turn * s->n_turns);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        for (uint32_t f = 0; f < FORMS; f++)
            SHOT(seq_table(kv, g, f, s), sizeof(uint32_t) * g->stride[f]);
        SHOT(s->g[gi].cut, sizeof s->g[gi].cut);
        SHOT(&s->g[gi].n_keeps, sizeof s->g[gi].n_keeps);
    }
    return n;
}

/* What slots and marks hold, and which pages are in use.  Whether slots with the same pages share contents or have copies
 * makes no difference to a program: a slot keeps the copy that an undone change has made. */
size_t model_snapshot(struct model *m, unsigned char *out)
{
    struct kv *kv = m->kv;
    if (out == m->shot[0]) m->owed = kv->owing;
    size_t n = 0;
    for (uint32_t i = 0; i < FORMS * kv->n_groups; i++) {
        const struct pages *p = &kv->group[i / FORMS].form[i % FORMS];
        for (uint32_t id = 0; id < p->n_ids; id++)
            out[n++] = p->page[id].refs > 0;
    }
    for (uint32_t i = 0; i < kv->max_seqs; i++)
        if (kv->slot[i].used) n += shoot_contents(kv, &kv->seq[kv->slot[i].seq], out + n);
    SHOT(kv->mark, sizeof *kv->mark * kv->max_marks);
    for (uint32_t i = 0; i < kv->max_marks; i++)
        if (kv->mark[i].seq) n += shoot_contents(kv, &kv->seq[kv->mark[i].at], out + n);
    bool all = !m->tier; /* otherwise pages may have moved, or streaming may have begun */
    for (uint32_t i = 0; all && i < kv->max_seqs * FORMS * kv->n_groups; i++) {
        const struct slot *slot = &kv->slot[i / (FORMS * kv->n_groups)];
        uint32_t k = i % (FORMS * kv->n_groups), need = 0;
        if (!slot->used) continue;
        /* A reserve may hold more than it needs, because other sequences left shared blocks. */
        need = reserve_need(kv, i / (FORMS * kv->n_groups), k);
        uint32_t has[] = {need, MIN(slot->stash[k].n, need)};
        SHOT(has, sizeof has);
    }
    size_t sums[] = {kv->live + kv->stream.spilled, kv->states, kv->n_idle, kv->used};
    SHOT(sums, sizeof sums);
    return n;
}

size_t model_snapshot_bytes(const struct kv *kv)
{
    size_t n = 4096 + 8 * (size_t)kv->max_seqs * FORMS * kv->n_groups, each = 256;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++) {
            n += kv->group[gi].form[f].n_ids;
            each += sizeof(uint32_t) * (kv->group[gi].stride[f] + 2u);
        }
    each += sizeof(struct kv_turn) * (kv->max_len / 2 + 2);
    return n + kv->max_marks * sizeof *kv->mark + (kv->max_seqs + kv->max_marks) * each;
}

void model_want_same(struct model *m, const char *what)
{
    if (m->owed) return; /* any operation that takes pages fills the reserves first */
    size_t a = model_snapshot(m, m->shot[1]);
    WANT(memcmp(m->shot[0], m->shot[1], a) == 0, what, a, 0);
}
