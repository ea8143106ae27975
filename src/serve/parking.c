/* parking.c - which jobs leave, and which jobs give their memory to others for a while; see scheduling.h.
 *
 * kvik_request_step gives memory in the order of age.  So the job that fails for lack of memory is the youngest one, and it is parked.  A
 * parked job is the first to return, after another job has ended, because nothing else makes room. */
#include "serve/scheduling.h"

#include <string.h>

enum { PATIENCE = 4 /* how often a job is parked before it gets precedence */ };

void job_over(struct scheduler *s, struct job *j, const kvik_row *row, int code,
              const char *sentence)
{
    kvik_cache *cache = cache_of(s, j)->o.cache;
    kvik_request *request = j->request;
    kvik_fetch *fetch = j->fetch;
    kvik_reading *reading = j->reading;
    kvik_seq spliced = j->splicing.seq;
    atomic_fetch_sub(count_of(s, j->x->client), 1);
    j->ended = now_seconds();
    j->request = NULL;
    j->fetch = NULL;
    j->reading = NULL;
    j->splicing.seq = 0;
    j->calls->over(j, row, code, sentence);
    kvik_request_free(request); /* after the call, since the sentence may be the request's */
    kvik_fetch_free(fetch);
    kvik_reading_free(reading);
    if (spliced) kvik_cache_drop(cache, spliced);
}

/* Adds a text that has ended to the sums.  This comes before its answer goes out, because a client may look at the
 * sums at once. */
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

void finish_job(struct scheduler *s, struct job *j)
{
    kvik_result *r = NULL;
    job_note_progress(j);
    int e = kvik_request_end(j->request, &r);
    s->ended++;
    uint64_t new_tokens = e >= 0 && r->n_rows ? r->row[0]->n - r->row[0]->n_prompt : j->n_chosen;
    if (!j->keeps) add_up(s, j, new_tokens);
    const struct cache_use *use = cache_of(s, j);
    kvik_seq seq = e >= 0 && r->n_rows ? r->row[0]->seq : 0;
    if (e >= 0 && r->n_rows) j->miss = r->row[0]->prefix_miss;
    if (seq == j->splicing.seq) seq = 0; /* job_over drops it */
    if (seq && use->shelf) shelf_put(use->shelf, seq);
    job_over(s, j, e >= 0 ? r->row[0] : NULL, e, e >= 0 ? NULL : kvik_last_error());
    if (seq && !use->shelf) kvik_cache_drop(use->o.cache, seq);
    kvik_result_free(r);
}

/* Parks a job: it gives up its rows, and waits. */
static void park(struct scheduler *s, struct job *j)
{
    job_note_progress(j);
    kvik_request_free(j->request);
    j->request = NULL;
    splice_end(s, j);
    j->splicing.n = 0; /* when the job returns, it computes its whole text, documents included */
    j->parked++;
    j->paused = false;
    pthread_mutex_lock(&s->lock);
    s->state.parkings++;
    pthread_mutex_unlock(&s->lock);
}

/* True if some job waits for something that a paused job has: a place among the running ones, or memory. */
static bool lacks_place(const struct scheduler *s)
{
    for (const struct job *j = s->waiting; j; j = j->next)
        if (!is_full(j) && (j->blocked || places_taken(s) == s->o.parallel)) return true;
    return false;
}

/* Takes a paused job's place for others.  Otherwise a client that does not read could hold all places. */
static void make_place(struct scheduler *s, struct job *j)
{
    park(s, j);
    s->ended++;
    j->blocked = false;
    j->next = s->waiting;
    s->waiting = j;
}

/* Parks a job that is short of memory, if other caches have memory that it can get.  False: they have none. */
static bool goes_on(struct scheduler *s, struct job *j, uint32_t n_before)
{
    uint64_t need = need_of(s, j);
    bool shelved = caches_shelved(s->o.caches);
    caches_unshelve(s->o.caches);
    if (n_before + (places_taken(s) - s->n_running) == 1 && !shelved &&
        !caches_can_lend(s->o.caches, j->cache, need))
        return false;
    park(s, j);
    wait_again(s, j);
    j->need = MAX(need, 1);
    return true;
}

/* Looks at one job after a step.  True if it leaves the running jobs. */
static bool leaves(struct scheduler *s, struct job *j, uint32_t n_before)
{
    const char *sentence;
    enum kvik_state state = kvik_request_state(j->request);
    if (exchange_gone(j->x) || state == KVIK_OVER) {
        finish_job(s, j);
        return true;
    }
    if (state == KVIK_FAILED) {
        int e = kvik_request_error(j->request, &sentence);
        if (e == KVIK_FULL && goes_on(s, j, n_before)) return true;
        job_note_progress(j);
        s->ended++;
        job_over(s, j, NULL, e, sentence);
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

void settle_jobs(struct scheduler *s)
{
    uint32_t kept = 0, n = s->n_running;
    for (uint32_t i = 0; i < n; i++) {
        struct job *j = s->running[i];
        if (!leaves(s, j, n)) s->running[kept++] = j;
    }
    s->n_running = kept;
}

/* Takes the youngest running job of another cache out of the list, if it is younger than j; NULL: there is none. */
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

/* Ends the precedence of a job that is over or waits for its client. */
static void check_alone(struct scheduler *s)
{
    bool here = s->alone && s->reading == s->alone;
    for (uint32_t i = 0; i < s->n_running; i++)
        here |= s->running[i] == s->alone;
    for (const struct job *j = s->waiting; j; j = j->next)
        here |= j == s->alone;
    if (!here || is_full(s->alone)) s->alone = NULL;
}

/* A step parks the youngest jobs of its own cache.  Memory goes by age over all caches, so the oldest parked job
 * takes memory of other caches, and if needed that of younger jobs there.  Only one job does so in a round: it must
 * compute something before another job may take that memory.  A job that was parked many times then runs without new
 * jobs beside it, because two jobs that need each other's memory could take it in turn for ever. */
void favour_oldest(struct scheduler *s)
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
            oldest->need = 0; /* older jobs have that memory, so it waits until one of them ends */
            return;
        }
        park(s, y);
        wait_again(s, y);
    }
    oldest->need = 0;
    oldest->full_at = s->ended - 1;
}

void drop_gone(struct scheduler *s, bool all)
{
    for (struct job **at = &s->waiting; *at;) {
        struct job *j = *at;
        if (!all && !exchange_gone(j->x)) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        job_over(s, j, NULL, KVIK_CANCELLED, "the server is closing");
    }
}
