/* kv_model.c - random operations on a store against a flat reference that keeps every row.
 *
 * The reference of a sequence is an array: one 64-bit name per row, drawn when the row is
 * written, so two rows are equal only if a fork made them so.  The bytes of a row at a site,
 * plane, head and dim follow from its name.  Which rows a query sees, and in which form, is
 * computed row by row from the definitions, not with the store's functions.  Rows are written
 * and read through views as a kernel does, tiles are encoded when a view says so, and pages
 * given back are filled with NaN patterns.
 *
 * After an operation the sequences it touched are compared row by row; all of them, and every
 * invariant of kv_check, every few operations. */
#include "kv_model.h"
#include "flat.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEQS   8u
#define LEN    640u
#define GROUPS 3u
#define SPANS  SEQS

struct mseq {
    kv_seq handle;
    bool used, busy, open;
    uint32_t len, cross, reserve;
    uint64_t row[LEN], xrow[LEN];
    uint32_t start[LEN]; /* first row of the update that row belongs to */
    int32_t tok[LEN];
};
struct mspan {
    uint32_t seq, n, undo, tok0;
    bool turn, last;
};
struct model {
    struct kv *kv;
    struct kv_group group[GROUPS];
    struct kv_config cfg;
    struct mseq seq[SEQS];
    uint64_t rng, names, op;
    const struct model_options *opt;
    struct model_totals *t;
    const char *config, *doing;
    struct kv_step *step;
    struct kv_span span[SPANS];
    struct mspan ms[SPANS];
    uint32_t n_spans, n_tokens;
    bool cross;
    int32_t tok[LEN * SPANS];
    unsigned char *shot[2]; /* tables and pages before a step */
    size_t shot_cap;
    jmp_buf out;
};

/* --- small things -------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint32_t rnd(struct model *m, uint32_t n)
{
    m->rng += 0x9E3779B97F4A7C15u;
    return n ? (uint32_t)(mix(m->rng) >> 33) % n : 0;
}

static bool chance(struct model *m, uint32_t percent)
{
    return rnd(m, 100) < percent;
}

static _Noreturn void differ(struct model *m, const char *what, uint64_t a, uint64_t b)
{
    fprintf(stderr,
            "kv model: %s (%llu, %llu) at operation %llu (%s), configuration %s, seed %llu\n", what,
            (unsigned long long)a, (unsigned long long)b, (unsigned long long)m->op, m->doing,
            m->config, (unsigned long long)m->opt->seed);
    if (*err_last()) fprintf(stderr, "  last error: %s\n", err_last());
    longjmp(m->out, 1);
}

#define WANT(cond, what, a, b)                                                                     \
    do {                                                                                           \
        if (!(cond)) differ(m, what, a, b);                                                        \
    } while (0)

static void want_row(struct model *m, const struct kv_view *v, uint32_t site, uint32_t plane,
                     uint32_t head, const unsigned char *base, uint32_t rows, uint32_t h_at,
                     uint32_t r, uint64_t name, uint32_t row)
{
    const struct kv_shape *s = &v->shape[plane];
    for (uint32_t d = 0; d < s->dim; d++) {
        uint32_t x = flat_value(name, site, plane, head * s->dim + d);
        size_t at = s->layout == KV_FLAT ? (head * s->dim + d) * dtype_size(s->dtype)
                                         : flat_offset(s, rows, h_at, r, d);
        if (memcmp(base + at, &x, dtype_size(s->dtype)) != 0) differ(m, "row bytes", row, site);
    }
}

/* Rows [a, b) of the sequence in table row `slot`, in the form the edge says. */
static void want_rows(struct model *m, const struct kv_view *v, uint32_t site, uint32_t slot,
                      const uint64_t *name, uint32_t a, uint32_t b, uint32_t edge)
{
    static unsigned char tile[64 * 1024];
    for (uint32_t p = 0; p < v->n_planes; p++)
        for (uint32_t h = 0; h < v->shape[p].heads; h++) {
            uint32_t decoded = UINT32_MAX;
            for (uint32_t j = a; j < b; j++) {
                bool sealed = j >= v->lead && j < edge;
                const struct kv_form *f = sealed ? &v->sealed : &v->raw;
                uint32_t id = f->table[slot * f->stride + j / f->rows];
                WANT(id != 0, sealed ? "a sealed row is missing" : "a raw row is missing", j, site);
                const unsigned char *page = f->base + id * f->grain + f->offset[p];
                if (sealed && decoded != j / f->rows) {
                    decoded = j / f->rows;
                    v->codec[p]->decode(v->codec[p], &v->shape[p], h, tile, page);
                }
                want_row(m, v, site, p, h, sealed ? tile : page, f->rows, sealed ? 0 : h,
                         j % f->rows, name[j], j);
                m->t->verified_rows++;
            }
        }
}

static void want_state(struct model *m, const struct kv_view *v, uint32_t site, uint32_t page,
                       uint64_t name)
{
    for (uint32_t p = 0; p < v->n_planes; p++)
        for (uint32_t h = 0; h < v->shape[p].heads; h++)
            want_row(m, v, site, p, h, v->raw.base + page * v->raw.grain + v->raw.offset[p], 1, 0,
                     0, name, 0);
}

/* What a query at pos, in an update starting at `start`, reads of the rows below `written`. */
static void want_query(struct model *m, const struct kv_view *v, const struct kv_group *g,
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
        want_rows(m, v, site, slot, s->row, a, b, edge);
        a = b;
    }
}

