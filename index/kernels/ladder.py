"""Runs of tuples in one span of a calendar ladder."""

from promising.summaries.kernels.jit import kernel

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@kernel("int64(int64[::1], int64, int64, int64[:,::1])")
def span_runs(times, minutes, hours, runs):
    """Splits times into runs of one span each, a minute from `minutes` on, else an hour from `hours` on, else a day.

    runs[r]: the index of its first time, the beginning of its span, its least and its greatest time. Returns the number
    of runs; -1 if there are more than `runs` has lines.
    """
    found = 0
    at = 0
    while at < times.size:
        if found == runs.shape[0]:
            return -1
        least = greatest = times[at]
        length = MINUTE if least >= minutes else (HOUR if least >= hours else DAY)
        low = least // length * length
        runs[found, 0], runs[found, 1] = at, low
        at += 1
        while at < times.size and low <= times[at] < low + length:
            least, greatest = min(least, times[at]), max(greatest, times[at])
            at += 1
        runs[found, 2], runs[found, 3] = least, greatest
        found += 1
    return found
