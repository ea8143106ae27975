/* index.c - the prefix index: finds and shares rows that another sequence computed for the same
 * tokens.
 *
 * Donors.  A sequence can resume from any other: from live sequences, and from contents that
 * kv_keep leaves behind when their last owner drops them.  Kept contents have tables, snapshots
 * and the drop rule like all others.  So one chain of keys, over full blocks of tokens, stands for
 * the pages of all groups at once.  A match clones the donor and cuts the clone as a trim does: to
 * the token where rows are still raw, to the tile below, or to a snapshot where a group forgets.
 *
 * Search.  Keys lead to sequences through a hash table (index_table.c).  So the cost of a hit or a
 * miss does not depend on how many sequences are kept or live.  Of sequences that share a prefix
 * only KV_LOOKS are looked at.
 *
 * Keys of live sequences.  A step only notes that a sequence has a further full block (index_note).
 * The next search computes the keys of the blocks that were noted since the last search, each once.
 *
 * Limits.  Kept contents are bounded by bytes alone.  Their arrays (index_room.c) and their pages
 * count in the budget and are evicted as soon as anything else needs the room: the least recently
 * used sequence first, its last rows first (keep.c). */
#include "kv/frozen.h"
#include "kv/image.h"

#include <string.h>

#define ROOM_LEAST ((size_t)1 << 20) /* or the whole budget, if that is less */
#define ROOM_MOST  ((size_t)1 << 30)
#define TIER_SHARE 8u /* kept contents may fill this many times the pool's size in the tier */

int index_arrays(struct kv *kv, const struct kv_config *c)
{
    struct index *x = &kv->index;
    x->turns = c->turns;
    for (uint32_t gi = 0; gi < kv->n_groups; gi++)
        x->turns |= kv->group[gi].c.seal.resid > 0;
    if (!x->on) return 0;
    x->tier_most = TIER_SHARE * kv->pool;
    x->room.n_units = room_units(MIN(MAX(kv->pool / 8, MIN(kv->pool, ROOM_LEAST)), ROOM_MOST));
    TRY(kv_array(kv, &x->key, kv->max_len / KV_STRIP + 1, KV_KEY));
    TRY(kv_array(kv, &x->gone, KV_GONE, sizeof *x->gone));
    TRY(kv_array(kv, &x->noted, kv->n_contents, sizeof *x->noted));
    return table_array(kv);
}

int index_open(struct kv *kv)
{
    struct index *x = &kv->index;
    if (!x->on) return 0;
    x->secret = hash_key_new();
    return room_open(&x->room, x->room.n_units);
}

uint32_t index_known(const int32_t *tok, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && tok[i] >= 0)
        i++;
    return i;
}

/* Returns the row up to which two lists of turns are equal.  Rows before it are equal unless a turn
 * continues across it. */
static uint32_t turns_same(const struct kv_turn *a, uint32_t n_a, const struct kv_turn *b,
                           uint32_t n_b)
{
    uint32_t i = 0;
    while (i < n_a && i < n_b && a[i].pos == b[i].pos && a[i].n == b[i].n)
        i++;
    return MIN(i < n_a ? a[i].pos : UINT32_MAX, i < n_b ? b[i].pos : UINT32_MAX);
}

/* Returns m, or the start of the turn that m lies inside. */
static uint32_t turns_whole(const struct seq *s, uint32_t m)
{
    for (uint32_t i = 0; i < s->n_turns; i++)
        if (s->turn[i].pos < m && m < s->turn[i].pos + s->turn[i].n) return s->turn[i].pos;
    return m;
}

void index_keys(struct kv *kv, struct seq *s, uint32_t most)
{
    uint32_t len = s->len;
    if (kv->index.turns && s->turn_open && s->n_turns) len = s->turn[s->n_turns - 1].pos;
    for (uint32_t i = s->n_keys; i < MIN(most, len / KV_STRIP); i++) {
        unsigned char first[KV_KEY], *key = s->key + (size_t)i * KV_KEY;
        if (index_known(s->tok + i * KV_STRIP, KV_STRIP) < KV_STRIP) return;
        if (!i) key_first(kv, &s->salt, first);
        key_next(kv, i ? key - KV_KEY : first, s->tok, s->turn, s->n_turns, i, key);
        s->n_keys = i + 1;
    }
}

bool index_donor(const struct seq *s)
{
    bool known = !s->cross || frozen_known(s);
    return (s->owners || s->kept || s->lent) && !s->busy && !s->foreign && !s->n_borrows && known &&
           s->len >= KV_STRIP;
}

