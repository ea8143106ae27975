/* model_index.c - the prefix index in the model checker. The checker remembers every sequence that
 * kv_keep kept, with the names of its rows. A match must find the longest prefix from which any
 * kept or live sequence can be continued. */
#include "model_int.h"

#include <string.h>

/* Returns the contents that a record is about, or NULL if they were evicted since. */
static const struct seq *kept_inside(struct model *m, struct mkept *k)
{
    const struct seq *q = m->kv->index.oldest;
    while (k->used && q && (q != k->at || q->kept != k->kept))
        q = q->newer;
    k->used &= q != NULL;
    if (!k->used) return NULL;
    k->s.len = MIN(k->s.len, q->len); /* the end of the sequence may have been evicted */
    return q;
}

static struct mkept *record(struct model *m)
{
    for (uint32_t i = 0; i < KEPT; i++)
        if (!kept_inside(m, &m->kept[i])) return &m->kept[i];
    return NULL;
}

void model_keep(struct model *m)
{
    m->doing = "keep";
    struct mseq *s = model_pick(m);
    if (!s) return;
    struct mkept *k = record(m);
    if (!k) {
        kv_forget(m->kv);
        k = record(m);
    }
    WANT(k && m->kv->index.n < KEPT, "the index has more sequences than were kept", m->kv->index.n,
         0);
    uint64_t before = m->kv->clock;
    kv_seq h = s->handle;
    WANT(kv_keep(m->kv, h) == 0 && kv_keep(m->kv, h) == ERR_STALE, "keep", h, 0);
    s->used = false;
    const struct seq *q = m->kv->index.newest;
    if (!q || q->kept <= before) return;
    WANT(q->len <= s->len, "more rows are kept than the sequence had", q->len, s->len);
    m->t->kept++;
    *k = (struct mkept){true, q, q->kept, *s};
    k->s.len = q->len;
    k->s.open = false;
}

struct kv_salt model_salt(struct model *m)
{
    struct kv_salt s = {.regime = 1};
    uint32_t which = model_chance(m, 80) ? 0 : 1 + model_rnd(m, 4);
    s.regime += which == 1;
    s.pad = which == 2;
    s.adapter[5] = which == 3;
    s.source[31] = which == 4;
    return s;
}

struct mquery {
    int32_t tok[LEN];
    uint32_t start[LEN], n;
    struct kv_salt salt;
    struct kv_turn turn[LEN];
    uint32_t n_turns;
};

/* Draws a query: a prefix of a known sequence and then other tokens, or only other tokens. */
static void draw(struct model *m, const struct mseq *src, struct mquery *q)
{
    uint32_t n = src ? model_rnd(m, src->len + 1) : 0, more = model_rnd(m, 40);
    if (src && model_chance(m, 40)) n = src->len;
    q->salt = src && model_chance(m, 90) ? src->salt : model_salt(m);
    q->n = n;
    if (n) memcpy(q->tok, src->tok, n * sizeof *q->tok);
    if (n) memcpy(q->start, src->start, n * sizeof *q->start);
    bool turn = model_chance(m, 50);
    for (; more && q->n < m->cfg.max_len; more--, q->n++) {
        q->tok[q->n] = (int32_t)model_rnd(m, 1000);
        q->start[q->n] = turn ? n : q->n;
    }
    q->n_turns = 0;
    for (uint32_t at = 0, end; at < q->n; at = end) {
        for (end = at + 1; end < q->n && q->start[end] == q->start[at];)
            end++;
        if (end - at > 1) q->turn[q->n_turns++] = (struct kv_turn){at, end - at};
    }
}

/* Returns the greatest length at which the query could continue s, whose contents are d, by brute
 * force. */
static uint32_t longest(struct model *m, const struct mquery *q, const struct mseq *s,
                        const struct seq *d)
{
    uint32_t n = 0, end = MIN(q->n, s->len);
    bool turns = m->kv->index.turns;
    if (!kv_salt_same(&q->salt, &s->salt) || s->cross || d->foreign) return 0;
    while (n < end && q->tok[n] == s->tok[n] && q->tok[n] >= 0 &&
           (!turns || q->start[n] == s->start[n]))
        n++;
    for (; n >= KV_STRIP; n--) {
        bool whole = (n == s->len || s->start[n] == n) && (n == q->n || q->start[n] == n);
        if ((!turns || whole) && model_resumable(m, s, d, n)) return n;
    }
    return 0;
}

