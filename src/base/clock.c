/* clock.c - the one clock of the library and the command: seconds of the monotonic clock, for durations only; and times
 * of the system as one number. */
#include "base/base.h"

#include <time.h>

double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t nanoseconds(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}
