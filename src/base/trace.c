/* trace.c - a ring of events, and the file that is written from it.  One lock guards the ring.  Threads hardly
 * contend for it, because a layer of a step makes only a handful of events.  A forked process has a copy of the
 * ring but none of the parent's threads.  It records nothing and never takes the lock, which one of those threads
 * may hold. */
#include "base/trace.h"
#include "base/buf.h"
#include "base/file.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { EVENTS = 1 << 16, LINE = 256 };

struct event {
    const char *name;
    double begun, ended; /* seconds */
    uint64_t bytes;
    uint32_t layer, track;
};

atomic_bool trace_on;
static atomic_bool taken; /* from the beginning of a recording until its file is written */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int owner; /* the process that records */
static struct event *ring;
static uint64_t n_events;
static double origin;

int trace_begin(void)
{
    if (atomic_exchange(&taken, true))
        return owner == getpid()
                   ? ERR(BUSY, "this process records a trace already")
                   : ERR(BUSY, "this process was forked while its parent recorded a trace");
    struct event *room = mem_array(EVENTS, sizeof *room);
    if (!room) {
        atomic_store(&taken, false);
        return ERR_NOMEM;
    }
    if (owner != getpid()) { /* the fork copied none of the threads that may hold the lock */
        pthread_mutex_init(&lock, NULL);
        owner = getpid();
    }
    pthread_mutex_lock(&lock);
    ring = room;
    n_events = 0;
    origin = now_seconds();
    pthread_mutex_unlock(&lock);
    atomic_store(&trace_on, true);
    return 0;
}

double trace_clock(void)
{
    return now_seconds();
}

void trace_record(enum trace_track track, const char *name, double begun, uint32_t layer,
                  uint64_t bytes)
{
    if (owner != getpid()) return;
    pthread_mutex_lock(&lock);
    /* Events that began before the recording are left out. */
    if (ring && begun >= origin)
        ring[n_events++ % EVENTS] = (struct event){name, begun, now_seconds(), bytes, layer, track};
    pthread_mutex_unlock(&lock);
}

static int put_event(struct buf *b, const struct event *e)
{
    char layer[32] = "";
    if (e->layer != UINT32_MAX) snprintf(layer, sizeof layer, "\"layer\":%u,", e->layer);
    return buf_printf(
        b,
        ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
        "\"args\":{%s\"bytes\":%llu}}",
        e->name, e->track + 1, 1e6 * (e->begun - origin), 1e6 * (e->ended - e->begun), layer,
        (unsigned long long)e->bytes);
}

/* Writes the newest of n events. */
static int write_file(const char *path, const struct event *events, uint64_t n)
{
    static const char *const track[TRACE_TRACKS] = {"steps", "layers", "waits", "fetches"};
    const uint64_t first = n > EVENTS ? n - EVENTS : 0;
    struct buf b;
    buf_init(&b, (size_t)EVENTS * LINE);
    int e = buf_printf(&b, "{\"displayTimeUnit\":\"ms\",\"lost\":%llu,\"traceEvents\":[\n",
                       (unsigned long long)first);
    for (uint32_t i = 0; e >= 0 && i < TRACE_TRACKS; i++)
        e = buf_printf(&b,
                       "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"args\":"
                       "{\"name\":\"%s\"}}",
                       i ? ",\n" : "", i + 1, track[i]);
    for (uint64_t i = first; e >= 0 && i < n; i++)
        e = put_event(&b, &events[i % EVENTS]);
    if (e >= 0) e = buf_puts(&b, "\n]}\n");
    if (e >= 0) e = file_write(path, b.data, b.len);
    buf_done(&b);
    return e;
}

int trace_end(const char *path)
{
    if (atomic_load(&trace_on) && owner != getpid())
        return ERR(BUSY, "the trace belongs to the process that forked this one");
    if (!atomic_exchange(&trace_on, false))
        return path ? ERR(ARG, "no trace is recorded, so %s was not written", path) : 0;
    pthread_mutex_lock(&lock);
    struct event *events = ring;
    const uint64_t n = n_events;
    ring = NULL;
    pthread_mutex_unlock(&lock);
    int e = path ? write_file(path, events, n) : 0;
    mem_free(events);
    atomic_store(&taken, false);
    return e;
}
