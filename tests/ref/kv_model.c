/* kv_model.c - random operations on a store against a flat reference that keeps every row.
 *
 * The reference of a sequence is an array of 64-bit names, one per row, drawn when the row is
 * written. Two rows have equal names only if a fork made them so. The bytes of a row at a site,
 * plane, head and dim follow from its name. Which rows a query sees, and in which form, is computed
 * row by row from the definitions, without the store's functions. Rows are written and read through
 * views as a kernel does. Tiles are quantized when a view says so, and freed pages are filled with
 * NaN patterns.
 *
 * After an operation the sequences it touched are compared row by row. Every few operations all
 * sequences are compared, and every invariant of kv_check. */
#include "model_int.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t model_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

uint32_t model_rnd(struct model *m, uint32_t n)
{
    m->rng += 0x9E3779B97F4A7C15u;
    return n ? (uint32_t)(model_mix(m->rng) >> 33) % n : 0;
}

bool model_chance(struct model *m, uint32_t percent)
{
    return model_rnd(m, 100) < percent;
}

_Noreturn void model_differ(struct model *m, const char *what, uint64_t a, uint64_t b)
{
    fprintf(stderr,
            "kv model: %s (%llu, %llu) at operation %llu (%s), configuration %s, seed %llu\n", what,
            (unsigned long long)a, (unsigned long long)b, (unsigned long long)m->op, m->doing,
            m->config, (unsigned long long)m->opt->seed);
    if (*err_last()) fprintf(stderr, "  last error: %s\n", err_last());
    longjmp(m->out, 1);
}

/* --- picking -------------------------------------------------------------------------------- */

struct mseq *model_pick(struct model *m)
{
    uint32_t k = model_rnd(m, SEQS);
    for (uint32_t i = 0; i < SEQS; i++) {
        struct mseq *s = &m->seq[(k + i) % SEQS];
        if (s->used && !s->busy) return s;
    }
    return NULL;
}

struct mseq *model_vacant(struct model *m)
{
    for (uint32_t i = 0; i < m->cfg.max_seqs; i++)
        if (!m->seq[i].used) return &m->seq[i];
    return NULL;
}

/* --- the other operations ------------------------------------------------------------------- */

static void op_new(struct model *m)
{
    m->doing = "new";
    struct mseq *s = model_vacant(m);
    kv_seq h = 0;
    struct kv_salt salt = model_salt(m);
    int e = kv_new(m->kv, &salt, &h);
    WANT((e == 0) == (s != NULL), "new", (uint64_t)-e, 0);
    if (e < 0) return;
    *s = (struct mseq){.used = true, .handle = h, .salt = salt};
}

static bool marked(const struct model *m, const struct mseq *s)
{
    bool any = false;
    for (uint32_t i = 0; i < MARKS; i++)
        any |= m->mark[i].mark.seq == s->handle;
    return any;
}

static void op_fork(struct model *m)
{
    m->doing = "fork";
    struct mseq *a = model_pick(m), *b = model_vacant(m);
    if (!a) return;
    uint64_t copied = m->kv->rows_copied;
    if (!m->step->open) model_snapshot(m, m->shot[0]);
    kv_seq h = 0;
    uint64_t evicted = m->kv->evictions;
    size_t held = pool_held(m->kv);
    int e = kv_fork(m->kv, a->handle, &h);
    WANT(m->kv->rows_copied == copied, "a fork copied rows", copied, m->kv->rows_copied);
    if (e < 0) {
        WANT(e == (b ? ERR_FULL : ERR_LIMIT), "fork", (uint64_t)-e, 0);
        bool promises = a->reserve > a->len || (a->reserve && marked(m, a));
        struct mseq fork = {.used = true};
        size_t meta = model_charge(m, &fork, MAX(a->len, a->cross));
        WANT(e == ERR_LIMIT || promises ||
                 (m->kv->need && m->kv->need <= meta && held + meta > m->kv->pool),
             "a fork of a sequence without a reserve", meta, m->kv->need);
        WANT(evicted == m->kv->evictions, "a refused fork evicted", 0, 0);
        return;
    }
    model_rungs(m);
    *b = *a;
    b->handle = h;
    b->reserve = 0;
    model_verify(m, b);
}

