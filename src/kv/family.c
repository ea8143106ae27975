/* family.c - what the reserve of a slot with marks needs.
 *
 * A mark may be rolled back or released, in any order.  A page that only the slot's own contents
 * and those of its marks hold then belongs to the contents that remain, or returns to the reserve.
 * So the reserve of a marked slot holds, for each of these contents, what the contents would need
 * alone, less the pages that would return.  Steps, trims, rollbacks and releases keep this true
 * without a page from the pool.  A fork takes the pages that would then be missing from the reserve, or is refused. */
#include "kv/kv_int.h"

/* Adds an owner of contents s to the family: its slot, or one of its marks.  Contents that the family did not have
 * become a member. */
static void family_add(struct family *f, const struct seq *s)
{
    struct member *m = f->of;
    while (m < f->of + f->n && m->s != s)
        m++;
    if (m == f->of + f->n) f->of[f->n++] = (struct member){.s = s};
    m->mine++;
    m->foreign = s->owners + s->marks > m->mine;
}

static struct family family_of(const struct kv *kv, uint32_t slot)
{
    const struct slot *sl = &kv->slot[slot];
    struct family f = {kv->member, 0, 0};
    family_add(&f, &kv->seq[sl->seq]);
    for (uint32_t i = sl->marks; i; i = kv->mark[i - 1].next) {
        f.reserve = MAX(f.reserve, kv->mark[i - 1].reserve);
        family_add(&f, &kv->seq[kv->mark[i - 1].at]);
    }
    return f;
}

bool family_alone(const struct kv *kv, const struct family *f, uint32_t gi, uint32_t form,
                  uint32_t i, uint32_t id)
{
    const struct group *g = &kv->group[gi];
    uint32_t refs = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        const struct seq *s = f->of[k].s;
        uint32_t before = refs;
        refs += seq_table(kv, g, form, s)[i] == id;
        for (uint32_t n = 0; g->c.policy.kind == KV_STATE && n < s->g[gi].n_keeps; n++)
            refs += s->g[gi].keep[n].page == id;
        if (refs > before && f->of[k].foreign) return false;
    }
    return g->form[form].page[id].refs == refs;
}

/* Computes the cells that member k needs: the leading ones, and those from `from` on.  Snapshots keep the cells
 * between these, which do not count because snapshots can be evicted. */
static void member_cells(const struct kv *kv, struct member *m, uint32_t gi, uint32_t form)
{
    const struct group *g = &kv->group[gi];
    m->own = m->lead = m->from = 0;
    if (g->c.policy.kind == KV_STATE) return;
    m->lead = table_first(g, form);
    m->from = MAX(cut_at(g, m->s, gi, form, m->s->len), m->lead);
}

static bool member_needs(const struct kv *kv, const struct member *m, uint32_t gi, uint32_t form,
                         uint32_t i, uint32_t id)
{
    return seq_table(kv, &kv->group[gi], form, m->s)[i] == id && (i < m->lead || i >= m->from);
}

/* Counts the pages that member k needs, that no earlier member needs, and that only the family holds.  Each of these
 * pages also counts in `own` of every member that has the page.  In member 0 a page counts only if its cell remains
 * after a cut to `len`. */
static uint32_t family_count(const struct kv *kv, struct family *f, uint32_t k, uint32_t gi,
                             uint32_t form, uint32_t len)
{
    const struct group *g = &kv->group[gi];
    const struct seq *now = f->of[0].s;
    bool state = g->c.policy.kind == KV_STATE;
    uint32_t n = 0, end = state ? len == now->len : table_used(g, form, len);
    for (uint32_t i = 0; i < table_used(g, form, f->of[k].s->len); i++) {
        uint32_t id = seq_table(kv, g, form, f->of[k].s)[i], first = 0;
        if (!id || !member_needs(kv, &f->of[k], gi, form, i, id)) continue;
        while (!member_needs(kv, &f->of[first], gi, form, i, id))
            first++;
        if (first < k || !family_alone(kv, f, gi, form, i, id)) continue;
        n++;
        for (uint32_t j = 0; j < f->n; j++)
            f->of[j].own += seq_table(kv, g, form, f->of[j].s)[i] == id && (j || i < end);
    }
    return n;
}

uint32_t family_need(const struct kv *kv, uint32_t slot, uint32_t gi, uint32_t form, uint32_t len)
{
    struct family f = family_of(kv, slot);
    uint32_t all = 0, need = 0;
    if (leaves(kv, &kv->group[gi], form) || !has_form(&kv->group[gi], form)) return 0;
    for (uint32_t k = 0; k < f.n; k++)
        member_cells(kv, &f.of[k], gi, form);
    for (uint32_t k = 0; k < f.n; k++)
        all += family_count(kv, &f, k, gi, form, len);
    for (uint32_t k = 0; k < f.n; k++) {
        uint32_t most = k ? f.reserve : MAX(f.reserve, kv->slot[slot].reserve);
        const struct reserve_for r = {most, false, &f};
        uint32_t rows = k ? f.of[k].s->len : len;
        need = MAX(need, reserve_need_as(kv, f.of[k].s, gi, form, rows, &r) + f.of[k].own);
    }
    return need - MIN(need, all);
}
