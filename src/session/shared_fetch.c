/* shared_fetch.c - reads rows from a shared store.  The store's thread reads and checks the values.  The thread of
 * the cache makes a sequence of them.
 *
 * If no group forgets rows, the blocks are read in order, from the first that the cache lacks to the first that the
 * store lacks.  If some group does, the thread first finds the longest text whose end (BLOCK_END) is in the store,
 * because a text resumes only there, and then reads the blocks before it. */
#include "base/sized.h"
#include "generate/prompts.h"
#include "session/shared_prefix.h"

#include <string.h>

#define PATIENCE 5.0 /* seconds that every read may take */
#define SLOWEST  4e6 /* bytes for which a read may take one second more */
#define SMOOTH   0.3
enum { PROBES = 256 /* most lengths at which an end is looked for */ };
enum { least_kvik_fetched = sizeof(kvik_fetched) };

struct got {    /* a value that was read and checked */
    void *data; /* owned */
    struct block b;
};
struct kvik_fetch {
    struct refs refs; /* one for the program, one for the thread */
    struct kvik_fetch *next;
    struct kvik_shared *s; /* held */
    int32_t *ids;          /* [n_blocks * tokens] owned */
    uint8_t (*key)[DIGEST_BYTES];
    uint32_t n_blocks, from; /* blocks before `from` are in the cache */
    struct kv_salt salt;
    struct got *got; /* [n_blocks] */
    struct got end;  /* the end of the text, where groups forget rows */
    /* The fields below are under the lock of s. */
    /* blocks that were read, and those before `from`; the thread fills got[n_read] next */
    uint32_t n_read;
    uint64_t bytes;
    double begun, ended;
    uint32_t limit;   /* blocks that the thread shall read */
    uint32_t n_whole; /* where groups forget rows: blocks that can be taken; 0: none yet */
    bool cancelled, over;
};

static void fetch_drop(struct kvik_fetch *f)
{
    if (!refs_drop(&f->refs)) return;
    for (uint32_t i = 0; f->got && i < f->n_blocks; i++)
        mem_free(f->got[i].data);
    mem_free(f->end.data);
    mem_free(f->got);
    mem_free(f->key);
    mem_free(f->ids);
    shared_drop(f->s);
    mem_free(f);
}

/* --- The thread that reads. */

/* Reads and checks one value.  A damaged value is removed, so that a valid one can replace it. */
static int read_value(struct kvik_shared *s, const uint8_t *key, uint32_t kind, struct got *out,
                      bool *damaged)
{
    struct keeper *k = s->in.keeper;
    size_t n;
    double until = now_seconds() + PATIENCE + (double)s->most / SLOWEST;
    int e = k->get(k, key, s->most, &out->data, &n, until);
    *damaged = e == ERR_LIMIT;
    if (e >= 0 && block_read(out->data, n, key, kind, &out->b) < 0) *damaged = true;
    if (!*damaged) return e;
    mem_free(out->data);
    out->data = NULL;
    (void)k->remove(k, key, until);
    return ERR_NOTFOUND;
}

/* True while the thread shall continue with the fetch.  Under the lock. */
static bool goes_on(const struct kvik_shared *s, const struct kvik_fetch *f)
{
    return !f->cancelled && !s->closing && f->bytes < SHARED_STAGE && !shared_rests(&s->in);
}

/* Reads a value.  The lock is held at entry and return, and released meanwhile. */
static bool read_one(struct kvik_shared *s, struct kvik_fetch *f, const uint8_t *key, uint32_t kind,
                     struct got *out)
{
    bool damaged = false;
    pthread_mutex_unlock(&s->lock);
    double begun = now_seconds();
    int e = read_value(s, key, kind, out, &damaged);
    double each = (now_seconds() - begun) / s->tokens;
    pthread_mutex_lock(&s->lock);
    shared_note(s, &s->in, e);
    shared_learn(s, key, e >= 0);
    s->state.damaged += damaged;
    s->state.misses += e == ERR_NOTFOUND;
    if (e < 0) return false;
    size_t n = (size_t)(out->b.part - (const unsigned char *)out->data);
    f->bytes += n;
    s->state.reads++;
    s->state.bytes_read += n;
    double *pace = &s->state.token_seconds;
    if (kind == BLOCK_ROWS || !s->keeps) *pace = *pace > 0 ? *pace + SMOOTH * (each - *pace) : each;
    return true;
}

/* Reads the blocks up to the limit.  The lock is held at entry and return. */
static void read_rows(struct kvik_shared *s, struct kvik_fetch *f)
{
    while (f->n_read < f->limit && goes_on(s, f)) {
        uint32_t i = f->n_read;
        if (s->keeps && !read_one(s, f, f->key[i], BLOCK_ROWS, &f->got[i])) return;
        f->n_read++;
    }
}

/* Finds the longest text of at most `most` blocks whose end the store has, and reads that end.  Returns the number
 * of blocks; 0: none was found. */
