/* model_view.c - the role of a kernel in the model checker: it checks a view, writes the rows of
 * the step through the view, quantizes tiles when told, and reads the rows its tokens may see. */
#include "dev/row.h"
#include "model_int.h"

static void encode_tiles(struct model *m, const struct kv_view *v)
{
    const void *raw[16];
    for (uint32_t i = 0; i < v->counts[2]; i++) {
        uint32_t slot = v->slot[v->enc[2 * i]], k = v->enc[2 * i + 1], tile = v->sealed.rows;
        uint32_t id = v->sealed.table[slot * v->sealed.stride + k], b0 = k * tile / v->raw.rows;
        WANT(id != 0, "a tile to quantize has no page", k, slot);
        for (uint32_t p = 0; p < v->n_planes; p++) {
            for (uint32_t b = 0; b < MAX(tile / v->raw.rows, 1); b++) {
                uint32_t page = v->raw.table[slot * v->raw.stride + b0 + b];
                WANT(page != 0, "a tile to quantize has no raw rows", k, b);
                raw[b] = v->raw.base + page * v->raw.grain + v->raw.offset[p];
            }
            kv_tile_encode(v->codec[p], &v->shape[p],
                           v->sealed.base + id * v->sealed.grain + v->sealed.offset[p], raw,
                           v->raw.rows, k * tile % v->raw.rows,
                           v->lead > k * tile ? v->lead - k * tile : 0);
        }
    }
}

