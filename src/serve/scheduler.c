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
#include "serve/shelf.h"

#include <string.h>

enum {
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
    struct shelf *shelf;  /* or NULL */
    struct job *waiting;  /* in the order in which they begin */
    struct job **running; /* [n_running], oldest first */
    kvik_request **request;
    uint32_t n_running;
    uint64_t orders, ended;
    double token_seconds;       /* of a token of a prompt, smoothed; 0: not known yet */
    struct scheduler_state sum; /* the counts of tokens */
};

void job_free(struct job *j)
{
    if (!j) return;
    if (j->request) kvik_request_free(j->request);
    kvik_generation_done(&j->g);
    exchange_release(j->x);
    mem_free(j->ids);
    mem_free(j->chosen);
    mem_free(j->fresh);
    mem_free(j->tops);
    mem_free(j);
}

static void over(struct job *j, const kvik_row *row, int code, const char *sentence)
{
    j->ended = now_seconds();
    j->calls->over(j, row, code, sentence);
    job_free(j);
}

/* --- Callbacks of a request, inside a step. */

static int keep(struct job *j, int32_t id)
{
    if (j->n_chosen == j->cap) {
        size_t cap = MAX(64, 2 * j->cap);
        int32_t *chosen = mem_grow(j->chosen, cap, sizeof *chosen);
        if (chosen) j->chosen = chosen;
        bool *fresh = mem_grow(j->fresh, cap, sizeof *fresh);
        if (fresh) j->fresh = fresh;
        if (!chosen || !fresh) return ERR_NOMEM;
        j->cap = cap;
    }
    size_t i = 0;
    bool penalties = j->presence_penalty != 0;
    while (penalties && i < j->n_chosen && j->chosen[i] != id)
        i++;
    j->fresh[j->n_chosen] = penalties && i == j->n_chosen;
    j->chosen[j->n_chosen++] = id;
    if (j->n_chosen == 1) j->first = now_seconds();
    return 0;
}

static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    struct job *j = ctx;
    (void)row;
    if (id >= 0 && keep(j, id) < 0) return false;
    j->calls->text(j, id, text, j->tops, j->n_tops);
    j->n_tops = 0;
    return !exchange_gone(j->x);
}

static bool on_logprobs(void *ctx, uint32_t row, const kvik_logprob *token, uint32_t n)
{
    struct job *j = ctx;
    (void)row;
    if (!j->tops && !(j->tops = mem_array(n, sizeof *j->tops))) return false;
    memcpy(j->tops, token, n * sizeof *token);
    j->n_tops = n;
    return true;
}

/* True if the token at i stands nowhere before it among the new tokens. */
static bool is_first(const struct job *j, const int32_t *ids, size_t i)
{
    size_t k = j->n;
    if (j->presence_penalty == 0) return false;
    if (j->g.num_beams <= 1 && i - j->n < j->n_chosen) return j->fresh[i - j->n];
    while (k < i && ids[k] != ids[i])
        k++;
    return k == i;
}

/* OpenAI's penalties: a token that was generated c times loses frequency * c, and presence once. */
static bool on_scores(void *ctx, uint32_t row, const int32_t *ids, size_t n, float *scores,
                      uint32_t vocab)
{
    struct job *j = ctx;
    (void)row;
    for (size_t i = j->n; i < n; i++) {
        if ((uint32_t)ids[i] >= vocab) continue;
        double less = j->frequency_penalty + (is_first(j, ids, i) ? j->presence_penalty : 0);
        scores[ids[i]] -= (float)less;
    }
    return true;
}

/* --- Joining. */

static int start_request(struct scheduler *s, struct job *j)
{
    kvik_hooks hooks = {.size = sizeof hooks,
                        .ctx = j,
                        .on_token = on_token,
                        .shown_tokens = j->shown,
                        .n_shown_tokens = j->n_shown};
    size_t n = j->n + j->n_chosen;
    int32_t *ids = mem_array(n, sizeof *ids);
    if (!ids) return ERR_NOMEM;
    memcpy(ids, j->ids, j->n * sizeof *ids);
    if (j->n_chosen) memcpy(ids + j->n, j->chosen, j->n_chosen * sizeof *ids);
    kvik_prompt prompt = {.size = sizeof prompt, .ids = ids, .n = n, .n_new = j->n_chosen};
    if (j->logprobs) {
        hooks.on_logprobs = on_logprobs;
        hooks.top_logprobs = j->top_logprobs;
    }
    if (j->presence_penalty != 0 || j->frequency_penalty != 0) hooks.logits_processor = on_scores;
    if (j->g.num_beams > 1) hooks.on_token = NULL;
    int e = kvik_request_start(s->o.cache, &j->g, &prompt, 1, &hooks, &j->request);
    mem_free(ids);
    if (e >= 0 && j->begun == 0) j->begun = now_seconds();
    return e;
}