static void encode_tiles(struct model *m, const struct kv_view *v)
{
    const void *raw[16];
    for (uint32_t i = 0; i < v->counts[2]; i++) {
        uint32_t slot = v->slot[v->enc[2 * i]], k = v->enc[2 * i + 1], tile = v->sealed.rows;
        uint32_t id = v->sealed.table[slot * v->sealed.stride + k], b0 = k * tile / v->raw.rows;
        WANT(id != 0, "a tile to encode has no page", k, slot);
        for (uint32_t p = 0; p < v->n_planes; p++) {
            for (uint32_t b = 0; b < MAX(tile / v->raw.rows, 1); b++) {
                uint32_t page = v->raw.table[slot * v->raw.stride + b0 + b];
                WANT(page != 0, "a tile to encode has no raw rows", k, b);
                raw[b] = v->raw.base + page * v->raw.grain + v->raw.offset[p];
            }
            v->codec[p]->encode(v->codec[p], &v->shape[p],
                                v->sealed.base + id * v->sealed.grain + v->sealed.offset[p], raw,
                                v->raw.rows, k * tile % v->raw.rows,
                                v->lead > k * tile ? v->lead - k * tile : 0);
        }
    }
}

/* --- the books without a step: a view made from the tables ---------------------------------- */

static void peek(const struct model *m, uint32_t site, struct kv_view *v)
{
    struct kv *kv = m->kv;
    const struct group *g = &kv->group[kv->site_group[site]];
    memset(v, 0, sizeof *v);
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
        form[f]->table = g->table[f];
        memcpy(form[f]->offset, g->offset[f], sizeof g->offset[f]);
    }
    for (uint32_t i = 0; i < g->c.n_planes; i++) {
        v->shape[i] = g->c.plane[i].shape;
        v->codec[i] = g->c.plane[i].codec;
    }
}

static struct seq *inside(struct model *m, const struct mseq *s)
{
    struct seq *q = NULL;
    WANT(seq_find(m->kv, s->handle, &q) == 0, "handle lost", s->handle, 0);
    return q;
}

static void verify_seq(struct model *m, const struct mseq *s)
{
    struct seq *q = inside(m, s);
    uint32_t slot = (uint32_t)(q - m->kv->seq);
    WANT(kv_len(m->kv, s->handle) == s->len, "length", kv_len(m->kv, s->handle), s->len);
    WANT(kv_cross_len(m->kv, s->handle) == s->cross, "cross length", q->cross, s->cross);
    for (uint32_t i = 0; i < s->len; i++)
        WANT(kv_tokens(m->kv, s->handle)[i] == s->tok[i], "token", i, (uint64_t)s->tok[i]);
    for (uint32_t site = 0; site < m->kv->n_sites; site++) {
        const struct kv_group *g = &m->group[m->kv->site_group[site]];
        struct kv_view v;
        peek(m, site, &v);
        if (g->policy.kind == KV_STATE) {
            uint32_t id = v.raw.table[slot];
            WANT(!id == !s->len, "state page", id, s->len);
            if (id) want_state(m, &v, site, id, s->row[s->len - 1]);
        } else if (g->policy.kind == KV_FROZEN) {
            uint32_t edge = g->seal.tile ? s->cross / g->seal.tile * g->seal.tile : 0;
            want_rows(m, &v, site, slot, s->xrow, 0, s->cross, edge);
        } else {
            want_query(m, &v, g, site, slot, s, s->len, s->len, s->len);
            if (s->open && s->len)
                want_query(m, &v, g, site, slot, s, s->len, s->start[s->len - 1], s->len);
        }
    }
}

static void verify_all(struct model *m)
{
    for (uint32_t i = 0; i < SEQS; i++)
        if (m->seq[i].used && !m->seq[i].busy) verify_seq(m, &m->seq[i]);
    if (m->opt->check && !kv_check(m->kv)) {
        fprintf(stderr, "%s\n", err_last());
        differ(m, "kv_check", 0, 0);
    }
}

/* --- snapshots: tables, references and books, for "changed nothing" ------------------------- */

static size_t snapshot(struct model *m, unsigned char *out)
{
    struct kv *kv = m->kv;
    size_t n = 0;
#define SHOT(p, bytes) (memcpy(out + n, p, bytes), n += (bytes))
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++) {
            struct group *g = &kv->group[gi];
            SHOT(g->table[f], sizeof(uint32_t) * kv->max_seqs * g->stride[f]);
            if (g->form[f].n_ids) SHOT(g->form[f].page, sizeof(struct page) * g->form[f].n_ids);
        }
    for (uint32_t i = 0; i < kv->max_seqs; i++) {
        struct seq *s = &kv->seq[i];
        uint32_t flags[] = {s->len, s->cross, s->n_turns, s->turn_open, s->busy, s->marked};
        SHOT(flags, sizeof flags);
        SHOT(&s->pledge, sizeof s->pledge);
        SHOT(s->turn, sizeof *s->turn * s->n_turns);
        for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
            SHOT(s->g[gi].cut, sizeof s->g[gi].cut);
            SHOT(&s->g[gi].n_keeps, sizeof s->g[gi].n_keeps);
        }
    }
    size_t sums[] = {kv->live, kv->states, kv->shared, kv->pledged, kv->mark_debt, kv->n_idle};
    SHOT(sums, sizeof sums);
    return n;
}

static size_t snapshot_bytes(const struct kv *kv)
{
    size_t n = 4096;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        for (uint32_t f = 0; f < FORMS; f++)
            n += sizeof(uint32_t) * kv->max_seqs * kv->group[gi].stride[f] +
                 sizeof(struct page) * kv->group[gi].form[f].n_ids;
    return n + kv->max_seqs * (256 + sizeof(struct kv_turn) * (kv->max_len / 2 + 2));
}

