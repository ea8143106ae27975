/* kept.c - contents that nobody owns any more, kept so that others can resume from them.
 *
 * kv_keep copies the contents that the last owner drops into a record of their own length
 * (index_room.c), with their references.  Records are listed in the order of their last use, and
 * the least recently used are evicted first.  Contents that a longer sequence covers are not
 * kept. */
#include "kv/frozen.h"

#include <string.h>

/* True if s has all full blocks of `part`, can resume from the end of the last one, and stays as long as `part`
 * would. */
static bool covers(const struct kv *kv, const struct seq *s, const struct seq *part)
{
    /* without the open block: s only has to resume from the end of the last full block */
    struct seq blocks = *part;
    enum kv_miss why;
    blocks.len -= part->len % KV_STRIP;
    return index_donor(s) && s != part && !s->lent && s->cross == part->cross &&
           index_look(kv, &blocks, s, blocks.len, false, &why) == blocks.len;
}

/* Links kept contents as the most recently used. */
static void newest(struct index *x, struct seq *s)
{
    s->older = x->newest;
    s->newer = NULL;
    *(x->newest ? &x->newest->newer : &x->oldest) = s;
    x->newest = s;
}

/* Unlinks kept contents. */
static void unlink_kept(struct index *x, struct seq *s)
{
    *(s->older ? &s->older->newer : &x->oldest) = s->newer;
    *(s->newer ? &s->newer->older : &x->newest) = s->older;
}

void index_wanted(struct kv *kv, struct seq *s)
{
    s->used = ++kv->clock;
    if (!s->kept) return;
    unlink_kept(&kv->index, s);
    newest(&kv->index, s);
}

static void give_up(struct kv *kv, struct seq *s)
{
    struct index *x = &kv->index;
    unlink_kept(x, s);
    x->n--;
    edit_contents(kv, s);
    seq_clear(kv, s);
    room_give(&x->room, s);
}

void index_evict(struct kv *kv, struct seq *s)
{
    struct index *x = &kv->index;
    if (s->n_keys) memcpy(x->gone[x->n_gone++ % KV_GONE], s->key, KV_KEY);
    kv->evictions++;
    give_up(kv, s);
}

void index_shrink(struct kv *kv, struct seq *s, size_t bytes)
{
    for (uint32_t step = 4 * KV_STRIP; pool_held(kv) + bytes > kv->pool; step *= 2) {
        uint32_t m = s->len > step ? seq_resume(kv, s, s->len - step) : 0;
        if (m < KV_STRIP) {
            index_evict(kv, s);
            return;
        }
        index_hide(kv, s, 0); /* the last full block changes */
        edit_contents(kv, s);
        seq_cut(kv, s, m);
        edited_contents(kv, s);
        index_keys(kv, s, UINT32_MAX);
        index_list(kv, s);
        kv->evictions++;
    }
}

void index_yield(struct kv *kv, const struct pages *p, uint32_t n)
{
    struct index *x = &kv->index;
    while (x->oldest && (n > p->n_ids - 1 - p->n_live || kv->stream.spilled > x->tier_most))
        index_evict(kv, x->oldest);
}

/* True if another sequence has all of s, so that s need not be kept. */
static bool covered(struct kv *kv, const struct seq *s)
{
    uint32_t last = s->n_keys - 1, looks = 0;
    uint64_t ref = index_find(kv, last, s->key + (size_t)last * KV_KEY);
    for (; ref && looks < KV_LOOKS; ref = index_next(kv, ref), looks++) {
        struct seq *o = index_seq(kv, ref);
        if (!covers(kv, o, s)) continue;
        index_wanted(kv, o);
        return true;
    }
    return false;
}

/* Evicts kept contents if s has all of their full blocks. */
static void give_up_covered(struct kv *kv, const struct seq *s)
{
    for (uint32_t i = 0; i < s->n_keys; i++) {
        uint64_t ref = index_find(kv, KV_LIST_END, s->key + (size_t)i * KV_KEY), next;
        for (uint32_t looks = 0; ref && looks < KV_LOOKS; ref = next, looks++) {
            struct seq *o = index_seq(kv, ref);
            next = index_next(kv, ref);
            if (covers(kv, s, o)) give_up(kv, o);
        }
    }
}

/* Evicts kept contents that have only frozen rows, the same as those of s. */
static void give_up_frozen(struct kv *kv, const struct seq *s)
{
    for (struct seq *o = kv->index.oldest, *next; o; o = next) {
        next = o->newer;
        if (!o->len && o->cross && kv_salt_same(&o->salt, &s->salt)) give_up(kv, o);
    }
}

