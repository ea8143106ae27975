/* dict.c - dictionaries in order of insertion, with an index by open addressing.  Hashes are keyed (base/hash.h), so nobody
 * can choose keys that collide, and probes count as steps. */
#include "chat/value.h"

#include <string.h>

int dict_new(struct render_state *r, size_t cap, struct dict **out)
{
    struct dict *d;
    RUN_NEW(r, d, 1);
    if (cap) RUN_NEW(r, d->v, cap);
    d->cap = cap;
    *out = d;
    return 0;
}

/* Finds the entry under k, or NULL, and the hash of k. */
static int dict_entry(struct render_state *r, const struct dict *d, struct val k, uint32_t *hash,
                      struct dict_item **out)
{
    bool hit = false;
    size_t at, probes = 0;
    *out = NULL;
    TRY(val_hash(r, k, hash));
    for (at = *hash & (d->slots - 1); d->slots && d->index[at]; at = (at + 1) & (d->slots - 1)) {
        struct dict_item *e = &d->v[d->index[at] - 1];
        if (++probes % 8 == 0) TRY(render_work(r, 1));
        if (e->hash != *hash) continue;
        if (k.t == V_STR && e->k.t == V_STR)
            hit = str_same(k.str, e->k.str);
        else
            TRY(val_equal(r, e->k, k, &hit));
        if (!hit) continue;
        *out = e;
        return 0;
    }
    return 0;
}

static void index_add(struct dict *d, size_t i)
{
    size_t at = d->v[i].hash & (d->slots - 1);
    while (d->index[at])
        at = (at + 1) & (d->slots - 1);
    d->index[at] = (uint32_t)i + 1;
}

int dict_put(struct render_state *r, struct dict *d, struct val k, struct val v)
{
    uint32_t hash;
    struct dict_item *e;
    TRY(dict_entry(r, d, k, &hash, &e));
    if (e) {
        e->v = v;
        return 0;
    }
    ARENA_GROW(&r->mem, d);
    d->v[d->n++] = (struct dict_item){k, v, hash};
    size_t from = d->n - 1;
    if (d->n * 2 > d->slots) { /* at most half of the slots are taken */
        d->slots = d->slots ? d->slots * 2 : 8;
        RUN_NEW(r, d->index, d->slots);
        from = 0;
    }
    for (; from < d->n; from++)
        index_add(d, from);
    return 0;
}

int dict_find(struct render_state *r, const struct dict *d, struct val k, struct val **out)
{
    uint32_t hash;
    struct dict_item *e;
    TRY(dict_entry(r, d, k, &hash, &e));
    *out = e ? &e->v : NULL;
    return 0;
}

int dict_view(struct render_state *r, const struct dict *d, enum seq_kind kind, struct val *out)
{
    struct val_seq *s;
    TRY(seq_new(r, kind, d->n, &s));
    TRY(render_work(r, d->n / 4));
    for (size_t i = 0; i < d->n; i++) {
        if (kind == SEQ_KEYS || kind == SEQ_LIST)
            s->v[i] = d->v[i].k;
        else if (kind == SEQ_VALUES)
            s->v[i] = d->v[i].v;
        else
            TRY(seq_copy(r, SEQ_TUPLE, (struct val[]){d->v[i].k, d->v[i].v}, 2, &s->v[i]));
    }
    s->n = d->n;
    *out = val_seq(s);
    return 0;
}
