/* shared_open.c - opens and closes a shared store of prefixes, and remembers what the store seems to have.  After a
 * failure the store is not used for a while. */
#include "base/sized.h"
#include "kv/codec.h"
#include "session/session.h"
#include "session/shared_prefix.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LEAST_REST 0.5 /* seconds without use after a failure; doubled after each further one */
#define MOST_REST  30.0
#define FRESH      600.0 /* seconds for which a known value is believed to exist */
enum {
    CLOSE_MS = 5000,
    TOKENS_MOST = 4096,
    SLACK = 64 << 10,
    least_kvik_shared_state = sizeof(kvik_shared_state)
};

/* --- What rows depend on. */

/* Returns the name of the order of sums.  Instruction sets with the same order compute the same bits (dev.h); every
 * other one is an order of its own. */
static const char *path_of(const struct exec *x)
{
    static const char *const same[] = {"ref", "avx2", "avx512", "neon", "neondot", "neoni8mm"};
    const char *isa = dev_isa_name(x->queue);
    for (size_t i = 0; i < countof(same); i++)
        if (!strcmp(isa, same[i])) return "canonical";
    return isa;
}

static int find_meaning(struct kvik_shared *s)
{
    json_t *meta;
    struct digest d;
    char group[KV_GROUP_TEXT];
    const struct exec *x = s->c->x;
    TRY(session_meta(s->c, &meta)); /* only because it computes the digests of the model */
    json_decref(meta);
    digest_begin(&d);
    digest_text(&d, "kvik shared 1");
    digest_text(&d, KVIK_VERSION); /* another version may compute other bits */
    digest_text(&d, s->c->digests.fingerprint);
    digest_text(&d, s->c->digests.weights);
    digest_u64(&d, x->compute);
    digest_text(&d, path_of(x));
    digest_u64(&d, s->tokens);
    for (uint32_t i = 0; i < kv_n_groups(x->kv); i++) {
        kv_group_text(x->kv, i, group);
        digest_text(&d, group);
    }
    digest_end(&d, s->meaning);
    return 0;
}

void shared_root(const struct kvik_shared *s, const struct kv_salt *salt, uint8_t out[DIGEST_BYTES])
{
    struct digest d;
    digest_begin(&d);
    digest_add(&d, s->meaning, DIGEST_BYTES);
    digest_u64(&d, salt->regime);
    digest_add(&d, salt->adapter, KV_DIGEST);
    digest_add(&d, salt->owner, KV_DIGEST);
    digest_end(&d, out);
}

bool shared_forgets(const struct kvik_shared *s, uint32_t group)
{
    const struct kv_policy *p = &s->c->x->group[group].policy;
    return p->kind != KV_ROWS || p->window || p->chunk;
}

/* Chooses the number of tokens of a block, and sees whether groups keep all rows or forget some. */
static int measure_sizes(struct kvik_shared *s)
{
    const struct exec *x = s->c->x;
    uint64_t row = 0;
    s->tokens = BLOCK_TOKENS;
    if (x->encodes)
        return ERR(
            UNSUPPORTED,
            "a shared store: rows of a cache with on_full \"encode\" change when memory is short, "
            "so nobody else can rely on them; use another on_full");
    for (uint32_t i = 0; i < x->n_groups; i++) {
        const struct kv_group *g = &x->group[i];
        uint32_t tile = MAX(g->seal.tile, 1), n = s->tokens;
        while (s->tokens % tile && s->tokens <= TOKENS_MOST)
            s->tokens += n;
        bool forgets = shared_forgets(s, i);
        s->forgets |= forgets;
        s->keeps |= !forgets;
        for (uint32_t p = 0; p < g->n_planes; p++) {
            const struct kv_shape *h = &g->plane[p].shape;
            uint64_t sealed =
                g->plane[p].codec ? g->plane[p].codec->bytes(g->plane[p].codec, h) : 0;
            row += g->n_sites *
                   ((uint64_t)h->heads * h->dim * dtype_size(h->dtype) + sealed / tile + 1);
        }
    }
    if (s->tokens > TOKENS_MOST)
        return ERR(
            UNSUPPORTED,
            "a shared store: whole tiles of this cache need blocks of %u tokens, the limit is %d; use a cache_config with smaller tiles",
            s->tokens, TOKENS_MOST);
    s->most = (size_t)MIN(row * (s->forgets ? MAX(x->max_len, s->tokens) : s->tokens) + SLACK,
                          BLOCK_MOST);
    return 0;
}

/* --- The keys that the store seems to have. */

/* Returns the entry of a key, or, if it has none, the oldest entry of its set. */
static struct known *known_at(const struct kvik_shared *s, const uint8_t *key, uint64_t *short_key)
{
    memcpy(short_key, key, sizeof *short_key);
    struct known *set = s->known + *short_key % (SHARED_KNOWN / SHARED_WAYS) * SHARED_WAYS,
                 *oldest = set;
    for (struct known *at = set; at < set + SHARED_WAYS; at++) {
        if (at->key == *short_key) return at;
        if (at->when < oldest->when) oldest = at;
    }
    return oldest;
}

bool shared_knows(const struct kvik_shared *s, const uint8_t key[DIGEST_BYTES])
{
    uint64_t k;
    const struct known *at = known_at(s, key, &k);
    return at->key == k && at->when > 0 && now_seconds() - at->when < FRESH;
}

void shared_learn(struct kvik_shared *s, const uint8_t key[DIGEST_BYTES], bool there)
{
    uint64_t k;
    struct known *at = known_at(s, key, &k);
    if (there)
        *at = (struct known){k, now_seconds()};
    else if (at->key == k)
        at->when = 0;
}

bool shared_rests(const struct lane *l)
{
    return now_seconds() < l->rests_until;
}

