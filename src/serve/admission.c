/* admission.c - which jobs begin, and when; see scheduling.h.
 *
 * A waiting job is held back while a running job still computes the tokens that both prompts begin with.  Then the waiting job
 * reuses these rows.  So agents whose prompts begin alike compute their common prefix once. */
#include "serve/scheduling.h"

#include <string.h>

enum { LEAST_SHARED = 32 /* common tokens that are worth waiting for */ };

/* Starts the request of a job.  If the directory may have more of its prompt than the cache has, the job gets no request,
 * but has that read first. */
static int start_once(struct scheduler *s, struct job *j)
{
    struct cache_use *use = cache_of(s, j);
    kvik_progress p = {.size = sizeof p};
    j->g.return_dict_in_generate = (use->shelf && !j->splicing.seq) || j->keeps;
    TRY(job_start(j, use->o.cache));
    if (!use->shelf || j->splicing.seq || kvik_request_progress(j->request, &p) < 0) return 0;
    if (read_rows_of(s, j, (size_t)p.reused_tokens)) {
        kvik_request_free(j->request);
        j->request = NULL;
        return 0;
    }
    if (!j->fetch) seek_prompt(s, j, use->shelf);
    return 0;
}

uint64_t need_of(const struct scheduler *s, const struct job *j)
{
    kvik_usage u = {.size = sizeof u};
    (void)kvik_cache_usage(cache_of(s, j)->o.cache, &u);
    return u.need;
}

void count_jobs(struct scheduler *s)
{
    memset(s->jobs, 0, s->o.caches->n * sizeof *s->jobs);
    for (uint32_t i = 0; i < s->n_running; i++)
        s->jobs[s->running[i]->cache]++;
    if (s->splicing) s->jobs[s->splicing->cache]++;
    if (s->reading) s->jobs[s->reading->cache]++;
}

/* Starts a job, and takes memory from other caches if that is needed. */
static int start_lent(struct scheduler *s, struct job *j)
{
    int e = start_once(s, j);
    while (e == KVIK_FULL && caches_lend(s->o.caches, j->cache, need_of(s, j)))
        e = start_once(s, j);
    return e;
}

int start_job(struct scheduler *s, struct job *j)
{
    count_jobs(s);
    s->jobs[j->cache]++;
    caches_balance(s->o.caches, s->jobs); /* evicts nothing that the job could reuse */
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

/* Counts the running jobs of a client.  The client with the fewest comes first. */
static uint32_t load_of(const struct scheduler *s, uint64_t client)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        n += s->running[i]->x->client == client;
    return n;
}

/* True if a comes before b. */
static bool before(const struct scheduler *s, const struct job *a, const struct job *b)
{
    if (a->blocked != b->blocked) return a->blocked;
    if (a->priority != b->priority) return a->priority > b->priority;
    uint32_t la = load_of(s, a->x->client), lb = load_of(s, b->x->client);
    return la != lb ? la < lb : a->order < b->order;
}

/* Takes the next job that may begin off the list of waiting jobs; NULL: none may begin. */
static struct job *next_job(struct scheduler *s)
{
    struct job **best = NULL;
    bool closed = false; /* true: only blocked jobs may begin */
    for (struct job **at = &s->waiting; *at; at = &(*at)->next) {
        struct job *j = *at;
        if (is_full(j) || (s->alone && j != s->alone) || (j->splicing.n && s->splicing) ||
            ((j->wants_rows || j->calls->read) && s->reading))
            continue;
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

void wait_again(struct scheduler *s, struct job *j)
{
    j->blocked = true;
    j->full_at = s->ended;
    j->next = s->waiting;
    s->waiting = j;
}

void join_jobs(struct scheduler *s, struct job *j)
{
    job_note_reuse(j);
    job_look(j);
    uint32_t at = s->n_running++;
    for (; at && s->running[at - 1]->order > j->order; at--)
        s->running[at] = s->running[at - 1];
    s->running[at] = j;
}

/* Starts a job that has its turn, or lets it wait for its documents or its saved rows. */
static int begin(struct scheduler *s, struct job *j)
{
    if (j->splicing.n) {
        s->splicing = j;
        return 0;
    }
    int e =
        j->calls->read ? j->calls->read(j, cache_of(s, j)->o.cache, &j->reading) : start_job(s, j);
    if (e >= 0 && j->reading) s->reading = j;
    return e;
}

void admit_jobs(struct scheduler *s)
{
    struct job *j;
    while (places_taken(s) < s->o.parallel && (j = next_job(s))) {
        int e = begin(s, j);
        if (s->splicing == j || s->reading == j) continue;
        if ((e == KVIK_FULL || e == KVIK_LIMIT) && places_taken(s)) {
            wait_again(s, j); /* memory is short, or the cache has no sequences for its beams */
            return;
        }
        if (e >= 0 && j->wants_rows) {
            j->next = s->waiting;
            s->waiting = j;
            continue;
        }
        j->blocked = false;
        if (e < 0) {
            s->ended++;
            job_over(s, j, NULL, e, kvik_last_error());
            continue;
        }
        join_jobs(s, j);
    }
}
