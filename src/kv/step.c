/* step.c - one forward: begin, commit, abort.
 *
 * begin takes every page that the step can need.  It notes each table cell that it changes,
 * together with the page that was there.  That page keeps its reference until the step ends, so
 * abort only writes the old ids back.  State pages wait in `dst` until commit moves one of them
 * into the table.  Nothing is given back before commit, and commit cannot fail.
 *
 * step_pages.c counts and takes the pages, and step_view.c has the views that kernels get in between. */
#include "base/trace.h"
#include "dev/dev.h"
#include "kv/kv_int.h"

/* Changes the turns to those after the span's rows, because queries of the span lie inside the turn. */
static void turn_begin(struct seq *s, const struct step_span *sp)
{
    if (sp->rows.turn && s->turn_open) {
        s->turn[s->n_turns - 1].n += sp->rows.n;
    } else if (sp->rows.turn) {
        s->turn[s->n_turns++] = (struct kv_turn){s->len, sp->rows.n};
        s->turn_open = true;
    } else if (s->turn_open) {
        s->turn_open = false;
        if (s->turn[s->n_turns - 1].n == 1) s->n_turns--; /* a turn has more than one row */
    }
}

static void turn_undo(struct seq *s, const struct step_span *sp)
{
    s->n_turns = sp->n_turns;
    s->turn_open = sp->was_open;
    if (s->n_turns) s->turn[s->n_turns - 1].n = sp->turn_n;
}

static void turn_commit(struct seq *s, const struct step_span *sp, uint32_t accepted)
{
    if (!accepted) {
        turn_undo(s, sp);
        return;
    }
    if (!sp->rows.turn) return;
    struct kv_turn *t = &s->turn[s->n_turns - 1];
    t->n -= sp->rows.n - accepted;
    if (sp->rows.last) {
        s->turn_open = false;
        if (t->n == 1) s->n_turns--;
    }
}

static int span_check(const struct kv *kv, const struct kv_span *a, uint32_t i, const struct seq *s)
{
    if (s->busy)
        return ERR(ARG, "cache: span %u names sequence %#x, and so does an earlier span", i,
                   a->seq);
    if (!a->n) return ERR(ARG, "cache: span %u has no rows", i);
    if (a->undo > a->n)
        return ERR(ARG, "cache: span %u may reject %u of its %u rows", i, a->undo, a->n);
    uint32_t len = a->cross ? 0 : seq_place(s);
    if (a->n > kv->max_len - len)
        return ERR(
            LIMIT,
            "cache: %u rows after %u exceed max_cache_len %u; trim the sequence, or open the cache with more",
            a->n, len, kv->max_len);
    if (!a->cross) return 0;
    if (!kv->has_frozen)
        return ERR(ARG, "cache: span %u writes frozen groups, but the cache has none", i);
    if (s->cross)
        return ERR(ARG, "cache: the frozen rows of sequence %#x are written already (%u)", a->seq,
                   s->cross);
    if (a->undo) return ERR(ARG, "cache: span %u: frozen rows cannot be rejected", i);
    return 0;
}

/* Gives the sequence contents of its own and marks them busy. */
static void own_begin(struct kv *kv, struct step_span *sp, kv_seq handle)
{
    struct seq *s = edit(kv, slot_index(kv, handle));
    s->busy = true;
    sp->seq = s->id;
    sp->n_turns = s->n_turns;
    sp->was_open = s->turn_open;
    sp->turn_n = s->n_turns ? s->turn[s->n_turns - 1].n : 0;
}

static void own_undo(struct kv *kv, const struct step_span *sp)
{
    struct seq *s = &kv->seq[sp->seq];
    s->busy = false;
    edited_contents(kv, s);
    meta_settle(kv, s->slot);
}

/* Fills st->span and marks the sequences busy.  After an error, the spans before the refused one are filled and
 * busy. */
static int spans_take(struct kv *kv, const struct kv_span *span, uint32_t n)
{
    struct kv_step *st = &kv->step;
    if (!n || n > kv->lanes)
        return ERR(ARG, "cache: a step of %u sequences; use 1 to %u", n, kv->lanes);
    if (n > kv_step_lanes(kv))
        return ERR(LIMIT, "cache: a step of %u sequences; %u can be staged at once", n,
                   kv_step_lanes(kv));
    st->cross = span[0].cross;
    for (uint32_t i = 0; i < n; i++, st->n_spans++) {
        const struct kv_span *a = &span[i];
        struct seq *s;
        TRY(seq_find(kv, a->seq, &s));
        TRY(span_check(kv, a, i, s));
        if (a->cross != st->cross)
            return ERR(
                ARG, "cache: a step is for frozen groups or for the others, not both (span %u)", i);
        if (a->n > kv->max_tokens - st->n_tokens)
            return ERR(LIMIT, "cache: a step of more than %u rows (at span %u with %u)",
                       kv->max_tokens, i, a->n);
        st->span[i] = (struct step_span){.rows = *a, .tok0 = st->n_tokens};
        st->span[i].rows.turn = a->turn && !a->cross;
        st->n_tokens += a->n;
        own_begin(kv, &st->span[i], a->seq);
    }
    return 0;
}

