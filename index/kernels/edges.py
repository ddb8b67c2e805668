"""Tuples of a zone by time."""

from promising.summaries.kernels.jit import kernel


@kernel("int64(int64[::1], int32[:,::1], int64, int64[:,::1], int64[::1], int64, int64, int64[::1])")
def count_inside(times, stretches, lg_chunk, edges, run, start, end, unsure):
    """The tuples at the ranges of rows (first, last + 1) that are dated `start` to `end` - 1.

    A chunk counts by its bounds `edges` if they suffice, else by its times. Times of a cold chunk, with a run, are not
    in memory: if they are needed, its tuples are added to unsure[chunk] instead.
    """
    count = 0
    for i in range(stretches.shape[0]):
        row = stretches[i, 0]
        last = stretches[i, 1]
        while row < last:
            chunk = row >> lg_chunk
            stop = min(last, (chunk + 1) << lg_chunk)
            if edges[chunk, 0] >= start and edges[chunk, 1] < end:
                count += stop - row
            elif edges[chunk, 0] < end and edges[chunk, 1] >= start:
                if run[chunk] >= 0:
                    unsure[chunk] += stop - row
                else:
                    for j in range(row, stop):
                        count += times[j] >= start and times[j] < end
            row = stop
    return count


@kernel("void(int64[::1], int64, int64, int64[::1])")
def count_spans(times, start, span, counts):
    """Add each time to counts[(time - start) // span]; in order of time, few of them are divided."""
    low = high = at = 0  # the current span
    for i in range(times.size):
        time = times[i]
        if time < low or time >= high:
            at = (time - start) // span
            low = start + at * span
            high = low + span
        counts[at] += 1
