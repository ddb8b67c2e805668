"""Runs of tuples in one span of a calendar ladder."""

from promising.summaries.kernels.jit import kernel

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@kernel("int64(int64[::1], int64, int64, int64[::1], int64[::1], int64[::1], int64[::1])")
def span_runs(times, minutes, hours, at, starts, first, last):
    """Splits times into runs of one span each, a minute from `minutes` on, else an hour from `hours` on, else a day.

    Run r begins at at[r]; its span begins at starts[r], and its times are from first[r] to last[r]. Returns the number
    of runs.
    """
    runs = 0
    low = high = 0  # the current span
    for i in range(times.size):
        time = times[i]
        if time < low or time >= high:
            length = MINUTE if time >= minutes else (HOUR if time >= hours else DAY)
            low = time // length * length
            high = low + length
            at[runs] = i
            starts[runs] = low
            first[runs] = last[runs] = time
            runs += 1
        elif time < first[runs - 1]:
            first[runs - 1] = time
        elif time > last[runs - 1]:
            last[runs - 1] = time
    return runs