static uint32_t find_end(struct kvik_shared *s, struct kvik_fetch *f, uint32_t most)
{
    struct keeper *k = s->in.keeper;
    uint8_t key[DIGEST_BYTES];
    uint32_t least = MAX(f->from, most > PROBES ? most - PROBES : 0);
    for (; most > least && goes_on(s, f); most--) {
        block_end_key(f->key[most - 1], key);
        pthread_mutex_unlock(&s->lock);
        int e = k->exists(k, key, now_seconds() + PATIENCE);
        pthread_mutex_lock(&s->lock);
        shared_note(s, &s->in, e);
        if (e <= 0) continue;
        mem_free(f->end.data);
        f->end = (struct got){0};
        if (read_one(s, f, key, BLOCK_END, &f->end)) return most;
    }
    return 0;
}

/* Reads all values of a fetch.  The lock is held at entry and return. */
static void read_fetch(struct kvik_shared *s, struct kvik_fetch *f)
{
    if (!s->forgets) {
        read_rows(s, f);
        return;
    }
    for (uint32_t most = f->n_blocks; most > f->from; most = f->n_read) {
        f->limit = find_end(s, f, most);
        if (f->limit <= f->from) return;
        read_rows(s, f);
        if (f->n_read < f->limit && !goes_on(s, f)) return;
        if (f->n_read >= f->limit) {
            f->n_whole = f->limit;
            return;
        }
    }
}

