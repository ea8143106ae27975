/* scheduler.c - one thread that steps all jobs; see scheduler.h.
 *
 * The list of running jobs is ordered by age, oldest first.  In each turn jobs begin (admission.c), one step is computed, and jobs
 * leave (parking.c). */
#include "base/thread.h"
#include "serve/events.h"
#include "serve/scheduling.h"

#include <stdio.h>
#include <string.h>

enum {
    LEAST_CHUNK = 16, /* tokens of a prompt in a step */
    FIRST_CHUNK = 64, /* tokens of a first part, before the time of a token was measured */
    FETCH_CHUNK = 64  /* tokens of a part while a shared store is read, to notice its rows soon */
};

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
    t->running = places_taken(s);
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
    t->shares = caches_store(s->o.caches, &t->store);
    if (t->shares) outage_look(&s->outage, &t->store, s->o.serve);
    snprintf(t->dir_error, sizeof t->dir_error, "%s", caches_dir_error(s->o.caches));
    outage_dir_look(&s->dir_outage, t->dir_error, s->o.serve);
}

/* Waits if nothing can be computed.  Jobs whose client does not read are looked at again soon, saved rows that are read sooner; a store
 * at work is, too, but less often. */
static void rest(struct scheduler *s, bool can_step)
{
    struct timespec t;
    bool idle = !s->n_running && !s->waiting && !s->stuck && !s->reading;
    if (can_step || (s->reading && !s->awaits_disk) || s->inbox || s->errands || s->closing) return;
    if (idle && caches_shelved(s->o.caches)) return;
    if (idle && !s->state.store.waiting && !outage_untold(&s->outage) &&
        !outage_untold(&s->dir_outage)) {
        pthread_cond_wait(&s->bell, &s->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (s->reading ? 1 : idle ? 200 : 10) * 1000 * 1000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&s->bell, &s->lock, &t);
}

static bool steps(const struct scheduler *s)
{
    if (s->splicing) return true;
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

/* Returns how many tokens a job's prompt may add to a step; `chunk` is the limit for all prompts.  0: the job has no
 * limit. */
static uint32_t chunk_of(const struct job *j, uint32_t chunk)
{
    if (!chunk) chunk = j->g.prefill_chunk_size;
    if (!j->fetch) return chunk;
    return chunk ? MIN(chunk, FETCH_CHUNK) : FETCH_CHUNK;
}

/* Limits the prompts' part of a round while texts are written.  Caches that compute prompts share that part. */
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
            kvik_request_set_chunk(s->running[i]->request, chunk_of(s->running[i], chunk));
}

/* Advances the jobs of one cache, oldest first. */
static void step_cache(struct scheduler *s, uint32_t cache)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->cache == cache) s->request[n++] = s->running[i]->request;
    if (n) (void)kvik_request_step(s->request, n);
}

/* Computes a round: one step of every cache that has jobs. */
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

/* Runs one turn of the loop, which holds the lock before and after it.  Returns false at the end. */
static bool turn(struct scheduler *s)
{
    rest(s, steps(s));
    take_inbox(s);
    run_errands(s);
    if (s->closing) return false;
    pthread_mutex_unlock(&s->lock);
    double t0 = now_seconds();
    drop_gone(s, false);
    read_on(s);
    admit_jobs(s);
    double t1 = now_seconds();
    bool computes = steps(s);
    if (computes) {
        look_at_fetches(s);
        splice_on(s);
        step(s);
        caches_share(s->o.caches);
    } else if (!s->n_running && !s->waiting && !s->reading)
        s->stuck = !caches_save(s->o.caches) && caches_shelved(s->o.caches);
    double t2 = now_seconds();
    settle_jobs(s);
    favour_oldest(s);
    events_flush(s->o.events);
    pthread_mutex_lock(&s->lock);
    count(s);
    s->state.steps += computes;
    s->state.busy_seconds += t2 - t1;
    s->state.own_seconds += now_seconds() - t2 + (t1 - t0);
    return true;
}

static void *thread_main(void *arg)
{
    struct scheduler *s = arg;
    pthread_mutex_lock(&s->lock);
    while (turn(s)) {
    }
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->n_running; i++)
        finish_job(s, s->running[i]);
    s->n_running = 0;
    if (s->splicing) job_over(s, s->splicing, NULL, KVIK_CANCELLED, "the server is closing");
    if (s->reading) job_over(s, s->reading, NULL, KVIK_CANCELLED, "the server is closing");
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
    atomic_fetch_add(count_of(s, j->x->client), 1);
    s->state.jobs += !j->keeps;
    pthread_cond_signal(&s->bell);
    pthread_mutex_unlock(&s->lock);
}

bool scheduler_room(struct scheduler *s, uint64_t client, size_t n)
{
    pthread_mutex_lock(&s->lock);
    size_t all = s->o.waiting + s->o.parallel, wait = s->n_inbox + s->state.waiting,
           own = atomic_load(count_of(s, client));
    pthread_mutex_unlock(&s->lock);
    return wait + n <= all && own <= all - wait;
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
    if (s->running && s->request && s->jobs &&
        thread_start(&s->thread, NULL, thread_main, s) == 0) {
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
        job_over(s, j, NULL, KVIK_CANCELLED, "the server is closing");
    }
    pthread_cond_destroy(&s->bell);
    pthread_cond_destroy(&s->back);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->running);
    mem_free(s->request);
    mem_free(s->jobs);
    mem_free(s);
}
