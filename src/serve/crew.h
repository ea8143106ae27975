/* crew.h - threads that take work from one queue, so that whoever brings it does not wait. */
#pragma once
#include "serve/exchange.h"

struct crew;
/* The work of one thread for one request.  The owner's struct has this as its first member. */
struct crew_work {
    struct crew_work *next;
    struct exchange *x; /* held */
    /* Does the work and answers, on a thread of the crew; frees the work. */
    void (*run)(struct crew_work *w);
    /* Refuses the work, because the client has left or the server closes; frees the work. */
    void (*refuse)(struct crew_work *w, int status, const char *sentence);
};

enum { CREW_MOST = 4 };
struct crew_options {
    /* The most bytes of a request that each thread takes, one number for each thread; 0 ends the list. */
    size_t bytes[CREW_MOST];
    size_t waiting;   /* works that may wait; more are refused */
    const char *what; /* the works, as a word of an error: "recordings" */
};
int crew_open(const struct crew_options *o, struct crew **out);
/* Hands over a work.  ERR_BUSY: too many works wait, and this one still belongs to the caller. */
int crew_put(struct crew *c, struct crew_work *w);
/* True if the crew is to end; long works look at it and stop. */
bool crew_ends(const struct crew *c);
/* Refuses the waiting works and waits for the threads.  Then crew_put refuses everything. */
void crew_stop(struct crew *c);
void crew_close(struct crew *c);
