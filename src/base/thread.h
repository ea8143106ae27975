/* thread.h - a fork-join pool.  Work is split over outputs and tokens, never over a reduction, so
 * the number of threads cannot change a bit of any result. */
#pragma once
#include "base/base.h"
#include <pthread.h>

/* As pthread_create, but the new thread blocks all signals except those that its own faults raise.  Signals belong
 * to the host's threads: one of these may wait in a system call that the signal shall end.  attr may be NULL. */
int thread_start(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);

/* Defines a static mutex `name` with name_take and name_give.  A child of fork() finds it free, even if a thread that
 * the child lacks held it. */
#define FORK_LOCK(name)                                                                            \
    static pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER;                                       \
    static void name##_hold(void)                                                                  \
    {                                                                                              \
        pthread_mutex_lock(&name);                                                                 \
    }                                                                                              \
    static void name##_give(void)                                                                  \
    {                                                                                              \
        pthread_mutex_unlock(&name);                                                               \
    }                                                                                              \
    static void name##_survive(void)                                                               \
    {                                                                                              \
        (void)pthread_atfork(name##_hold, name##_give, name##_give);                               \
    }                                                                                              \
    static void name##_take(void)                                                                  \
    {                                                                                              \
        static pthread_once_t once = PTHREAD_ONCE_INIT;                                            \
        pthread_once(&once, name##_survive);                                                       \
        name##_hold();                                                                             \
    }                                                                                              \
    _Static_assert(1, "for the semicolon")

struct pool;
/* n_threads 0: $KVIK_THREADS, else cpu_count().  The caller is one of the threads. */
int pool_open(struct pool **out, uint32_t n_threads);
void pool_close(struct pool *p);
uint32_t pool_threads(const struct pool *p);
/* Runs fn(ctx, task, thread) for every task in [0, n); returns when all are done.  `thread` is in
 * [0, pool_threads).  Tasks are handed out dynamically.  Not reentrant; allocates nothing.  p NULL: the caller alone runs them. */
typedef void (*pool_fn)(void *ctx, uint32_t task, uint32_t thread);
void pool_run(struct pool *p, uint32_t n, pool_fn fn, void *ctx);
/* Returns $KVIK_THREADS if it is a number of threads, else the number of CPUs this process may run on, fewer if its container
 * has a lower limit; at most 64. */
uint32_t cpu_count(void);