/* Starts a request.  If the directory knows more of its prompt than the cache, it is read, and the request starts again. */
static int start(struct scheduler *s, struct job *j)
{
    kvik_progress p = {.size = sizeof p};
    j->g.return_dict_in_generate = s->shelf != NULL;
    TRY(start_request(s, j));
    if (!s->shelf || kvik_request_progress(j->request, &p) < 0 ||
        !shelf_load(s->shelf, j->ids, j->n, (size_t)p.reused_tokens))
        return 0;
    kvik_request_free(j->request);
    j->request = NULL;
    return start_request(s, j);
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
        if (r->paused || !r->prefills || r->n <= r->have + LEAST_SHARED) continue;
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
    for (struct job **at = &s->waiting; *at; at = &(*at)->next) {
        struct job *j = *at;
        if (is_full(j)) continue;
        if (j->blocked && s->n_running && j->full_at == s->ended) return NULL;
        if ((!best || before(s, j, *best)) && !held_back(s, j)) best = at;
    }
    if (!best) return NULL;
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

/* Asks how far the prompt of a job is. */
static void look(struct job *j)
{
    kvik_progress p = {.size = sizeof p};
    if (kvik_request_progress(j->request, &p) < 0) return;
    j->prefills = p.prefills > 0;
    j->have = p.reused_tokens + p.computed_tokens;
    if (j->calls->progress) j->calls->progress(j);
}

/* Tells what a job begins with, before its first token; of a job that was parked it is what it began with first. */
static void note_reuse(struct job *j)
{
    kvik_progress p = {.size = sizeof p};
    if (!j->counted && kvik_request_progress(j->request, &p) >= 0) j->reused = p.reused_tokens;
}

static void admit(struct scheduler *s)
{
    struct job *j;
    while (s->n_running < s->o.parallel && (j = next_job(s))) {
        int e = start(s, j);
        if ((e == KVIK_FULL || e == KVIK_LIMIT) && shelf_waits(s->shelf)) {
            shelf_drop(s->shelf);
            e = start(s, j);
        }
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
        note_reuse(j);
        look(j);
        uint32_t at = s->n_running++;
        for (; at && s->running[at - 1]->order > j->order; at--)
            s->running[at] = s->running[at - 1];
        s->running[at] = j;
    }
}

/* --- Leaving. */

static void note_progress(struct job *j)
{
    kvik_progress p = {.size = sizeof p};
    if (kvik_request_progress(j->request, &p) < 0) return;
    if (!j->counted) j->reused = p.reused_tokens; /* of a job that was parked: as it began first */
    j->counted = true;
    j->computed += p.computed_tokens;
}

static void finish(struct scheduler *s, struct job *j)
{
    kvik_result *r = NULL;
    note_progress(j);
    int e = kvik_request_end(j->request, &r);
    s->ended++;
    s->sum.prompt_tokens += j->n;
    s->sum.reused_tokens += j->reused;
    s->sum.new_tokens += e >= 0 && r->n_rows ? r->row[0]->n - r->row[0]->n_prompt : j->n_chosen;
    if (e >= 0 && r->n_rows) j->miss = r->row[0]->prefix_miss;
    if (e >= 0 && r->n_rows && r->row[0]->seq) shelf_put(s->shelf, r->row[0]->seq);
    over(j, e >= 0 ? r->row[0] : NULL, e, e >= 0 ? NULL : kvik_last_error());
    kvik_result_free(r);
}

/* A job gives its rows up, and waits. */
static void park(struct scheduler *s, struct job *j)
{
    note_progress(j);
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
        if (e == KVIK_FULL && (n_before > 1 || shelf_waits(s->shelf))) {
            shelf_drop(s->shelf);
            park(s, j);
            wait_again(s, j);
            return true;
        }
        note_progress(j);
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
    t->prompt_tokens = s->sum.prompt_tokens;
    t->reused_tokens = s->sum.reused_tokens;
    t->new_tokens = s->sum.new_tokens;
    t->waiting = t->parked = 0;
    t->writing = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        t->writing += s->running[i]->n_chosen;
    for (const struct job *j = s->waiting; j; j = j->next) {
        t->waiting++;
        t->parked += j->parked > 0;
    }
    t->usage.size = sizeof t->usage;
    (void)kvik_cache_usage(s->o.cache, &t->usage);
}

/* Waits where nothing can be computed.  A job whose client does not read, or has not left yet, is looked at again soon. */
static void rest(struct scheduler *s, bool can_step)
{
    struct timespec t;
    if (can_step || s->inbox || s->errands || s->closing) return;
    if (!s->n_running && !s->waiting && shelf_waits(s->shelf)) return;
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

/* Bounds the part of a step that prompts have, while texts are written. */
static void set_chunks(struct scheduler *s)
{
    bool writes = false;
    for (uint32_t i = 0; i < s->n_running; i++)
        writes |= !s->running[i]->prefills && !s->running[i]->paused;
    double fits = s->token_seconds > 0 ? s->o.delay / s->token_seconds : FIRST_CHUNK;
    uint32_t chunk = writes ? (uint32_t)MAX(LEAST_CHUNK, MIN(fits, 1e6)) : 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->prefills)
            kvik_request_set_chunk(s->running[i]->request,
                                   chunk ? chunk : s->running[i]->g.prefill_chunk_size);
}

static void step(struct scheduler *s)
{
    uint64_t tokens = 0;
    double begun = now_seconds();
    set_chunks(s);
    for (uint32_t i = 0; i < s->n_running; i++)
        s->request[i] = s->running[i]->request;
    (void)kvik_request_step(s->request, s->n_running);
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct job *j = s->running[i];
        uint64_t had = j->have;
        if (!j->prefills) continue;
        look(j);
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
        shelf_save(s->shelf);
    double t2 = now_seconds();
    settle_all(s);
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
    shelf_close(s->shelf);
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
    int e = shelf_open(o->cache, o->prefix_dir, &s->shelf);
    if (e >= 0) count(s);
    if (e >= 0 && s->running && s->request && thread_start(&s->thread, NULL, run, s) == 0) {
        *out = s;
        return 0;
    }
    shelf_close(s->shelf);
    mem_free(s->running);
    mem_free(s->request);
    mem_free(s);
    return e < 0 ? e : ERR(NOMEM, "the thread that computes cannot be started");
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
    mem_free(s);
}
