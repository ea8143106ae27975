/* matcher.c - states of texts.  A state is a set of threads.  Every set and every frame is stored once, so equal
 * states have equal numbers.  Masks of tokens are stored by state, and states by the tokens that led to them.
 *
 * All memory is taken when the matcher is opened.  When it is full, everything but the current state is dropped.
 * Dropped states are found again from their tokens when they are needed. */
#include "base/hash.h"
#include "schema/schema_int.h"

#include <string.h>

enum {
    STATES = 1 << 13,
    THREADS = 1 << 16,
    MASKS = 256,
    PLACES = 1 << 12,
    PROBES = 8,
    MOST_THREADS = 4096
};
#define STEPS      ((uint64_t)1 << 24) /* most steps of one mask, about a quarter of a second */
#define MASK_BYTES ((size_t)8 << 20)   /* most bytes of all stored masks */

struct state {
    uint32_t first, n; /* threads */
    uint32_t mask;     /* 1 + number of its mask, 0: none */
    uint32_t alike;    /* the state that has the same mask; 0: not known */
};
struct text_state { /* the state that tokens of this hash led to */
    uint64_t hash;
    uint32_t n, state;
};
struct matcher {
    struct machine x;
    const struct lexicon *l;
    struct hash_key key;
    struct state *state;   /* owned, [STATES] */
    struct thread *thread; /* owned, [THREADS] */
    uint32_t n_state, n_thread;
    uint32_t *by_state; /* owned, [2 * STATES]: state, 0 free */
    uint32_t *by_frame; /* owned, [2 * cap_frame] */
    uint32_t *from;     /* owned, [longest + 2]: where the threads of a depth begin in the pool */
    uint32_t *mark;     /* owned, [2 * (longest + 2)]: scratch frames and sets of a depth */
    uint64_t *mask;     /* owned, [n_masks][words] */
    uint32_t *mask_of;  /* owned, [n_masks]: the state, 0: free */
    uint32_t n_masks, next_mask, words;
    struct text_state *place; /* owned, [PLACES] */
    struct thread *moved;     /* owned, [MOST_THREADS] */
    uint32_t *chain;          /* owned, [DEPTH_MOST + 2] */
    uint32_t age, turn, begin;
    uint64_t steps; /* steps that the current mask has taken */
};

/* --- memory */

static void forget_all(struct matcher *m)
{
    m->x.n_frame = 1;
    m->x.named = 0;
    m->x.n_set = 0;
    m->n_state = 1; /* state 0 is dead */
    m->n_thread = 0;
    memset(m->by_state, 0, 2 * STATES * sizeof *m->by_state);
    memset(m->by_frame, 0, 2 * (size_t)m->x.cap_frame * sizeof *m->by_frame);
    memset(m->mask_of, 0, m->n_masks * sizeof *m->mask_of);
    memset(m->place, 0, PLACES * sizeof *m->place);
    m->begin = 0;
    m->age++;
}

void matcher_drop(struct matcher *m)
{
    if (!m) return;
    machine_done(&m->x);
    void *own[] = {m->state, m->thread,  m->by_state, m->by_frame, m->from, m->mark,
                   m->mask,  m->mask_of, m->place,    m->moved,    m->chain};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
    mem_free(m);
}

static int take_memory(struct matcher *m, const struct schema *s)
{
    TRY(machine_init(&m->x, s));
    size_t depths = (size_t)m->l->longest + 2;
    m->words = m->l->words;
    m->n_masks = (uint32_t)MAX(MIN(MASK_BYTES / (m->words * sizeof *m->mask), (size_t)MASKS), 8);
    m->state = mem_array(STATES, sizeof *m->state);
    m->thread = mem_array(THREADS, sizeof *m->thread);
    m->by_state = mem_array(2 * STATES, sizeof *m->by_state);
    m->by_frame = mem_array(2 * (size_t)m->x.cap_frame, sizeof *m->by_frame);
    m->from = mem_array(depths, sizeof *m->from);
    m->mark = mem_array(2 * depths, sizeof *m->mark);
    m->mask = mem_array((size_t)m->n_masks * m->words, sizeof *m->mask);
    m->mask_of = mem_array(m->n_masks, sizeof *m->mask_of);
    m->place = mem_array(PLACES, sizeof *m->place);
    m->moved = mem_array(MOST_THREADS, sizeof *m->moved);
    m->chain = mem_array(DEPTH_MOST + 2, sizeof *m->chain);
    return m->state && m->thread && m->by_state && m->by_frame && m->from && m->mark && m->mask &&
                   m->mask_of && m->place && m->moved && m->chain
               ? 0
               : ERR_NOMEM;
}

