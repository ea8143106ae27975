/* thread.c - fork-join pool.  A job is a generation number, a counter and a function.  Both sides spin
 * briefly (a decode step forks some 150 times, microseconds apart) and then sleep on a condition, so an
 * idle pool costs nothing and a busy machine is not made busier by waiting.
 *
 * How long a thread spins it learns from its own waits: longer when that caught the work or would have, half as long
 * when the wait went on for much longer, or when the system took the processor away meanwhile, since then others want it. */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Pauses before sleeping.  The most are some 20 microseconds, longer than the gaps of a decode step. */
#define SPIN_MOST  1000u
#define SPIN_LEAST 32u
#define SPIN_CLOCK 16u   /* after so many pauses a wait is timed */
#define SPIN_LATE  50e-6 /* seconds: a wait that lasted longer was not worth spinning */

enum { MOST = 1024 }; /* threads of a pool */

struct pool {
    uint32_t n_threads;
    pthread_t *worker; /* [n_threads - 1] owned */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    _Atomic uint32_t generation; /* a change of this number announces a new job */
    atomic_bool quit;
    pool_fn fn;
    void *ctx;
    uint32_t n;
    _Atomic uint32_t next; /* next task */
    _Atomic uint32_t busy; /* workers that have not finished this generation */
    _Atomic uint32_t sleepers;
    pthread_cond_t finished;
    atomic_bool waiting; /* the caller sleeps until busy is 0 */
    uint32_t spin;       /* the caller's */
};
struct start {
    struct pool *pool;
    uint32_t index;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* waits about as long; "yield" is nothing on most processors */
#else
    sched_yield();
#endif
}

static void drain(struct pool *p, uint32_t thread)
{
    for (;;) {
        uint32_t t = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (t >= p->n) return;
        p->fn(p->ctx, t, thread);
    }
}

/* Spins until *value is x (until) or is no longer x.  False: the thread should sleep now.  *begun: when the wait began, or
 * 0 while that is too short to tell. */
static bool spin(_Atomic uint32_t *value, uint32_t x, bool until, uint32_t most, double *begun)
{
    *begun = 0;
    for (uint32_t i = 0; i < most; i++) {
        if ((atomic_load_explicit(value, memory_order_acquire) == x) == until) return true;
        if (i == SPIN_CLOCK) *begun = now_seconds();
        relax();
    }
    return false;
}

/* Returns how long to spin next time, after a wait that is over. */
static uint32_t learn(uint32_t most, double begun)
{
    if (begun > 0 && now_seconds() - begun > SPIN_LATE) return MAX(most / 2, SPIN_LEAST);
    return MIN(most + most / 8, SPIN_MOST);
}

static void *work(void *arg)
{
    struct start s = *(struct start *)arg;
    struct pool *p = s.pool;
    uint32_t seen = 0, most = SPIN_MOST;
    mem_free(arg);
    for (;;) {
        double begun;
        if (!spin(&p->generation, seen, false, most, &begun)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleepers, 1);
            while (atomic_load(&p->generation) == seen)
                pthread_cond_wait(&p->wake, &p->lock);
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->lock);
        }
        most = learn(most, begun);
        seen++;
        if (atomic_load(&p->quit)) return NULL;
        drain(p, s.index);
        if (atomic_fetch_sub(&p->busy, 1) == 1 && atomic_load(&p->waiting)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->finished);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void publish(struct pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

/* Reads $KVIK_THREADS. Returns 0 if it is not set or empty; an error if it is no number of threads. */
static int threads_named(uint32_t *out)
{
    const char *v = getenv("KVIK_THREADS");
    char *end;
    *out = 0;
    if (!v || !*v) return 0;
    unsigned long n = strtoul(v, &end, 10);
    if (*v < '0' || *v > '9' || *end || n < 1 || n > MOST)
        return ERR(ARG, "KVIK_THREADS=%.40s: a number of threads from 1 to %d", v, MOST);
    *out = (uint32_t)n;
    return 0;
}

uint32_t cpu_count(void)
{
    cpu_set_t set;
    uint32_t named;
    if (threads_named(&named) >= 0 && named) return named;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > 64 ? 64 : (uint32_t)n;
}

int thread_start(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (size_t i = 0; i < countof(faults); i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(out, attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e;
}

int pool_open(struct pool **out, uint32_t n_threads)
{
    uint32_t named;
    if (n_threads == 0) TRY(threads_named(&named));
    if (n_threads == 0) n_threads = cpu_count();
    if (n_threads > MOST) return ERR(ARG, "%u threads: the limit is %d", n_threads, MOST);
    struct pool *p = mem_alloc(sizeof *p);
    if (!p) return ERR_NOMEM;
    p->worker = mem_array(n_threads, sizeof *p->worker);
    if (!p->worker) {
        mem_free(p);
        return ERR_NOMEM;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->finished, NULL);
    p->n_threads = 1;
    p->spin = SPIN_MOST;
    for (uint32_t i = 1; i < n_threads; i++) {
        struct start *s = mem_alloc(sizeof *s);
        if (s) *s = (struct start){p, i};
        int e = s ? thread_start(&p->worker[i - 1], NULL, work, s) : ENOMEM;
        if (e) {
            mem_free(s);
            pool_close(p);
            return ERR(NOMEM, "cannot start thread %u of %u: %s; take fewer threads", i + 1,
                       n_threads, strerror(e));
        }
        p->n_threads++;
    }
    *out = p;
    return 0;
}

void pool_close(struct pool *p)
{
    if (!p) return;
    atomic_store(&p->quit, true);
    publish(p);
    for (uint32_t i = 1; i < p->n_threads; i++)
        pthread_join(p->worker[i - 1], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->finished);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->worker);
    mem_free(p);
}

uint32_t pool_threads(const struct pool *p)
{
    return p->n_threads;
}

void pool_run(struct pool *p, uint32_t n, pool_fn fn, void *ctx)
{
    if (n == 0) return;
    if (n == 1 || p->n_threads == 1) {
        for (uint32_t i = 0; i < n; i++)
            fn(ctx, i, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->n = n;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->busy, p->n_threads - 1, memory_order_relaxed);
    publish(p);
    drain(p, 0);
    double begun;
    if (!spin(&p->busy, 0, true, p->spin, &begun)) {
        pthread_mutex_lock(&p->lock);
        /* An exchange and no store: qemu 7.2 lets a later load of ARM pass a store, and both sides would sleep. */
        (void)atomic_exchange(&p->waiting, true);
        while (atomic_load(&p->busy))
            pthread_cond_wait(&p->finished, &p->lock);
        atomic_store(&p->waiting, false);
        pthread_mutex_unlock(&p->lock);
    }
    p->spin = learn(p->spin, begun);
}
