/* held.c - computes how many bytes a sequence of a given length would hold, without computing a row.  It follows the store's
 * own rules: the drop rule of keep.c, the edge of policy.c, and the tables of the groups.  Snapshots and kept contents do not
 * count, because they are evicted before anything fails. */
#include "kv/kv_int.h"

/* The pages of a form that a sequence holds: leading ones, and those from the cursor on. */
struct cells {
    uint32_t leading, from, end;
};

static struct cells planned_cells(const struct group *g, const struct seq *s, uint32_t form,
                                  uint32_t from, uint32_t len, bool open)
{
    struct need n = need_at(g, s, from, g->c.policy.slack, open);
    uint32_t end = table_used(g, form, len), first = MIN(table_first(g, form), end);
    return (struct cells){form == RAW ? first : 0, need_cell(g, form, &n, len), end};
}

static uint32_t count_cells(const struct cells *c)
{
    return c->leading + c->end - c->from;
}

/* Returns how many of these pages are not full when the sequence has `at` rows. */
static uint32_t count_own(const struct group *g, uint32_t form, const struct cells *c, uint32_t at)
{
    uint32_t full = at / g->rows[form];
    uint32_t leading = c->leading - MIN(c->leading, full);
    return leading + c->end - MIN(MAX(c->from, full), c->end);
}

/* Adds what one group of rows holds. */
static void add_rows(const struct group *g, const struct kv_growth *w, struct kv_held *out)
{
    struct kv_turn turn = {0, w->turn};
    struct seq s = {.turn = &turn, .n_turns = w->turn > 1};
    for (uint32_t f = 0; f < FORMS; f++) {
        const struct pages *p = &g->form[f];
        if (!has_form(g, f)) continue;
        struct cells c = planned_cells(g, &s, f, w->len, w->len, false);
        size_t bytes = count_cells(&c) * p->bytes;
        *(f == RAW ? &out->raw : &out->sealed) += bytes;
        out->own += count_own(g, f, &c, w->turn) * p->bytes;
        if (g->c.stream) out->streamed += bytes;
    }
    struct kv_reach r = kv_reach(&g->c.policy, w->len ? w->len - 1 : 0, 0);
    out->seen += (uint64_t)(w->len ? r.hi - r.lo + r.sinks : 0) * g->c.n_sites;
}

void kv_held(const struct kv *kv, const struct kv_growth *w, struct kv_held *out)
{
    *out = (struct kv_held){.metadata = 2 * meta_unit(kv, w->len), .fixed = kv->fixed};
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        if (g->c.policy.kind == KV_ROWS) add_rows(g, w, out);
        if (g->c.policy.kind != KV_STATE || !w->len) continue;
        out->states += g->form[RAW].bytes;
        out->own += g->form[RAW].bytes;
    }
}

/* Returns the bytes of pages during a step that computes rows [at, end) of a turn.  The step also reads the rows
 * before `at`. */
static size_t step_bytes(const struct kv *kv, uint32_t at, uint32_t end)
{
    struct kv_turn turn = {0, at};
    struct seq s = {.turn = &turn, .n_turns = at > 1};
    size_t sum = 0;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        /* the state before the step, if there is one, and the state after it */
        if (g->c.policy.kind == KV_STATE) sum += (at ? 2 : 1) * g->form[RAW].bytes;
        for (uint32_t f = 0; f < FORMS && g->c.policy.kind == KV_ROWS; f++) {
            struct cells c = planned_cells(g, &s, f, at, end, true);
            sum += has_form(g, f) ? count_cells(&c) * g->form[f].bytes : 0;
        }
    }
    return sum;
}

size_t kv_turn_peak(const struct kv *kv, uint32_t turn)
{
    size_t most = 0;
    for (uint32_t at = 0; at < turn; at += kv->max_tokens)
        most = MAX(most, step_bytes(kv, at, MIN(turn, at + kv->max_tokens)));
    return most;
}