int matcher_new(const struct schema *s, const struct lexicon *l, struct matcher **out)
{
    struct matcher *m = mem_alloc(sizeof *m);
    if (!m) return ERR_NOMEM;
    m->l = l;
    m->key = hash_key_new();
    int e = take_memory(m, s);
    if (e < 0) {
        matcher_drop(m);
        return e;
    }
    forget_all(m);
    *out = m;
    return 0;
}

/* --- frames and states, each once */

static uint64_t hash_words(const struct matcher *m, const void *p, size_t n)
{
    const uint64_t *v = p;
    uint64_t h = n;
    for (size_t i = 0; i < n / 8; i++)
        h = hash_u64(&m->key, h ^ v[i]);
    return h;
}

static bool same_frame(const struct matcher *m, const struct frame *a, const uint64_t *seen,
                       uint32_t i)
{
    const struct frame *b = &m->x.frame[i];
    uint32_t words = m->x.s->basic[a->basic].words;
    if (a->parent != b->parent || a->basic != b->basic || a->count != b->count) return false;
    return words <= 1 ? a->seen == b->seen
                      : !memcmp(seen, machine_set(&m->x, b, words), words * sizeof *seen);
}

/* Finds a stored frame, or stores it.  Its parent must be stored.  Returns 0 if there is no room. */
static uint32_t keep_frame(struct matcher *m, struct frame f, const uint64_t *seen)
{
    struct machine *x = &m->x;
    uint32_t words = x->s->basic[f.basic].words, size = 2 * x->cap_frame;
    uint64_t key[2] = {(uint64_t)f.parent << 32 | f.basic, f.count};
    uint64_t h = hash_words(m, key, sizeof key) ^
                 (words ? hash_words(m, words == 1 ? &f.seen : seen, words * sizeof *seen) : 0);
    uint32_t at = (uint32_t)(h % size);
    for (; m->by_frame[at]; at = at + 1 < size ? at + 1 : 0)
        if (same_frame(m, &f, seen, m->by_frame[at])) return m->by_frame[at];
    if (x->n_frame == x->cap_frame || (words > 1 && x->cap_set - x->n_set < words)) {
        x->full = true;
        return 0;
    }
    if (words > 1) {
        memmove(x->set + x->n_set, seen, words * sizeof *seen);
        f.seen = x->n_set;
        x->n_set += words;
    }
    x->frame[x->n_frame] = f;
    return m->by_frame[at] = x->n_frame++;
}

/* Stores a scratch frame and all scratch frames below it. */
static uint32_t keep_chain(struct matcher *m, uint32_t top)
{
    uint32_t n = 0;
    while (top & SCRATCH && n < DEPTH_MOST + 2) {
        m->chain[n++] = top;
        top = m->x.scratch[top & ~SCRATCH].parent;
    }
    while (n > 0) {
        struct frame f = m->x.scratch[m->chain[--n] & ~SCRATCH];
        f.parent = top;
        if (!(top = keep_frame(m, f, machine_set(&m->x, &f, m->x.s->basic[f.basic].words))))
            return 0;
    }
    return top;
}

static bool same_threads(const struct matcher *m, const struct thread *v, uint32_t n, uint32_t s)
{
    return m->state[s].n == n && !memcmp(m->thread + m->state[s].first, v, n * sizeof *v);
}

