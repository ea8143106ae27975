/* hearing.h - the thread that transcribes recordings, one after another, so that nobody else waits for them. */
#pragma once
#include "serve/exchange.h"

struct hearing;
struct hearing_job {
    struct hearing_job *next;
    struct exchange *x; /* held */
    /* Answers, on the thread, and frees the job. */
    void (*run)(struct hearing_job *j);
    /* The server closes: refuses, and frees the job. */
    void (*refuse)(struct hearing_job *j);
};
/* most: recordings that may wait. */
int hearing_open(size_t most, struct hearing **out);
/* Hands over a job; ERR_BUSY: too many wait, and the job stays the caller's. */
int hearing_put(struct hearing *h, struct hearing_job *j);
/* True if the thread is to end: what runs then stops. */
bool hearing_ends(const struct hearing *h);
/* Refuses what waits, and waits for the thread. */
void hearing_close(struct hearing *h);