static void op_drop(struct model *m)
{
    m->doing = "drop";
    struct mseq *s = model_pick(m);
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
    kv_seq beam[SEQS] = {0};
    uint32_t from[SEQS] = {0}, at[SEQS], n = 0;
    static struct mseq old[SEQS];
    for (uint32_t i = 0; i < SEQS; i++)
        if (m->seq[i].used && !m->seq[i].busy && model_chance(m, 80)) at[n++] = i;
    for (uint32_t i = 0; i < n; i++) {
        beam[i] = m->seq[at[i]].handle;
        from[i] = model_chance(m, 40) ? i : model_rnd(m, n);
    }
    size_t before = 0, after = 0;
    bool reserved = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct mseq *s = &m->seq[at[i]], *t = &m->seq[at[from[i]]];
        before += model_charge(m, s, MAX(s->len, s->cross));
        after += model_charge(m, s, MAX(t->len, t->cross));
        reserved |= s->reserve != 0;
    }
    int e = kv_reorder(m->kv, beam, from, n);
    if (e < 0) {
        WANT(e == ERR_FULL && (reserved || after > before), "reorder", (uint64_t)-e, n);
        return;
    }
    model_rungs(m);
    for (uint32_t i = 0; i < n; i++)
        old[i] = m->seq[at[i]];
    for (uint32_t i = 0; i < n; i++) {
        m->seq[at[i]] = old[from[i]];
        m->seq[at[i]].handle = beam[i];
        m->seq[at[i]].reserve = old[i].reserve;
    }
    for (uint32_t i = 0; i < n; i++)
        model_verify(m, &m->seq[at[i]]);
    m->t->reorders++;
}

/* Marks a sequence, and sometimes changes how many rows its appends can rely on meanwhile. */
static void op_mark(struct model *m)
{
    m->doing = "mark";
    struct mseq *s = model_pick(m);
    uint32_t i = 0;
    while (i < MARKS && m->mark[i].mark.seq)
        i++;
    if (!s) return;
    struct kv_mark none;
    if (i == MARKS) {
        WANT(kv_mark(m->kv, s->handle, &none) == ERR_LIMIT && !none.seq, "too many marks", 0, 0);
        return;
    }
    if (!m->step->open) model_snapshot(m, m->shot[0]);
    bool first = !marked(m, s);
    int e = kv_mark(m->kv, s->handle, &m->mark[i].mark);
    if (e < 0) {
        WANT(e == ERR_FULL && (!first || (s->reserve && m->kv->owing)), "mark", (uint64_t)-e,
             s->reserve);
        if (!m->step->open) model_want_same(m, "a refused mark changed something");
        return;
    }
    m->mark[i].seq = (uint32_t)(s - m->seq);
    m->mark[i].s = *s;
    m->t->marks++;
    if (!model_chance(m, 40)) return;
    uint32_t len = model_rnd(m, m->cfg.max_len + 1),
             grow = m->kv->slot[kv_slot(m->kv, s->handle)].grow;
    e = kv_rely(m->kv, s->handle, len);
    WANT(e >= 0 || (e == ERR_FULL && len > grow), "rely", (uint64_t)-e, len);
}

/* Rolls back to a mark or releases it. The mark of a sequence that was dropped meanwhile is only
 * released. */
static void end_mark(struct model *m, struct mmark *k, bool back)
{
    struct mseq *s = &m->seq[k->seq];
    if (!k->mark.seq) return;
    bool lives = s->used && s->handle == k->mark.seq;
    if (lives && s->busy) return;
    if (!back) {
        kv_release(m->kv, &k->mark);
    } else {
        kv_rollback(m->kv, &k->mark);
        m->rolled = true;
        if (lives) *s = k->s;
        for (uint32_t i = 0; lives && i < MARKS;
             i++) /* the reserve is not below that of other marks */
            if (m->mark[i].mark.seq == s->handle)
                s->reserve = MAX(s->reserve, m->mark[i].s.reserve);
        m->t->rollbacks += lives;
        m->t->reserved_rollbacks += lives && s->reserve > s->len;
    }
    WANT(k->mark.seq == 0, "a mark did not end", back, 0);
    WANT(m->tier || !m->kv->owing, "a reserve lacks pages after a mark", back, 0);
    if (lives) WANT(kv_reserved(m->kv, s->handle) == s->reserve, "reserve", s->reserve, back);
    if (lives) model_verify(m, s);
}

static void op_end_mark(struct model *m)
{
    m->doing = "end of a mark";
    end_mark(m, &m->mark[model_rnd(m, MARKS)], model_chance(m, 70));
}

