/* trim.c - trimming: finds the longest length that every group can resume from exactly, and cuts
 * the sequence there.
 *
 * A group of KV rows can resume at m under two conditions.  The rows that a query at m reads are
 * held in the form in which it reads them.  The rows of the tile that m lies in are held raw.  A
 * group of states can resume only where a snapshot has a page.
 *
 * Each group lowers the answer for the others until all agree.  A trim writes no rows.  It gives
 * back the pages beyond m; if a shared block becomes the open one, the next begin copies it. */
#include "kv/kv_int.h"

/* Returns the longest length up to m with a snapshot; 0: there is none. */
static uint32_t resume_keep(const struct seq_group *sg, uint32_t m)
{
    for (uint32_t i = sg->n_keeps; i-- > 0;)
        if (sg->keep[i].pos <= m) return sg->keep[i].pos;
    return 0;
}

static uint32_t resume_state(const struct seq *s, const struct seq_group *sg, uint32_t m)
{
    return m == s->len ? m : resume_keep(sg, m);
}

/* Checks whether group g can resume at m.  Returns m if so, else a smaller upper bound, which the caller must check
 * again. */
static uint32_t resume_look(const struct kv *kv, const struct seq *s, const struct group *g,
                            uint32_t m)
{
    const uint32_t *raw = seq_table(kv, g, RAW, s), *sealed = seq_table(kv, g, SEALED, s);
    uint32_t rows = g->rows[RAW], tile = g->rows[SEALED];
    struct need n = need_at(g, s, m, 0, m == s->len && s->turn_open);
    uint32_t first = MAX(n.from[SEALED], g->c.policy.sinks);
    if (first < MIN(m, s->g[g - kv->group].unseen)) return first;
    uint32_t whole = MAX(n.from[RAW], (g->keep_rows + KV_STRIP - 1) / KV_STRIP * KV_STRIP);
    if (whole <
        MIN(m, s->g[g - kv->group].raw_unseen)) { /* only a snapshot at m has the raw rows */
        uint32_t keep = resume_keep(&s->g[g - kv->group], m);
        if (keep != m) return MAX(whole, keep);
    }
    if (m % rows && !raw[m / rows]) return m - m % rows;
    for (uint32_t k = MAX(n.from[SEALED] / tile, table_first(g, SEALED));
         has_form(g, SEALED) && k < m / tile; k++)
        if (!sealed[k]) return (k + 1) * tile - 1;
    for (uint32_t b = MAX(n.from[RAW] / rows, table_first(g, RAW)); b < m / rows; b++)
        if (!raw[b]) return MAX(n.from[RAW], b * rows);
    return m;
}

/* Returns the longest length up to m that all groups can resume from.  *hinders, unless NULL: the
 * group that lowers the length most; KV_NONE: no group does. */
static uint32_t resume(const struct kv *kv, const struct seq *s, uint32_t m, uint32_t *hinders)
{
    uint32_t most = 0;
    if (hinders) *hinders = KV_NONE;
    for (uint32_t before = m + 1; before != m;) {
        before = m;
        for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
            const struct group *g = &kv->group[gi];
            uint32_t was = m;
            if (g->c.policy.kind == KV_STATE) m = resume_state(s, &s->g[gi], m);
            if (g->c.policy.kind == KV_ROWS) m = resume_look(kv, s, g, m);
            if (hinders && was - m > most) *hinders = gi;
            most = MAX(most, was - m);
        }
    }
    return m;
}

static void cut_turns(struct seq *s, uint32_t m)
{
    while (s->n_turns && s->turn[s->n_turns - 1].pos >= m)
        s->n_turns--;
    s->turn_open = false;
    if (!s->n_turns) return;
    struct kv_turn *t = &s->turn[s->n_turns - 1];
    t->n = MIN(t->n, m - t->pos);
    if (t->n == 1) s->n_turns--;
}

static void trim_state(struct kv *kv, struct seq *s, uint32_t gi, uint32_t m)
{
    struct group *g = &kv->group[gi];
    uint32_t *cell = seq_table(kv, g, RAW, s), page = state_after(kv, g, s, m);
    if (page) page_ref(kv, &g->form[RAW], page);
    if (*cell) page_unref(kv, &g->form[RAW], *cell);
    *cell = page;
}

static void trim_rows(struct kv *kv, struct seq *s, uint32_t gi, uint32_t m)
{
    struct group *g = &kv->group[gi];
    for (uint32_t f = 0; f < FORMS; f++) {
        if (!has_form(g, f)) continue;
        cells_drop(kv, s, gi, f, table_used(g, f, m), table_used(g, f, s->len));
        s->g[gi].cut[f] = cut_at(g, s, gi, f, m);
    }
    s->g[gi].unseen = MIN(s->g[gi].unseen, m);
    s->g[gi].raw_unseen = MIN(s->g[gi].raw_unseen, m);
}

void seq_cut(struct kv *kv, struct seq *s, uint32_t m)
{
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        if (kv->group[gi].c.policy.kind == KV_STATE && m < s->len) trim_state(kv, s, gi, m);
        if (kv->group[gi].c.policy.kind == KV_ROWS && m < s->len) trim_rows(kv, s, gi, m);
        struct seq_group *sg = &s->g[gi];
        while (sg->n_keeps && sg->keep[sg->n_keeps - 1].pos > m)
            keep_remove(kv, s, gi, sg->n_keeps - 1);
    }
    cut_turns(s, m);
    uint32_t n_keys = kv->index.turns && m < s->len ? 0 : MIN(s->n_keys, m / KV_STRIP);
    index_hide(kv, s, n_keys);
    s->n_keys = n_keys;
    s->len = m;
    /* a turn that the trim has shortened counts as flushed at its new end, so fewer raw rows may be needed */
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        drop_unreachable(kv, s, gi);
}