static void want_same(struct model *m, const char *what)
{
    size_t a = snapshot(m, m->shot[1]);
    WANT(memcmp(m->shot[0], m->shot[1], a) == 0, what, a, 0);
}

/* --- picking -------------------------------------------------------------------------------- */

static struct mseq *pick(struct model *m)
{
    uint32_t k = rnd(m, SEQS);
    for (uint32_t i = 0; i < SEQS; i++) {
        struct mseq *s = &m->seq[(k + i) % SEQS];
        if (s->used && !s->busy) return s;
    }
    return NULL;
}

static struct mseq *vacant(struct model *m)
{
    for (uint32_t i = 0; i < m->cfg.max_seqs; i++)
        if (!m->seq[i].used) return &m->seq[i];
    return NULL;
}

static bool has_kind(const struct model *m, enum kv_kind kind)
{
    for (uint32_t i = 0; i < m->cfg.n_groups; i++)
        if (m->group[i].policy.kind == kind) return true;
    return false;
}

/* --- steps ---------------------------------------------------------------------------------- */

/* Draws spans over distinct idle sequences; false if there is nothing to do. */
static bool draw_spans(struct model *m)
{
    uint32_t want = chance(m, 50) ? 1 : 1 + rnd(m, m->cfg.max_seqs), left = m->cfg.max_tokens;
    m->n_spans = m->n_tokens = 0;
    m->cross = has_kind(m, KV_FROZEN) && chance(m, 15);
    bool decode = chance(m, 40); /* one token each: the common batch */
    for (uint32_t k = rnd(m, SEQS), i = 0; i < SEQS && m->n_spans < want && left; i++) {
        struct mseq *s = &m->seq[(k + i) % SEQS];
        uint32_t room = m->cfg.max_len - (m->cross ? 0 : s->len);
        if (!s->used || s->busy || !room || (m->cross && s->cross)) continue;
        uint32_t most = chance(m, 20) ? 200 : 24;
        most = MIN(most, MIN(room, left));
        uint32_t n = decode && !m->cross ? 1 : 1 + rnd(m, most);
        bool turn = !m->cross && (s->open ? chance(m, 90) : !decode && chance(m, 60));
        struct mspan *ms = &m->ms[m->n_spans];
        *ms = (struct mspan){.seq = (uint32_t)(s - m->seq),
                             .n = n,
                             .tok0 = m->n_tokens,
                             .turn = turn,
                             .last = turn && chance(m, 60)};
        if (!m->cross && chance(m, 25)) ms->undo = 1 + rnd(m, n);
        for (uint32_t t = 0; t < n; t++)
            m->tok[m->n_tokens + t] = chance(m, 2) ? -1 : (int)rnd(m, 1000);
        m->span[m->n_spans++] = (struct kv_span){.seq = s->handle,
                                                 .n = n,
                                                 .undo = ms->undo,
                                                 .tok = chance(m, 3) ? NULL : &m->tok[ms->tok0],
                                                 .cross = m->cross,
                                                 .turn = turn,
                                                 .last = ms->last};
        m->n_tokens += n;
        left -= n;
    }
    return m->n_spans > 0;
}

/* Bytes rule 20 asks for, from the tables before the step. */
static size_t cost(struct model *m)
{
    struct kv *kv = m->kv;
    size_t sum = 0;
    static uint32_t left[SPANS * GROUPS], n_left;
    n_left = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct kv_group *g = &m->group[gi];
        const struct group *in = &kv->group[gi];
        if ((g->policy.kind == KV_FROZEN) != m->cross) continue;
        n_left = 0;
        for (uint32_t i = 0; i < m->n_spans; i++) {
            const struct mspan *ms = &m->ms[i];
            uint32_t a = m->cross ? 0 : m->seq[ms->seq].len, b = a + ms->n;
            if (g->policy.kind == KV_STATE) {
                for (uint32_t t = 0; t < ms->n; t++)
                    if (t + 1 + ms->undo >= ms->n ||
                        (g->policy.every && (a + t + 1) % g->policy.every == 0))
                        sum += in->form[RAW].bytes;
                continue;
            }
            sum +=
                ((b + g->rows - 1) / g->rows - (a + g->rows - 1) / g->rows) * in->form[RAW].bytes;
            for (uint32_t k = a / MAX(g->seal.tile, 1); g->seal.tile && k < b / g->seal.tile; k++)
                if ((k + 1) * g->seal.tile > g->seal.lead) sum += in->form[SEALED].bytes;
            if (a % g->rows == 0) continue;
            uint32_t owners = 0, slot = (uint32_t)(inside(m, &m->seq[ms->seq]) - kv->seq);
            uint32_t id = in->table[RAW][slot * in->stride[RAW] + a / g->rows];
            for (uint32_t k = 0; k < kv->max_seqs * in->stride[RAW]; k++)
                owners += in->table[RAW][k] == id;
            for (uint32_t k = 0; k < n_left; k++)
                owners -= left[k] == id;
            if (owners < 2) continue;
            sum += in->form[RAW].bytes;
            left[n_left++] = id;
        }
    }
    return sum;
}