static void op_reserve(struct model *m)
{
    m->doing = "reserve";
    struct mseq *s = model_pick(m);
    if (!s || m->unreserved) return;
    uint32_t n = model_chance(m, 30) ? 0 : model_rnd(m, m->cfg.max_len + 1);
    if (!m->step->open) model_snapshot(m, m->shot[0]);
    int e = kv_reserve(m->kv, s->handle, n);
    if (n < s->reserve && marked(m, s)) {
        WANT(e == ERR_BUSY, "the reserve of an undo was lowered", n, s->reserve);
        return;
    }
    if (e < 0) {
        WANT(e == ERR_FULL && n > s->len, "reserve", (uint64_t)-e, n);
        if (!m->step->open) model_want_same(m, "a refused reserve changed something");
        return;
    }
    s->reserve = n;
    m->t->reserves++;
    WANT(kv_reserve(m->kv, s->handle, m->cfg.max_len + 1) == ERR_LIMIT, "reserve past the end", n,
         0);
}

bool model_resumable(struct model *m, const struct mseq *s, const struct seq *q, uint32_t r)
{
    for (uint32_t gi = 0; gi < m->kv->n_groups; gi++) {
        const struct kv_group *g = &m->group[gi];
        const struct group *in = &m->kv->group[gi];
        bool kept = false; /* there is a snapshot */
        for (uint32_t i = 0; i < q->g[gi].n_keeps; i++)
            kept |= q->g[gi].keep[i].pos == r;
        if (g->policy.kind == KV_STATE && !kept && r && r != s->len) return false;
        if (g->policy.kind != KV_ROWS) continue;
        const uint32_t *raw = seq_table(m->kv, in, RAW, q),
                       *tiles = seq_table(m->kv, in, SEALED, q);
        uint32_t tile = g->seal.tile, whole = tile ? r / tile * tile : r;
        uint32_t start = r == s->len && s->open && r ? s->start[r - 1] : r;
        uint32_t edge = flat_edge(g, s->start, start, r);
        if (r % g->rows && !raw[r / g->rows]) return false;
        for (uint32_t j = 0; j < r; j++) {
            bool seen = flat_sees(&g->policy, r, j), lead = j < g->seal.lead;
            bool later = tile && !lead && j < whole; /* the row is read sealed, now or later */
            if (seen && later && !tiles[j / tile]) return false;
            bool as_raw = (seen && (lead || j >= edge)) || (tile && j >= whole);
            if (as_raw && !raw[j / g->rows]) return false;
            uint32_t strip =
                j / KV_STRIP * KV_STRIP; /* an import may have given only some rows of a block */
            if (as_raw && strip >= in->keep_rows && j < q->g[gi].raw_unseen && !kept) return false;
        }
    }
    return true;
}

static void op_trim(struct model *m)
{
    m->doing = "trim";
    struct mseq *s = model_pick(m);
    if (!s || !s->len) return;
    uint32_t to = model_rnd(m, s->len + 1), have = 12345;
    if (model_chance(m, 70)) to = s->len - to % MIN(s->len, 20u); /* usually a small trim */
    struct seq *q = model_inside(m, s);
    uint32_t best = to;
    bool exact = model_chance(m, 50);
    while (exact && !model_resumable(m, s, q, best))
        best--;
    if (!m->step->open) model_snapshot(m, m->shot[0]);
    int e = kv_trim(m->kv, s->handle, to, &have);
    WANT(kv_trim(m->kv, s->handle, m->cfg.max_len + 1, &have) == ERR_ARG, "trim to more", 0, 0);
    if (e < 0) {
        WANT(e == ERR_LOST || (e == ERR_FULL && s->reserve), "trim", (uint64_t)-e, to);
        WANT(have == 12345, "a refused trim set its result", have, 0);
        if (!m->step->open) model_want_same(m, "a refused trim changed something");
        return;
    }
    WANT(have <= to && (!exact || have == best), "trim is not the longest", have, best);
    for (uint32_t i = have; i < to; i++)
        WANT(s->tok[i] >= 0, "lost rows went unnoticed", i, to);
    s->trimmed |= have < s->len;
    if (have < s->len) s->open = false;
    s->len = have;
    for (uint32_t i = 0; i < have; i++) /* a trim inside an update leaves one update */
        WANT(s->start[i] <= i, "start", i, 0);
    m->t->trims++;
    model_verify(m, s);
}