uint32_t index_look(const struct kv *kv, const struct seq *q, const struct seq *d, uint32_t n,
                    bool pages, enum kv_miss *why)
{
    uint32_t m = 0, end = MIN(q->len, d->len);
    *why = KV_MISS_NEW;
    if (!kv_salt_same(&d->salt, &q->salt) || (q->cross && q->cross != d->cross)) return 0;
    for (m = kv_fault.trust_keys ? MIN(n, end) : 0; m < end && q->tok[m] == d->tok[m];)
        m++;
    m = kv_fault.trust_keys ? m : MIN(m, index_known(q->tok, m));
    if (m < KV_STRIP) return 0;
    if (kv->index.turns) m = MIN(m, turns_same(q->turn, q->n_turns, d->turn, d->n_turns));
    *why = m < KV_STRIP ? KV_MISS_TURNS : KV_MISS_SNAPSHOT;
    for (uint32_t before = m + 1; before != m;) {
        before = m;
        if (!pages) m = seq_resume(kv, d, m);
        if (kv->index.turns) m = turns_whole(d, m);
    }
    return m < KV_STRIP ? 0 : m;
}

void index_note(struct kv *kv, struct seq *s)
{
    if (!kv->index.on || s->noted || s->id >= kv->n_contents || s->n_listed >= s->len / KV_STRIP)
        return;
    s->noted = true;
    kv->index.noted[kv->index.n_noted++] = s->id;
}

void index_list_live(struct kv *kv)
{
    while (kv->index.n_noted) {
        struct seq *s = &kv->seq[kv->index.noted[--kv->index.n_noted]];
        s->noted = false;
        if (!index_donor(s)) continue; /* it is noted again once others can resume from it */
        index_keys(kv, s, UINT32_MAX);
        index_list(kv, s);
    }
}

static uint64_t find_block(const struct kv *kv, const struct seq *q, uint32_t i)
{
    return index_find(kv, i, q->key + (size_t)i * KV_KEY);
}

