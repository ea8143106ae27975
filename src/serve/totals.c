/* totals.c - sums over all answers; see totals.h. */
#include "serve/totals.h"
#include "serve/protocol.h"

void totals_init(struct totals *t)
{
    *t = (struct totals){0};
    pthread_mutex_init(&t->lock, NULL);
}

void totals_add(struct totals *t, const struct answer *a)
{
    pthread_mutex_lock(&t->lock);
    t->prompt_tokens += a->prompt_tokens;
    t->reused_tokens += a->reused;
    t->new_tokens += a->new_tokens;
    t->longest = MAX(t->longest, a->prompt_tokens + a->new_tokens);
    t->prompt_seconds += MAX(a->first - a->waited, 0);
    t->writing_seconds += MAX(a->decoding, 0);
    pthread_mutex_unlock(&t->lock);
}

void totals_look(struct totals *t, struct totals *out)
{
    pthread_mutex_lock(&t->lock);
    *out = *t;
    pthread_mutex_unlock(&t->lock);
}

void totals_done(struct totals *t)
{
    pthread_mutex_destroy(&t->lock);
}
