/* splicing.c - fills the sequence of a job with the documents of its prompt, before the request begins; see scheduling.h.
 * Rows of documents that another prompt has computed are reused, and all other tokens are computed.
 *
 * One job at a time does this, in pieces between the steps of the others.  If there is no room for the rows, the job
 * computes its prompt like other jobs. */
#include "serve/scheduling.h"

enum { FIRST_PIECE = 64, LEAST_PIECE = 16, MOST_PIECE = 512 /* tokens that a piece computes */ };

/* Returns how many tokens a piece may compute before the other jobs have their next step. */
static uint32_t piece_of(const struct scheduler *s)
{
    if (!s->n_running) return MOST_PIECE;
    double fits = s->token_seconds > 0 ? s->o.delay / s->token_seconds : FIRST_PIECE;
    return (uint32_t)MAX(LEAST_PIECE, MIN(fits, MOST_PIECE));
}

static int piece(struct scheduler *s, struct job *j)
{
    struct splicing *c = &j->splicing;
    kvik_cache *cache = cache_of(s, j)->o.cache;
    if (j->begun == 0) j->begun = now_seconds();
    if (!c->seq) TRY(kvik_cache_new(cache, &c->seq));
    c->how.most = piece_of(s);
    TRY(kvik_cache_splice(cache, c->seq, c->chunk, c->n, &c->how));
    c->reused += c->how.reused;
    c->moved += c->how.moved;
    c->computed += c->how.computed;
    return 0;
}

void splice_end(struct scheduler *s, struct job *j)
{
    if (j->splicing.seq) kvik_cache_drop(cache_of(s, j)->o.cache, j->splicing.seq);
    j->splicing.seq = 0;
}

/* Puts a job first in line.  Its prompt is then computed like that of any job, without reusing documents. */
static void compute_instead(struct scheduler *s, struct job *j)
{
    splice_end(s, j);
    j->splicing.n = 0;
    j->splicing.reused = j->splicing.moved = 0;
    j->next = s->waiting;
    s->waiting = j;
}

void splice_on(struct scheduler *s)
{
    struct job *j = s->splicing;
    if (!j) return;
    const bool gone = exchange_gone(j->x);
    int e = gone ? ERR(CANCELLED, "the client has left") : piece(s, j);
    if (e >= 0 && j->splicing.how.taken < j->splicing.tokens) return;
    s->splicing = NULL;
    j->blocked = false;
    if (e >= 0) e = start_job(s, j);
    if (e == KVIK_FULL || e == KVIK_LIMIT) {
        compute_instead(s, j);
    } else if (e < 0) {
        s->ended++;
        job_over(s, j, NULL, e, kvik_last_error());
    } else {
        join_jobs(s, j);
    }
}