/* Returns how many leading full blocks of the query some sequence has. */
static uint32_t blocks_found(const struct kv *kv, const struct seq *q)
{
    uint32_t lo = 0, hi = q->n_keys;
    while (lo < hi) { /* binary search: a sequence that has a block also has all earlier ones */
        uint32_t mid = lo + (hi - lo + 1) / 2;
        if (find_block(kv, q, mid - 1))
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Returns the sequence that has the most rows of the query (index_look) and sets *most.  If there is none, it
 * returns NULL and *why is the reason. */
static struct seq *search(struct kv *kv, const struct seq *q, bool pages, uint32_t *most,
                          enum kv_miss *why)
{
    struct seq *best = NULL;
    uint64_t number = ++kv->index.searches;
    uint32_t left = KV_LOOKS;
    *most = 0;
    index_list_live(kv);
    for (uint32_t b = blocks_found(kv, q); b-- > 0 && left;) {
        uint64_t ref = find_block(kv, q, b);
        for (uint32_t passed = 0; ref && left && passed < KV_LOOKS;
             ref = index_next(kv, ref), passed++) {
            struct seq *d = index_seq(kv, ref);
            enum kv_miss said;
            if (d->looked == number || !index_donor(d)) continue;
            d->looked = number;
            left--;
            uint32_t m = index_look(kv, q, d, (b + 1) * KV_STRIP, pages, &said);
            if (!m && said > *why) *why = said;
            if (!m || m < *most || (m == *most && d->used < best->used)) continue;
            *most = m;
            best = d;
        }
        /* sequences without this block have fewer tokens in common */
        if (*most + 1 >= (b + 1) * KV_STRIP) break;
    }
    return best;
}

/* Makes the contents that a search looks for: tokens, turns and keys, without rows. */
static struct seq query_of(struct kv *kv, const struct kv_salt *salt, const struct kv_prefix *p)
{
    struct seq q = {.tok = (int32_t *)(uintptr_t)p->tok,
                    .len = MIN(p->n, kv->max_len),
                    .turn = (struct kv_turn *)(uintptr_t)p->turn,
                    .n_turns = p->n_turns,
                    .salt = *salt,
                    .key = kv->index.key};
    index_keys(kv, &q, UINT32_MAX);
    return q;
}

const struct seq *index_twin(struct kv *kv, const struct kv_image *im, uint32_t *rows)
{
    enum kv_miss why = KV_HIT;
    if (!kv->index.on || im->foreign || im->cross) return NULL;
    const struct kv_prefix p = {im->tok, im->len, im->turn, im->n_turns, false};
    struct seq q = query_of(kv, &im->salt, &p), *d = search(kv, &q, true, rows, &why);
    if (d) index_wanted(kv, d);
    return d;
}

/* Makes the empty sequence an owner of the donor's first m rows.  ERR_FULL if the budget lacks room for the pages
 * that its reserve then lacks.  Making room can evict the donor if the donor is kept contents. */
static int index_attach(struct kv *kv, uint32_t slot, const struct seq *d, uint32_t m)
{
    struct seq *s = edit(kv, slot);
    struct kv_salt salt = s->salt;
    uint32_t owner = seq_reserve(kv, d) ? d->slot : KV_NONE;
    bool frozen = s->cross != 0; /* then the donor has the same frozen rows */
    if (frozen) seq_clear(kv, s);
    seq_clone(kv, d, s);
    seq_cut(kv, s, m);
    if (kv_fault.match_unref && s->len >= KV_STRIP && *seq_table(kv, &kv->group[0], RAW, s))
        page_unref(kv, &kv->group[0].form[RAW], *seq_table(kv, &kv->group[0], RAW, s));
    int e = edited(kv, slot, "reusing a prefix");
    if (e >= 0) e = reserve_settle(kv);
    if (e >= 0 && owner != KV_NONE) e = reserve_fill(kv, owner, "reusing a prefix");
    if (e >= 0) return 0;
    s = edit(kv, slot);
    if (frozen)
        seq_cut(kv, s, 0);
    else
        seq_clear(kv, s);
    s->salt = salt;
    (void)edited(kv, slot, NULL);
    if (owner != KV_NONE) reserve_refill(kv, owner);
    return e;
}

/* Returns why a search found nothing.  said: the reason of the donors with the query's keys.  If that reason does not
 * explain the miss, the sequences that begin with the same tokens do, or the prefixes that were evicted. */
static enum kv_miss reason(const struct kv *kv, const struct seq *q, enum kv_miss said)
{
    const struct index *x = &kv->index;
    unsigned char first[KV_KEY];
    if (q->len < KV_STRIP) return KV_MISS_SHORT;
    if (!q->n_keys) return KV_MISS_IDS;
    if (said == KV_MISS_SNAPSHOT || said == KV_MISS_TURNS) return said;
    key_tokens(q->tok, first);
    uint64_t ref = index_find(kv, KV_LIST_BEGIN, first);
    said = KV_MISS_NEW;
    for (uint32_t looks = 0; ref && looks < KV_LOOKS; ref = index_next(kv, ref), looks++) {
        const struct seq *d = index_seq(kv, ref);
        if (!index_donor(d) || memcmp(d->tok, q->tok, KV_STRIP * sizeof *q->tok) != 0) continue;
        /* no owner learns of the rows of another */
        if (memcmp(d->salt.owner, q->salt.owner, KV_DIGEST) != 0) continue;
        if (kv_salt_same(&d->salt, &q->salt)) return KV_MISS_TURNS;
        said = KV_MISS_SALT;
    }
    if (said == KV_MISS_SALT) return said;
    for (uint32_t i = 0; i < MIN(x->n_gone, KV_GONE); i++)
        if (memcmp(x->gone[i], x->key, KV_KEY) == 0) return KV_MISS_EVICTED;
    return KV_MISS_NEW;
}

int kv_match(struct kv *kv, kv_seq handle, const struct kv_prefix *p, uint32_t *have)
{
    struct seq *s, *best;
    uint32_t most = 0;
    enum kv_miss why = KV_HIT;
    TRY(seq_idle(kv, handle, &s));
    if (seq_place(s))
        return ERR(ARG, "cache: only an empty sequence can reuse a prefix, and %#x has %u rows",
                   handle, seq_place(s));
    *have = 0;
    kv->index.miss = KV_MISS_OFF;
    if (!kv->index.on) return 0;
    const struct kv_turn all = {0, UINT32_MAX};
    struct kv_prefix turns = *p;
    if (!p->n_turns) turns.turn = &all, turns.n_turns = !p->singly;
    struct seq q = query_of(kv, &s->salt, &turns);
    q.cross = s->cross;
    best = search(kv, &q, false, &most, &why);
    kv->index.miss = best ? KV_HIT : reason(kv, &q, why);
    if (!best) return 0;
    index_wanted(kv, best);
    kv->index.donor = best;
    bool kept = best->kept;
    int e = index_attach(kv, slot_index(kv, handle), best, most);
    /* A second try without the open block, of which an owner with a reserve would need a copy.  Making room may have
     * evicted a kept donor, but not before all others, since it is the newest. */
    if (e < 0 && !kv->index.turns && (!kept || kv->index.newest == best)) {
        most = seq_resume(kv, best, MIN(best->len, most - most % KV_STRIP));
        if (most >= KV_STRIP) e = index_attach(kv, slot_index(kv, handle), best, most);
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

bool kv_indexes(const struct kv *kv)
{
    return kv->index.on;
}

enum kv_miss kv_match_reason(const struct kv *kv)
{
    return kv->index.miss;
}

const char *kv_miss_text(enum kv_miss why)
{
    static const char *const text[KV_MISSES] = {
        [KV_HIT] = "a prefix was found",
        [KV_MISS_OFF] = "the cache has no prefix index",
        [KV_MISS_NEW] = "no cached sequence begins with these tokens",
        [KV_MISS_SHORT] = "fewer tokens than a block of 16",
        [KV_MISS_IDS] = "tokens without ids",
        [KV_MISS_SALT] = "these tokens were computed under other conditions (padding, or another "
                         "regime of rotary frequencies)",
        [KV_MISS_TURNS] = "these tokens were computed in other turns, and the rows depend on "
                          "them",
        [KV_MISS_SNAPSHOT] = "the rows were dropped, and no snapshot is near enough to the "
                             "beginning",
        [KV_MISS_EVICTED] = "this prefix was evicted when the cache was full",
        [KV_MISS_ROOM] = "sharing the prefix would take pages of a reserve",
    };
    return text[why];
}