/* Finds or stores the state of threads whose frames are stored.  Sets `full` if there is no room. */
static uint32_t keep_state(struct matcher *m, const struct thread *v, uint32_t n)
{
    uint32_t at = (uint32_t)(hash_words(m, v, n * sizeof *v) % (2 * STATES));
    for (; m->by_state[at]; at = (at + 1) % (2 * STATES))
        if (same_threads(m, v, n, m->by_state[at])) return m->by_state[at];
    if (m->n_state == STATES || THREADS - m->n_thread < n) {
        m->x.full = true;
        return 0;
    }
    memcpy(m->thread + m->n_thread, v, n * sizeof *v);
    m->state[m->n_state] = (struct state){.first = m->n_thread, .n = n};
    m->n_thread += n;
    return m->by_state[at] = m->n_state++;
}

static int compare_threads(const struct thread *a, const struct thread *b)
{
    return memcmp(a, b, sizeof *a);
}

/* Stores the threads pool[from .. n_pool) as a state.  Returns 0 and sets `full` if there is no room. */
static uint32_t keep_threads(struct matcher *m, uint32_t from)
{
    uint32_t n = 0;
    if (m->x.n_pool - from > MOST_THREADS) {
        m->x.full = true;
        return 0;
    }
    for (uint32_t i = from; i < m->x.n_pool; i++) {
        struct thread t = m->x.pool[i];
        if (t.frame & SCRATCH && !(t.frame = keep_chain(m, t.frame))) return 0;
        uint32_t k = n;
        while (k > 0 && compare_threads(&m->moved[k - 1], &t) > 0)
            k--;
        if (k > 0 && !compare_threads(&m->moved[k - 1], &t)) continue;
        memmove(m->moved + k + 1, m->moved + k, (n - k) * sizeof *m->moved);
        m->moved[k] = t;
        n++;
    }
    return n ? keep_state(m, m->moved, n) : 0;
}

static int too_large(void)
{
    return ERR(
        LIMIT,
        "json_schema: the text has more alternatives, or is nested more deeply, than a generation can "
        "follow");
}

/* Copies a stored frame, and all frames below it, to scratch. */
static uint32_t lift(struct matcher *m, uint32_t frame)
{
    struct machine *x = &m->x;
    if (!frame || frame & SCRATCH) return frame;
    struct frame f = x->frame[frame];
    uint32_t words = x->s->basic[f.basic].words, parent = lift(m, f.parent);
    if (x->n_scratch == x->cap_scratch ||
        (words > 1 && x->cap_scratch_set - x->n_scratch_set < words)) {
        x->full = true;
        return 0;
    }
    if (words > 1) {
        memcpy(x->scratch_set + x->n_scratch_set, x->set + f.seen, words * sizeof *x->set);
        f.seen = x->n_scratch_set | SCRATCH;
        x->n_scratch_set += words;
    }
    f.parent = parent;
    x->scratch[x->n_scratch] = f;
    return x->n_scratch++ | SCRATCH;
}

/* Drops everything but pool[from .. n_pool), and stores these threads as a state. */
static int start_anew(struct matcher *m, uint32_t from, uint32_t *out)
{
    struct machine *x = &m->x;
    x->full = false;
    for (uint32_t i = from; i < x->n_pool; i++) {
        /* a scratch chain ends in stored frames, which are copied to scratch as well */
        uint32_t low = x->pool[i].frame;
        if (!(low & SCRATCH)) {
            x->pool[i].frame = lift(m, low);
            continue;
        }
        for (uint32_t k = 0; k < DEPTH_MOST + 2 && x->scratch[low & ~SCRATCH].parent & SCRATCH; k++)
            low = x->scratch[low & ~SCRATCH].parent;
        uint32_t parent = lift(m, x->scratch[low & ~SCRATCH].parent);
        x->scratch[low & ~SCRATCH].parent = parent;
    }
    if (x->full) return too_large();
    forget_all(m);
    *out = keep_threads(m, from);
    return x->full ? too_large() : 0;
}

/* --- texts */

