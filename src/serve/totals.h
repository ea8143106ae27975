/* totals.h - sums over all answers, for GET /metrics. */
#pragma once
#include <pthread.h>
#include <stdint.h>

struct answer;
struct totals {
    pthread_mutex_t lock;
    uint64_t prompt_tokens, reused_tokens, new_tokens;
    uint64_t longest; /* tokens of a prompt with its answer */
    double prompt_seconds, writing_seconds;
};
void totals_init(struct totals *t);
/* Adds an answer that is complete. */
void totals_add(struct totals *t, const struct answer *a);
/* Copies the sums; the lock of *out is not to be used. */
void totals_look(struct totals *t, struct totals *out);
void totals_done(struct totals *t);
