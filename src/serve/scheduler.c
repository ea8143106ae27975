/* scheduler.c - one thread that steps all jobs; see scheduler.h.
 *
 * The list of running jobs is ordered by age, oldest first.  kvik_request_step gives memory in that order, so what
 * fails for lack of memory is the youngest, and it is parked.  A parked job is the first to come back, after a job has
 * ended: nothing else makes room.
 *
 * A waiting job that begins like one that still computes its prompt is held back until those rows are there: then it
 * reuses them.  So agents that begin alike compute their common prefix once. */
#include "serve/scheduler.h"
#include "base/thread.h"

#include <string.h>

enum {
    PATIENCE = 4,      /* times that a job is parked before it has precedence */
    LEAST_SHARED = 32, /* tokens in common that are worth waiting for */
    LEAST_CHUNK = 16,  /* tokens of a prompt in a step */
    FIRST_CHUNK = 64   /* where it is not known yet how long a token takes */
};

struct errand {
    struct errand *next;
    void (*fn)(void *ctx);
    void *ctx;
    bool done;
};

struct scheduler {
    struct scheduler_options o;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t bell, back;
    struct job *inbox, **last; /* under the lock, as everything to `closing` */
    struct errand *errands;
    struct scheduler_state state;
    uint32_t n_inbox;
    bool closing;
    /* Of the thread. */
    uint32_t *jobs;          /* [n of the caches] running jobs of each */
    struct job *waiting;     /* in the order in which they begin */
    const struct job *alone; /* no other begins before it is over; NULL: none */
    struct job **running;    /* [n_running], oldest first */
    kvik_request **request;
    uint32_t n_running;
    uint64_t orders, ended;
    double token_seconds; /* of a token of a prompt, smoothed; 0: not known yet */
};

static void over(struct job *j, const kvik_row *row, int code, const char *sentence)
{
    j->ended = now_seconds();
    j->calls->over(j, row, code, sentence);
    job_free(j);
}

/* --- Joining. */

static struct cache_use *cache_of(const struct scheduler *s, const struct job *j)
{
    return &s->o.caches->use[j->cache];
}

/* Starts a request.  If the directory knows more of its prompt than the cache, it is read, and the request starts again. */
static int start_once(struct scheduler *s, struct job *j)
{
    struct cache_use *use = cache_of(s, j);
    kvik_progress p = {.size = sizeof p};
    j->g.return_dict_in_generate = use->shelf != NULL;
    TRY(job_start(j, use->o.cache));
    if (!use->shelf || kvik_request_progress(j->request, &p) < 0 ||
        !shelf_load(use->shelf, j->ids, j->n, j->salt, (size_t)p.reused_tokens))
        return 0;
    kvik_request_free(j->request);
    j->request = NULL;
    return job_start(j, use->o.cache);
}

/* What the last refusal of a job's cache was short of. */
static uint64_t need_of(const struct scheduler *s, const struct job *j)
{
    kvik_usage u = {.size = sizeof u};
    (void)kvik_cache_usage(cache_of(s, j)->o.cache, &u);
    return u.need;
}

static void count_jobs(struct scheduler *s)
{
    memset(s->jobs, 0, s->o.caches->n * sizeof *s->jobs);
    for (uint32_t i = 0; i < s->n_running; i++)
        s->jobs[s->running[i]->cache]++;
}

/* The same with memory that other caches can give. */
static int start_lent(struct scheduler *s, struct job *j)
{
    int e = start_once(s, j);
    while (e == KVIK_FULL && caches_lend(s->o.caches, j->cache, need_of(s, j)))
        e = start_once(s, j);
    return e;
}

/* The same, and then with that of what waits to be saved. */
static int start(struct scheduler *s, struct job *j)
{
    count_jobs(s);
    s->jobs[j->cache]++;
    caches_balance(s->o.caches, s->jobs); /* before it evicts what it could reuse */
    int e = start_lent(s, j);
    if ((e != KVIK_FULL && e != KVIK_LIMIT) || !caches_shelved(s->o.caches)) return e;
    caches_unshelve(s->o.caches);
    return start_lent(s, j);
}

static size_t common_prefix(const struct job *a, const struct job *b)
{
    size_t n = 0, most = MIN(a->n, b->n);
    while (n < most && a->ids[n] == b->ids[n])
        n++;
    return n;
}