static void begin_walk(struct matcher *m)
{
    m->x.n_pool = m->x.n_scratch = m->x.n_scratch_set = 0;
    m->x.full = false;
}

uint32_t matcher_age(const struct matcher *m)
{
    return m->age;
}

uint32_t matcher_start(struct matcher *m)
{
    if (m->begin) return m->begin;
    begin_walk(m);
    if (!m->x.s->node[m->x.s->root].live) return 0;
    m->x.pool[m->x.n_pool++] = (struct thread){.what = m->x.s->root, .mode = MODE_VALUE};
    return m->begin = keep_threads(m, 0);
}

/* Puts the threads of a state into the pool. */
static int load_threads(struct matcher *m, uint32_t state)
{
    begin_walk(m);
    m->x.n_pool = m->state[state].n;
    if (m->x.n_pool > m->x.cap_pool / 2) return too_large();
    memcpy(m->x.pool, m->thread + m->state[state].first, m->x.n_pool * sizeof *m->x.pool);
    return 0;
}

/* Stores pool[from .. n_pool) as a state; if memory is full, drops everything else first. */
static int keep_or_forget(struct matcher *m, uint32_t from, uint32_t *out)
{
    *out = keep_threads(m, from);
    return m->x.full ? start_anew(m, from, out) : 0;
}

/* True if the threads should be stored before the next byte: equal ones then become one, and scratch is free
 * again. */
static bool crowded(const struct machine *x, uint32_t from)
{
    return x->n_pool - from > 16 || x->n_pool > x->cap_pool / 2 ||
           x->n_scratch > x->cap_scratch / 2 || x->n_scratch_set > x->cap_scratch_set / 2;
}

int matcher_text(struct matcher *m, uint32_t state, const char *s, size_t n, uint32_t *out)
{
    struct machine *x = &m->x;
    uint32_t from = 0;
    *out = 0;
    if (!state) return 0;
    TRY(load_threads(m, state));
    for (size_t i = 0; i < n && from < x->n_pool; i++) {
        uint32_t end = x->n_pool;
        for (uint32_t k = from; k < end; k++)
            machine_step(x, &x->pool[k], (uint8_t)s[i]);
        if (x->full) return too_large();
        from = end;
        if (from == x->n_pool || !crowded(x, from)) continue;
        TRY(keep_or_forget(m, from, &state));
        TRY(load_threads(m, state));
        from = 0;
    }
    return from == x->n_pool ? 0 : keep_or_forget(m, from, out);
}

int matcher_token(struct matcher *m, uint32_t state, int32_t id, uint32_t *out)
{
    *out = 0;
    if (!lexicon_has(m->l, id)) return 0;
    return matcher_text(m, state, m->l->text + m->l->at[id], m->l->at[id + 1] - m->l->at[id], out);
}

bool matcher_accepts(const struct matcher *m, uint32_t state)
{
    for (uint32_t i = 0; state && i < m->state[state].n; i++)
        if (machine_accepts(&m->x, &m->thread[m->state[state].first + i])) return true;
    return false;
}

/* --- masks */

/* Steps over a character that stands for itself in a string, which is the most frequent step.  False: the byte is
 * no such character. */
static inline bool step_plain(struct machine *x, const struct thread *t, uint8_t byte)
{
    if (t->mode != MODE_STRING || t->stage != STAGE_CHAR) return false;
    if (byte < 0x20 || byte >= 0x80 || byte == '"' || byte == '\\') return false;
    const struct basic *b = &x->s->basic[t->what];
    uint32_t q = dfa_next(b->dfa, t->q, byte);
    if (q == DFA_DEAD || (b->any && b->max != SCHEMA_MANY && t->count >= b->max)) return true;
    if (x->n_pool == x->cap_pool) return x->full = true;
    struct thread *n = &x->pool[x->n_pool++];
    *n = *t;
    n->q = q;
    n->count += t->count < b->count;
    return true;
}

