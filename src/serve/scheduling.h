/* scheduling.h - what the files of the scheduler share: who begins (admission.c), who leaves or waits again (parking.c), and the
 * thread that steps the rest (scheduler.c). */
#pragma once
#include "serve/outage.h"
#include "serve/scheduler.h"

#include <pthread.h>

enum { SCHEDULER_CLIENTS = 1024 };

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
    struct job *inbox, **last; /* under the lock, as everything down to `closing` */
    struct errand *errands;
    struct scheduler_state state;
    uint32_t n_inbox;
    bool closing;
    /* Jobs of clients, waiting or running.  Clients whose numbers have the same remainder are counted together. */
    atomic_uint of_client[SCHEDULER_CLIENTS];
    /* The rest belongs to the thread. */
    uint32_t *jobs;      /* [n of the caches] running jobs of each */
    struct job *waiting; /* in the order in which they begin */
    /* The job with precedence: no other begins before it is over; NULL: none. */
    const struct job *alone;
    struct job *splicing; /* the one whose documents are read; NULL: none */
    struct job *reading;  /* the one whose saved rows are read; NULL: none */
    bool awaits_disk;     /* they are not there yet */
    double read_seconds;  /* seconds to take a token of saved rows, smoothed; 0: not known yet */
    struct job **running; /* [n_running], oldest first */
    kvik_request **request;
    uint32_t n_running;
    uint64_t orders, ended;
    double token_seconds;     /* seconds for a token of a prompt, smoothed; 0: not known yet */
    bool stuck;               /* true: rows wait to be shared, but the store is slow */
    struct outage dir_outage; /* failures of the directory of saved prompts */
    struct outage outage;     /* failures of the store */
};

/* Returns the cache of a job. */
static inline struct cache_use *cache_of(const struct scheduler *s, const struct job *j)
{
    return &s->o.caches->use[j->cache];
}
static inline atomic_uint *count_of(struct scheduler *s, uint64_t client)
{
    return &s->of_client[client % SCHEDULER_CLIENTS];
}
/* Jobs that have a place: of `parallel` at most. */
static inline uint32_t places_taken(const struct scheduler *s)
{
    return s->n_running + (s->splicing != NULL) + (s->reading != NULL);
}
/* True if the client of a job does not read the text that it has. */
static inline bool is_full(const struct job *j)
{
    return atomic_load_explicit(&j->x->full, memory_order_relaxed);
}

/* --- admission.c */
/* Begins the jobs that there is room for. */
void admit_jobs(struct scheduler *s);
/* Lets a job that has a request run. */
void join_jobs(struct scheduler *s, struct job *j);
/* Starts the request of a job; takes memory from others if that is needed. */
int start_job(struct scheduler *s, struct job *j);
/* Counts the running jobs of each cache. */
void count_jobs(struct scheduler *s);
/* Returns the bytes that the last refusal by a job's cache lacked. */
uint64_t need_of(const struct scheduler *s, const struct job *j);
/* Puts a job first in line; it is tried again when another job has ended. */
void wait_again(struct scheduler *s, struct job *j);

/* --- saved_rows.c */
/* Begins to read the rows of a job that the directory of saved prompts may have.  `have`: the cache has so many of its tokens.  False:
 * the job is to compute. */
bool read_rows_of(struct scheduler *s, struct job *j, size_t have);
/* Takes some of the rows that were read, as many as a part of a prompt may take time. */
void read_on(struct scheduler *s);

/* --- fetching.c */
/* Begins to read rows of a prompt from the shared store, behind the rows that the cache has. */
void seek_prompt(struct scheduler *s, struct job *j, struct shelf *shelf);
/* Lets jobs continue from rows that were fetched.  Called before a step. */
void look_at_fetches(struct scheduler *s);

/* --- splicing.c */
/* Fills the next piece of the sequence of s->splicing with documents.  A piece takes no longer than a part of a prompt in a
 * step may.  After the last piece the job's request begins. */
void splice_on(struct scheduler *s);
/* Gives up the sequence of a job with documents.  It has no request. */
void splice_end(struct scheduler *s, struct job *j);

/* --- parking.c */
/* Tells a job that it is over, and gives it to its owner. */
void job_over(struct scheduler *s, struct job *j, const kvik_row *row, int code,
              const char *sentence);
/* Does the same for a job that has a request. */
void finish_job(struct scheduler *s, struct job *j);
/* Looks at the running jobs after a step.  Jobs that are over leave, and jobs that lack memory are parked. */
void settle_jobs(struct scheduler *s);
/* Gives the oldest parked job memory that other jobs can give. */
void favour_oldest(struct scheduler *s);
/* Drops waiting jobs whose client has left; all: every waiting job. */
void drop_gone(struct scheduler *s, bool all);
