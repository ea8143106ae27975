/* trace.h - what a process did when, in the trace format of Chrome (chrome://tracing, ui.perfetto.dev).
 *
 * Off, a place that records costs one branch and no look at the clock.  On, the newest events are kept in memory of a fixed size
 * until trace_end writes them. */
#pragma once
#include "base/base.h"

#include <stdatomic.h>

enum trace_track { TRACE_STEP, TRACE_LAYER, TRACE_WAIT, TRACE_FETCH, TRACE_TRACKS };

extern atomic_bool trace_on;
/* Starts recording.  ERR_NOMEM; ERR_BUSY if this process or the one that forked it records already. */
int trace_begin(void);
/* Stops, and writes a JSON file by the rules of file_write.  Other threads may be at work; what they record later is left
 * out.  path NULL: nothing is written.  ERR_ARG if a path is given and nothing is recorded. */
int trace_end(const char *path);
double trace_clock(void);
void trace_record(enum trace_track track, const char *name, double begun, uint32_t layer,
                  uint64_t bytes);
/* The time, if the process records. */
static inline double trace_now(void)
{
    return atomic_load_explicit(&trace_on, memory_order_relaxed) ? trace_clock() : 0;
}
/* Records an event from `begun` to now.  name lives as long as the process.  layer UINT32_MAX: of none. */
static inline void trace_add(enum trace_track track, const char *name, double begun, uint32_t layer,
                             uint64_t bytes)
{
    if (atomic_load_explicit(&trace_on, memory_order_relaxed))
        trace_record(track, name, begun, layer, bytes);
}
