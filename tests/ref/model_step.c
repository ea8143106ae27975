/* model_step.c - one step of the model checker: random spans, what the step may cost, whether the store takes it or refuses
 * it, the rows as a kernel writes and reads them, and the reference after its end. */
#include "model_int.h"

static bool has_kind(const struct model *m, enum kv_kind kind)
{
    for (uint32_t i = 0; i < m->cfg.n_groups; i++)
        if (m->group[i].policy.kind == kind) return true;
    return false;
}

/* Draws spans over distinct idle sequences; false if there is nothing to do. */
static bool draw_spans(struct model *m)
{
    uint32_t want = model_chance(m, 50) ? 1 : 1 + model_rnd(m, m->cfg.max_seqs),
             left = m->cfg.max_tokens;
    want = MIN(want, kv_step_lanes(m->kv));
    m->n_spans = m->n_tokens = 0;
    m->cross = has_kind(m, KV_FROZEN) && model_chance(m, 15);
    bool decode = model_chance(m, 40); /* one token each, the usual batch */
    for (uint32_t k = model_rnd(m, SEQS), i = 0; i < SEQS && m->n_spans < want && left; i++) {
        struct mseq *s = &m->seq[(k + i) % SEQS];
        uint32_t room = m->cfg.max_len - (m->cross ? 0 : s->len);
        if (!s->used || s->busy || !room || (m->cross && s->cross)) continue;
        uint32_t most = model_chance(m, m->tier ? 40 : 20) ? 200 : 24;
        most = MIN(most, MIN(room, left));
        uint32_t n = decode && !m->cross ? 1 : 1 + model_rnd(m, most);
        bool turn = !m->cross && (s->open ? model_chance(m, 90) : !decode && model_chance(m, 60));
        struct mspan *ms = &m->ms[m->n_spans];
        *ms = (struct mspan){.seq = (uint32_t)(s - m->seq),
                             .n = n,
                             .tok0 = m->n_tokens,
                             .turn = turn,
                             .last = turn && model_chance(m, 60)};
        if (!m->cross && model_chance(m, 25)) ms->undo = 1 + model_rnd(m, n);
        for (uint32_t t = 0; t < n; t++)
            m->tok[m->n_tokens + t] =
                !model_rnd(m, m->cfg.index ? 400 : 50) ? -1 : (int)model_rnd(m, 1000);
        m->span[m->n_spans++] =
            (struct kv_span){.seq = s->handle,
                             .n = n,
                             .undo = ms->undo,
                             .tok = model_chance(m, 3) ? NULL : &m->tok[ms->tok0],
                             .cross = m->cross,
                             .turn = turn,
                             .last = ms->last};
        m->n_tokens += n;
        left -= n;
    }
    return m->n_spans > 0;
}

/* True if raw block k of the i-th span has to be read back to quantize from it, for this span
 * first. */
static bool tail_back(struct model *m, uint32_t gi, uint32_t i, uint32_t k)
{
    const struct kv_group *g = &m->group[gi];
    const struct group *in = &m->kv->group[gi];
    uint32_t id = seq_table(m->kv, in, RAW, model_inside(m, &m->seq[m->ms[i].seq]))[k];
    for (uint32_t o = 0; o < i; o++) {
        const struct mseq *s = &m->seq[m->ms[o].seq];
        uint32_t whole = s->len / g->seal.tile * g->seal.tile;
        if (seq_table(m->kv, in, RAW, model_inside(m, s))[k] != id) continue;
        if ((k + 1) * g->rows > whole && (k + 1) * g->rows <= s->len) return false;
    }
    return in->form[RAW].page[id].spilled;
}

/* Returns the bytes that a step needs (docs/CACHE.md, rule 20), computed from the tables before the
 * step. *back: bytes of open blocks that are not in memory. */
