/* thread.c - fork-join pool.  A job is a function and a ticket.  The ticket holds the number of tasks and the
 * number of the next one; threads take tasks from it until none is left.  The caller returns when all tasks have
 * ended.  It does not wait for threads that took no task.
 *
 * Caller and workers spin briefly before they sleep on a condition: a decode step forks some 150 times,
 * microseconds apart.  An idle pool thus costs nothing, and a busy machine is not made busier by waiting.  Each
 * thread learns from its own waits how long to spin.  The time grows when spinning caught the work, or would have
 * with a little more time.  It halves when a wait lasted much longer, or when the system took the processor away
 * meanwhile, since then other programs need it. */
#include "base/thread.h"
#include "base/quota.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Pauses before sleeping, at most: some 20 microseconds, longer than the gaps of a decode step. */
#define SPIN_MOST  1000u
#define SPIN_LEAST 32u
#define SPIN_CLOCK 16u   /* after so many pauses a wait is timed */
#define SPIN_LATE  50e-6 /* seconds; a longer wait was not worth spinning */

enum { MOST = 1024 }; /* threads of a pool */
#define LINE 64       /* of the processor's cache */

struct pool {
    uint32_t n_threads;
    pthread_t *worker; /* [n_threads - 1] owned */
    pthread_mutex_t lock;
    pthread_cond_t wake, finished;
    atomic_bool quit;
    uint32_t spin; /* pauses of the caller before it sleeps */
    _Atomic uint32_t sleepers;
    atomic_bool waiting; /* the caller sleeps until all tasks have ended */
    /* Upper half: number of tasks of the job.  Lower half: number of the next task.  A thread takes a task by
     * adding 1 and finding a task left.  The job cannot end before this task has, so fn and ctx stay valid.  A
     * thread that comes too late finds no task, or takes a task of the next job. */
    _Alignas(LINE) _Atomic uint64_t ticket;
    pool_fn fn;
    void *ctx;
    _Alignas(LINE) _Atomic uint32_t ended; /* tasks that workers have ended */
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
    /* a pause of about the same length; most ARM processors do nothing on "yield" */
    __asm__ volatile("isb");
#else
    sched_yield();
#endif
}

static bool has_task(uint64_t ticket)
{
    return (uint32_t)ticket < (uint32_t)(ticket >> 32);
}

/* Runs tasks until none is left; returns how many. */
static uint32_t drain(struct pool *p, uint32_t thread)
{
    for (uint32_t ran = 0;; ran++) {
        uint64_t t = atomic_fetch_add_explicit(&p->ticket, 1, memory_order_acq_rel);
        if (!has_task(t)) return ran;
        p->fn(p->ctx, (uint32_t)t, thread);
    }
}

/* True if the wait is over.  A worker waits for a task or for the end of the pool; the caller waits until the
 * workers' tasks have ended. */
static bool come(const struct pool *p, bool worker, uint32_t tasks)
{
    if (!worker) return atomic_load(&p->ended) == tasks;
    return has_task(atomic_load(&p->ticket)) || atomic_load(&p->quit);
}

/* Spins until the wait is over.  False: the thread should sleep now.  *begun: when the wait began, or 0 if the
 * wait was too short to be timed. */
static bool spin(const struct pool *p, bool worker, uint32_t tasks, uint32_t most, double *begun)
{
    *begun = 0;
    for (uint32_t i = 0; i < most; i++) {
        if (come(p, worker, tasks)) return true;
        if (i == SPIN_CLOCK) *begun = now_seconds();
        relax();
    }
    return false;
}

/* Returns how long to spin in the next wait.  begun: see spin. */
static uint32_t learn(uint32_t most, double begun)
{
    if (begun > 0 && now_seconds() - begun > SPIN_LATE) return MAX(most / 2, SPIN_LEAST);
    return MIN(most + most / 8, SPIN_MOST);
}

static void *work(void *arg)
{
    struct start s = *(struct start *)arg;
    struct pool *p = s.pool;
    uint32_t most = SPIN_MOST;
    mem_free(arg);
    for (;;) {
        double begun;
        if (!spin(p, true, 0, most, &begun)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleepers, 1);
            while (!come(p, true, 0))
                pthread_cond_wait(&p->wake, &p->lock);
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->lock);
        }
        most = learn(most, begun);
        if (atomic_load(&p->quit)) return NULL;
        uint32_t ran = drain(p, s.index);
        if (!ran) continue;
        atomic_fetch_add(&p->ended, ran);
        if (atomic_load(&p->waiting)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->finished);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void wake(struct pool *p)
{
    if (!atomic_load(&p->sleepers)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
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
    double quota = cpu_quota(CPU_GROUPS, CPU_ROOT);
    if (quota > 0 && quota < n) n = (int)ceil(quota);
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
    struct pool *p = mem_aligned(sizeof *p);
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
    (void)atomic_exchange(&p->quit, true); /* an exchange instead of a store: see pool_run */
    wake(p);
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
    if (n == 1 || !p || p->n_threads == 1) {
        for (uint32_t i = 0; i < n; i++)
            fn(ctx, i, 0);
        return;
    }
    assert(n <= UINT32_MAX - MOST);
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->ended, 0, memory_order_relaxed);
    /* Exchanges instead of stores: with qemu 7.2 a later load of ARM can pass a store, and caller and worker would
     * both sleep. */
    (void)atomic_exchange(&p->ticket, (uint64_t)n << 32);
    wake(p);
    uint32_t theirs = n - drain(p, 0);
    double begun;
    if (!spin(p, false, theirs, p->spin, &begun)) {
        pthread_mutex_lock(&p->lock);
        (void)atomic_exchange(&p->waiting, true);
        while (!come(p, false, theirs))
            pthread_cond_wait(&p->finished, &p->lock);
        atomic_store(&p->waiting, false);
        pthread_mutex_unlock(&p->lock);
    }
    p->spin = learn(p->spin, begun);
}