/* True if a running job is about to compute tokens that this job begins with. */
static bool held_back(const struct scheduler *s, const struct job *j)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct job *r = s->running[i];
        if (r->cache != j->cache || strcmp(r->salt, j->salt) != 0 || r->paused || !r->prefills ||
            r->n <= r->have + LEAST_SHARED)
            continue;
        size_t same = common_prefix(r, j);
        if (same >= LEAST_SHARED && same > r->have + LEAST_SHARED) return true;
    }
    return false;
}

/* How many running jobs a client has: who has the fewest comes first. */
static uint32_t load_of(const struct scheduler *s, uint64_t client)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        n += s->running[i]->x->client == client;
    return n;
}

/* True if the client of a job does not read what it has. */
static bool is_full(const struct job *j)
{
    return atomic_load_explicit(&j->x->full, memory_order_relaxed);
}

/* True if a comes before b. */
static bool before(const struct scheduler *s, const struct job *a, const struct job *b)
{
    if (a->blocked != b->blocked) return a->blocked;
    if (a->priority != b->priority) return a->priority > b->priority;
    uint32_t la = load_of(s, a->x->client), lb = load_of(s, b->x->client);
    return la != lb ? la < lb : a->order < b->order;
}

/* Takes the next job that may begin off the list of those that wait; NULL: none may. */
static struct job *next_job(struct scheduler *s)
{
    struct job **best = NULL;
    bool closed = false; /* to those that have not run yet */
    for (struct job **at = &s->waiting; *at; at = &(*at)->next) {
        struct job *j = *at;
        if (is_full(j) || (s->alone && j != s->alone)) continue;
        if (j->blocked && s->n_running && j->full_at == s->ended)
            closed = true;
        else if ((!best || before(s, j, *best)) && !held_back(s, j))
            best = at;
    }
    if (!best || (closed && !(*best)->blocked)) return NULL;
    struct job *j = *best;
    *best = j->next;
    j->next = NULL;
    return j;
}

/* Puts a job first in line, for when another has ended. */
static void wait_again(struct scheduler *s, struct job *j)
{
    j->blocked = true;
    j->full_at = s->ended;
    j->next = s->waiting;
    s->waiting = j;
}

static void admit(struct scheduler *s)
{
    struct job *j;
    while (s->n_running < s->o.parallel && (j = next_job(s))) {
        int e = start(s, j);
        if ((e == KVIK_FULL || e == KVIK_LIMIT) && s->n_running) {
            wait_again(s, j); /* memory, or sequences for its beams */
            return;
        }
        j->blocked = false;
        if (e < 0) {
            s->ended++;
            over(j, NULL, e, kvik_last_error());
            continue;
        }
        job_note_reuse(j);
        job_look(j);
        uint32_t at = s->n_running++;
        for (; at && s->running[at - 1]->order > j->order; at--)
            s->running[at] = s->running[at - 1];
        s->running[at] = j;
    }
}

/* --- Leaving. */

/* Adds a text that has ended to the sums, before its answer goes out: a client may look at once. */
static void add_up(struct scheduler *s, const struct job *j, uint64_t new_tokens)
{
    struct scheduler_state *t = &s->state;
    double now = now_seconds(), first = j->first > 0 ? j->first : now;
    pthread_mutex_lock(&s->lock);
    t->prompt_tokens += j->n;
    t->reused_tokens += j->reused;
    t->new_tokens += new_tokens;
    t->longest = MAX(t->longest, j->n + new_tokens);
    t->prompt_seconds += first - j->begun;
    t->writing_seconds += now - first;
    pthread_mutex_unlock(&s->lock);
}

static void finish(struct scheduler *s, struct job *j)
{
    kvik_result *r = NULL;
    job_note_progress(j);
    int e = kvik_request_end(j->request, &r);
    s->ended++;
    uint64_t new_tokens = e >= 0 && r->n_rows ? r->row[0]->n - r->row[0]->n_prompt : j->n_chosen;
    add_up(s, j, new_tokens);
    if (e >= 0 && r->n_rows) j->miss = r->row[0]->prefix_miss;
    if (e >= 0 && r->n_rows && r->row[0]->seq) shelf_put(cache_of(s, j)->shelf, r->row[0]->seq);
    over(j, e >= 0 ? r->row[0] : NULL, e, e >= 0 ? NULL : kvik_last_error());
    kvik_result_free(r);
}

