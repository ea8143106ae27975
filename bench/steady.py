"""Tells which figures of a benchmark hold, as steady.h does for those in C and `kvik bench` for itself."""

MOST_SPREAD = 0.30  # runs that differ from their median by more scatter


def scatters(values):
    """True if the values are too far apart for their median to hold.  Of four and more, a quarter at each end does not count."""
    v = sorted(values)
    drop = len(v) // 4
    return (v[len(v) - 1 - drop] - v[drop]) / 2 > MOST_SPREAD * v[len(v) // 2]


def mark(values):
    """Returns what stands behind a figure in text."""
    return ", scatters" if scatters(values) else ""