static void op_image(struct model *m)
{
    m->doing = "save and load";
    struct mseq *a = model_pick(m), *b = model_vacant(m);
    if (a) model_op_image(m, a, b);
}

static void op_wrong(struct model *m)
{
    m->doing = "wrong arguments";
    struct kv_step *st = NULL;
    struct mseq *s = model_pick(m);
    if (!s || s->len == m->cfg.max_len) return;
    kv_seq h = s->handle;
    struct kv_span zero = {.seq = h}, twice[2] = {{.seq = h, .n = 1}, {.seq = h, .n = 1}};
    struct kv_span far = {.seq = h, .n = m->cfg.max_len - s->len + 1},
                   undo = {.seq = h, .n = 1, .undo = 2};
    struct kv_span stale = {.seq = h ^ 1u << 31, .n = 1}, none = {.seq = 0, .n = 1};
    bool open = m->step->open;
    int two = kv_step_lanes(m->kv) < 2 ? ERR_LIMIT : ERR_ARG;
    const struct {
        const struct kv_span *span;
        uint32_t n;
        int want;
    } row[] = {{&zero, 1, ERR_ARG}, {twice, 2, two},        {&far, 1, ERR_LIMIT},
               {&undo, 1, ERR_ARG}, {&stale, 1, ERR_STALE}, {&none, 1, ERR_STALE},
               {twice, 0, ERR_ARG}, {twice, 70000, ERR_ARG}};
    if (!open) model_snapshot(m, m->shot[0]);
    for (uint32_t i = 0; i < countof(row); i++) {
        int e = kv_begin(m->kv, row[i].span, row[i].n, &st);
        WANT(e == (open ? ERR_BUSY : row[i].want), "wrong span", i, (uint64_t)-e);
    }
    if (!open) model_want_same(m, "a wrong span changed something");
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

/* Runs an operation that is allowed while a step on other sequences is open. */
void model_op_small(struct model *m)
{
    switch (model_rnd(m, 10)) {
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
    case 5:
        model_keep(m);
        break;
    case 6:
        model_match(m);
        break;
    case 7:
        op_mark(m);
        break;
    case 8:
        op_end_mark(m);
        break;
    default:
        op_wrong(m);
    }
}

void model_rungs(struct model *m)
{
    for (uint32_t i = 0; m->kv->n_rungs && i < m->cfg.n_groups; i++)
        m->group[i] = *kv_group_now(m->kv, i);
}

/* Goes on to a rung; sometimes the system refuses a page meanwhile. */
static void op_encode(struct model *m)
{
    m->doing = "encode";
    struct kv *kv = m->kv;
    uint32_t rung = kv->rung + 1;
    bool reserved = false;
    for (uint32_t i = 0; i < SEQS; i++)
        reserved |= m->seq[i].used && m->seq[i].reserve;
    WANT(kv_encode(kv, kv->n_rungs + 1) == ERR_UNSUPPORTED, "a rung that is not there", rung, 0);
    if (rung > kv->n_rungs) return;
    model_snapshot(m, m->shot[0]);
    uint64_t evicted = kv->evictions;
    if (model_chance(m, 20)) kv_fault.fail_take = 1 + model_rnd(m, 6);
    bool starved = kv_fault.fail_take != 0;
    int e = kv_encode(kv, rung);
    starved = starved && kv_fault.fail_take == 0;
    kv_fault.fail_take = 0;
    model_rungs(m);
    if (e < 0) {
        WANT(e == (reserved  ? ERR_BUSY
                   : starved ? ERR_NOMEM
                             : ERR_FULL),
             "encode", (uint64_t)-e, rung);
        WANT(kv->rung + 1 == rung, "a refused rung", kv->rung, rung);
        if (evicted == kv->evictions) model_want_same(m, "a refused rung changed something");
        m->t->encodes_refused++;
        return;
    }
    WANT(kv->rung == rung && !kv->index.n, "rung", kv->rung, rung);
    m->t->encodes++;
    model_verify_all(m);
}

static void op_any(struct model *m)
{
    static const struct {
        void (*run)(struct model *);
        uint32_t weight; /* out of 100 */
    } op[] = {{model_op_step, 43}, {op_mark, 4},    {op_end_mark, 3}, {op_image, 3},
              {op_new, 6},         {op_fork, 10},   {op_drop, 2},     {op_reorder, 6},
              {op_trim, 8},        {op_reserve, 5}, {op_wrong, 1},    {model_keep, 2},
              {model_match, 7}};
    uint32_t k = model_rnd(m, 100), i = 0;
    for (; k >= op[i].weight; i++)
        k -= op[i].weight;
    op[i].run(m);
}

/* Runs one store: opens it, runs operations, empties and closes it. */
static void one_store(struct model *m, uint64_t ops)
{
    static const kv_seq no_handle = 0;
    model_config(m);
    memset(m->seq, 0, sizeof m->seq);
    memset(m->kept, 0, sizeof m->kept);
    memset(m->mark, 0, sizeof m->mark);
    m->rolled = false;
    m->doing = "open";
    while (kv_open(&m->kv, &m->cfg) < 0)
        if (m->cfg.pool_bytes += 8192, m->cfg.stage_bytes) /* the budget is below the minimum */
            m->cfg.stage_bytes += 4096;
    m->step = &m->kv->step;
    size_t bytes = model_snapshot_bytes(m->kv);
    for (int i = 0; i < 2; i++) {
        free(m->shot[i]);
        m->shot[i] = calloc(1, bytes);
        WANT(m->shot[i], "no memory for the test", 0, 0);
    }
    WANT(kv_drop(m->kv, no_handle) == ERR_STALE, "handle 0", 0, 0);
    for (uint64_t i = 0; i < ops; i++) {
        m->op++;
        if (m->kv->n_rungs && !model_rnd(m, 800))
            op_encode(m);
        else
            op_any(m);
        WANT(pool_held(m->kv) <= m->kv->pool, "over budget", pool_held(m->kv), m->kv->pool);
        WANT(!m->kv->ages.strayed, "not the oldest snapshot", m->kv->ages.strayed, 0);
        if (m->op % 4 == 0) model_metadata(m);
        if (m->tier) WANT(!m->tier->bad && !m->tier->in_flight, "tier", m->tier->bad, 0);
        if (m->op % 64 == 0 || ops < 200)
            model_verify_all(m);
        else if (m->opt->check && m->op % 8 == 0 && !kv_check(m->kv))
            model_verify_all(m);
    }
    m->doing = "end";
    model_verify_all(m);
    for (uint32_t i = 0; i < MARKS; i++)
        end_mark(m, &m->mark[i], model_chance(m, 50));
    model_verify_all(m);
    struct kv_usage u;
    for (uint32_t i = 0; i < SEQS; i++)
        if (m->seq[i].used) WANT(kv_drop(m->kv, m->seq[i].handle) == 0, "drop", i, 0);
    kv_usage(m->kv, &u);
    WANT(u.free == u.pool - u.staging - u.metadata && u.live == 0 && u.states == 0,
         "the index is not free", u.live, u.index);
    kv_forget(m->kv);
    kv_usage(m->kv, &u);
    WANT(u.index == 0 && u.live == 0 && u.states == 0 && u.shared == 0 && u.reserved == 0 &&
             u.spilled == 0 && u.metadata == m->kv->fixed &&
             u.free == u.pool - u.staging - u.metadata,
         "bytes left over", u.live, u.reserved);
    if (m->tier) {
        m->t->tier_reads += m->tier->reads;
        m->t->tier_writes += m->tier->writes;
        m->t->tier_drops += m->tier->drops;
        m->t->tier_faults += m->tier->faults;
    }
    WANT(u.peak <= u.pool, "peak over the budget", u.peak, u.pool);
    m->t->seals += u.seals;
    m->t->evictions += u.evictions;
    m->t->forks += u.forks;
    m->t->rows_copied += u.rows_copied;
    m->t->max_refs = MAX(m->t->max_refs, u.max_refs);
    m->t->stores++;
    m->t->hits += u.hits;
    m->t->hit_rows += u.hit_rows;
    m->t->walked += m->kv->ages.walked;
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
    m->rng = model_mix(o->seed + 1);
    m->doing = "start";
    kv_fault.poison = kv_fault.weak_keys = kv_fault.walk_ages = true;
    if (setjmp(m->out) == 0) {
        while (m->op < o->ops)
            one_store(m, MIN(o->ops - m->op, 1000));
        t->ops += m->op;
    } else {
        e = -1;
        if (m->kv)
            kv_close(m->kv);
        else if (m->tier)
            m->tier->tier.close(&m->tier->tier);
    }
    kv_fault.poison = kv_fault.weak_keys = kv_fault.walk_ages = false;
    free(m->shot[0]);
    free(m->shot[1]);
    free(m);
    flat_ledger_close();
    return e;
}