/* Takes n bytes from a block of memory.  base NULL: only counts them. */
static void *part(unsigned char *base, size_t *at, size_t n)
{
    void *out = base ? base + *at : NULL;
    *at += (n + 7) / 8 * 8;
    return out;
}

/* Places the arrays of kept contents with the lengths that s has; returns their bytes. */
static size_t lay_out(const struct kv *kv, const struct seq *s, unsigned char *base)
{
    size_t at = 0;
    struct seq lost, *to = part(base, &at, sizeof *to);
    struct seq_group *group = part(base, &at, kv->n_groups * sizeof *group);
    to = to ? to : &lost;
    to->g = group;
    to->tok = part(base, &at, s->len * sizeof *to->tok);
    to->turn = part(base, &at, s->n_turns * sizeof *to->turn);
    to->key = part(base, &at, (size_t)s->n_keys * KV_KEY);
    to->node = part(base, &at, s->n_keys * sizeof *to->node);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        size_t keeps = s->g[gi].n_keeps * sizeof(struct keep);
        struct keep *keep = part(base, &at, keeps);
        if (group) group[gi].keep = keep;
        for (uint32_t f = 0; f < FORMS; f++) {
            uint32_t *table = part(base, &at, table_used(g, f, seq_rows(g, s)) * sizeof *table);
            if (group) group[gi].table[f] = table;
        }
    }
    return at;
}

static bool fits(struct kv *kv)
{
    return pool_held(kv) <= kv->pool;
}

/* Takes memory within the budget for a copy of s, and evicts other kept contents for it.  Returns NULL if there is
 * no room even then. */
static struct seq *take_record(struct kv *kv, const struct seq *s)
{
    struct index *x = &kv->index;
    size_t bytes = lay_out(kv, s, NULL), most = bytes;
    unsigned char *at;
    if (bytes > kv->pool) return NULL;
    while (!(at = room_take(&x->room, &most))) {
        if (!x->oldest) return NULL;
        index_evict(kv, x->oldest);
    }
    size_t over = pool_held(kv) > kv->pool ? pool_held(kv) - kv->pool : 0;
    if (over && !kv->step.open && spill_can(kv) >= over) (void)spill_out(kv, over);
    while (!fits(kv) && x->oldest)
        index_evict(kv, x->oldest);
    if (!fits(kv)) {
        room_give(&x->room, at);
        return NULL;
    }
    lay_out(kv, s, at);
    struct seq *r = (struct seq *)(void *)at;
    r->bytes = most;
    r->id = kv->n_contents + (uint32_t)((size_t)(at - x->room.base) / KV_ROOM_UNIT);
    r->slot = KV_NONE;
    return r;
}

/* Keeps contents that nobody owns any more, if a later sequence could reuse their rows. */
static void keep_contents(struct kv *kv, struct seq *s)
{
    struct index *x = &kv->index;
    if (!x->on || s->foreign || kv->narrow || (s->cross && !frozen_known(s))) return;
    /* rows behind borrowed ones are an approximation, so they are not kept */
    uint32_t m = seq_resume(kv, s, index_known(s->tok, s->n_borrows ? s->borrow[0].at : s->len));
    if (m < KV_STRIP && !s->cross) return;
    edit_contents(kv, s);
    borrow_trim(kv, s, (struct borrow_cut){0});
    seq_cut(kv, s, m < KV_STRIP ? 0 : m); /* contents with frozen rows alone are kept, too */
    edited_contents(kv, s);
    index_keys(kv, s, UINT32_MAX);
    index_list_live(kv);
    if (s->n_keys ? covered(kv, s) : !s->cross || frozen_donor(kv, s)) return;
    give_up_covered(kv, s);
    if (s->n_keys && s->cross) give_up_frozen(kv, s);
    struct seq *r = take_record(kv, s);
    if (!r) return;
    seq_clone(kv, s, r);
    edited_contents(kv, r);
    r->kept = ++kv->clock;
    x->n++;
    newest(x, r);
    index_wanted(kv, r);
    index_list(kv, r); /* before s is removed, so that its blocks are always listed */
    index_hide(kv, s, 0);
}

int kv_keep(struct kv *kv, kv_seq handle)
{
    struct seq *s;
    TRY(seq_idle(kv, handle, &s));
    s = seq_part(kv, slot_index(kv, handle));
    if (s->owners || s->marks) return 0;
    keep_contents(kv, s);
    seq_give(kv, s);
    if (kv->index.n) index_yield(kv, &kv->group[0].form[RAW], 0);
    return 0;
}

void kv_forget(struct kv *kv)
{
    while (kv->index.oldest)
        give_up(kv, kv->index.oldest);
}
