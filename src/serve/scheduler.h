/* scheduler.h - many generations over the caches of a server: the only thread of the server that computes.
 *
 * A job is one text that is generated.  Jobs join and leave between the steps of the model; each has the tokens that it
 * has alone (see "Requests" in kvik.h).  When the memory of the cache is short, the job that began last is parked: its
 * rows are given up, and it goes on later with the same draws from the tokens that it has chosen. */
#pragma once
#include "kvik.h"
#include "kvik_loop.h"
#include "kvik_shared.h"
#include "serve/caches.h"
#include "serve/exchange.h"
#include "serve/keys.h"

struct job;
struct job_calls {
    /* New text of a job: the characters that are complete, often "".  token[0..n) are the probabilities that were asked
     * for, the chosen one first; n 0: none were.  id is -1 with the last characters.
     * Returns false to end the job with this token. */
    bool (*text)(struct job *j, int32_t id, const char *text, const kvik_logprob *token,
                 uint32_t n);
    /* NULL, or: more of the prompt is there, j->have tokens of it; first what is reused. */
    void (*progress)(struct job *j);
    /* The job is over; the scheduler frees it afterwards.  row: its text, or NULL after an error: code and sentence. */
    void (*over)(struct job *j, const kvik_row *row, int code, const char *sentence);
    /* NULL, or what the job does in place of a text, once it may begin: work on the cache.  Returns an error code; where it is
     * short of memory or of sequences (KVIK_FULL, KVIK_LIMIT), it is called again when there are more. */
    int (*work)(struct job *j, kvik_cache *cache);
};

struct job {
    /* Set by who makes it. */
    const struct job_calls *calls; /* called by the thread of the scheduler */
    void *owner;
    uint32_t index;
    /* Held.  The job ends when its client leaves, and pauses while the client does not read; if others wait, it is parked. */
    struct exchange *x;
    kvik_generation g; /* owned */
    int32_t *ids;      /* [n] owned, the prompt */
    size_t n;
    const int32_t *shown; /* [n_shown] borrowed: special tokens that have a text */
    size_t n_shown;
    uint32_t cache;       /* that it is computed with */
    char salt[KEYS_SALT]; /* prompts share rows with those of the same */
    int32_t priority;     /* higher first */
    bool logprobs;
    uint32_t top_logprobs;
    double presence_penalty, frequency_penalty;
    /* For the server itself: it is not counted, and `over` has the rows of its text (kvik_row.seq). */
    bool keeps;
    /* Set before `over`. */
    uint64_t reused, computed;
    double begun, first, ended; /* seconds: joined the steps, first token, end */
    const char *miss;           /* why nothing was reused; static text or NULL */
    uint32_t parked;            /* how often */
    /* Of the scheduler. */
    struct job *next;
    uint64_t order;
    kvik_request *request;
    int32_t *chosen; /* [n_chosen] owned: the new tokens so far */
    bool *fresh;     /* [n_chosen] owned: true where a token stands for the first time */
    size_t n_chosen, cap;
    kvik_logprob *tops; /* [n_tops] owned: of the token that comes next */
    uint32_t n_tops;
    uint64_t full_at; /* jobs that had ended when there was no room for it */
    uint64_t need;    /* bytes that it was short of, and others have; 0: none */
    bool blocked;     /* there was none, and it is first in line */
    bool paused, counted;
    bool prefills; /* its prompt is not computed yet */
    uint64_t have; /* tokens of the prompt that are there, of one that prefills */
    /* Rows that a shared store may have: what is being read, or NULL; behind how many tokens; and how many of the prompt came so. */
    kvik_fetch *fetch;
    uint64_t fetch_from, fetched;
};

struct scheduler;
struct events;
struct scheduler_options {
    struct events *events;             /* NULL, or published after each turn */
    const struct serve_options *serve; /* outlive the scheduler */
    struct caches *caches;             /* outlive the scheduler, whose thread alone uses them */
    uint32_t parallel;                 /* jobs that compute at once */
    size_t waiting;                    /* jobs that may wait; more are refused */
    double delay; /* seconds that the prompts of a step may delay the texts that are written */
};
int scheduler_open(const struct scheduler_options *o, struct scheduler **out);
/* True if n more jobs of a client may wait: it has no more than are left for others. */
bool scheduler_room(struct scheduler *s, uint64_t client, size_t n);
/* Hands over a job. */
void scheduler_add(struct scheduler *s, struct job *j);
/* Runs fn in the scheduler's thread between two steps, and waits for it: for calls that need the cache. */
void scheduler_call(struct scheduler *s, void (*fn)(void *ctx), void *ctx);
/* What a server tells of its work.  Counts are since the start. */
struct scheduler_state {
    uint32_t running, waiting, parked;
    uint64_t jobs, steps, prompt_tokens, reused_tokens, new_tokens, parkings;
    uint64_t longest;                 /* tokens of a prompt with its text */
    double prompt_seconds;            /* from joining the steps to the first token, of all texts */
    double writing_seconds;           /* from there to the end */
    uint64_t writing;                 /* new tokens of the jobs that run */
    double busy_seconds, own_seconds; /* in steps of the model; and between them */
    bool shares;                      /* there are shared stores, of which `store` has the sums */
    kvik_shared_state store;
    kvik_usage usage; /* the sums over the caches; and what each has */
    struct cache_bytes cache[SERVE_CACHES];
};
void scheduler_look(struct scheduler *s, struct scheduler_state *out);
/* Ends the jobs that still run and waits for the thread. */
void scheduler_close(struct scheduler *s);
void job_free(struct job *j);

/* --- job_request.c */
/* Starts the request of a job, which goes on behind the tokens that it has chosen. */
int job_start(struct job *j, kvik_cache *cache);
/* Asks how far the prompt of a job is. */
void job_look(struct job *j);
/* Tells what a job begins with, before its first token; of a job that was parked it is what it began with first. */
void job_note_reuse(struct job *j);
/* Adds what the request has computed, before it ends. */
void job_note_progress(struct job *j);
