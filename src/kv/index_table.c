/* index_table.c - which sequences have which keys: the hash table of the prefix index.
 *
 * Every leading full block of a sequence is listed under its chained key and its place in the
 * chain.  Sequences with the same key are linked to the first of them.  So a bucket's chain has
 * each key once, and the cost of a search does not depend on how many sequences share a prefix.
 * The nodes are part of the contents, so listing allocates nothing.
 *
 * Two more keys of each sequence are listed.  The tokens of its first block alone explain a search
 * that found nothing.  The last full block of kept contents shows which kept contents a longer
 * sequence makes superfluous. */
#include "kv/kv_int.h"

#include <string.h>

enum { LEAST_BUCKETS = 64, MOST_BUCKETS = 1 << 22 };

int table_array(struct kv *kv)
{
    struct index *x = &kv->index;
    /* bytes of one block: its tokens, its key, its table entry, and its raw rows */
    size_t block = KV_STRIP * sizeof(int32_t) + KV_KEY + sizeof(struct key_node);
    for (uint32_t gi = 0; gi < kv->n_groups; gi++) {
        const struct group *g = &kv->group[gi];
        if (g->c.policy.kind != KV_STATE)
            block += g->form[RAW].grain * g->c.n_sites * KV_STRIP / g->rows[RAW];
    }
    x->n_buckets = LEAST_BUCKETS;
    while (x->n_buckets < MOST_BUCKETS && x->n_buckets < kv->pool / block)
        x->n_buckets *= 2;
    return kv_array(kv, &x->bucket, x->n_buckets, sizeof *x->bucket);
}

struct seq *index_seq(const struct kv *kv, uint64_t ref)
{
    uint32_t id = (uint32_t)(ref >> 32) - 1;
    if (id < kv->n_contents) return &kv->seq[id];
    return (void *)(kv->index.room.base + (size_t)(id - kv->n_contents) * KV_ROOM_UNIT);
}

static struct key_node *node_at(const struct kv *kv, uint64_t ref)
{
    struct seq *s = index_seq(kv, ref);
    uint32_t what = (uint32_t)ref;
    return what == KV_LIST_BEGIN ? &s->begin : what == KV_LIST_END ? &s->end : &s->node[what];
}

static const unsigned char *key_at(const struct seq *s, uint32_t what)
{
    if (what == KV_LIST_BEGIN) return s->first;
    return s->key + (size_t)(what == KV_LIST_END ? s->n_keys - 1 : what) * KV_KEY;
}

static uint64_t *bucket_of(const struct kv *kv, uint32_t what, const unsigned char *key)
{
    uint64_t h;
    memcpy(&h, key, sizeof h);
    h = hash_u64(&kv->index.secret, h ^ what);
    return &kv->index.bucket[h & (kv->index.n_buckets - 1)];
}

uint64_t index_find(const struct kv *kv, uint32_t what, const unsigned char *key)
{
    uint64_t ref = *bucket_of(kv, what, key);
    for (; ref; ref = node_at(kv, ref)->chain)
        if ((uint32_t)ref == what && memcmp(key_at(index_seq(kv, ref), what), key, KV_KEY) == 0)
            break;
    return ref;
}

uint64_t index_next(const struct kv *kv, uint64_t ref)
{
    return node_at(kv, ref)->next;
}

uint64_t index_chain(const struct kv *kv, uint64_t first)
{
    return node_at(kv, first)->chain;
}

static void list_one(struct kv *kv, struct seq *s, uint32_t what)
{
    const unsigned char *key = key_at(s, what);
    uint64_t ref = ((uint64_t)s->id + 1) << 32 | what, first = index_find(kv, what, key);
    struct key_node *n = node_at(kv, ref);
    if (first) {
        struct key_node *f = node_at(kv, first);
        *n = (struct key_node){.prev = first, .next = f->next};
        if (f->next) node_at(kv, f->next)->prev = ref;
        f->next = ref;
    } else {
        uint64_t *bucket = bucket_of(kv, what, key);
        *n = (struct key_node){.chain = *bucket};
        *bucket = ref;
        index_tell(kv, s, what, true);
    }
}

static void hide_one(struct kv *kv, struct seq *s, uint32_t what)
{
    uint64_t ref = ((uint64_t)s->id + 1) << 32 | what;
    struct key_node n = *node_at(kv, ref);
    if (n.next) node_at(kv, n.next)->prev = n.prev;
    if (n.prev) {
        node_at(kv, n.prev)->next = n.next;
        return;
    }
    if (!n.next) index_tell(kv, s, what, false);
    uint64_t *at = bucket_of(kv, what, key_at(s, what));
    while (*at != ref)
        at = &node_at(kv, *at)->chain;
    if (n.next) node_at(kv, n.next)->chain = n.chain;
    *at = n.next ? n.next : n.chain;
}

void index_list(struct kv *kv, struct seq *s)
{
    if (s->n_keys && !s->n_listed) {
        key_tokens(s->tok, s->first);
        list_one(kv, s, KV_LIST_BEGIN);
        if (s->kept) list_one(kv, s, KV_LIST_END);
    }
    for (; s->n_listed < s->n_keys; s->n_listed++)
        list_one(kv, s, s->n_listed);
}

void index_hide(struct kv *kv, struct seq *s, uint32_t from)
{
    if (s->n_listed && !from) {
        hide_one(kv, s, KV_LIST_BEGIN);
        if (s->kept) hide_one(kv, s, KV_LIST_END);
    }
    while (s->n_listed > from)
        hide_one(kv, s, --s->n_listed);
}