/* No page a kernel is about to write is visible to anyone else. */
static void want_private(struct model *m, const struct kv_view *v, const struct group *g)
{
    uint32_t rows = v->raw.rows, before = 0;
    for (uint32_t t = 0; t < m->n_tokens; t++) {
        uint32_t page = v->dst[t] / rows, lane = v->lane[t];
        if (!page || page == before) continue;
        before = page;
        for (uint32_t k = 0; k < m->kv->max_seqs; k++) {
            const uint32_t *table = v->raw.table + k * v->raw.stride;
            bool mine = k == v->slot[lane] && g->c.policy.kind != KV_STATE;
            for (uint32_t i = 0; i < v->raw.stride && !mine; i++)
                WANT(table[i] != page, "a page to write is visible to another", page, k);
            const struct seq_group *sg = &m->kv->seq[k].g[g - m->kv->group];
            for (uint32_t i = 0; i < sg->n_keeps && g->c.policy.kind == KV_STATE; i++)
                WANT(sg->keep[i].page != page, "a page to write is a checkpoint", page, k);
        }
    }
}

static void want_token(struct model *m, const struct kv_view *v, const struct kv_group *g,
                       uint32_t site, uint32_t t)
{
    const struct mspan *ms = &m->ms[v->lane[t]];
    const struct mseq *s = &m->seq[ms->seq];
    uint32_t pos = v->pos[t], lo = v->lo[t], hi = v->hi[t];
    WANT(pos == s->len + t - ms->tok0, "position", pos, s->len);
    uint32_t sinks = MIN(v->sinks, lo);
    for (uint32_t j = 0; j <= pos; j++)
        WANT(flat_sees(&g->policy, pos, j) == (j < sinks || (j >= lo && j < hi)), "reach", pos, j);
    WANT(hi == pos + 1, "hi", hi, pos);
    uint32_t edge = flat_edge(g, s->start, s->start[pos], pos);
    WANT(v->edge[t] == (g->seal.tile ? MAX(edge, v->lead) : 0), "edge", v->edge[t], edge);
    want_query(m, v, g, site, v->slot[v->lane[t]], s, pos, s->start[pos], pos + 1);
}

/* Names the rows of the step in the reference (beyond the committed length). */
static void name_rows(struct model *m)
{
    for (uint32_t i = 0; i < m->n_spans; i++) {
        const struct mspan *ms = &m->ms[i];
        struct mseq *s = &m->seq[ms->seq];
        for (uint32_t t = 0; t < ms->n; t++) {
            uint64_t name = mix(++m->names);
            if (m->cross) {
                s->xrow[t] = name;
                continue;
            }
            uint32_t at = s->len + t;
            s->row[at] = name;
            s->start[at] = !ms->turn ? at : t ? s->start[at - 1] : s->open ? s->start[at - 1] : at;
            s->tok[at] = m->span[i].tok ? m->tok[ms->tok0 + t] : -1;
        }
    }
}

static void kernel_site(struct model *m, uint32_t site)
{
    struct kv_view v;
    uint32_t gi = m->kv->site_group[site];
    const struct kv_group *g = &m->group[gi];
    int e = kv_next(m->step, site, &v);
    if (m->cross && g->policy.kind != KV_FROZEN) {
        WANT(e == ERR_ARG, "a cross step shows another group", (uint64_t)e, site);
        return;
    }
    WANT(e == 1, "kv_next", (uint64_t)e, site);
    WANT(v.counts[0] == m->n_spans && v.counts[1] == m->n_tokens, "counts", v.counts[0],
         v.counts[1]);
    bool writes = (g->policy.kind == KV_FROZEN) == m->cross;
    want_private(m, &v, &m->kv->group[gi]);
    for (uint32_t t = 0; t < m->n_tokens; t++) {
        const struct mspan *ms = &m->ms[v.lane[t]];
        struct mseq *s = &m->seq[ms->seq];
        WANT(t >= ms->tok0 && t < ms->tok0 + ms->n, "lane", t, v.lane[t]);
        if (v.dst[t])
            flat_put_row(&v, site, v.dst[t], m->cross ? s->xrow[v.pos[t]] : s->row[v.pos[t]]);
        WANT(g->policy.kind == KV_STATE || writes == (v.dst[t] >= v.raw.rows), "dst", v.dst[t], t);
    }
    encode_tiles(m, &v);
    for (uint32_t i = 0; i < m->n_spans; i++) {
        const struct mspan *ms = &m->ms[i];
        const struct mseq *s = &m->seq[ms->seq];
        uint32_t len = g->policy.kind != KV_FROZEN ? s->len + ms->n : m->cross ? ms->n : s->cross;
        WANT(v.len[i] == len && v.slot[i] == (uint32_t)(inside(m, s) - m->kv->seq), "lane",
             v.len[i], len);
        if (g->policy.kind == KV_STATE) {
            WANT(!v.from[i] == !s->len, "state to read", v.from[i], s->len);
            if (v.from[i]) want_state(m, &v, site, v.from[i], s->row[s->len - 1]);
        } else if (g->policy.kind == KV_FROZEN) {
            uint32_t rows = m->cross ? ms->n : s->cross, edge = v.edge[ms->tok0];
            WANT(v.hi[ms->tok0] == rows && v.lo[ms->tok0] == 0, "frozen reach", v.hi[ms->tok0],
                 rows);
            want_rows(m, &v, site, v.slot[i], s->xrow, 0, rows, edge);
        } else {
            want_token(m, &v, g, site, ms->tok0);
            if (ms->n > 2) want_token(m, &v, g, site, ms->tok0 + rnd(m, ms->n));
            if (ms->n > 1) want_token(m, &v, g, site, ms->tok0 + ms->n - 1);
        }
    }
    m->t->verified_views++;
    if (chance(m, 90)) WANT(kv_next(m->step, site, &v) == 0, "kv_next does not end", site, 0);
}

