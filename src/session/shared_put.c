/* shared_put.c - writes rows to a shared store.  The thread of the cache copies the rows that the store does not
 * seem to have, and the store's thread writes the copies. */
#include "session/shared_prefix.h"

#include <string.h>

#define PUT_MOST ((size_t)8 << 20) /* most bytes that one call copies */
#define PATIENCE 5.0               /* seconds that every write may take */
#define SLOWEST  4e6               /* bytes for which a write may take one second more */
#define NONE     UINT32_MAX

/* --- The thread of the cache. */

struct putting {
    struct kv_sink sink; /* first */
    struct kvik_shared *s;
    uint32_t kind, end;   /* BLOCK_END: the length of the text */
    uint32_t first, last; /* BLOCK_ROWS: the wanted blocks */
    struct value **value; /* [last - first]; NULL: the store has this value */
};

/* True if a text of p->end tokens may need rows of the chunk to resume.  Rows that only earlier snapshots need are
 * left out. */
static bool is_near(const struct putting *p, const struct kv_chunk *c)
{
    const struct kv_group *g = &p->s->c->x->group[c->group];
    uint32_t reach =
        MAX(g->policy.window, g->policy.chunk) + g->policy.slack + MAX(g->seal.tile, KV_STRIP);
    if (g->policy.kind == KV_STATE) return c->row == p->end;
    return c->row < MAX(g->policy.sinks, g->seal.lead) + KV_STRIP || c->row + c->n + reach > p->end;
}

/* Returns the value that shall hold the chunk, or NULL. */
static struct value *value_of(const struct putting *p, const struct kv_chunk *c)
{
    uint32_t b = c->row / p->s->tokens;
    if (shared_forgets(p->s, c->group) != (p->kind == BLOCK_END)) return NULL;
    if (p->kind == BLOCK_END) return is_near(p, c) ? *p->value : NULL;
    bool inside = b >= p->first && b < p->last && c->row + c->n <= (b + 1) * p->s->tokens;
    return inside ? p->value[b - p->first] : NULL;
}

static int on_image(struct kv_sink *sink, const struct kv_image *im)
{
    (void)sink, (void)im;
    return 0;
}

static int on_shared(struct kv_sink *sink, const struct kv_chunk *c, uint32_t page)
{
    (void)page;
    return !value_of((struct putting *)sink, c);
}

static int on_chunk(struct kv_sink *sink, const struct kv_chunk *c, const void *data, size_t n)
{
    struct value *v = value_of((struct putting *)sink, c);
    return v ? block_add(&v->b, c, data, n) : 0;
}

static void value_free(struct value *v)
{
    if (!v) return;
    block_done(&v->b);
    mem_free(v);
}

/* Queues the values for the store's thread.  A value of rows without a part is not written; an end may have none,
 * where a chunk of attention ends with the text. */
static void hand_over(struct kvik_shared *s, struct value **v, uint32_t n)
{
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < n; i++) {
        if (!v[i]) continue;
        /* also if the value has no rows, so that it is not built again */
        shared_learn(s, v[i]->b.key, true);
        if (!v[i]->b.n_parts && v[i]->b.kind == BLOCK_ROWS) continue;
        s->state.waiting += v[i]->b.data.len;
        *s->value_last = v[i];
        s->value_last = &v[i]->next;
        v[i] = NULL;
    }
    pthread_cond_broadcast(&s->bell);
    pthread_mutex_unlock(&s->lock);
}

/* Copies the chunks of a sequence into the values, then queues them. */
static int copy_out(struct putting *p, kv_seq seq, uint32_t n)
{
    p->sink = (struct kv_sink){.image = on_image, .chunk = on_chunk, .shared = on_shared};
    int e = cache_step(kv_save(p->s->c->x->kv, seq, &p->sink));
    if (e >= 0) hand_over(p->s, p->value, n);
    for (uint32_t i = 0; i < n; i++)
        value_free(p->value[i]);
    return MIN(e, 0);
}

static struct value *value_new(uint32_t kind, uint32_t first, uint32_t rows, const uint8_t *key)
{
    struct value *v = mem_alloc(sizeof *v);
    if (v) block_begin(&v->b, kind, first, rows, key);
    return v;
}

/* Puts the rows of groups that keep all rows.  Returns 1 if more are left. */
static int put_rows(struct kvik_shared *s, kv_seq seq, const uint8_t *key, uint32_t n)
{
    struct putting p = {.s = s, .kind = BLOCK_ROWS, .first = NONE};
    size_t each = s->forgets ? s->most / MAX(s->c->x->max_len / s->tokens, 1) : s->most;
    uint32_t most = (uint32_t)MAX(PUT_MOST / MAX(each, 1), 1), wanted = 0;
    struct value **v = mem_array(n, sizeof *v);
    bool *there = mem_array(n, sizeof *there);
    int e = v && there ? 0 : ERR_NOMEM;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; e >= 0 && i < n; i++)
        there[i] = shared_knows(s, key + (size_t)i * DIGEST_BYTES);
    pthread_mutex_unlock(&s->lock);
    uint32_t i = 0;
    for (; e >= 0 && i < n && wanted < most; i++) {
        if (there[i]) continue;
        if (p.first == NONE) p.first = i;
        p.last = i + 1;
        wanted++;
        v[i - p.first] =
            value_new(BLOCK_ROWS, i * s->tokens, s->tokens, key + (size_t)i * DIGEST_BYTES);
        if (!v[i - p.first]) e = ERR_NOMEM;
    }
    p.value = v;
    if (e >= 0 && wanted)
        e = copy_out(&p, seq, p.last - p.first);
    else
        for (uint32_t k = 0; v && k < n; k++)
            value_free(v[k]);
    while (e >= 0 && i < n && there[i])
        i++;
    mem_free(v);
    mem_free(there);
    return e < 0 ? e : i < n;
}

