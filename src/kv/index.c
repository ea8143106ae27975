/* index.c - the prefix index: rows that another sequence computed for the same tokens are found and shared.
 *
 * Donors are the sequences themselves: live ones, and contents that kv_keep leaves behind when their last owner lets
 * go.  Kept contents are as any others, with tables, checkpoints and the drop rule, but hold their pages only as
 * long as nothing else needs them: they are given up first, those wanted least recently first, the last rows
 * first (keep.c).  So one chain of keys per sequence, over its full blocks, stands for pages of all groups at
 * once, and a match is a clone of the donor, cut as a trim cuts: to the token where rows are still raw, to the tile
 * below, to a checkpoint where a group forgets.
 *
 * Keys (index_key.c) are made when they are first looked at, so that a step pays nothing for them. */
#include "kv/kv_int.h"

#include <string.h>

int index_open(struct kv *kv, const struct kv_config *c)
{
    struct index *x = &kv->index;
    x->turns = c->turns;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        x->turns |= kv->group[gi].c.seal.resid > 0;
    if (!x->most) return 0;
    x->key = mem_array(kv->max_len / KV_STRIP + 1, KV_KEY);
    x->gone = mem_array(KV_GONE, sizeof *x->gone);
    return x->key && x->gone ? 0 : ERR_NOMEM;
}

void index_close(struct kv *kv)
{
    mem_free(kv->index.key);
    mem_free(kv->index.gone);
}

/* Leading rows with ids. */
static uint32_t known(const int32_t *tok, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && tok[i] >= 0)
        i++;
    return i;
}

/* Up to where two lists of turns are the same: rows before it are, if no turn goes on across it. */
static uint32_t turns_same(const struct kv_turn *a, uint32_t n_a, const struct kv_turn *b,
                           uint32_t n_b)
{
    uint32_t i = 0;
    while (i < n_a && i < n_b && a[i].pos == b[i].pos && a[i].n == b[i].n)
        i++;
    return MIN(i < n_a ? a[i].pos : UINT32_MAX, i < n_b ? b[i].pos : UINT32_MAX);
}

/* m, or the beginning of the turn that it lies inside of. */
static uint32_t turns_whole(const struct seq *s, uint32_t m)
{
    for (uint32_t i = 0; i < s->n_turns; i++)
        if (s->turn[i].pos < m && m < s->turn[i].pos + s->turn[i].n) return s->turn[i].pos;
    return m;
}

/* Makes the keys of the first `most` full blocks, as far as rows have ids and, if turns count, are of whole turns. */
static void keys_make(struct kv *kv, struct seq *s, uint32_t most)
{
    uint32_t len = s->len;
    if (kv->index.turns && s->turn_open && s->n_turns) len = s->turn[s->n_turns - 1].pos;
    for (uint32_t i = s->n_keys; i < MIN(most, len / KV_STRIP); i++) {
        unsigned char first[KV_KEY], *key = s->key + (size_t)i * KV_KEY;
        if (known(s->tok + i * KV_STRIP, KV_STRIP) < KV_STRIP) return;
        if (!i) key_first(kv, s->salt, first);
        key_next(kv, i ? key - KV_KEY : first, s->tok, s->turn, s->n_turns, i, key);
        s->n_keys = i + 1;
    }
}

/* --- keeping -------------------------------------------------------------------------------- */

static bool donor(const struct seq *s)
{
    return (s->owners || s->kept) && !s->busy && !s->foreign && !s->cross && s->len >= KV_STRIP;
}

/* Whether `s` has all full blocks that `part` has, to go on from the last one's end. */
static bool covers(const struct kv *kv, const struct seq *s, const struct seq *part)
{
    uint32_t len = part->len - part->len % KV_STRIP;
    if (!donor(s) || s == part || s->salt != part->salt || s->len < len) return false;
    if (memcmp(s->tok, part->tok, len * sizeof *s->tok) != 0) return false;
    if (kv->index.turns && (turns_same(s->turn, s->n_turns, part->turn, part->n_turns) < len ||
                            turns_whole(s, len) != len))
        return false;
    return seq_resume(kv, s, len) == len;
}

static void give_up(struct kv *kv, struct seq *s)
{
    kv->index.n--;
    seq_give(kv, s);
}

void index_evict(struct kv *kv, struct seq *s)
{
    struct index *x = &kv->index;
    keys_make(kv, s, 1); /* this may be in a kv_begin */
    if (s->n_keys) memcpy(x->gone[x->n_gone++ % KV_GONE], s->key, KV_KEY);
    kv->evictions++;
    give_up(kv, s);
}

void index_shrink(struct kv *kv, struct seq *s, size_t bytes)
{
    for (uint32_t step = 4 * KV_STRIP; s->kept && pool_used(kv) + bytes > kv->pool; step *= 2) {
        uint32_t m = s->len > step ? seq_resume(kv, s, s->len - step) : 0;
        if (m < KV_STRIP) {
            index_evict(kv, s);
            return;
        }
        seq_cut(kv, s, m);
        kv->evictions++;
    }
}

