/* trace.h - records what a process does and when, in the trace format of Chrome (chrome://tracing,
 * ui.perfetto.dev).  While nothing is recorded, a traced place costs one branch and does not read the clock.  A
 * recording keeps the newest events in memory of a fixed size until trace_end writes them. */
#pragma once
#include "base/base.h"

#include <stdatomic.h>

enum trace_track { TRACE_STEP, TRACE_LAYER, TRACE_WAIT, TRACE_FETCH, TRACE_TRACKS };

extern atomic_bool trace_on;
/* Starts recording.  ERR_NOMEM; ERR_BUSY if this process, or the process that it was forked from, already records. */
int trace_begin(void);
/* Stops recording and writes the events as JSON by the rules of file_write.  Other threads may be working; their
 * later events are left out.  path NULL: writes nothing.  ERR_ARG if a path is given and nothing is recorded. */
int trace_end(const char *path);
double trace_clock(void);
void trace_record(enum trace_track track, const char *name, double begun, uint32_t layer,
                  uint64_t bytes);
/* Returns the time if the process records, else 0. */
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