/* Checks that no other sequence can see a page that a kernel is about to write. */
static void want_private(struct model *m, const struct kv_view *v, const struct group *g)
{
    uint32_t rows = v->raw.rows, before = 0;
    for (uint32_t t = 0; t < m->n_tokens; t++) {
        uint32_t page = v->dst[t] / rows, lane = v->lane[t];
        if (!page || page == before) continue;
        before = page;
        for (const struct seq *s = NULL; (s = seq_each(m->kv, s));) {
            uint32_t k = s->id, n = s->kept ? table_used(g, RAW, seq_rows(g, s)) : v->raw.stride;
            const uint32_t *table = seq_table(m->kv, g, RAW, s);
            bool mine = k == v->slot[lane] && g->c.policy.kind != KV_STATE;
            for (uint32_t i = 0; i < n && !mine; i++)
                WANT(table[i] != page, "a page to write is visible to another", page, k);
            const struct seq_group *sg = &s->g[g - m->kv->group];
            for (uint32_t i = 0; i < sg->n_keeps && g->c.policy.kind == KV_STATE; i++)
                WANT(sg->keep[i].page != page, "a page to write is a snapshot", page, k);
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
    model_want_query(m, v, g, site, v->slot[v->lane[t]], s, pos, s->start[pos], pos + 1);
}

/* Reads one piece as a kernel does. */
static void read_piece(struct model *m, const struct kv_view *v, uint32_t site)
{
    const struct kv_group *g = &m->group[m->kv->site_group[site]];
    for (uint32_t i = 0; i < m->n_spans; i++) {
        const struct mspan *ms = &m->ms[i];
        const struct mseq *s = &m->seq[ms->seq];
        uint32_t len = g->policy.kind != KV_FROZEN ? s->len + ms->n : m->cross ? ms->n : s->cross;
        WANT(v->len[i] == len && v->slot[i] == (uint32_t)(model_inside(m, s) - m->kv->seq), "lane",
             v->len[i], len);
        if (g->policy.kind == KV_STATE) {
            WANT(!v->from[i] == !s->len, "state to read", v->from[i], s->len);
            if (v->from[i]) model_want_state(m, v, site, v->from[i], s->row[s->len - 1]);
        } else if (g->policy.kind == KV_FROZEN) {
            uint32_t rows = m->cross ? ms->n : s->cross, edge = v->edge[ms->tok0];
            WANT(v->hi[ms->tok0] == rows && v->lo[ms->tok0] == 0, "frozen reach", v->hi[ms->tok0],
                 rows);
            model_want_rows(m, v, site, v->slot[i], s->xrow, 0, rows, edge);
        } else {
            want_token(m, v, g, site, ms->tok0);
            if (ms->n > 2) want_token(m, v, g, site, ms->tok0 + model_rnd(m, ms->n));
            if (ms->n > 1) want_token(m, v, g, site, ms->tok0 + ms->n - 1);
        }
    }
}

static void write_rows(struct model *m, const struct kv_view *v, uint32_t site)
{
    uint32_t gi = m->kv->site_group[site];
    const struct kv_group *g = &m->group[gi];
    bool writes = (g->policy.kind == KV_FROZEN) == m->cross;
    want_private(m, v, &m->kv->group[gi]);
    for (uint32_t t = 0; t < m->n_tokens; t++) {
        const struct mspan *ms = &m->ms[v->lane[t]];
        struct mseq *s = &m->seq[ms->seq];
        WANT(t >= ms->tok0 && t < ms->tok0 + ms->n, "lane", t, v->lane[t]);
        if (v->dst[t])
            flat_put_row(v, site, v->dst[t], m->cross ? s->xrow[v->pos[t]] : s->row[v->pos[t]]);
        WANT(g->policy.kind == KV_STATE || writes == (v->dst[t] >= v->raw.rows), "dst", v->dst[t],
             t);
    }
    encode_tiles(m, v);
}

/* Checks that pieces follow one another and cover all rows, sealed pieces before raw ones. at: the
 * rows covered so far. */
static void want_piece(struct model *m, const struct kv_view *v, bool rows, bool first, bool lossy,
                       uint32_t at[2])
{
    uint32_t row[2][2] = {{v->row0, v->row1}, {v->raw0, v->raw1}};
    bool more = !rows;
    WANT(v->first == first, "the first piece", v->first, first);
    for (int f = 0; f < 2; f++) {
        WANT(row[f][1] % KV_ATOM == 0 && row[f][0] <= row[f][1], "rows of a piece", row[f][0],
             row[f][1]);
        if (row[f][0] == row[f][1]) continue;
        WANT(row[f][0] == at[f], "pieces follow", row[f][0], at[f]);
        WANT(f == 0 || !lossy || at[0] >= m->cfg.max_len, "raw rows before sealed ones", at[0], 0);
        at[f] = row[f][1];
        more = true;
    }
    WANT(more, "a piece without rows", v->row0, v->row1);
    WANT(lossy || at[0] == at[1], "one range of rows", at[0], at[1]);
    WANT(!v->last || !rows || (at[0] >= m->cfg.max_len && at[1] >= m->cfg.max_len),
         "the last piece", at[0], at[1]);
}

int model_kernel(struct model *m, uint32_t site)
{
    struct kv_view v = {.row1 = 0};
    const struct kv_group *g = &m->group[m->kv->site_group[site]];
    bool first = true, rows = g->policy.kind != KV_STATE;
    uint32_t most = model_chance(m, 95) ? UINT32_MAX : 1; /* a kernel may stop early */
    for (uint32_t at[2] = {0, 0}; most > 0; most--, first = false) {
        int e = kv_next(m->step, site, &v);
        if (m->cross && g->policy.kind != KV_FROZEN) {
            WANT(e == ERR_ARG, "a cross step shows another group", (uint64_t)e, site);
            return 0;
        }
        if (e == 0 && !first) break;
        if (e == ERR_IO && m->tier && m->tier->failed) return e;
        WANT(e == 1, "kv_next", (uint64_t)e, site);
        WANT(v.counts[0] == m->n_spans && v.counts[1] == m->n_tokens, "counts", v.counts[0],
             v.counts[1]);
        bool lossy = g->seal.tile && !g->plane[0].codec->lossless;
        want_piece(m, &v, rows, first, lossy, at);
        WANT(g->stream || v.last, "pieces of a resident group", v.row0, v.row1);
        if (first) write_rows(m, &v, site);
        read_piece(m, &v, site);
        m->t->pieces += !v.first;
        m->t->raw_pieces += lossy && v.raw1 > v.raw0 && !(v.row1 > v.row0 && v.last);
    }
    WANT(most != UINT32_MAX && (v.last || !most), "pieces end", v.row0, v.row1);
    m->t->verified_views++;
    return 0;
}