static void commit_reference(struct model *m, const uint32_t *accepted)
{
    for (uint32_t i = 0; i < m->n_spans; i++) {
        const struct mspan *ms = &m->ms[i];
        struct mseq *s = &m->seq[ms->seq];
        s->busy = false;
        if (m->cross) {
            s->cross = ms->n;
            continue;
        }
        s->len += accepted[i];
        m->t->rejected_rows += ms->n - accepted[i];
        if (accepted[i]) s->open = ms->turn && !ms->last;
    }
}

static void op_small(struct model *m);

static void op_step(struct model *m)
{
    m->doing = "step";
    if (!draw_spans(m)) return;
    struct kv *kv = m->kv;
    struct kv_usage u;
    kv_usage(kv, &u);
    bool promised = !m->cross, plain = u.reserved == 0, keeps = false;
    for (uint32_t i = 0; i < m->n_spans; i++) {
        const struct mseq *s = &m->seq[m->ms[i].seq];
        promised &= s->reserve >= s->len + m->ms[i].n && !m->ms[i].undo;
    }
    for (uint32_t i = 0; i < m->cfg.n_groups; i++)
        keeps |= m->group[i].policy.every != 0;
    size_t bytes = plain ? cost(m) : 0;
    snapshot(m, m->shot[0]);
    uint64_t evicted = kv->evictions;
    if (chance(m, 3)) kv_fault.fail_take = 1 + rnd(m, 4); /* the system refuses a page */
    bool starved = kv_fault.fail_take != 0;
    int e = kv_begin(kv, m->span, m->n_spans, &m->step);
    starved = starved && kv_fault.fail_take == 0;
    kv_fault.fail_take = 0;
    if (e == ERR_NOMEM) {
        WANT(starved, "out of memory", 0, 0);
        if (evicted == kv->evictions) want_same(m, "a step without memory changed something");
        m->t->refused++;
        return;
    }
    if (e < 0) {
        WANT(e == ERR_FULL, "begin", (uint64_t)-e, 0);
        want_same(m, "a refused step changed something");
        if (e == ERR_FULL) WANT(kv->need > 0, "need", kv->need, 0);
        if (e == ERR_FULL) WANT(!promised, "a reserve did not hold", kv->need, m->n_spans);
        if (e == ERR_FULL && plain)
            WANT(u.live + u.states + bytes > u.pool, "refused too early", bytes, kv->need);
        if (e == ERR_FULL && plain && !keeps)
            WANT(u.live + u.states + bytes - u.pool == kv->need, "need is not exact", bytes,
                 kv->need);
        m->t->refused++;
        return;
    }
    if (plain && !keeps) {
        WANT(u.live + u.states + bytes <= u.pool, "accepted beyond the budget", bytes, u.pool);
        WANT(kv->live + kv->states == u.live + u.states + bytes, "cost", bytes, kv->live);
    }
    WANT(pool_used(kv) <= kv->pool, "a step spends what is promised", pool_used(kv), kv->pool);
    WANT(kv->live + kv->states + kv->backed <= kv->pool, "memory of free pages", kv->backed,
         kv->live);
    m->t->steps++;
    for (uint32_t i = 0; i < m->n_spans; i++)
        m->seq[m->ms[i].seq].busy = true;
    name_rows(m);
    for (uint32_t site = 0; site < kv->n_sites; site++)
        kernel_site(m, site);
    bool disturbed = chance(m, 10);
    for (uint32_t k = disturbed ? 1 + rnd(m, 3) : 0; k > 0; k--)
        op_small(m);
    m->doing = "step's end";
    if (chance(m, 12)) {
        kv_abort(m->step);
        m->t->aborts++;
        for (uint32_t i = 0; i < m->n_spans; i++)
            m->seq[m->ms[i].seq].busy = false;
        if (!disturbed && evicted == kv->evictions) want_same(m, "abort left something changed");
    } else {
        uint32_t accepted[SPANS];
        for (uint32_t i = 0; i < m->n_spans; i++)
            accepted[i] = m->ms[i].n - (m->ms[i].undo ? rnd(m, m->ms[i].undo + 1) : 0);
        if (m->ms[0].n > m->ms[0].undo && chance(m, 3)) {
            uint32_t was = accepted[0];
            accepted[0] = m->ms[0].n - m->ms[0].undo - 1;
            WANT(kv_commit(m->step, accepted) == ERR_ARG, "too many rows rejected", accepted[0],
                 was);
            accepted[0] = was;
        }
        WANT(kv_commit(m->step, accepted) == 0, "commit", 0, 0);
        commit_reference(m, accepted);
    }
    for (uint32_t i = 0; i < m->n_spans; i++)
        verify_seq(m, &m->seq[m->ms[i].seq]);
}

/* --- the other operations ------------------------------------------------------------------- */

static void op_new(struct model *m)
{
    m->doing = "new";
    struct mseq *s = vacant(m);
    kv_seq h = 0;
    int e = kv_new(m->kv, m->names, &h);
    WANT((e == 0) == (s != NULL), "new", (uint64_t)-e, 0);
    if (e < 0) return;
    *s = (struct mseq){.used = true, .handle = h};
}