static size_t cost(struct model *m, size_t *back)
{
    struct kv *kv = m->kv;
    size_t sum = 0;
    static uint32_t left[SPANS * GROUPS], n_left;
    *back = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct kv_group *g = &m->group[gi];
        const struct group *in = &kv->group[gi];
        if ((g->policy.kind == KV_FROZEN) != m->cross) continue;
        n_left = 0;
        for (uint32_t i = 0; i < m->n_spans; i++) {
            const struct mspan *ms = &m->ms[i];
            uint32_t a = m->cross ? 0 : m->seq[ms->seq].len, b = a + ms->n;
            if (g->policy.kind == KV_STATE) {
                uint32_t early = g->policy.every && ms->turn && ms->last && !kv_by_turns(kv);
                for (uint32_t t = 0; t < ms->n; t++)
                    if (t + 1 + ms->undo + early >= ms->n ||
                        (g->policy.every && (a + t + 1) % g->policy.every == 0))
                        sum += in->form[RAW].bytes;
                continue;
            }
            sum +=
                ((b + g->rows - 1) / g->rows - (a + g->rows - 1) / g->rows) * in->form[RAW].bytes;
            for (uint32_t k = a / MAX(g->seal.tile, 1); g->seal.tile && k < b / g->seal.tile; k++)
                if ((k + 1) * g->seal.tile > g->seal.lead) sum += in->form[SEALED].bytes;
            uint32_t owners = 0, slot = (uint32_t)(model_inside(m, &m->seq[ms->seq]) - kv->seq);
            for (uint32_t k = a / MAX(g->seal.tile, 1) * g->seal.tile / g->rows;
                 g->seal.tile && k < a / g->rows; k++)
                *back += tail_back(m, gi, i, k) ? in->form[RAW].bytes : 0;
            if (a % g->rows == 0) continue;
            uint32_t id = in->tables[RAW].host[slot * in->stride[RAW] + a / g->rows];
            for (uint32_t k = 0; k < kv->n_contents * in->stride[RAW]; k++)
                owners += in->tables[RAW].host[k] == id ? kv->seq[k / in->stride[RAW]].owners : 0;
            for (const struct seq *q = kv->index.oldest; q; q = q->newer)
                for (uint32_t k = 0; k < table_used(in, RAW, seq_rows(in, q)); k++)
                    owners += seq_table(kv, in, RAW, q)[k] == id;
            for (uint32_t k = 0; k < n_left; k++)
                owners -= left[k] == id;
            if (owners < 2 && in->form[RAW].page[id].spilled) *back += in->form[RAW].bytes;
            if (owners < 2) continue;
            sum += in->form[RAW].bytes;
            left[n_left++] = id;
        }
    }
    return sum + *back;
}

/* Returns the bytes in memory that may be spilled: pages of rows that are not leading, and not in the tail of a sequence
 * of the step (drawn but not yet begun). */
static size_t movable(struct model *m)
{
    struct kv *kv = m->kv;
    size_t sum = 0;
    for (uint32_t n = 0; n < FORMS * kv->n_groups && m->tier; n++) {
        uint32_t gi = n / FORMS, form = n % FORMS, tile = m->group[gi].seal.tile;
        const struct group *g = &kv->group[gi];
        bool lossless = tile && m->group[gi].plane[0].codec->lossless;
        if (!m->group[gi].stream || (form == RAW ? lossless : !tile)) continue;
        const struct pages *p = &g->form[form];
        uint32_t rows = form == SEALED ? tile : m->group[gi].rows;
        uint32_t lead = MAX(m->group[gi].seal.lead, m->group[gi].policy.sinks);
        for (uint32_t id = 1; id < p->n_ids; id++) {
            bool full = false, left = false;
            for (uint32_t i = 0; i < SEQS && p->page[id].refs; i++) {
                bool in_step = false;
                for (uint32_t k = 0; k < m->n_spans; k++)
                    in_step |= m->ms[k].seq == i;
                if (!m->seq[i].used) continue;
                uint32_t slot = (uint32_t)(model_inside(m, &m->seq[i]) - kv->seq);
                bool frozen = m->group[gi].policy.kind == KV_FROZEN;
                uint32_t len = frozen ? m->seq[i].cross : m->seq[i].len;
                uint32_t whole = tile ? len / tile * tile : len;
                const uint32_t *cell = &g->tables[form].host[slot * g->stride[form]];
                for (uint32_t k = 0; form == SEALED && (k + 1) * tile <= len; k++)
                    full |= cell[k] == id;
                for (uint32_t k = 0; form == RAW && k * rows < len; k++) {
                    /* The block is written, copied, or quantized from. */
                    bool tail = !frozen && (k + 1) * rows > whole;
                    left |= in_step && tail && cell[k] == id;
                    full |= k * rows >= lead && !(in_step && tail) && cell[k] == id;
                }
            }
            if (full && !left && !p->page[id].spilled) sum += p->bytes;
        }
    }
    return sum;
}