/* Contents that nobody owns any more stay for others; false: nothing in them would help. */
static bool take(struct kv *kv, struct seq *s)
{
    struct index *x = &kv->index;
    struct seq *oldest = NULL;
    if (!x->most || s->foreign || s->cross || kv->stream.active || kv->narrow) return false;
    uint32_t m = seq_resume(kv, s, known(s->tok, s->len));
    if (m < KV_STRIP) return false;
    seq_cut(kv, s, m);
    for (uint32_t k = 0; k < kv->n_contents; k++)
        if (covers(kv, &kv->seq[k], s)) {
            kv->seq[k].used = ++kv->clock;
            return false;
        }
    s->kept = true; /* of these, the ones it covers go, */
    for (uint32_t k = 0; k < kv->n_contents; k++) {
        struct seq *o = &kv->seq[k];
        if (o == s || !o->kept) continue;
        if (covers(kv, s, o))
            give_up(kv, o);
        else if (!oldest || o->used < oldest->used)
            oldest = o;
    }
    if (x->n == x->most) index_evict(kv, oldest); /* and if there are too many, another */
    x->n++;
    s->used = ++kv->clock;
    s->edits = ++kv->edits;
    return true;
}

int kv_keep(struct kv *kv, kv_seq handle)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    s = seq_part(kv, slot_index(kv, handle));
    if (!s->owners && !take(kv, s)) seq_give(kv, s);
    return 0;
}

void kv_forget(struct kv *kv)
{
    for (uint32_t k = 0; k < kv->n_contents && kv->index.n; k++)
        if (kv->seq[k].kept) give_up(kv, &kv->seq[k]);
}

bool kv_kept(const struct kv *kv, uint32_t i, struct kv_kept *out)
{
    for (uint32_t k = 0; k < kv->n_contents; k++) {
        const struct seq *s = &kv->seq[k];
        if (!s->kept || i--) continue;
        *out = (struct kv_kept){s->tok, s->len, s->turn, s->n_turns, s->salt, s->used};
        return true;
    }
    return false;
}

/* --- matching ------------------------------------------------------------------------------- */

struct query {
    const int32_t *tok;
    uint32_t n, n_keys;
    const struct kv_turn *turn;
    uint32_t n_turns;
    uint64_t salt;
};