/* Walks a trie, beginning with the threads pool[from .. n_pool). */
static void walk_trie(struct matcher *m, const struct trie_of_tokens *l, uint32_t start,
                      uint64_t *bits)
{
    struct machine *x = &m->x;
    m->from[0] = start;
    m->from[1] = x->n_pool;
    m->mark[0] = m->mark[1] = 0;
    for (uint32_t i = 0; i < l->n && !x->full;) {
        const struct lexeme *t = &l->node[i];
        uint32_t d = t->depth, from = m->from[d - 1], end = m->from[d];
        if ((m->steps += end - from) > STEPS) x->full = true;
        x->n_pool = end;
        x->n_scratch = m->mark[2 * d - 2];
        x->n_scratch_set = m->mark[2 * d - 1];
        for (uint32_t k = from; k < end; k++)
            if (!step_plain(x, &x->pool[k], t->byte)) machine_step(x, &x->pool[k], t->byte);
        if (x->n_pool == end) {
            i = t->skip;
            continue;
        }
        m->from[d + 1] = x->n_pool;
        m->mark[2 * d] = x->n_scratch;
        m->mark[2 * d + 1] = x->n_scratch_set;
        for (uint32_t k = t->first; k < t->first + t->ends; k++)
            bits[(uint32_t)l->end[k] / 64] |= (uint64_t)1 << ((uint32_t)l->end[k] % 64);
        i++;
    }
}

/* In a string without a pattern every plain token may follow that is not too long.  Returns the most characters;
 * 0: the thread is not in such a string. */
static uint32_t plain_room(const struct matcher *m, const struct thread *t)
{
    if (t->mode != MODE_STRING || t->stage != STAGE_CHAR) return 0;
    const struct basic *b = &m->x.s->basic[t->what];
    if (!b->any) return 0;
    return b->max == SCHEMA_MANY ? PLAIN_MOST : MIN(PLAIN_MOST, b->max - MIN(t->count, b->max));
}

static int find_mask(struct matcher *m, uint32_t state, uint64_t *bits)
{
    struct machine *x = &m->x;
    const struct thread *t = m->thread + m->state[state].first;
    uint32_t n = m->state[state].n, room = 0, k;
    if (n > x->cap_pool / 2) return too_large();
    m->steps = 0;
    begin_walk(m);
    for (uint32_t i = 0; i < n; i++)
        if ((k = plain_room(m, &t[i]))) {
            room = MAX(room, k);
            x->pool[x->n_pool++] = t[i];
        }
    if (room) {
        const uint64_t *plain = m->l->plain + (size_t)(room - 1) * m->words;
        for (uint32_t i = 0; i < m->words; i++)
            bits[i] |= plain[i];
        walk_trie(m, &m->l->rest, 0, bits);
    }
    if (x->full) return too_large();
    begin_walk(m);
    for (uint32_t i = 0; i < n; i++)
        if (!plain_room(m, &t[i])) x->pool[x->n_pool++] = t[i];
    if (x->n_pool) walk_trie(m, &m->l->all, 0, bits);
    return x->full ? too_large() : 0;
}

/* --- Masks are shared by states that no token can tell apart.  Counts matter only near a limit: if no token can
 * reach a limit, the count is replaced by one that stands for all such counts. */

static uint32_t plain_count(const struct matcher *m, const struct basic *b, uint32_t count,
                            uint32_t least)
{
    uint32_t far = m->l->longest + 1;
    if (count < least) return count;
    if (b->max != SCHEMA_MANY && b->max - MIN(count, b->max) <= far) return count;
    if (count < b->min) return b->min - count > far ? least : count;
    return MAX(least, MIN(b->min, b->count));
}

/* Returns the frame whose counts, and those of the frames below it, are replaced in this way. */
static uint32_t plain_frame(struct matcher *m, uint32_t frame)
{
    if (!frame) return 0;
    struct frame f = m->x.frame[frame];
    const struct basic *b = &m->x.s->basic[f.basic];
    uint32_t parent = plain_frame(m, f.parent);
    uint32_t count = b->kind == BASIC_ARRAY ? plain_count(m, b, f.count, b->n_prefix) : f.count;
    if (parent == f.parent && count == f.count) return frame;
    f.parent = parent;
    f.count = count;
    return keep_frame(m, f, machine_set(&m->x, &m->x.frame[frame], b->words));
}