/* A job gives its rows up, and waits. */
static void park(struct scheduler *s, struct job *j)
{
    job_note_progress(j);
    kvik_request_free(j->request);
    j->request = NULL;
    j->parked++;
    j->paused = false;
    pthread_mutex_lock(&s->lock);
    s->state.parkings++;
    pthread_mutex_unlock(&s->lock);
}

/* True if a job waits for what a paused one has: a place among the running, or memory. */
static bool lacks_place(const struct scheduler *s)
{
    for (const struct job *j = s->waiting; j; j = j->next)
        if (!is_full(j) && (j->blocked || s->n_running == s->o.parallel)) return true;
    return false;
}

/* A paused job leaves its place to others: else a client that does not read could hold all of them. */
static void make_place(struct scheduler *s, struct job *j)
{
    park(s, j);
    s->ended++;
    j->blocked = false;
    j->next = s->waiting;
    s->waiting = j;
}

/* Parks a job that was short of memory, if others have some that it can get.  False: they have not. */
static bool goes_on(struct scheduler *s, struct job *j, uint32_t n_before)
{
    uint64_t need = need_of(s, j);
    bool shelved = caches_shelved(s->o.caches);
    caches_unshelve(s->o.caches);
    if (n_before == 1 && !shelved && !caches_can_lend(s->o.caches, j->cache, need)) return false;
    park(s, j);
    wait_again(s, j);
    j->need = MAX(need, 1);
    return true;
}

/* True if the job leaves the running ones. */
static bool settle(struct scheduler *s, struct job *j, uint32_t n_before)
{
    const char *sentence;
    enum kvik_state state = kvik_request_state(j->request);
    if (exchange_gone(j->x) || state == KVIK_OVER) {
        finish(s, j);
        return true;
    }
    if (state == KVIK_FAILED) {
        int e = kvik_request_error(j->request, &sentence);
        if (e == KVIK_FULL && goes_on(s, j, n_before)) return true;
        job_note_progress(j);
        s->ended++;
        over(j, NULL, e, sentence);
        return true;
    }
    bool full = is_full(j);
    if (full && lacks_place(s)) {
        make_place(s, j);
        return true;
    }
    if (full != j->paused) (full ? kvik_request_pause : kvik_request_resume)(j->request);
    j->paused = full;
    return false;
}

static void settle_all(struct scheduler *s)
{
    uint32_t kept = 0, n = s->n_running;
    for (uint32_t i = 0; i < n; i++) {
        struct job *j = s->running[i];
        if (!settle(s, j, n)) s->running[kept++] = j;
    }
    s->n_running = kept;
}

/* Takes the youngest running job of another cache that is younger than j out of the list; NULL: there is none. */
static struct job *take_younger(struct scheduler *s, const struct job *j)
{
    uint32_t i = s->n_running;
    while (i && (s->running[i - 1]->cache == j->cache || s->running[i - 1]->order < j->order))
        i--;
    if (!i) return NULL;
    struct job *found = s->running[i - 1];
    memmove(&s->running[i - 1], &s->running[i], (s->n_running-- - i) * sizeof *s->running);
    return found;
}

/* Ends the precedence of a job that is over, or that waits for its client. */
static void check_alone(struct scheduler *s)
{
    bool here = false;
    for (uint32_t i = 0; i < s->n_running; i++)
        here |= s->running[i] == s->alone;
    for (const struct job *j = s->waiting; j; j = j->next)
        here |= j == s->alone;
    if (!here || is_full(s->alone)) s->alone = NULL;
}

/* A step parks the youngest jobs of its own cache.  So that memory goes by age over all caches, the oldest job that was
 * parked takes that of other caches, and if need be that of younger jobs there.  One job in a round: it has computed
 * something before another may take that memory.  A job that was parked again and again runs on without new ones beside it,
 * since two that need each other's memory would take it in turn for ever. */
