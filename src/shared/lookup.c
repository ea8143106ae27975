/* lookup.c - looks up a host on a thread of its own.  The system's lookup has a time limit of its own, which can be
 * a minute, and cannot be ended.  So the caller leaves at its deadline, and the thread ends later.  The last of the
 * two frees what they share. */
#include "shared/lookup.h"
#include "base/thread.h"

#include <errno.h>
#include <time.h>

#define SLICE 0.05 /* seconds between two looks at `stop` */
enum { LOOKUPS = 8 /* most threads at once, including those for which nobody waits any more */ };

struct question {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    char *host, *port;     /* owned */
    struct addrinfo *list; /* owned until it is taken */
    int error;             /* of getaddrinfo */
    bool answered;
    atomic_uint holders;
};

static atomic_uint lookups;

static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};

static void leave(struct question *q)
{
    if (atomic_fetch_sub(&q->holders, 1) != 1) return;
    if (q->list) freeaddrinfo(q->list);
    pthread_cond_destroy(&q->bell);
    pthread_mutex_destroy(&q->lock);
    mem_free(q->host);
    mem_free(q->port);
    mem_free(q);
}

static void *lookup_main(void *question)
{
    struct question *q = question;
    struct addrinfo *list = NULL;
    int e = getaddrinfo(q->host, q->port, &hints, &list);
    pthread_mutex_lock(&q->lock);
    q->list = e ? NULL : list;
    q->error = e;
    q->answered = true;
    pthread_cond_signal(&q->bell);
    pthread_mutex_unlock(&q->lock);
    leave(q);
    atomic_fetch_sub(&lookups, 1);
    return NULL;
}

static struct question *question_new(const char *host, const char *port)
{
    struct question *q = mem_alloc(sizeof *q);
    pthread_condattr_t clock;
    if (!q) return NULL;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&q->bell, &clock);
    pthread_condattr_destroy(&clock);
    atomic_init(&q->holders, 1);
    q->host = mem_strdup(host);
    q->port = mem_strdup(port);
    if (q->host && q->port) return q;
    leave(q);
    return NULL;
}

static bool start_thread(struct question *q)
{
    pthread_t thread;
    pthread_attr_t detached;
    if (atomic_fetch_add(&lookups, 1) >= LOOKUPS) {
        atomic_fetch_sub(&lookups, 1);
        return false;
    }
    atomic_fetch_add(&q->holders, 1);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    bool started = thread_start(&thread, &detached, lookup_main, q) == 0;
    pthread_attr_destroy(&detached);
    if (!started) {
        atomic_fetch_sub(&lookups, 1);
        leave(q);
    }
    return started;
}

/* Waits for the answer.  False: the deadline has passed, or `stop` was set. */
static bool wait_for(struct question *q, const atomic_bool *stop, double until)
{
    struct timespec t;
    pthread_mutex_lock(&q->lock);
    while (!q->answered && !atomic_load(stop) && now_seconds() < until) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += (long)(1e9 * SLICE);
        if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
        (void)pthread_cond_timedwait(&q->bell, &q->lock, &t);
    }
    bool answered = q->answered;
    pthread_mutex_unlock(&q->lock);
    return answered;
}

int lookup(const char *host, const char *port, const char *shown, const atomic_bool *stop,
           double until, struct addrinfo **out)
{
    struct addrinfo numbers = hints;
    numbers.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    if (getaddrinfo(host, port, &numbers, out) == 0) return 0; /* an address needs no lookup */
    struct question *q = question_new(host, port);
    if (!q) return ERR_NOMEM;
    int e = 0;
    if (!start_thread(q))
        e = ERR(BUSY, "%s: earlier lookups of names have not ended", shown);
    else if (!wait_for(q, stop, until))
        e = ERR(BUSY, "%s: the name of the host is not found in time", shown);
    else if (q->error)
        e = ERR(IO, "%s: %s", shown, gai_strerror(q->error));
    else {
        *out = q->list;
        q->list = NULL;
    }
    leave(q);
    return e;
}