/* Returns the state that stands for all states with the same mask; the state itself if there is no room for
 * another. */
static uint32_t plain_state(struct matcher *m, uint32_t state)
{
    struct state *s = &m->state[state];
    if (s->alike) return s->alike;
    begin_walk(m);
    m->x.n_pool = MIN(s->n, m->x.cap_pool / 2);
    memcpy(m->x.pool, m->thread + s->first, m->x.n_pool * sizeof *m->x.pool);
    for (uint32_t i = 0; i < m->x.n_pool && !m->x.full; i++) {
        struct thread *t = &m->x.pool[i];
        const struct basic *b = &m->x.s->basic[t->what];
        t->frame = plain_frame(m, t->frame);
        if (t->mode == MODE_STRING && b->any) t->count = plain_count(m, b, t->count, 0);
    }
    uint32_t alike = m->x.full || m->x.n_pool < s->n ? state : keep_threads(m, 0);
    return s->alike = m->x.full ? state : alike;
}

int matcher_mask(struct matcher *m, uint32_t state, const uint64_t **out)
{
    if (state) state = plain_state(m, state);
    uint32_t at = m->state[state].mask;
    if (at && m->mask_of[at - 1] == state) {
        *out = m->mask + (size_t)(at - 1) * m->words;
        return 0;
    }
    at = m->next_mask;
    m->next_mask = (at + 1) % m->n_masks;
    uint64_t *bits = m->mask + (size_t)at * m->words;
    memset(bits, 0, m->words * sizeof *bits);
    m->mask_of[at] = 0;
    if (state) TRY(find_mask(m, state, bits));
    m->mask_of[at] = state;
    m->state[state].mask = at + 1;
    *out = bits;
    return 0;
}

/* --- states by the tokens that led to them */

#define PRIME (((uint64_t)1 << 61) - 1)

static uint64_t roll(const struct matcher *m, uint64_t h, int32_t id)
{
    unsigned __int128 p = (unsigned __int128)h * (m->key.k[0] >> 3 | 1) + (uint32_t)id + 1;
    uint64_t r = (uint64_t)(p & PRIME) + (uint64_t)(p >> 61);
    return r >= PRIME ? r - PRIME : r;
}

static const struct text_state *find_place(const struct matcher *m, uint64_t hash, size_t n)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        const struct text_state *p = &m->place[(hash + i) % PLACES];
        if (p->n == n + 1 && p->hash == hash) return p;
    }
    return NULL;
}

static void put_place(struct matcher *m, uint64_t hash, size_t n, uint32_t state)
{
    struct text_state *to = &m->place[(hash + m->turn++ % PROBES) % PLACES];
    for (uint32_t i = 0; i < PROBES; i++) {
        struct text_state *p = &m->place[(hash + i) % PLACES];
        if (!p->n || (p->n == n + 1 && p->hash == hash)) {
            to = p;
            break;
        }
    }
    *to = (struct text_state){.hash = hash, .n = (uint32_t)n + 1, .state = state};
}

int matcher_find(struct matcher *m, const int32_t *ids, size_t n, uint32_t *out)
{
    uint64_t hash = 0, before = 0;
    const struct text_state *p;
    for (size_t i = 0; i < n; i++) {
        before = hash;
        hash = roll(m, hash, ids[i]);
    }
    if ((p = find_place(m, hash, n))) {
        *out = p->state;
        return 0;
    }
    size_t at = 0;
    uint32_t state;
    if (n > 1 && (p = find_place(m, before, n - 1))) {
        at = n - 1;
        state = p->state;
    } else {
        state = matcher_start(m);
    }
    for (; at < n && state; at++)
        TRY(matcher_token(m, state, ids[at], &state));
    put_place(m, hash, n, state);
    *out = state;
    return 0;
}