void model_match(struct model *m)
{
    if (!model_vacant(m) && model_chance(m, m->tier ? 5 : 50)) model_keep(m);
    m->doing = "match";
    static struct mquery q;
    static struct mseq from;
    struct mseq *s = model_vacant(m), *src = model_chance(m, 40) ? model_pick(m) : NULL;
    struct kv *kv = m->kv;
    uint32_t best = 0, have = 12345, k = model_rnd(m, KEPT);
    if (!src && kept_inside(m, &m->kept[k])) src = &m->kept[k].s;
    if (!s || (src && !src->len)) return;
    draw(m, src, &q);
    bool exact = model_chance(m, 30);
    for (uint32_t i = 0; i < SEQS + KEPT; i++) {
        const struct mseq *c = i < SEQS ? &m->seq[i] : &m->kept[i - SEQS].s;
        const struct seq *d = i >= SEQS ? kept_inside(m, &m->kept[i - SEQS]) : NULL;
        if (i < SEQS && c->used && !c->busy) d = model_inside(m, c);
        bool sure = !m->kv->index.turns || !c->open; /* the keys of an open turn do not exist yet */
        if (d && exact && sure) best = MAX(best, longest(m, &q, c, d));
    }
    kv_seq h;
    WANT(kv_new(kv, &q.salt, &h) == 0, "new", 0, 0);
    uint32_t reserve = model_chance(m, 20) ? model_rnd(m, m->cfg.max_len) : 0;
    if (reserve && kv_reserve(kv, h, reserve) < 0) reserve = 0;
    struct mseq fresh = {.used = true, .handle = h, .reserve = reserve};
    bool promised =
        kv->reserved != 0; /* with reserves, or without room for tables, fewer rows may be reused */
    size_t meta = model_charge(m, &fresh, best) - model_charge(m, &fresh, 0);
    promised |= kv->pool - pool_held(kv) < meta;
    struct kv_prefix p = {q.tok, q.n, q.turn, q.n_turns, !q.n_turns};
    WANT(kv_match(kv, h, &p, &have) == 0, "match", 0, 0);
    WANT((have == 0) == (kv_match_reason(kv) != KV_HIT), "reason", have, kv_match_reason(kv));
    if (!have) {
        bool room = kv_match_reason(kv) != KV_MISS_ROOM;
        WANT(!best || !m->cfg.index || reserve || !room, "a prefix was not found", best, 0);
        struct kv_salt has = kv_salt(kv, h);
        WANT(kv_len(kv, h) == 0 && kv_salt_same(&has, &q.salt), "a miss changed something", 0, 0);
        *s = (struct mseq){.used = true, .handle = h, .salt = q.salt, .reserve = reserve};
        return;
    }
    WANT(have >= best || promised, "a longer prefix was not found", have, best);
    bool known = false;
    for (uint32_t i = 0; i < SEQS && !known; i++) {
        if (!m->seq[i].used || m->seq[i].busy) continue;
        known = model_inside(m, &m->seq[i]) == kv->index.donor;
        if (known) from = m->seq[i];
    }
    for (uint32_t i = 0; i < KEPT && !known; i++) {
        known = m->kept[i].used && m->kept[i].at == kv->index.donor;
        if (known) from = m->kept[i].s;
    }
    WANT(known && have <= from.len && kv_salt_same(&from.salt, &q.salt), "the donor",
         kv->index.donor->id, have);
    for (uint32_t i = 0; i < have; i++)
        WANT(from.tok[i] == q.tok[i] && q.tok[i] >= 0, "other tokens", i, have);
    for (uint32_t i = 0; i < have && kv->index.turns; i++)
        WANT(from.start[i] == q.start[i], "other turns", i, have);
    *s = from;
    s->handle = h;
    s->len = have;
    s->reserve = reserve;
    s->used = s->trimmed = true;
    s->open = false;
    model_verify(m, s);
    WANT(kv_match(kv, h, &p, &have) == ERR_ARG, "a match of a sequence with rows", h, 0);
}