void shared_note(struct kvik_shared *s, struct lane *l, int e)
{
    if (e >= 0 || e == ERR_NOTFOUND) {
        l->rest = 0;
        return;
    }
    /* cancel() ended the call; the store did not fail */
    if (e == ERR_BUSY && atomic_load(&l->stop)) return;
    s->state.failures++;
    snprintf(s->state.error, sizeof s->state.error, "%s", err_last());
    l->rest = l->rest > 0 ? MIN(2 * l->rest, MOST_REST) : LEAST_REST;
    l->rests_until = now_seconds() + l->rest;
}

/* --- Opening and closing. */

void shared_hold(struct kvik_shared *s)
{
    refs_take(&s->refs);
}

static void free_all(struct kvik_shared *s)
{
    for (struct value *v = s->value, *next; v; v = next) {
        next = v->next;
        block_done(&v->b);
        mem_free(v);
    }
    if (s->in.keeper) s->in.keeper->close(s->in.keeper);
    if (s->out.keeper) s->out.keeper->close(s->out.keeper);
    pthread_cond_destroy(&s->bell);
    pthread_mutex_destroy(&s->lock);
    address_done(&s->address);
    mem_free(s->known);
    cache_drop(s->c);
    mem_free(s);
}

void shared_drop(struct kvik_shared *s)
{
    if (refs_drop(&s->refs)) free_all(s);
}

int shared_enter(const kvik_shared *s, kvik_shared **used)
{
    if (!s) return ERR(ARG, "the shared store is NULL");
    TRY(refs_check(&s->refs, "shared store"));
    *used = (kvik_shared *)(uintptr_t)s;
    shared_hold(*used);
    return 0;
}

void shared_leave(kvik_shared **used)
{
    if (*used) shared_drop(*used);
}

static int start_lane(struct kvik_shared *s, struct lane *l, void *(*run)(void *))
{
    TRY(keeper_open(&s->address, &l->stop, &l->keeper));
    if (thread_start(&l->thread, NULL, run, s))
        return ERR(NOMEM, "a thread for the shared store cannot be started");
    l->started = true;
    return 0;
}

/* Stops and joins the threads. */
static void end_threads(struct kvik_shared *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    atomic_store(&s->in.stop, true);
    atomic_store(&s->out.stop, true);
    pthread_cond_broadcast(&s->bell);
    pthread_mutex_unlock(&s->lock);
    if (s->in.started) pthread_join(s->in.thread, NULL);
    if (s->out.started) pthread_join(s->out.thread, NULL);
}

static int open_all(struct kvik_shared *s, const char *address)
{
    TRY(address_read(address, &s->address));
    TRY(measure_sizes(s));
    TRY(find_meaning(s));
    if (!(s->known = mem_array(SHARED_KNOWN, sizeof *s->known))) return ERR_NOMEM;
    TRY(start_lane(s, &s->in, shared_read));
    return start_lane(s, &s->out, shared_write);
}

static void make_lock(struct kvik_shared *s)
{
    pthread_condattr_t clock;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->bell, &clock);
    pthread_condattr_destroy(&clock);
}

KVIK_API int kvik_shared_open(kvik_cache *c, const char *address, kvik_shared **out)
{
    USE_CACHE(c);
    if (!address || !out) return ERR(ARG, "a shared store needs its address and a pointer");
    if (c->x->encode) return ERR(UNSUPPORTED, "a shared store is for models without an encoder");
    if (kv_by_turns(c->x->kv))
        return ERR(UNSUPPORTED,
                   "with this cache strategy rows depend on turns, and no prompt can be "
                   "found again in a shared store");
    struct kvik_shared *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    refs_init(&s->refs);
    s->c = cache_hold(c);
    s->last = &s->first;
    s->value_last = &s->value;
    make_lock(s);
    int e = open_all(s, address);
    if (e < 0) {
        end_threads(s);
        free_all(s);
        return e;
    }
    *out = s;
    return 0;
}

/* Waits until every value is written.  Returns 1, or 0 if that takes longer than so many milliseconds. */
static int flush(struct kvik_shared *s, uint32_t milliseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += milliseconds / 1000;
    t.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_mutex_lock(&s->lock);
    int e = 0;
    while ((s->value || s->writing) && e != ETIMEDOUT)
        e = pthread_cond_timedwait(&s->bell, &s->lock, &t);
    bool all = !s->value && !s->writing;
    pthread_mutex_unlock(&s->lock);
    return all;
}

KVIK_API void kvik_shared_close(kvik_shared *s)
{
    if (!s || !refs_is_open(&s->refs)) return;
    /* the child of a fork does not have the threads */
    if (guard_foreign(&s->c->guard) || !refs_close(&s->refs)) return;
    (void)flush(s, CLOSE_MS);
    end_threads(s);
    shared_drop(s);
}

KVIK_API int kvik_shared_flush(kvik_shared *s, uint32_t milliseconds)
{
    USE_SHARED(s);
    return flush(s, milliseconds);
}

KVIK_API int kvik_shared_look(kvik_shared *s, kvik_shared_state *out)
{
    USE_SHARED(s);
    if (!out) return ERR(ARG, "looking at a shared store needs a struct");
    TRY(SIZED_CHECK(out, kvik_shared_state));
    pthread_mutex_lock(&s->lock);
    kvik_shared_state now = s->state;
    now.reads_rest = shared_rests(&s->in);
    now.writes_rest = shared_rests(&s->out);
    now.reads_fail = s->in.rest > 0;
    now.writes_fail = s->out.rest > 0;
    pthread_mutex_unlock(&s->lock);
    now.size = sizeof now;
    return SIZED_OUT(out, &now, kvik_shared_state);
}