/* Puts the state and rows, of groups that forget rows, from which a text of `end` tokens resumes.  Returns 1, or 0
 * if the sequence has no such text. */
static int put_end(struct kvik_shared *s, kv_seq seq, const uint8_t *key, uint32_t end)
{
    struct kv *kv = s->c->x->kv;
    struct value *v = value_new(BLOCK_END, end - s->tokens, s->tokens, key);
    struct putting p = {.s = s, .kind = BLOCK_END, .end = end, .value = &v};
    kv_seq fork;
    uint32_t have = 0;
    if (!v) return ERR_NOMEM;
    int e = kv_fork(kv, seq, &fork);
    if (e < 0) {
        value_free(v);
        return e;
    }
    e = kv_trim(kv, fork, end, &have);
    if (e >= 0 && have == end)
        e = copy_out(&p, fork, 1);
    else
        value_free(v);
    (void)kv_drop(kv, fork);
    return e < 0 ? e : have == end;
}

/* Puts one end: the longest from which a text can resume exactly and which the store does not seem to have.  Returns
 * 1 if there may be more. */
static int put_ends(struct kvik_shared *s, kv_seq seq, const uint8_t *key, uint32_t n)
{
    uint8_t end_key[DIGEST_BYTES];
    for (uint32_t have; n; n--) {
        TRY(kv_resume(s->c->x->kv, seq, n * s->tokens, &have));
        if (have < n * s->tokens) { /* the loop subtracts one */
            n = have / s->tokens + 1;
            continue;
        }
        block_end_key(key + (size_t)(n - 1) * DIGEST_BYTES, end_key);
        pthread_mutex_lock(&s->lock);
        bool there = shared_knows(s, end_key);
        pthread_mutex_unlock(&s->lock);
        if (there) continue;
        int e = put_end(s, seq, end_key, n * s->tokens);
        if (e) return e;
    }
    return 0;
}

KVIK_API int kvik_shared_put(kvik_shared *s, kvik_seq seq)
{
    USE_SHARED(s);
    struct kv *kv = s->c->x->kv;
    const int32_t *ids = kv_tokens(kv, seq);
    if (!ids) return ERR(STALE, "the sequence was dropped");
    const struct kv_salt salt = kv_salt(kv, seq);
    uint32_t n = kv_len(kv, seq) / s->tokens;
    if (!n || kv_foreign(kv, seq) || salt.pad) return 0;
    pthread_mutex_lock(&s->lock);
    bool rests = shared_rests(&s->out), full = s->state.waiting >= SHARED_QUEUE;
    pthread_mutex_unlock(&s->lock);
    if (rests) return 0;
    if (full) return 1;
    uint8_t *key = mem_array(n, DIGEST_BYTES), root[DIGEST_BYTES];
    if (!key) return ERR_NOMEM;
    shared_root(s, &salt, root);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t t = i * s->tokens; t < (i + 1) * s->tokens; t++)
            if (ids[t] < 0) n = i;
        if (i < n)
            block_key(i ? key + (size_t)(i - 1) * DIGEST_BYTES : root, ids + (size_t)i * s->tokens,
                      s->tokens, key + (size_t)i * DIGEST_BYTES);
    }
    int e = n && s->keeps ? put_rows(s, seq, key, n) : 0;
    if (!e && s->forgets) e = put_ends(s, seq, key, n);
    mem_free(key);
    return e;
}

/* --- The thread that writes. */

static int write_value(struct lane *l, struct value *v)
{
    TRY(block_finish(&v->b));
    double until = now_seconds() + PATIENCE + (double)v->b.data.len / SLOWEST;
    int e = l->keeper->exists(l->keeper, v->b.key, until);
    if (e != 0) return e;
    return l->keeper->put(l->keeper, v->b.key, v->b.data.data, v->b.data.len, until);
}

void *shared_write(void *shared)
{
    struct kvik_shared *s = shared;
    struct lane *l = &s->out;
    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        struct value *v = s->value;
        if (!v) {
            pthread_cond_wait(&s->bell, &s->lock);
            continue;
        }
        if (!(s->value = v->next)) s->value_last = &s->value;
        size_t waited = v->b.data.len;
        bool rests = shared_rests(l);
        s->writing = true;
        pthread_mutex_unlock(&s->lock);
        int e = rests ? ERR_BUSY : write_value(l, v);
        pthread_mutex_lock(&s->lock);
        s->writing = false;
        s->state.waiting -= waited;
        if (!rests) shared_note(s, l, e);
        if (e < 0) shared_learn(s, v->b.key, false);
        s->state.writes += e == 0 && !rests;
        s->state.bytes_written += e == 0 && !rests ? v->b.data.len : 0;
        value_free(v);
        pthread_cond_broadcast(&s->bell);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