/* Pins the blocks that the step needs in memory, so that making room does not move them to the
 * tier. */
static void pin_tails(struct kv_step *st, bool pin)
{
    for (uint32_t i = 0; i < st->n_spans; i++) {
        const struct seq *s = &st->kv->seq[st->span[i].seq];
        pin_from(st->kv, s, s->len, false, pin);
    }
}

/* Undoes everything begin did, in reverse order. */
int step_undo(struct kv_step *st)
{
    struct kv *kv = st->kv;
    stage_end(kv);
    int e = dev_finish(kv->work); /* after this nothing reads the pages that are given back */
    while (st->n_changes) {
        struct change *c = &st->change[--st->n_changes];
        if (c->copied && *c->cell == c->old) continue; /* the copy was planned but not made */
        page_unref(kv, c->pages, *c->cell);
        *c->cell = c->old;
    }
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        for (uint32_t t = 0; g->c.policy.kind == KV_STATE && t < st->n_tokens; t++) {
            if (g->dst[t]) page_unref(kv, &g->form[RAW], g->dst[t]);
            g->dst[t] = 0;
        }
    }
    for (uint32_t i = 0; i < st->n_spans; i++) {
        struct seq *s = &kv->seq[st->span[i].seq];
        stash_end(kv, s->slot, true);
        if (!st->cross) turn_undo(s, &st->span[i]);
    }
    for (uint32_t i = st->n_spans; i > 0; i--)
        own_undo(kv, &st->span[i - 1]);
    st->open = false;
    return e;
}

static int try_begin(struct kv *kv, const struct kv_span *span, uint32_t n)
{
    struct kv_step *st = &kv->step;
    st->n_changes = st->n_tokens = st->n_spans = 0;
    int e = spans_take(kv, span, n);
    pin_tails(st, true);
    if (e >= 0 && (e = reserve_settle(kv)) == ERR_FULL)
        e = 0; /* reserves lack pages, but the step may fit all the same */
    for (uint32_t i = 0; e >= 0 && i < st->n_spans && !st->cross; i++)
        turn_begin(&kv->seq[st->span[i].seq], &st->span[i]);
    if (e >= 0) e = step_plan(st);
    pin_tails(st, false);
    if (e >= 0) e = step_take(st);
    if (e < 0) (void)step_undo(st);
    return e;
}

int kv_begin(struct kv *kv, const struct kv_span *span, uint32_t n, struct kv_step **out)
{
    struct kv_step *st = &kv->step;
    bool began = kv->stream.began;
    if (st->open) return ERR(BUSY, "cache: a step is open; commit or abort it first");
    uint32_t tries = 0;
    int e = 0;
    while (room_try_encode(kv, &tries, e))
        e = try_begin(kv, span, n);
    for (uint32_t i = 0; i < st->n_spans && !began && kv->stream.began; i++)
        kv->stream.since = MAX(kv->stream.since, kv->seq[st->span[i].seq].len);
    kv->peak = MAX(kv->peak, pool_rows(kv));
    if (e < 0) return e;
    kv->need = 0;
    if (pool_held(kv) + kv->backed > kv->pool) pool_trim(kv);
    step_fill(st, span);
    st->layer = KV_NONE;
    st->begun = trace_now();
    stage_plan(st);
    st->open = true;
    for (uint32_t i = 0; i < st->n_spans; i++)
        age_pin(kv, &kv->seq[st->span[i].seq], true);
    *out = st;
    return 0;
}

/* Returns the length at which the turn that the span ends has a snapshot; KV_NONE: nowhere.  A snapshot at row 0 is
 * useless, since every sequence can begin there. */
static uint32_t turn_keep(const struct kv *kv, const struct seq *s, const struct step_span *sp,
                          uint32_t accepted)
{
    bool ends = sp->rows.turn && sp->rows.last && accepted && s->len > step_turn_back(kv);
    return ends ? s->len - step_turn_back(kv) : KV_NONE;
}

/* Moves one state page into the table, references those of snapshots, and gives the others
 * back. */
