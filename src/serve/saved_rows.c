/* saved_rows.c - takes rows of saved prompts and slots into the cache between steps; see scheduling.h.
 *
 * A thread of the library reads and checks the file, while other jobs go on.  Then the rows are taken in parts, each of
 * which may delay running texts like a part of a prompt.  One job at a time has its rows read; it computes nothing
 * meanwhile, because reading is faster. */
#include "serve/scheduling.h"

enum { FIRST_PART = 64, LEAST_PART = 16, MOST_PART = 4096 /* tokens that are taken at once */ };
#define SMOOTH 0.4

bool read_rows_of(struct scheduler *s, struct job *j, size_t have)
{
    struct shelf *shelf = cache_of(s, j)->shelf;
    bool had = j->had_rows;
    j->had_rows = j->wants_rows = false;
    if (had) return false;
    if (s->reading) return j->wants_rows = shelf_reads(shelf, j->n, have);
    return shelf_read(shelf, j->ids, j->n, j->salt, have, &j->reading);
}

/* Returns how many tokens may be taken before the next step of the others; 0: all. */
static uint32_t part_of(const struct scheduler *s)
{
    if (!s->n_running && !s->splicing) return 0;
    double fits = s->read_seconds > 0 ? s->o.delay / s->read_seconds : FIRST_PART;
    return (uint32_t)MAX(LEAST_PART, MIN(fits, MOST_PART));
}

/* Takes a part; a part that makes rows tells how long a token takes. */
static int take(struct scheduler *s, struct job *j, kvik_seq *seq, char **note)
{
    uint32_t tokens = part_of(s);
    double begun = now_seconds();
    int e = kvik_reading_take(j->reading, tokens, seq, note);
    s->awaits_disk = e == 2;
    if (e != 1 || !tokens) return e;
    double each = (now_seconds() - begun) / tokens;
    s->read_seconds =
        s->read_seconds > 0 ? s->read_seconds + SMOOTH * (each - s->read_seconds) : each;
    return e;
}

/* Takes a part, and memory from other caches if that is needed. */
static int take_lent(struct scheduler *s, struct job *j, kvik_seq *seq, char **note)
{
    int e = take(s, j, seq, note);
    while (e == KVIK_FULL && caches_lend(s->o.caches, j->cache, need_of(s, j)))
        e = take(s, j, seq, note);
    if ((e != KVIK_FULL && e != KVIK_LIMIT) || !caches_shelved(s->o.caches)) return e;
    caches_unshelve(s->o.caches);
    return take(s, j, seq, note);
}

/* Gives what was read to a job that only reads, or lets it wait for room. */
static void end_session(struct scheduler *s, struct job *j, int e, kvik_seq seq, char *note)
{
    if ((e == KVIK_FULL || e == KVIK_LIMIT) && places_taken(s)) {
        kvik_reading_free(j->reading);
        j->reading = NULL;
        wait_again(s, j);
        return;
    }
    if (e >= 0) e = j->calls->have_read(j, cache_of(s, j)->o.cache, seq, note);
    s->ended++;
    job_over(s, j, NULL, e, e < 0 ? kvik_last_error() : NULL);
}

void read_on(struct scheduler *s)
{
    struct job *j = s->reading;
    kvik_seq seq = 0;
    char *note = NULL;
    if (!j) return;
    const bool gone = exchange_gone(j->x);
    count_jobs(s);
    caches_balance(s->o.caches, s->jobs);
    int e = gone ? ERR(CANCELLED, "the client has left") : take_lent(s, j, &seq, &note);
    if (e > 0) return;
    s->reading = NULL;
    if (j->calls->read) {
        end_session(s, j, e, seq, note);
    } else if (gone) {
        s->ended++;
        job_over(s, j, NULL, e, kvik_last_error());
    } else { /* without the rows, the job computes */
        kvik_reading_free(j->reading);
        j->reading = NULL;
        if (seq) kvik_cache_drop(cache_of(s, j)->o.cache, seq); /* its rows stay in the index */
        j->had_rows = true;
        j->next = s->waiting;
        s->waiting = j;
    }
}
