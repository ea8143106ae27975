/* steady.h - tells which figures of a benchmark hold, as steady.py does for those in Python and `kvik bench` for itself. */
#pragma once
#include "base/base.h"

#define MOST_SPREAD   0.30 /* runs that differ from their median by more scatter */
#define MOST_OF_FLOOR 1.05 /* more is faster than memory was read */

/* True if n measurements are too far apart for their median to hold.  v: in ascending order, as median_of leaves them.  Of four
 * and more, a quarter at each end does not count. */
static inline bool scatters(const double *v, size_t n)
{
    size_t drop = n / 4;
    return (v[n - 1 - drop] - v[drop]) / 2 > MOST_SPREAD * v[n / 2];
}

/* Returns what stands before a line of CSV.  scripts/bench.sh shows a line that begins with it, and does not record it. */
static inline const char *line_mark(bool doubtful)
{
    return doubtful ? "scatters," : "";
}

/* Returns what stands behind a figure in text.  share: of the floor's speed, or 0 where there is no floor. */
static inline const char *text_mark(bool doubtful, double share)
{
    return doubtful ? ", scatters" : share > MOST_OF_FLOOR ? ", above floor" : "";
}