static void op_fork(struct model *m)
{
    m->doing = "fork";
    struct mseq *a = pick(m), *b = vacant(m);
    if (!a) return;
    uint64_t copied = m->kv->rows_copied;
    if (!m->step->open) snapshot(m, m->shot[0]);
    kv_seq h = 0;
    uint64_t evicted = m->kv->evictions;
    int e = kv_fork(m->kv, a->handle, &h);
    WANT(m->kv->rows_copied == copied, "a fork copied rows", copied, m->kv->rows_copied);
    if (e < 0) {
        WANT(e == (b ? ERR_FULL : ERR_LIMIT), "fork", (uint64_t)-e, 0);
        WANT(e == ERR_LIMIT || a->reserve > a->len, "a fork of a sequence without a reserve", 0, 0);
        WANT(evicted == m->kv->evictions, "a refused fork evicted", 0, 0);
        return;
    }
    *b = *a;
    b->handle = h;
    b->reserve = 0;
    verify_seq(m, b);
}

static void op_drop(struct model *m)
{
    m->doing = "drop";
    struct mseq *s = pick(m);
    if (!s) return;
    kv_seq h = s->handle, other;
    WANT(kv_drop(m->kv, h) == 0, "drop", h, 0);
    s->used = false;
    WANT(kv_drop(m->kv, h) == ERR_STALE && kv_fork(m->kv, h, &other) == ERR_STALE &&
             kv_reserve(m->kv, h, 1) == ERR_STALE && kv_len(m->kv, h) == 0,
         "a stale handle", h, 0);
}

