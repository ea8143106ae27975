/* fetching.c - fetches rows of prompts from a shared store; see scheduling.h.
 *
 * A job never waits for the store: it computes while the store is read.  The fetch ends when all rows are read, or
 * when reading on would take longer than computing.  If the fetch is then ahead of the job, the job continues behind
 * the fetched rows.  So no answer comes later than without the store, apart from processor time that the two threads
 * take from each other. */
#include "serve/scheduling.h"

/* The first rows must come within FIRST seconds plus the share SHARE of the time that computing the prompt takes.  Else
 * the steps would stay short without any use. */
#define FIRST 0.05
#define SHARE 0.1
#define MUCH                                                                                       \
    ((uint64_t)256 << 20) /* bytes after which a fetch is taken, although the store has more */
enum { LEAST_AHEAD = 96 /* fewer tokens of gain are not worth beginning the job again */ };

static void end_fetch(struct job *j)
{
    kvik_fetch_free(j->fetch);
    j->fetch = NULL;
}

/* True if reading on probably takes less time than computing. */
static bool beats(const struct scheduler *s, const struct job *j, const kvik_fetched *f)
{
    double compute = s->token_seconds;
    uint64_t most = MAX(f->most, f->tokens), first = j->fetch_from;
    if (j->have >= most) return false;
    if (compute <= 0 || f->seconds <= 0) return true;
    double left = (double)(most - j->have) * compute;
    if (f->tokens <= first) return f->seconds < MIN(left, FIRST + SHARE * (double)j->n * compute);
    return (double)(most - f->tokens) * f->seconds / (double)(f->tokens - first) < left;
}

/* Begins the job again behind the fetched rows.  Returns an error of the new beginning. */
static int begin_again(struct scheduler *s, struct job *j)
{
    kvik_cache *cache = cache_of(s, j)->o.cache;
    kvik_progress p = {.size = sizeof p};
    kvik_seq seq;
    int64_t got = kvik_fetch_take(j->fetch, &seq);
    /* without room, or if the rows are damaged, the job continues computing */
    if (got <= 0) return 0;
    if (kvik_request_progress(j->request, &p) >= 0) j->computed += p.computed_tokens;
    kvik_request_free(j->request);
    j->request = NULL;
    int e = job_start(j, cache);
    kvik_cache_drop(cache, seq); /* the request has its rows now, and they stay in the index */
    if (e < 0) return e;
    j->fetched = (uint64_t)got;
    job_note_reuse(j);
    job_look(j);
    return 0;
}

static int look_at(struct scheduler *s, struct job *j)
{
    kvik_fetched f = {.size = sizeof f};
    bool lost = !j->prefills || kvik_fetch_look(j->fetch, &f) < 0;
    if (!lost && !f.over && beats(s, j, &f)) return 0;
    int e = !lost && f.tokens >= j->have + LEAST_AHEAD ? begin_again(s, j) : 0;
    bool more = e >= 0 && j->fetched && f.over && f.bytes >= MUCH;
    end_fetch(j);
    if (more) seek_prompt(s, j, cache_of(s, j)->shelf);
    return e;
}

void seek_prompt(struct scheduler *s, struct job *j, struct shelf *shelf)
{
    kvik_progress p = {.size = sizeof p};
    if (j->n_chosen || j->parked || kvik_request_progress(j->request, &p) < 0) return;
    j->fetch_from = p.reused_tokens;
    j->fetch = shelf_seek(shelf, j->ids, j->n, j->salt, (size_t)p.reused_tokens, s->token_seconds);
}

void look_at_fetches(struct scheduler *s)
{
    uint32_t kept = 0, n = s->n_running;
    for (uint32_t i = 0; i < n; i++) {
        struct job *j = s->running[i];
        int e = j->fetch ? look_at(s, j) : 0;
        if (e >= 0) {
            s->running[kept++] = j;
        } else if (e == KVIK_FULL || e == KVIK_LIMIT) {
            wait_again(s, j);
        } else {
            s->ended++;
            job_over(s, j, NULL, e, kvik_last_error());
        }
    }
    s->n_running = kept;
}