static void favour_oldest(struct scheduler *s)
{
    struct job *oldest = NULL, *y;
    check_alone(s);
    for (struct job *j = s->waiting; j; j = j->next)
        if (j->need &&
            (!oldest || j == s->alone || (oldest != s->alone && j->order < oldest->order)))
            oldest = j;
    if (!oldest) return;
    if (!s->alone && oldest->parked >= PATIENCE) s->alone = oldest;
    while (!caches_lend(s->o.caches, oldest->cache, oldest->need)) {
        if (!(y = take_younger(s, oldest))) {
            oldest->need = 0; /* older ones have it; it waits until one ends */
            return;
        }
        park(s, y);
        wait_again(s, y);
    }
    oldest->need = 0;
    oldest->full_at = s->ended - 1;
}

/* Jobs whose client left before they began. */
static void drop_gone(struct scheduler *s, bool all)
{
    for (struct job **at = &s->waiting; *at;) {
        struct job *j = *at;
        if (!all && !exchange_gone(j->x)) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        over(j, NULL, KVIK_CANCELLED, "the server is closing");
    }
}

/* --- The thread. */

static void take_inbox(struct scheduler *s)
{
    struct job *j = s->inbox, **at = &s->waiting;
    while (*at)
        at = &(*at)->next;
    *at = j;
    for (; j; j = j->next)
        j->order = ++s->orders;
    s->inbox = NULL;
    s->last = &s->inbox;
    s->state.waiting += s->n_inbox; /* until they are counted */
    s->n_inbox = 0;
}

static void run_errands(struct scheduler *s)
{
    for (struct errand *e; (e = s->errands);) {
        s->errands = e->next;
        pthread_mutex_unlock(&s->lock);
        e->fn(e->ctx);
        pthread_mutex_lock(&s->lock);
        e->done = true;
        pthread_cond_broadcast(&s->back);
    }
}

static void count(struct scheduler *s)
{
    struct scheduler_state *t = &s->state;
    t->running = s->n_running;
    t->waiting = t->parked = 0;
    t->writing = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        t->writing += s->running[i]->n_chosen;
    for (const struct job *j = s->waiting; j; j = j->next) {
        t->waiting++;
        t->parked += j->parked > 0;
    }
    t->usage.size = sizeof t->usage;
    caches_usage(s->o.caches, &t->usage, t->cache);
}

/* Waits where nothing can be computed.  A job whose client does not read, or has not left yet, is looked at again soon. */
static void rest(struct scheduler *s, bool can_step)
{
    struct timespec t;
    if (can_step || s->inbox || s->errands || s->closing) return;
    if (!s->n_running && !s->waiting && caches_shelved(s->o.caches)) return;
    if (!s->n_running && !s->waiting) {
        pthread_cond_wait(&s->bell, &s->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += 10 * 1000 * 1000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&s->bell, &s->lock, &t);
}

static bool steps(const struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running; i++)
        if (!s->running[i]->paused) return true;
    return false;
}

static bool computes_prompts(const struct scheduler *s, uint32_t cache)
{
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->cache == cache && s->running[i]->prefills && !s->running[i]->paused)
            return true;
    return false;
}

/* Bounds the part of a round that prompts have, while texts are written: the caches that compute prompts share it. */
static void set_chunks(struct scheduler *s)
{
    bool writes = false;
    uint32_t sharers = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        writes |= !s->running[i]->prefills && !s->running[i]->paused;
    for (uint32_t k = 0; k < s->o.caches->n; k++)
        sharers += computes_prompts(s, k);
    double fits = s->token_seconds > 0 ? s->o.delay / s->token_seconds : FIRST_CHUNK;
    uint32_t chunk = writes ? (uint32_t)MAX(LEAST_CHUNK, MIN(fits / MAX(sharers, 1), 1e6)) : 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->prefills)
            kvik_request_set_chunk(s->running[i]->request,
                                   chunk ? chunk : s->running[i]->g.prefill_chunk_size);
}

/* Advances the jobs of one cache, oldest first. */
static void step_cache(struct scheduler *s, uint32_t cache)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->cache == cache) s->request[n++] = s->running[i]->request;
    if (n) (void)kvik_request_step(s->request, n);
}