static void op_reorder(struct model *m)
{
    m->doing = "reorder";
    kv_seq beam[SEQS];
    uint32_t from[SEQS], at[SEQS], n = 0;
    static struct mseq old[SEQS];
    for (uint32_t i = 0; i < SEQS; i++)
        if (m->seq[i].used && !m->seq[i].busy && chance(m, 80)) at[n++] = i;
    for (uint32_t i = 0; i < n; i++) {
        beam[i] = m->seq[at[i]].handle;
        from[i] = chance(m, 40) ? i : rnd(m, n);
    }
    int e = kv_reorder(m->kv, beam, from, n);
    if (e < 0) {
        WANT(e == ERR_FULL, "reorder", (uint64_t)-e, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        old[i] = m->seq[at[i]];
    for (uint32_t i = 0; i < n; i++) {
        m->seq[at[i]] = old[from[i]];
        m->seq[at[i]].handle = beam[i];
        m->seq[at[i]].reserve = old[i].reserve;
    }
    for (uint32_t i = 0; i < n; i++)
        verify_seq(m, &m->seq[at[i]]);
    m->t->reorders++;
}

static void op_reserve(struct model *m)
{
    m->doing = "reserve";
    struct mseq *s = pick(m);
    if (!s) return;
    uint32_t n = chance(m, 30) ? 0 : rnd(m, m->cfg.max_len + 1);
    if (!m->step->open) snapshot(m, m->shot[0]);
    int e = kv_reserve(m->kv, s->handle, n);
    if (e < 0) {
        WANT(e == ERR_FULL && n > s->len, "reserve", (uint64_t)-e, n);
        if (!m->step->open) want_same(m, "a refused reserve changed something");
        return;
    }
    s->reserve = n;
    m->t->reserves++;
    WANT(kv_reserve(m->kv, s->handle, m->cfg.max_len + 1) == ERR_LIMIT, "reserve past the end", n,
         0);
}

/* Whether every group can go on from row r: all it reads is held in the right form, and the tile
 * that r lies in is held raw. */
static bool resumable(struct model *m, const struct mseq *s, const struct seq *q, uint32_t r)
{
    for (uint32_t gi = 0; gi < m->kv->n_groups; gi++) {
        const struct kv_group *g = &m->group[gi];
        const struct group *in = &m->kv->group[gi];
        if (g->policy.kind == KV_STATE) {
            bool kept = r == 0 || r == s->len;
            for (uint32_t i = 0; i < q->g[gi].n_keeps; i++)
                kept |= q->g[gi].keep[i].pos == r;
            if (!kept) return false;
        }
        if (g->policy.kind != KV_ROWS) continue;
        const uint32_t *raw = seq_table(m->kv, in, RAW, q),
                       *tiles = seq_table(m->kv, in, SEALED, q);
        uint32_t tile = g->seal.tile, whole = tile ? r / tile * tile : r;
        uint32_t start = r == s->len && s->open && r ? s->start[r - 1] : r;
        uint32_t edge = flat_edge(g, s->start, start, r);
        if (r % g->rows && !raw[r / g->rows]) return false;
        for (uint32_t j = 0; j < r; j++) {
            bool seen = flat_sees(&g->policy, r, j), lead = j < g->seal.lead;
            bool later = tile && !lead && j < whole; /* read sealed now or one day */
            if (seen && later && !tiles[j / tile]) return false;
            bool as_raw = (seen && (lead || j >= edge)) || (tile && j >= whole);
            if (as_raw && !raw[j / g->rows]) return false;
        }
    }
    return true;
}

static void op_trim(struct model *m)
{
    m->doing = "trim";
    struct mseq *s = pick(m);
    if (!s || !s->len) return;
    uint32_t to = rnd(m, s->len + 1), have = 12345;
    if (chance(m, 70)) to = s->len - to % MIN(s->len, 20u); /* mostly a little */
    struct seq *q = inside(m, s);
    uint32_t best = to;
    bool exact = chance(m, 25);
    while (exact && !resumable(m, s, q, best))
        best--;
    if (!m->step->open) snapshot(m, m->shot[0]);
    int e = kv_trim(m->kv, s->handle, to, &have);
    WANT(kv_trim(m->kv, s->handle, m->cfg.max_len + 1, &have) == ERR_ARG, "trim to more", 0, 0);
    if (e < 0) {
        WANT(e == ERR_LOST || (e == ERR_FULL && s->reserve), "trim", (uint64_t)-e, to);
        WANT(have == 12345, "a refused trim set its result", have, 0);
        if (!m->step->open) want_same(m, "a refused trim changed something");
        return;
    }
    WANT(have <= to && (!exact || have == best), "trim is not the longest", have, best);
    for (uint32_t i = have; i < to; i++)
        WANT(s->tok[i] >= 0, "lost rows went unnoticed", i, to);
    if (have < s->len) s->open = false;
    s->len = have;
    for (uint32_t i = 0; i < have; i++) /* the update cut in two stays one update */
        WANT(s->start[i] <= i, "start", i, 0);
    m->t->trims++;
    verify_seq(m, s);
}

static void op_wrong(struct model *m)
{
    m->doing = "wrong arguments";
    struct kv_step *st = NULL;
    struct mseq *s = pick(m);
    if (!s || s->len == m->cfg.max_len) return;
    kv_seq h = s->handle;
    struct kv_span zero = {.seq = h}, twice[2] = {{.seq = h, .n = 1}, {.seq = h, .n = 1}};
    struct kv_span far = {.seq = h, .n = m->cfg.max_len - s->len + 1},
                   undo = {.seq = h, .n = 1, .undo = 2};
    struct kv_span stale = {.seq = h ^ 1u << 31, .n = 1}, none = {.seq = 0, .n = 1};
    bool open = m->step->open;
    const struct {
        const struct kv_span *span;
        uint32_t n;
        int want;
    } row[] = {{&zero, 1, ERR_ARG}, {twice, 2, ERR_ARG},    {&far, 1, ERR_LIMIT},
               {&undo, 1, ERR_ARG}, {&stale, 1, ERR_STALE}, {&none, 1, ERR_STALE},
               {twice, 0, ERR_ARG}, {twice, 70000, ERR_ARG}};
    if (!open) snapshot(m, m->shot[0]);
    for (uint32_t i = 0; i < countof(row); i++) {
        int e = kv_begin(m->kv, row[i].span, row[i].n, &st);
        WANT(e == (open ? ERR_BUSY : row[i].want), "wrong span", i, (uint64_t)-e);
    }
    if (!open) want_same(m, "a wrong span changed something");
    for (uint32_t i = 0; i < SEQS && open; i++) {
        uint32_t have, zero_from = 0;
        if (!m->seq[i].busy) continue;
        kv_seq b = m->seq[i].handle, out;
        WANT(kv_fork(m->kv, b, &out) == ERR_BUSY && kv_drop(m->kv, b) == ERR_BUSY &&
                 kv_trim(m->kv, b, 0, &have) == ERR_BUSY && kv_reserve(m->kv, b, 1) == ERR_BUSY &&
                 kv_reorder(m->kv, &b, &zero_from, 1) == ERR_BUSY,
             "a busy sequence", b, 0);
    }
}

/* What may happen while a step on other sequences is open. */
static void op_small(struct model *m)
{
    switch (rnd(m, 6)) {
    case 0:
        op_new(m);
        break;
    case 1:
        op_fork(m);
        break;
    case 2:
        op_drop(m);
        break;
    case 3:
        op_reserve(m);
        break;
    case 4:
        op_trim(m);
        break;
    default:
        op_wrong(m);
    }
}

static void op_any(struct model *m)
{
    static const struct {
        void (*run)(struct model *);
        uint32_t weight; /* of 100 */
    } op[] = {{op_step, 53},   {op_new, 7},  {op_fork, 12},   {op_drop, 5},
              {op_reorder, 6}, {op_trim, 9}, {op_reserve, 6}, {op_wrong, 2}};
    uint32_t k = rnd(m, 100), i = 0;
    for (; k >= op[i].weight; i++)
        k -= op[i].weight;
    op[i].run(m);
}

/* --- configurations ------------------------------------------------------------------------- */

static struct kv_group rows_of(const struct kv_codec *codec, uint32_t rows, enum dtype k,
                               enum dtype v)
{
    return (struct kv_group){
        .policy = {.kind = KV_ROWS},
        .seal = {.tile = codec ? codec->tile : 0},
        .rows = rows,
        .n_sites = 1,
        .n_planes = 2,
        .plane = {{"k", {1, 2, k, KV_STRIPS}, codec}, {"v", {2, 1, v, KV_ROWMAJOR}, codec}}};
}

static uint32_t maybe(struct model *m, uint32_t n)
{
    return chance(m, 50) ? 0 : 1 + rnd(m, n);
}

static const char *const kinds[] = {"full",  "window", "chunk",  "codec",  "window-codec",
                                    "resid", "state",  "frozen", "tile128"};

static struct kv_group draw_group(struct model *m, uint32_t kind)
{
    const struct kv_codec *flip = &flat_codec[rnd(m, 3)];
    uint32_t rows = 16u << (chance(m, 70) ? 0 : rnd(m, 3));
    struct kv_group g = rows_of(NULL, rows, DT_F32, DT_F16);
    switch (kind) {
    case 0:
        g.n_sites = 1 + rnd(m, 2);
        break;
    case 1:
    case 4:
        if (kind == 4) g = rows_of(flip, rows, DT_BF16, DT_F32);
        g.policy.window = 1 + rnd(m, 100);
        g.policy.sinks = maybe(m, 20);
        g.seal.lead = kind == 4 ? g.policy.sinks + maybe(m, 30) : 0;
        g.policy.slack = maybe(m, 30);
        g.policy.every = maybe(m, 40);
        break;
    case 2:
        g.policy.chunk = 8 + rnd(m, 80);
        g.policy.sinks = maybe(m, 20);
        g.policy.slack = maybe(m, 40);
        g.policy.every = maybe(m, 40);
        break;
    case 3:
        g = rows_of(flip, rows, DT_F16, DT_F16);
        g.seal.lead = maybe(m, 40);
        break;
    case 5:
        g = rows_of(flip, rows, DT_F16, DT_F32);
        g.seal.resid = 1 + rnd(m, 70);
        g.seal.lead = maybe(m, 30);
        g.policy.window = chance(m, 30) ? 1 + rnd(m, 120) : 0;
        break;
    case 6:
        g = (struct kv_group){.policy = {.kind = KV_STATE, .every = maybe(m, 40)},
                              .n_sites = 1 + rnd(m, 2),
                              .n_planes = 2,
                              .plane = {{"conv", {1, 3, DT_F32, KV_FLAT}, NULL},
                                        {"ssm", {2, 3, DT_F32, KV_FLAT}, NULL}}};
        break;
    case 7:
        g = rows_of(chance(m, 50) ? flip : NULL, rows, DT_F16, DT_F16);
        g.policy.kind = KV_FROZEN;
        break;
    default:
        g = rows_of(&kv_codec_shuffle, chance(m, 50) ? 16 : 256, DT_F32, DT_F16);
    }
    return g;
}

static void draw_config(struct model *m)
{
    static char name[64];
    uint32_t site = 0, n = 1 + rnd(m, GROUPS);
    size_t block = 0;
    name[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = rnd(m, countof(kinds));
        for (uint32_t k = 0; m->opt->only && k < countof(kinds); k++)
            if (i == 0 && strcmp(kinds[k], m->opt->only) == 0) kind = k;
        if (i == 0 && kind == 7) kind = 0; /* somebody has to count the rows */
        m->group[i] = draw_group(m, kind);
        m->group[i].site0 = site;
        site += m->group[i].n_sites;
        block += 2 * 64 * m->group[i].n_sites * MAX(m->group[i].rows, 16) / 8;
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s", i ? "+" : "",
                 kinds[kind]);
    }
    m->config = name;
    m->cfg = (struct kv_config){.group = m->group,
                                .n_groups = n,
                                .max_seqs = 2 + rnd(m, SEQS - 1),
                                .max_tokens = 8 + rnd(m, 200),
                                .max_len = 100 + rnd(m, 300)};
    if (m->group[0].plane[0].codec == &kv_codec_shuffle) m->cfg.max_len += LEN - 400;
    m->cfg.pool_bytes = m->cfg.max_seqs * block * (2 + rnd(m, chance(m, 50) ? 4 : 24));
}

/* One store: opened, worked for a while, emptied, closed. */
static void one_store(struct model *m, uint64_t ops)
{
    static const kv_seq no_handle = 0;
    draw_config(m);
    memset(m->seq, 0, sizeof m->seq);
    m->doing = "open";
    while (kv_open(&m->kv, &m->cfg) < 0)
        m->cfg.pool_bytes *= 2; /* below the minimum */
    m->step = &m->kv->step;
    size_t bytes = snapshot_bytes(m->kv);
    for (int i = 0; i < 2; i++) {
        free(m->shot[i]);
        m->shot[i] = calloc(1, bytes);
        WANT(m->shot[i], "no memory for the test", 0, 0);
    }
    WANT(kv_drop(m->kv, no_handle) == ERR_STALE, "handle 0", 0, 0);
    for (uint64_t i = 0; i < ops; i++) {
        m->op++;
        op_any(m);
        WANT(pool_used(m->kv) <= m->kv->pool, "promised more than the budget", pool_used(m->kv),
             m->kv->pool);
        if (m->op % 64 == 0 || ops < 200)
            verify_all(m);
        else if (m->opt->check && m->op % 8 == 0 && !kv_check(m->kv))
            verify_all(m);
    }
    m->doing = "end";
    verify_all(m);
    struct kv_usage u;
    for (uint32_t i = 0; i < SEQS; i++)
        if (m->seq[i].used) WANT(kv_drop(m->kv, m->seq[i].handle) == 0, "drop", i, 0);
    kv_usage(m->kv, &u);
    WANT(u.live == 0 && u.states == 0 && u.shared == 0 && u.reserved == 0 && u.free == u.pool,
         "bytes left over", u.live, u.reserved);
    WANT(u.peak <= u.pool, "peak over the budget", u.peak, u.pool);
    m->t->seals += u.seals;
    m->t->evictions += u.evictions;
    m->t->forks += u.forks;
    m->t->rows_copied += u.rows_copied;
    m->t->rows_copied_by_fork += u.rows_copied_by_fork;
    m->t->max_refs = MAX(m->t->max_refs, u.max_refs);
    m->t->stores++;
    kv_close(m->kv);
    m->kv = NULL;
}

int model_run(const struct model_options *o, struct model_totals *t)
{
    struct model *m = calloc(1, sizeof *m);
    volatile int e = 0;
    if (!m) return -1;
    m->opt = o;
    m->t = t;
    m->rng = mix(o->seed + 1);
    m->doing = "start";
    kv_fault.poison = true;
    if (setjmp(m->out) == 0) {
        while (m->op < o->ops)
            one_store(m, MIN(o->ops - m->op, 1000));
        t->ops += m->op;
    } else {
        e = -1;
        kv_close(m->kv);
    }
    kv_fault.poison = false;
    free(m->shot[0]);
    free(m->shot[1]);
    free(m);
    return e;
}
