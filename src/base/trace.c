/* trace.c - a ring of events, and the file that they become. */
#include "base/trace.h"
#include "base/buf.h"
#include "base/file.h"

#include <stdio.h>

enum { EVENTS = 1 << 16, LINE = 256 };

struct event {
    const char *name;
    double begun, ended; /* seconds */
    uint64_t bytes;
    uint32_t layer, track;
};

atomic_bool trace_on;
static struct event *ring;
static atomic_uint_fast64_t n_events;
static double origin;

int trace_begin(void)
{
    if (atomic_load(&trace_on)) return ERR(BUSY, "this process records a trace already");
    ring = mem_array(EVENTS, sizeof *ring);
    if (!ring) return ERR_NOMEM;
    origin = now_seconds();
    atomic_store(&n_events, 0);
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
    uint64_t i = atomic_fetch_add(&n_events, 1);
    if (begun < origin) return; /* begun before the recording: its place stays as it is */
    ring[i % EVENTS] = (struct event){name, begun, now_seconds(), bytes, layer, track};
}

static int put(struct buf *b, const struct event *e)
{
    char layer[32] = "";
    if (!e->name) return 0;
    if (e->layer != UINT32_MAX) snprintf(layer, sizeof layer, "\"layer\":%u,", e->layer);
    return buf_printf(
        b,
        ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
        "\"args\":{%s\"bytes\":%llu}}",
        e->name, e->track + 1, 1e6 * (e->begun - origin), 1e6 * (e->ended - e->begun), layer,
        (unsigned long long)e->bytes);
}

static int write_file(const char *path)
{
    static const char *const track[TRACE_TRACKS] = {"steps", "layers", "waits", "fetches"};
    const uint64_t n = atomic_load(&n_events), first = n > EVENTS ? n - EVENTS : 0;
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
        e = put(&b, &ring[i % EVENTS]);
    if (e >= 0) e = buf_puts(&b, "\n]}\n");
    if (e >= 0) e = file_write(path, b.data, b.len);
    buf_done(&b);
    return e;
}

int trace_end(const char *path)
{
    if (!atomic_exchange(&trace_on, false)) return 0;
    int e = path ? write_file(path) : 0;
    mem_free(ring);
    ring = NULL;
    return e;
}