void *shared_read(void *shared)
{
    struct kvik_shared *s = shared;
    pthread_mutex_lock(&s->lock);
    while (!s->closing || s->first) {
        struct kvik_fetch *f = s->first;
        if (!f) {
            pthread_cond_wait(&s->bell, &s->lock);
            continue;
        }
        if (!(s->first = f->next)) s->last = &s->first;
        s->running = f;
        f->begun = now_seconds();
        read_fetch(s, f);
        f->over = true;
        f->ended = now_seconds();
        s->running = NULL;
        /* cancel() may have set it to end this fetch */
        if (!s->closing) atomic_store(&s->in.stop, false);
        pthread_mutex_unlock(&s->lock);
        fetch_drop(f);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- The program's threads. */

static int fetch_enter(const kvik_fetch *f, kvik_fetch **used)
{
    if (!f) return ERR(ARG, "the fetch is NULL");
    TRY(refs_check(&f->refs, "fetch"));
    *used = (kvik_fetch *)(uintptr_t)f;
    refs_take(&(*used)->refs);
    return 0;
}

static void fetch_leave(kvik_fetch **used)
{
    if (*used) fetch_drop(*used);
}

/* Uses a fetch and its cache until the end of the enclosing block. */
#define USE_FETCH(f)                                                                               \
    kvik_fetch *used_fetch __attribute__((cleanup(fetch_leave))) = NULL;                           \
    TRY(fetch_enter(f, &used_fetch));                                                              \
    kvik_cache *in_use __attribute__((cleanup(cache_leave))) = NULL;                               \
    TRY(cache_use(used_fetch->s->c, &in_use))

static int fetch_new(struct kvik_shared *s, const int32_t *ids, uint32_t n_blocks,
                     struct kvik_fetch **out)
{
    struct kvik_fetch *f = mem_alloc(sizeof *f);
    if (!f) return ERR_NOMEM;
    refs_init(&f->refs);
    shared_hold(s);
    f->s = s;
    f->n_blocks = n_blocks;
    f->ids = mem_array(MAX((size_t)n_blocks * s->tokens, 1), sizeof *f->ids);
    f->key = mem_array(MAX(n_blocks, 1), sizeof *f->key);
    f->got = mem_array(MAX(n_blocks, 1), sizeof *f->got);
    if (!f->ids || !f->key || !f->got) {
        fetch_drop(f);
        return ERR_NOMEM;
    }
    if (n_blocks) memcpy(f->ids, ids, (size_t)n_blocks * s->tokens * sizeof *ids);
    *out = f;
    return 0;
}

KVIK_API int kvik_shared_seek(kvik_shared *s, const int32_t *ids, size_t n, const char *cache_salt,
                              size_t have, kvik_fetch **out)
{
    struct kvik_fetch *f;
    USE_SHARED(s);
    if ((n && !ids) || !out) return ERR(ARG, "a fetch needs token ids and a pointer");
    const struct exec *x = s->c->x;
    uint32_t most = (uint32_t)MIN(n, x->max_len), known = 0;
    while (known < most && ids[known] >= 0 && (uint32_t)ids[known] < x->m->vocab)
        known++;
    TRY(fetch_new(s, ids, known / s->tokens, &f));
    f->salt.regime = regime_of(x->m, most);
    gen_owner(cache_salt, f->salt.owner);
    uint8_t root[DIGEST_BYTES];
    shared_root(s, &f->salt, root);
    for (uint32_t i = 0; i < f->n_blocks; i++)
        block_key(i ? f->key[i - 1] : root, f->ids + (size_t)i * s->tokens, s->tokens, f->key[i]);
    f->from = (uint32_t)MIN(have / s->tokens, f->n_blocks);
    f->n_read = f->from;
    f->limit = f->n_blocks;
    pthread_mutex_lock(&s->lock);
    f->over = f->from == f->n_blocks || shared_rests(&s->in) || s->closing;
    if (!f->over) {
        refs_take(&f->refs);
        *s->last = f;
        s->last = &f->next;
        pthread_cond_broadcast(&s->bell);
    }
    pthread_mutex_unlock(&s->lock);
    *out = f;
    return 0;
}

/* Returns how many blocks the sequence of a take can have.  Under the lock. */
static uint32_t can_take(const struct kvik_fetch *f)
{
    if (f->s->forgets) return f->n_whole;
    return f->n_read > f->from ? f->n_read : 0;
}

KVIK_API int kvik_fetch_look(const kvik_fetch *f, kvik_fetched *out)
{
    USE_FETCH(f);
    if (!out) return ERR(ARG, "looking at a fetch needs a struct");
    TRY(SIZED_CHECK(out, kvik_fetched));
    struct kvik_shared *s = f->s;
    pthread_mutex_lock(&s->lock);
    kvik_fetched now = {.size = sizeof now,
                        .tokens = f->n_read > f->from ? (uint64_t)f->n_read * s->tokens : 0,
                        .most = (uint64_t)(f->over ? f->n_read : f->n_blocks) * s->tokens,
                        .bytes = f->bytes,
                        .seconds =
                            f->begun > 0 ? (f->over ? f->ended : now_seconds()) - f->begun : 0,
                        .over = f->over};
    pthread_mutex_unlock(&s->lock);
    return SIZED_OUT(out, &now, kvik_fetched);
}

/* Tells the thread to stop reading, and does not wait for it. */
static void cancel(struct kvik_fetch *f)
{
    struct kvik_shared *s = f->s;
    pthread_mutex_lock(&s->lock);
    f->cancelled = true;
    if (s->running == f && !f->over) atomic_store(&s->in.stop, true);
    pthread_mutex_unlock(&s->lock);
}

struct giver {
    struct kv_source source; /* first */
    const struct kvik_fetch *f;
    uint32_t n; /* how many blocks the sequence has */
};

static int give_chunk(struct kv_source *source, const struct kv_chunk *c, void *data, size_t bytes)
{
    const struct giver *g = (const struct giver *)source;
    uint32_t b = c->row / g->f->s->tokens;
    const struct got *of = shared_forgets(g->f->s, c->group) ? &g->f->end
                           : b < g->n                        ? &g->f->got[b]
                                                             : NULL;
    const void *found = of && of->data ? block_find(&of->b, c, bytes) : NULL;
    if (!found)
        return ERR(FORMAT, "a value of the store lacks rows %u to %u of group %u", c->row,
                   c->row + c->n, c->group);
    memcpy(data, found, bytes);
    return 0;
}

/* Makes a sequence of n blocks: the kv store finds those before `from` in the cache, and got[] has the others. */
static int load_rows(const struct kvik_fetch *f, uint32_t n, kvik_seq *out)
{
    const struct exec *x = f->s->c->x;
    const struct kv_turn turn = {0, n * f->s->tokens};
    uint32_t groups = x->n_groups, *zeros = mem_array(3 * (size_t)MAX(groups, 1), sizeof *zeros);
    kvik_seq got;
    if (!zeros) return ERR_NOMEM;
    const struct kv_image im = {.len = turn.n,
                                .n_turns = 1,
                                .salt = f->salt,
                                .tok = f->ids,
                                .turn = &turn,
                                .unseen = zeros,
                                .n_keeps = zeros + 2 * groups,
                                .keep = zeros};
    struct giver g = {.source = {.chunk = give_chunk}, .f = f, .n = n};
    int e = kv_load(x->kv, &im, &g.source, &got);
    mem_free(zeros);
    if (e >= 0 && x->reserve && (e = kv_reserve(x->kv, got, x->max_len)) < 0)
        (void)kv_drop(x->kv, got);
    if (e >= 0) *out = got;
    return e;
}

KVIK_API int64_t kvik_fetch_take(kvik_fetch *f, kvik_seq *out)
{
    USE_FETCH(f);
    if (!out) return ERR(ARG, "taking what was fetched needs a pointer for the sequence");
    struct kvik_shared *s = f->s;
    TRY(exec_idle(s->c->x));
    cancel(f);
    pthread_mutex_lock(&s->lock);
    uint32_t n = can_take(f);
    pthread_mutex_unlock(&s->lock);
    if (!n) return 0;
    int e = load_rows(f, n, out);
    return e == ERR_FORMAT ? 0 : e < 0 ? cache_full(s->c, e) : (int64_t)n * s->tokens;
}

KVIK_API void kvik_fetch_free(kvik_fetch *f)
{
    if (!f || !refs_is_open(&f->refs) || guard_foreign(&f->s->c->guard) || !refs_close(&f->refs))
        return;
    cancel(f);
    fetch_drop(f);
}