int kv_unseen(struct kv *kv, kv_seq handle)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    s = edit(kv, slot_index(kv, handle));
    s->foreign = true;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct kv_policy *p = &kv->group[gi].c.policy;
        if (p->kind == KV_ROWS) s->g[gi].unseen = kv_reach(p, s->len, 0).lo;
        while (s->g[gi].n_keeps && s->g[gi].keep[0].pos < s->len)
            keep_remove(kv, s, gi, 0);
    }
    return edited(kv, slot_index(kv, handle), NULL);
}

uint32_t seq_resume(const struct kv *kv, const struct seq *s, uint32_t m)
{
    return resume(kv, s, m, NULL);
}

/* Like seq_resume, but for a length in tokens, some of whose rows may be borrowed.  *to: that length as own rows and
 * runs. */
static uint32_t resume_tokens(const struct kv *kv, const struct seq *s, uint32_t len,
                              struct borrow_cut *to)
{
    *to = borrow_at(s, len);
    uint32_t rows = resume(kv, s, to->rows, NULL);
    if (rows == to->rows) return len;
    uint32_t have = borrow_place(s, rows);
    *to = borrow_at(s, have);
    return have;
}

static int trims(const struct kv *kv, kv_seq handle, uint32_t len, struct seq **s)
{
    TRY(seq_idle(kv, handle, s));
    return len <= seq_place(*s) ? 0
                                : ERR(ARG, "cache: a sequence of %u rows cannot be trimmed to %u",
                                      seq_place(*s), len);
}

int kv_resume(const struct kv *kv, kv_seq handle, uint32_t len, uint32_t *have)
{
    struct borrow_cut to;
    struct seq *s;
    TRY(trims(kv, handle, len, &s));
    *have = resume_tokens(kv, s, len, &to);
    return 0;
}

uint32_t kv_hinders(const struct kv *kv, kv_seq handle, uint32_t len)
{
    struct seq *s;
    uint32_t group = KV_NONE;
    if (seq_idle(kv, handle, &s) >= 0 && len <= seq_place(s))
        (void)resume(kv, s, borrow_at(s, len).rows, &group);
    return group;
}

struct trims {
    const kv_seq *seq; /* [n] */
    const uint32_t *len;
    uint32_t n;
};

static struct seq *trims_at(const struct kv *kv, const struct trims *t, uint32_t i)
{
    return &kv->seq[kv->slot[slot_index(kv, t->seq[i])].seq];
}

/* Returns the number of own rows that trim i leaves. */
static uint32_t trims_to(const struct kv *kv, const struct trims *t, uint32_t i)
{
    return borrow_at(trims_at(kv, t, i), t->len[i]).rows;
}

static void trims_pin(struct kv *kv, const struct trims *t, bool pin)
{
    for (uint32_t i = 0; i < t->n; i++) {
        age_pin(kv, trims_at(kv, t, i), pin); /* the snapshot of that length must stay */
        pin_from(kv, trims_at(kv, t, i), trims_to(kv, t, i), false, pin);
    }
}

/* Makes the room that the reserves need, because they must reach from the shorter lengths.  Pages that other
 * sequences hold, too, do not return to the reserves. */
static int trims_room(struct kv *kv, const struct trims *t)
{
    ptrdiff_t sum = 0, most = 0;
    for (int reset = 0; reset < 2; reset++)
        for (uint32_t i = 0; i < t->n; i++) {
            const struct seq *s = trims_at(kv, t, i);
            uint32_t slot = slot_index(kv, t->seq[i]), len = trims_to(kv, t, i);
            if (len >= s->len) continue;
            (void)gain_cut(kv, s, len, false, reset);
            if (reset || !kv->slot[slot].reserve) continue;
            sum += reserve_short(kv, slot, len);
            most = MAX(most, sum);
        }
    if (!most) return 0;
    trims_pin(kv, t, true);
    int e = make_room(kv, (size_t)most, 0,
                      t->n > 1 ? "cropping sequences with a reserve"
                               : "cropping a sequence with a reserve");
    trims_pin(kv, t, false);
    return e;
}

int kv_trim_room(struct kv *kv, const kv_seq *s, const uint32_t *len, uint32_t n)
{
    struct seq *q;
    for (uint32_t i = 0; i < n; i++)
        TRY(seq_idle(kv, s[i], &q));
    /* not checked after a failure of the tier, because a rollback must not need the tier */
    if (kv->owing) return 0;
    uint32_t tries = 0;
    int e = 0;
    while (room_try(kv, &tries, e))
        e = trims_room(kv, &(struct trims){s, len, n});
    return e;
}

int kv_trim(struct kv *kv, kv_seq handle, uint32_t len, uint32_t *have)
{
    struct borrow_cut to;
    struct seq *s;
    TRY(trims(kv, handle, len, &s));
    uint32_t m = resume_tokens(kv, s, len, &to), slot = slot_index(kv, handle);
    for (uint32_t i = m; i < len; i++)
        if (s->tok[i] < 0)
            return ERR(
                LOST,
                "cache: a trim to %u tokens needs the rows from %u recomputed, and row %u has "
                "no token id",
                len, m, i);
    if (m < seq_place(s)) TRY(kv_trim_room(kv, &handle, &m, 1));
    *have = m;
    if (m == seq_place(s)) return 0;
    s = edit(kv, slot);
    borrow_trim(kv, s, to);
    seq_cut(kv, s, to.rows);
    return edited(kv, slot, NULL);
}