/* A round: one step of every cache that has jobs. */
static void step(struct scheduler *s)
{
    uint64_t tokens = 0;
    double begun = now_seconds();
    set_chunks(s);
    count_jobs(s);
    caches_balance(s->o.caches, s->jobs);
    for (uint32_t k = 0; k < s->o.caches->n; k++)
        step_cache(s, k);
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct job *j = s->running[i];
        uint64_t had = j->have;
        if (!j->prefills) continue;
        job_look(j);
        tokens += j->have - MIN(had, j->have);
    }
    if (tokens < LEAST_CHUNK) return;
    double each = (now_seconds() - begun) / (double)tokens;
    s->token_seconds = s->token_seconds > 0 ? 0.6 * s->token_seconds + 0.4 * each : each;
}

/* One turn of the loop, which holds the lock before and after it.  Returns false at the end. */
static bool turn(struct scheduler *s)
{
    rest(s, steps(s));
    take_inbox(s);
    run_errands(s);
    if (s->closing) return false;
    pthread_mutex_unlock(&s->lock);
    double t0 = now_seconds();
    drop_gone(s, false);
    admit(s);
    double t1 = now_seconds();
    bool computes = steps(s);
    if (computes)
        step(s);
    else if (!s->n_running && !s->waiting)
        caches_save(s->o.caches);
    double t2 = now_seconds();
    settle_all(s);
    favour_oldest(s);
    pthread_mutex_lock(&s->lock);
    count(s);
    s->state.steps += computes;
    s->state.busy_seconds += t2 - t1;
    s->state.own_seconds += now_seconds() - t2 + (t1 - t0);
    return true;
}

static void *run(void *arg)
{
    struct scheduler *s = arg;
    pthread_mutex_lock(&s->lock);
    while (turn(s)) {
    }
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->n_running; i++)
        finish(s, s->running[i]);
    s->n_running = 0;
    drop_gone(s, true);
    return NULL;
}

/* --- Other threads. */

void scheduler_add(struct scheduler *s, struct job *j)
{
    pthread_mutex_lock(&s->lock);
    *s->last = j;
    s->last = &j->next;
    s->n_inbox++;
    s->state.jobs++;
    pthread_cond_signal(&s->bell);
    pthread_mutex_unlock(&s->lock);
}

bool scheduler_room(struct scheduler *s, size_t n)
{
    pthread_mutex_lock(&s->lock);
    bool room = s->n_inbox + s->state.waiting + n <= s->o.waiting + s->o.parallel;
    pthread_mutex_unlock(&s->lock);
    return room;
}

void scheduler_call(struct scheduler *s, void (*fn)(void *ctx), void *ctx)
{
    struct errand e = {.fn = fn, .ctx = ctx};
    pthread_mutex_lock(&s->lock);
    e.next = s->errands;
    s->errands = &e;
    pthread_cond_signal(&s->bell);
    while (!e.done)
        pthread_cond_wait(&s->back, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void scheduler_look(struct scheduler *s, struct scheduler_state *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->state;
    pthread_mutex_unlock(&s->lock);
}

int scheduler_open(const struct scheduler_options *o, struct scheduler **out)
{
    struct scheduler *s = mem_alloc(sizeof *s);
    pthread_condattr_t clock;
    if (!s) return ERR_NOMEM;
    s->o = *o;
    s->last = &s->inbox;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->bell, &clock);
    pthread_cond_init(&s->back, &clock);
    pthread_condattr_destroy(&clock);
    s->running = mem_array(o->parallel, sizeof *s->running);
    s->request = mem_array(o->parallel, sizeof *s->request);
    s->jobs = mem_array(o->caches->n, sizeof *s->jobs);
    count(s);
    if (s->running && s->request && s->jobs && thread_start(&s->thread, NULL, run, s) == 0) {
        *out = s;
        return 0;
    }
    mem_free(s->running);
    mem_free(s->request);
    mem_free(s->jobs);
    mem_free(s);
    return ERR(NOMEM, "the thread that computes cannot be started");
}

void scheduler_close(struct scheduler *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->bell);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    while (s->inbox) {
        struct job *j = s->inbox;
        s->inbox = j->next;
        over(j, NULL, KVIK_CANCELLED, "the server is closing");
    }
    pthread_cond_destroy(&s->bell);
    pthread_cond_destroy(&s->back);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->running);
    mem_free(s->request);
    mem_free(s->jobs);
    mem_free(s);
}
