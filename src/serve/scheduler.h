/* scheduler.h - many generations over the caches of a server, on the only thread of the server that computes.
 *
 * A job is one text that is generated.  Jobs join and leave between the steps of the model.  Each gets the tokens that it would get alone
 * (see "Requests" in kvik.h).  When the memory of the cache is short, the job that began last is parked: it gives up its rows, and continues
 * later from the tokens that it has chosen, with the same draws. */
#pragma once
#include "kvik.h"
#include "kvik_loop.h"
#include "kvik_shared.h"
#include "serve/caches.h"
#include "serve/exchange.h"
#include "serve/keys.h"
#include "serve/outage.h"

struct job;
struct job_calls {
    /* Gets new text of a job: the characters that are complete, often none ("").  token[0..n): the probabilities
     * that the request asked for, that of the chosen token first; n 0: none.  id: the token, -1 with the last
     * characters.  Returns false to end the job with this token. */
    bool (*text)(struct job *j, int32_t id, const char *text, const kvik_logprob *token,
                 uint32_t n);
    /* NULL, or is called when more of the prompt has rows: j->have tokens of it.  The first call tells what is
     * reused. */
    void (*progress)(struct job *j);
    /* Is called when the job is over, and takes the job over.  row: its text; NULL after an error, with code and
     * sentence. */
    void (*over)(struct job *j, const kvik_row *row, int code, const char *sentence);
    /* NULL, or begins to read a session in place of writing a text, once the job may begin.  If the cache is short of
     * memory or sequences, it is called again later. */
    int (*read)(struct job *j, kvik_cache *cache, kvik_reading **out);
    /* Takes over what was read; returns an error code. */
    int (*have_read)(struct job *j, kvik_cache *cache, kvik_seq seq, char *note);
};

/* How far a job's sequence is filled with the documents of its prompt.  This comes before its request (splicing.c). */
struct splicing {
    kvik_chunk *chunk; /* [n] owned: the prompt up to the end of the last document; n 0: none */
    uint32_t n;
    size_t tokens;                    /* of all chunks */
    kvik_splice how;                  /* of the last call; taken: so far */
    kvik_seq seq;                     /* the sequence, until the job is over or parked; 0: none */
    uint64_t reused, moved, computed; /* sums */
};

struct job {
    /* The maker of the job sets what follows. */
    const struct job_calls *calls; /* called by the thread of the scheduler */
    void *owner;
    uint32_t index;
    /* Held.  If the client leaves, the job ends.  While the client does not read, the job pauses; it is parked if
     * others wait. */
    struct exchange *x;
    kvik_generation g;   /* owned */
    kvik_schema *schema; /* owned: that of g, so that no step waits for a compilation; or NULL */
    int32_t *ids;        /* [n] owned, the prompt */
    size_t n;
    const int32_t *shown; /* [n_shown] borrowed: special tokens that have a text */
    size_t n_shown;
    uint32_t cache;       /* index of the cache that computes it */
    char salt[KEYS_SALT]; /* prompts share rows with prompts of the same salt */
    int32_t priority;     /* higher first */
    bool logprobs;
    uint32_t top_logprobs;
    double presence_penalty, frequency_penalty;
    struct splicing splicing;
    /* True for jobs of the server itself.  Such a job is not counted, and `over` gets the rows of its text (kvik_row.seq). */
    bool keeps;
    /* Set before `over` is called. */
    uint64_t reused, computed;
    /* Seconds: when it joined the steps, had its first token, and ended. */
    double begun, first, ended;
    const char *miss; /* why it reused nothing; static text or NULL */
    uint32_t parked;  /* how often it was parked */
    /* The rest belongs to the scheduler. */
    struct job *next;
    uint64_t order;
    kvik_request *request;
    int32_t *chosen; /* [n_chosen] owned: the new tokens so far */
    bool *fresh;     /* [n_chosen] owned: true if the token did not occur before */
    size_t n_chosen, cap;
    kvik_logprob *tops; /* [n_tops] owned: the likeliest tokens of the next step */
    uint32_t n_tops;
    uint64_t full_at; /* number of ended jobs when there was no room for this one */
    uint64_t need;    /* bytes that it lacked and that other caches have; 0: none */
    bool blocked;     /* there was no memory for the job, so it begins before the others */
    bool paused, counted;
    bool prefills; /* the prompt is not computed yet */
    uint64_t have; /* while it prefills: tokens of the prompt that have rows */
    /* The rows that a shared store may have: the fetch under way or NULL, behind how many tokens it begins, and how
     * many tokens of the prompt came by it. */
    kvik_fetch *fetch;
    uint64_t fetch_from, fetched;
    /* The saved rows that are read for it, or NULL; and whether it waits to have its saved rows read, or has had them. */
    kvik_reading *reading;
    bool wants_rows, had_rows;
};

struct scheduler;
struct events;
struct scheduler_options {
    struct events *events;             /* NULL, or publishes after each turn */
    const struct serve_options *serve; /* outlive the scheduler */
    struct caches *caches;             /* outlive the scheduler; only its thread uses them */
    uint32_t parallel;                 /* jobs that compute at once */
    size_t waiting;                    /* jobs that may wait; more are refused */
    double delay; /* seconds by which the prompts of a step may delay running texts */
};
int scheduler_open(const struct scheduler_options *o, struct scheduler **out);
/* True if a client may have n more waiting jobs: it has no more than are left for others. */
bool scheduler_room(struct scheduler *s, uint64_t client, size_t n);
/* Hands over a job. */
void scheduler_add(struct scheduler *s, struct job *j);
/* Runs fn on the scheduler's thread between two steps, and waits for it.  For calls that need the cache. */
void scheduler_call(struct scheduler *s, void (*fn)(void *ctx), void *ctx);
/* The server's report about its work.  Counts begin with the start. */
struct scheduler_state {
    uint32_t running, waiting, parked;
    uint64_t jobs, steps, prompt_tokens, reused_tokens, new_tokens, parkings;
    uint64_t longest; /* most tokens of one prompt with its text */
    /* Sum over all texts, from joining the steps to the first token. */
    double prompt_seconds;
    double writing_seconds;           /* sum over all texts, from the first token to the end */
    uint64_t writing;                 /* new tokens of running jobs */
    double busy_seconds, own_seconds; /* seconds in steps of the model, and between steps */
    bool shares;                      /* true: there are shared stores, and `store` has the sums */
    kvik_shared_state store;
    char dir_error[OUTAGE_ERROR]; /* why the directory of saved prompts fails; "": it works */
    kvik_usage usage;             /* the sums over all caches, and the bytes of each */
    struct cache_bytes cache[SERVE_CACHES];
};
void scheduler_look(struct scheduler *s, struct scheduler_state *out);
/* Ends the jobs that still run and waits for the thread. */
void scheduler_close(struct scheduler *s);
/* Frees a job that has no request. */
void job_free(struct job *j);

/* --- job_request.c */
/* Starts the request of a job, which continues behind the tokens that it has chosen. */
int job_start(struct job *j, kvik_cache *cache);
/* Asks how far the prompt of a job is. */
void job_look(struct job *j);
/* Notes what a job reuses, before its first token.  A job that was parked keeps the number of its first beginning. */
void job_note_reuse(struct job *j);
/* Adds what the request has computed, before the request ends. */
void job_note_progress(struct job *j);