static void commit_state(struct kv *kv, struct seq *s, uint32_t gi, const struct step_span *sp,
                         uint32_t accepted)
{
    struct group *g = &kv->group[gi];
    struct pages *p = &g->form[RAW];
    uint32_t *cell = seq_table(kv, g, RAW, s), every = g->c.policy.every;
    uint32_t *dst = g->dst + sp->tok0;
    uint32_t len = s->len - accepted, end = turn_keep(kv, s, sp, accepted);
    /* the snapshot lies at the length before this step */
    if (every && end == len) keep_add(kv, s, gi, len, *cell);
    for (uint32_t t = 0; t < sp->rows.n; t++) {
        if (!dst[t]) continue;
        if (every && t < accepted && ((len + t + 1) % every == 0 || len + t + 1 == end))
            keep_add(kv, s, gi, len + t + 1, dst[t]);
        uint32_t old = t + 1 == accepted ? *cell : dst[t];
        if (t + 1 == accepted) *cell = dst[t];
        if (old) page_unref(kv, p, old);
        dst[t] = 0;
    }
}

static void commit_rows(struct kv *kv, struct seq *s, uint32_t gi, const struct step_span *sp,
                        uint32_t accepted)
{
    struct group *g = &kv->group[gi];
    uint32_t len = seq_rows(g, s), all = len + sp->rows.n - accepted, every = g->c.policy.every;
    for (uint32_t f = 0; f < FORMS; f++) {
        if (!has_form(g, f)) continue;
        if (f == SEALED)
            kv->seals += step_tiles_begun(g, len) - step_tiles_begun(g, len - accepted);
        if (f == SEALED && kv_fault.keep_rejected) continue;
        cells_drop(kv, s, gi, f, table_used(g, f, len), table_used(g, f, all));
    }
    uint32_t end = turn_keep(kv, s, sp, accepted), pos = len - accepted;
    for (; g->forgets && every && accepted && pos <= len; pos++)
        if (pos == end || (pos > len - accepted && pos % every == 0)) keep_add(kv, s, gi, pos, 0);
    drop_unreachable(kv, s, gi);
}

static void commit_span(struct kv_step *st, struct step_span *sp, uint32_t accepted)
{
    struct kv *kv = st->kv;
    struct seq *s = &kv->seq[sp->seq];
    if (st->cross) {
        s->cross = sp->rows.n;
    } else {
        s->len += accepted;
        turn_commit(s, sp, accepted);
    }
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        struct group *g = &kv->group[gi];
        if (!step_writes(st, g)) continue;
        if (g->c.policy.kind == KV_STATE)
            commit_state(kv, s, gi, sp, accepted);
        else
            commit_rows(kv, s, gi, sp, accepted);
        if (s->g[gi].n_keeps > 4) keep_thin(kv, s, gi, s->len);
    }
    s->busy = false;
    stash_end(kv, s->slot, false);
    edited_contents(kv, s);
}

int kv_commit(struct kv_step *st, const uint32_t *accepted)
{
    if (!st || !st->open) return ERR(ARG, "cache: no step is open");
    struct kv *kv = st->kv;
    for (uint32_t i = 0; accepted && i < st->n_spans; i++)
        if (accepted[i] > st->span[i].rows.n ||
            accepted[i] < st->span[i].rows.n - st->span[i].rows.undo)
            return ERR(ARG, "cache: span %u accepts %u of %u rows, at most %u may be rejected", i,
                       accepted[i], st->span[i].rows.n, st->span[i].rows.undo);
    int e = dev_finish(kv->work);
    if (e < 0) {
        (void)step_undo(st);
        return e;
    }
    for (uint32_t i = 0; i < st->n_changes; i++) {
        const struct change *c = &st->change[i];
        if (!c->copied) continue;
        page_unref(kv, c->pages, c->old);
    }
    st->n_changes = 0;
    st->open = false;
    stage_end(kv);
    step_trace_layer(st, KV_NONE);
    trace_add(TRACE_STEP, "forward", st->begun, KV_NONE, 0);
    for (uint32_t i = 0; i < st->n_spans; i++)
        commit_span(st, &st->span[i], accepted ? accepted[i] : st->span[i].rows.n);
    /* after all commits, because filling a reserve may evict snapshots of any sequence */
    for (uint32_t i = 0; i < st->n_spans; i++)
        reserve_refill(kv, kv->seq[st->span[i].seq].slot);
    if (kv->index.watch) index_list_live(kv);
    return 0;
}

int kv_abort(struct kv_step *st)
{
    return st && st->open ? step_undo(st) : 0;
}
