/* dict.c - dictionaries in order of insertion.  A small one is searched; a larger one has an index
 * with open addressing.  Probes count as steps, so keys that were chosen to collide end at the limit. */
#include "chat/value.h"

#include <string.h>

#define SMALL 8u

uint32_t hash_bytes(const char *s, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h ^ h >> 15;
}

int dict_new(struct run *r, size_t cap, struct dict **out)
{
    struct dict *d;
    RUN_NEW(r, d, 1);
    if (cap) RUN_NEW(r, d->v, cap);
    d->cap = cap;
    *out = d;
    return 0;
}

static void index_add(struct dict *d, uint32_t i)
{
    size_t at = d->v[i].hash & (d->slots - 1);
    while (d->index[at])
        at = (at + 1) & (d->slots - 1);
    d->index[at] = i + 1;
}

static int dict_index(struct run *r, struct dict *d)
{
    if (d->n <= SMALL || d->n * 2 <= d->slots) return 0;
    size_t slots = d->slots ? d->slots * 2 : 32;
    while (slots < d->n * 2)
        slots *= 2;
    RUN_NEW(r, d->index, slots);
    d->slots = slots;
    for (uint32_t i = 0; i < d->n; i++)
        index_add(d, i);
    return 0;
}

static int entry_match(struct run *r, const struct entry *e, struct val k, uint32_t hash, bool *hit)
{
    *hit = false;
    if (e->hash != hash) return 0;
    if (k.t == V_STR && e->k.t == V_STR) {
        *hit = str_same(k.str, e->k.str);
        return 0;
    }
    return val_equal(r, e->k, k, hit);
}

/* Entry number of k, or SIZE_MAX. */
static int dict_at(struct run *r, const struct dict *d, struct val k, uint32_t hash, size_t *out)
{
    bool hit = false;
    *out = SIZE_MAX;
    for (size_t i = 0; i < d->n && !d->slots && !hit; i++) {
        TRY(entry_match(r, &d->v[i], k, hash, &hit));
        if (hit) *out = i;
    }
    size_t at = hash & (d->slots - 1), probes = 0;
    for (; d->slots && d->index[at] && !hit; at = (at + 1) & (d->slots - 1)) {
        if (++probes % 8 == 0) TRY(run_work(r, 1));
        TRY(entry_match(r, &d->v[d->index[at] - 1], k, hash, &hit));
        if (hit) *out = d->index[at] - 1;
    }
    return 0;
}

int dict_put(struct run *r, struct dict *d, struct val k, struct val v)
{
    uint32_t hash;
    size_t at;
    TRY(val_hash(r, k, &hash));
    TRY(dict_at(r, d, k, hash, &at));
    if (at != SIZE_MAX) {
        d->v[at].v = v;
        return 0;
    }
    ARENA_GROW(&r->mem, d);
    d->v[d->n++] = (struct entry){k, v, hash};
    if (d->slots && d->n * 2 <= d->slots) index_add(d, (uint32_t)d->n - 1);
    return dict_index(r, d);
}

int dict_find(struct run *r, const struct dict *d, struct val k, struct val **out)
{
    uint32_t hash;
    size_t at;
    TRY(val_hash(r, k, &hash));
    TRY(dict_at(r, d, k, hash, &at));
    *out = at == SIZE_MAX ? NULL : &d->v[at].v;
    return 0;
}

int dict_view(struct run *r, const struct dict *d, enum seq_kind kind, struct val *out)
{
    struct seq *s;
    TRY(seq_new(r, kind, d->n, &s));
    TRY(run_work(r, d->n / 4));
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