/* Full blocks whose key the donor has too. */
static uint32_t same_keys(const struct kv *kv, const struct query *q, const struct seq *d)
{
    uint32_t lo = 0, hi = MIN(q->n_keys, d->n_keys);
    while (lo < hi) { /* a chain: equal keys have equal keys before them */
        uint32_t mid = lo + (hi - lo + 1) / 2;
        size_t at = (size_t)(mid - 1) * KV_KEY;
        if (memcmp(kv->index.key + at, d->key + at, KV_KEY) == 0)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* The longest length at which the query can go on from what the donor holds; *why: if there is none. */
static uint32_t look(struct kv *kv, const struct query *q, struct seq *d, enum kv_miss *why)
{
    bool begins = q->n >= KV_STRIP && memcmp(q->tok, d->tok, KV_STRIP * sizeof *q->tok) == 0;
    if (d->salt != q->salt) {
        *why = begins ? KV_MISS_SALT : KV_MISS_NEW;
        return 0;
    }
    keys_make(kv, d, q->n_keys);
    uint32_t m = same_keys(kv, q, d) * KV_STRIP, end = MIN(q->n, d->len);
    *why = begins ? KV_MISS_TURNS : KV_MISS_NEW;
    if (!m) return 0;
    for (m = kv_fault.trust_keys ? m : 0; m < end && q->tok[m] == d->tok[m] && q->tok[m] >= 0;)
        m++;
    if (m < KV_STRIP) return 0;
    if (kv->index.turns) m = MIN(m, turns_same(q->turn, q->n_turns, d->turn, d->n_turns));
    *why = m < KV_STRIP ? KV_MISS_TURNS : KV_MISS_CHECKPOINT;
    for (uint32_t before = m + 1; before != m;) {
        before = m;
        m = seq_resume(kv, d, m);
        if (kv->index.turns) m = turns_whole(d, m);
    }
    return m < KV_STRIP ? 0 : m;
}

/* The empty sequence becomes an owner of the donor's first m rows; ERR_FULL if a reserve would lose its certainty. */
static int attach(struct kv *kv, uint32_t slot, const struct seq *d, uint32_t m)
{
    struct seq *s = seq_own(kv, slot);
    uint64_t salt = s->salt;
    pledge_leave(kv, s);
    seq_clone(kv, d, s);
    seq_cut(kv, s, m);
    if (kv_fault.match_unref && s->len >= KV_STRIP && *seq_table(kv, &kv->group[0], RAW, s))
        page_unref(kv, &kv->group[0].form[RAW], *seq_table(kv, &kv->group[0], RAW, s));
    pledge_enter(kv, s);
    s->pinned = true;
    int e = make_room(kv, 0, 0, "a prefix");
    s->pinned = false;
    if (e >= 0) return 0;
    pledge_leave(kv, s);
    seq_clear(kv, s);
    s->salt = salt;
    pledge_enter(kv, s);
    return e;
}

/* Why nothing was found, from what the donors said. */
static enum kv_miss reason(const struct kv *kv, const struct query *q, const bool said[KV_MISSES])
{
    const struct index *x = &kv->index;
    static const enum kv_miss order[] = {KV_MISS_CHECKPOINT, KV_MISS_TURNS, KV_MISS_SALT};
    if (q->n < KV_STRIP) return KV_MISS_SHORT;
    if (!q->n_keys) return KV_MISS_IDS;
    for (uint32_t i = 0; i < countof(order); i++)
        if (said[order[i]]) return order[i];
    for (uint32_t i = 0; i < MIN(x->n_gone, KV_GONE); i++)
        if (memcmp(x->gone[i], x->key, KV_KEY) == 0) return KV_MISS_EVICTED;
    return KV_MISS_NEW;
}

static void query_keys(struct kv *kv, struct query *q)
{
    unsigned char first[KV_KEY], *key = kv->index.key;
    uint32_t blocks = known(q->tok, q->n) / KV_STRIP;
    if (blocks) key_first(kv, q->salt, first);
    for (; q->n_keys < blocks; q->n_keys++, key += KV_KEY)
        key_next(kv, q->n_keys ? key - KV_KEY : first, q->tok, q->turn, q->n_turns, q->n_keys, key);
}

int kv_match(struct kv *kv, kv_seq handle, const struct kv_prefix *p, uint32_t *have)
{
    struct seq *s, *best = NULL;
    uint32_t most = 0;
    bool said[KV_MISSES] = {false};
    TRY(seq_idle(kv, handle, &s));
    if (s->len || s->cross)
        return ERR(ARG, "cache: only an empty sequence can begin with another's rows, %#x has %u",
                   handle, s->len + s->cross);
    *have = 0;
    kv->index.miss = KV_MISS_OFF;
    if (!kv->index.most) return 0;
    struct kv_turn all = {0, UINT32_MAX};
    struct query q = {.tok = p->tok,
                      .n = MIN(p->n, kv->max_len),
                      .turn = p->n_turns ? p->turn : &all,
                      .n_turns = p->n_turns ? p->n_turns : !p->singly,
                      .salt = s->salt};
    query_keys(kv, &q);
    for (uint32_t k = 0; q.n_keys && k < kv->n_contents; k++) {
        struct seq *d = &kv->seq[k];
        enum kv_miss why = KV_MISS_NEW;
        if (d == s || !donor(d)) continue;
        uint32_t m = look(kv, &q, d, &why);
        if (!m) said[why] = true;
        if (m < most || !m || (m == most && d->used < best->used)) continue;
        most = m;
        best = d;
    }
    kv->index.miss = most ? KV_HIT : reason(kv, &q, said);
    if (!most) return 0;
    best->used = ++kv->clock;
    kv->index.donor = (uint32_t)(best - kv->seq);
    int e = attach(kv, slot_index(kv, handle), best, most);
    if (e < 0 && !kv->index.turns) { /* an open block with a reserve stays its owner's */
        most = seq_resume(kv, best, most - most % KV_STRIP);
        if (most >= KV_STRIP) e = attach(kv, slot_index(kv, handle), best, most);
    }
    if (e < 0) {
        kv->index.miss = KV_MISS_ROOM;
        return 0;
    }
    kv->index.hits++;
    kv->index.hit_rows += most;
    *have = most;
    return 0;
}

enum kv_miss kv_match_reason(const struct kv *kv)
{
    return kv->index.miss;
}

const char *kv_miss_text(enum kv_miss why)
{
    static const char *const text[KV_MISSES] = {
        [KV_HIT] = "a prefix was found",
        [KV_MISS_OFF] = "the cache keeps no prefixes",
        [KV_MISS_NEW] = "nothing held begins with these tokens",
        [KV_MISS_SHORT] = "fewer tokens than a block of 16",
        [KV_MISS_IDS] = "tokens without ids",
        [KV_MISS_SALT] = "these tokens were computed under other conditions (padding, or another "
                         "regime of rotary frequencies)",
        [KV_MISS_TURNS] = "these tokens were fed in other turns, and what rows hold depends on "
                          "them",
        [KV_MISS_CHECKPOINT] = "the rows were given back, and no checkpoint is near enough to the "
                               "beginning",
        [KV_MISS_EVICTED] = "this prefix was given up when the budget was short",
        [KV_MISS_ROOM] = "sharing the prefix would break a reserve",
    };
    return text[why];
}
