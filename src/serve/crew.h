/* crew.h - threads that take work from one queue, so that whoever brings it does not wait. */
#pragma once
#include "serve/exchange.h"

struct crew;
/* What one thread does for one request: the first member of a struct of its owner. */
struct work {
    struct work *next;
    struct exchange *x; /* held */
    /* Answers, on a thread of the crew, and frees the work. */
    void (*run)(struct work *w);
    /* Refuses, since the client has left or the server closes, and frees the work. */
    void (*refuse)(struct work *w, int status, const char *sentence);
};

enum { CREW_MOST = 4 };
struct crew_options {
    /* One for each thread, up to a 0: the bytes of a request at most that the thread takes. */
    size_t bytes[CREW_MOST];
    size_t waiting;   /* works that may wait; more are refused */
    const char *what; /* of a sentence: "recordings" */
};
int crew_open(const struct crew_options *o, struct crew **out);
/* Hands over a work; ERR_BUSY: too many wait, and the work stays the caller's. */
int crew_put(struct crew *c, struct work *w);
/* True if the crew is to end: work that runs for long then stops. */
bool crew_ends(const struct crew *c);
/* Refuses what waits, and waits for the threads. */
void crew_close(struct crew *c);
