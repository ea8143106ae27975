/* clock.c - the one clock of the library and the command: seconds of the monotonic clock, for durations only. */
#include "base/base.h"

#include <time.h>

double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