/* Names the new rows of the step in the reference, beyond the committed length. */
static void name_rows(struct model *m)
{
    for (uint32_t i = 0; i < m->n_spans; i++) {
        const struct mspan *ms = &m->ms[i];
        struct mseq *s = &m->seq[ms->seq];
        for (uint32_t t = 0; t < ms->n; t++) {
            uint64_t name = model_mix(++m->names);
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

void model_op_step(struct model *m)
{
    m->doing = "step";
    if (!draw_spans(m)) return;
    struct kv *kv = m->kv;
    struct kv_usage u;
    kv_usage(kv, &u);
    bool promised = !m->cross && !(m->tier && m->rolled && kv->owing);
    bool plain = u.reserved == 0 && !kv->n_marks, keeps = false;
    for (uint32_t i = 0; i < m->n_spans; i++) {
        const struct mseq *s = &m->seq[m->ms[i].seq];
        promised &= kv->slot[kv_slot(kv, s->handle)].grow >= s->len + m->ms[i].n && !m->ms[i].undo;
    }
    for (uint32_t i = 0; i < m->cfg.n_groups; i++)
        keeps |= m->group[i].policy.every != 0;
    size_t back = 0, bytes = plain ? cost(m, &back) : 0, can = plain ? movable(m) : 0, meta = 0;
    for (uint32_t i = 0; plain && i < m->n_spans; i++) {
        const struct mseq *s = &m->seq[m->ms[i].seq];
        uint32_t end = m->cross ? MAX(s->len, m->ms[i].n) : MAX(s->cross, s->len + m->ms[i].n);
        meta += model_charge(m, s, end) - model_charge(m, s, MAX(s->len, s->cross));
    }
    size_t held =
        u.live + u.states + u.staging + u.metadata + bytes + meta; /* kept sequences are evicted */
    if (keeps) held += u.index; /* snapshots may be evicted as well */
    model_snapshot(m, m->shot[0]);
    uint64_t evicted = kv->evictions;
    if (model_chance(m, 3))
        kv_fault.fail_take = 1 + model_rnd(m, 4); /* the system refuses a page */
    bool starved = kv_fault.fail_take != 0, was_active = kv->stream.active;
    if (m->tier) m->tier->failed = false;
    if (m->tier && model_chance(m, 5)) m->tier->fail_at = 1 + model_rnd(m, 12);
    uint32_t rung = kv->rung;
    int e = kv_begin(kv, m->span, m->n_spans, &m->step);
    bool climbed = kv->rung != rung;
    m->t->encodes_full += climbed;
    model_rungs(m);
    plain &= !climbed;
    starved = starved && kv_fault.fail_take == 0;
    kv_fault.fail_take = 0;
    m->t->began_full += kv->stream.active && !was_active;
    if (e == ERR_NOMEM || e == ERR_IO || e == ERR_LIMIT) {
        WANT(e != ERR_NOMEM || starved, "out of memory", 0, 0);
        WANT(e != ERR_IO || (m->tier && m->tier->failed), "an error of the tier", 0, 0);
        WANT(e != ERR_LIMIT || (!was_active && m->n_spans > kv_step_lanes(kv)), "limit", 0, 0);
        if (evicted == kv->evictions && !climbed)
            model_want_same(m, "a step without memory changed something");
        m->t->refused++;
        if (m->tier) m->tier->fail_at = 0;
        return;
    }
    if (e < 0) {
        WANT(e == ERR_FULL, "begin", (uint64_t)-e, 0);
        if (!climbed) model_want_same(m, "a refused step changed something");
        if (e == ERR_FULL) WANT(kv->need > 0, "need", kv->need, 0);
        if (e == ERR_FULL) WANT(!promised, "a reserve did not hold", kv->need, m->n_spans);
        if (e == ERR_FULL && plain) WANT(held > u.pool + can, "refused too early", bytes, kv->need);
        if (e == ERR_FULL && plain && !keeps)
            WANT(held - u.pool - can == kv->need, "need is not exact", bytes, kv->need);
        m->t->refused++;
        if (m->tier) m->tier->fail_at = 0;
        return;
    }
    if (plain && !keeps) {
        WANT(held <= u.pool + can, "accepted beyond the budget", bytes, u.pool);
        size_t before = u.live + u.states + u.index - u.index_tables + u.spilled + bytes - back;
        if (evicted == kv->evictions)
            WANT(kv->live + kv->states + kv->stream.spilled == before, "cost", bytes, kv->live);
        size_t over = held + u.index; /* no more is spilled than necessary */
        over = over > u.pool ? over - u.pool : 0;
        size_t left = kv->stream.spilled + back - u.spilled, page = 0;
        for (uint32_t gi = 0; gi < kv->n_groups; gi++)
            for (uint32_t f = 0; f < FORMS; f++)
                page = MAX(page, kv->group[gi].form[f].bytes);
        if (evicted == kv->evictions)
            WANT(left >= over && left < over + page, "pages spilled", left, over);
    }
    WANT(pool_held(kv) + kv->backed <= kv->pool, "memory of free pages", kv->backed, kv->live);
    m->t->steps++;
    for (uint32_t i = 0; i < m->n_spans; i++)
        m->seq[m->ms[i].seq].busy = true;
    name_rows(m);
    bool disturbed = model_chance(m, 10), ordered = m->tier && model_chance(m, 90);
    for (uint32_t i = 0; i < kv->n_sites && e >= 0; i++) {
        e = model_kernel(m, ordered ? m->order[i] : i);
        m->doing = "step";
        if (disturbed && model_chance(m, 20)) model_op_small(m);
    }
    for (uint32_t k = disturbed ? 1 + model_rnd(m, 3) : 0; k > 0; k--)
        model_op_small(m);
    m->doing = "step's end";
    if (m->tier) m->tier->fail_at = 0;
    if (e < 0 || model_chance(m, 12)) {
        kv_abort(m->step);
        m->t->aborts++;
        for (uint32_t i = 0; i < m->n_spans; i++)
            m->seq[m->ms[i].seq].busy = false;
        if (!disturbed && !climbed && evicted == kv->evictions)
            model_want_same(m, "abort left something changed");
    } else {
        uint32_t accepted[SPANS];
        for (uint32_t i = 0; i < m->n_spans; i++)
            accepted[i] = m->ms[i].n - (m->ms[i].undo ? model_rnd(m, m->ms[i].undo + 1) : 0);
        if (m->ms[0].n > m->ms[0].undo && model_chance(m, 3)) {
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
        model_verify(m, &m->seq[m->ms[i].seq]);
}
